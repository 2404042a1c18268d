/**
 * Declared fields in a cluster. Declarations are on the coordinator, where writers and settings read them. What is counted is beside the
 * events of the app, with a state of the field: maintenance brings declarations and removals there, and progress back.
 *
 * Whatever must not be seen too early has an order. A field is on its node before its counting begins there, as
 * soon as it has a generation. A removed one is counted on until its node knows that it is removed: until then its counts are read.
 */
import { grouped } from '../../../base/grouped.ts';
import { errorCode, isUnavailable, SQLSTATE, type Sql, type Transaction } from '../../database/connect.ts';
import {
  COUNT_MS,
  type FieldShards,
  type FieldStats,
  FieldUpkeep,
  giveGenerations,
} from '../../fields/upkeep.ts';
import { clusterOf } from './cluster.ts';
import {
  dropOldSchemas,
  makeShardSchema,
  NoShardSchema,
  ShardsElsewhere,
  shardOf,
  shardsAsDatabase,
} from './shard-schema.ts';
import {
  ByShard,
  onEveryNode,
  poolBeside,
  type ShardGroup,
  shardGroups,
  untilAllAreReached,
} from './shards.ts';

/** How far a field is on the node of its app. */
interface FieldState {
  readonly id: number;
  readonly completeFrom: Date | null;
  readonly backfill: boolean;
  readonly isRemoved: boolean;
  readonly knownValues: number;
  readonly fullSince: Date | null;
}

/** A field as it is declared, with what is known of its state. */
interface Declaration extends FieldState {
  readonly appId: number;
  readonly typeId: number | null;
  readonly path: string;
  readonly kind: string;
  /** The other path; empty: none. */
  readonly by: string;
  /** 0: its counting may not begin yet. */
  readonly generation: number;
}

interface FieldGroup extends FieldShards {
  readonly shard: string;
  readonly states: readonly FieldState[];
}

/** What is to be changed in a group of shards. */
interface Changes {
  readonly added: Declaration[];
  readonly filled: number[];
  readonly removed: number[];
}

export class ClusterFields implements FieldStats {
  readonly #sql: Sql;
  readonly #vacuums: Sql;
  readonly #now: () => number;
  readonly #upkeeps = new ByShard<FieldUpkeep>(({ others }) => {
    this.#othersBefore += others;
  });
  /** Events that were counted as "other" in shards that have been moved since. */
  #othersBefore = 0;
  /** The upkeeps of the last round. */
  #current: readonly FieldUpkeep[] = [];

  /**
   * @param sql     a pool of one connection: with it one on each node is used
   * @param vacuums a pool like `sql`, on which a VACUUM keeps nothing waiting
   */
  constructor(sql: Sql, now: () => number, vacuums = sql) {
    this.#sql = sql;
    this.#now = now;
    this.#vacuums = vacuums;
  }

  get waitingSeconds(): number {
    return Math.max(0, ...this.#current.map(({ waitingSeconds }) => waitingSeconds));
  }

  get uncountedMinutes(): number {
    return this.#current.reduce((sum, { uncountedMinutes }) => sum + uncountedMinutes, 0);
  }

  get others(): number {
    return this.#upkeeps.values().reduce((sum, { others }) => sum + others, this.#othersBefore);
  }

  async everySecond(): Promise<void> {
    const sql = this.#sql;
    const { isUsed, hasNew } = await lookForFields(sql);
    // An installation without fields asks nothing else.
    if (!isUsed) return;
    if (hasNew) await giveGenerations(sql);
    // States first: of what has a state and is not declared any more, the declaration is gone for good.
    const groups = await groupsOfNodes(sql);
    const { declared, boundary } = await readDeclarations(sql);
    const cluster = clusterOf(sql.pool.database);
    const ofShard = grouped(declared, ({ appId }) => String(cluster.placeOf(appId)?.shard ?? ''));
    const worked = groups.map((group) => {
      const ofGroup = ofShard.get(group.shard) ?? [];
      return { group, changes: changesOf(group.states, ofGroup, boundary), ofGroup };
    });
    for (const { group, ofGroup } of worked) await bringBack(sql, group.states, ofGroup, boundary);
    const busy = worked.filter(({ group, changes }) => group.states.length + changes.added.length > 0);
    this.#current = busy.map(({ group }) => this.#upkeepOf(group));
    await eachGroup(sql, busy, async ({ group, changes }, countMs) => {
      if (changes.added.length + changes.filled.length + changes.removed.length > 0)
        await group.sql.begin('isolation level read committed', (tx) => apply(tx, changes));
      await this.#upkeepOf(group).everySecond(0, countMs);
    });
  }

  async everyTenMinutes(): Promise<void> {
    if (!(await lookForFields(this.#sql)).isUsed) return;
    const groups = (await groupsOfNodes(this.#sql)).filter(({ states }) => states.length > 0);
    await eachGroup(
      this.#sql,
      groups.map((group) => ({ group })),
      ({ group }) => this.#upkeepOf(group).everyTenMinutes(),
    );
    await onEveryNode(this.#sql, dropOldSchemas);
    // It may have had shards before.
    await dropOldSchemas(this.#sql);
  }

  #upkeepOf(group: FieldGroup): FieldUpkeep {
    return this.#upkeeps.of(
      group.pool,
      group.shard,
      () => new FieldUpkeep(group, this.#now, poolBeside(group.pool, this.#sql, this.#vacuums)),
    );
  }
}

/**
 * Does something for every group of shards that has fields, on all nodes at once and one after the other on each; wherever they are
 * moved meanwhile.
 * @param work whether it was done: it is to be tried again where others hold the locks
 * @throws OperatorError where a node does not answer, or shards are moved, for too long
 */
export async function forEachFieldGroup(
  sql: Sql,
  work: (group: FieldGroup) => Promise<boolean>,
): Promise<void> {
  const cluster = clusterOf(sql.pool.database);
  const done = new Set<string>();
  await untilAllAreReached(async () => {
    const seen = await groupsOfNodes(sql);
    const left = seen.filter(({ shard, states }) => states.length > 0 && !done.has(shard));
    await eachGroup(
      sql,
      left.map((group) => ({ group })),
      async ({ group }) => {
        if (await work(group)) done.add(group.shard);
      },
    );
    // A node that does not answer has shown none of its groups.
    return seen.length >= cluster.places.length && left.every(({ shard }) => done.has(shard));
  });
}

/** Whether any app has, or had, a field, and whether some have no generation yet. */
async function lookForFields(sql: Sql): Promise<{ readonly isUsed: boolean; readonly hasNew: boolean }> {
  const [row] = await sql<{ isUsed: boolean; hasNew: boolean }[]>`
    SELECT generation > 0 OR EXISTS (SELECT FROM declared_fields) AS "isUsed",
           EXISTS (SELECT FROM declared_fields AS field WHERE field.generation = 0 AND removed_at IS NULL) AS "hasNew"
      FROM field_generation`;
  return row ?? { isUsed: false, hasNew: false };
}

/** The groups of shards of all nodes that answer. */
async function groupsOfNodes(sql: Sql): Promise<FieldGroup[]> {
  const ofNodes = await onEveryNode(sql, async (pool) => {
    const groups = await shardGroups(pool);
    const states = await readStates(pool, groups);
    return groups.map((group, index): FieldGroup => {
      const shard = shardOf(group);
      const ofGroup = states.filter(({ at }) => at === index);
      return { sql: shardsAsDatabase(pool, shard), pool, nameOf: group.nameOf, shard, states: ofGroup };
    });
  });
  return ofNodes.flat();
}

async function readStates(
  pool: Sql,
  groups: readonly ShardGroup[],
): Promise<readonly (FieldState & { readonly at: number })[]> {
  if (groups.length === 0) return [];
  return await pool.unsafe<(FieldState & { at: number })[]>(
    groups
      .map(
        ({ nameOf }, at) => `
      SELECT ${at} AS at, id, complete_from AS "completeFrom", backfill, removed_at IS NOT NULL AS "isRemoved",
             known_values AS "knownValues", full_since AS "fullSince" FROM ${nameOf('field_states')}`,
      )
      .join(' UNION ALL '),
  );
}

async function readDeclarations(
  sql: Sql,
): Promise<{ readonly declared: readonly Declaration[]; readonly boundary: Date }> {
  const [declared, [retention]] = await Promise.all([
    sql<Declaration[]>`
      SELECT id, app_id AS "appId", type_id AS "typeId", path, kind, by_path AS by, generation, complete_from AS "completeFrom", backfill,
             removed_at IS NOT NULL AS "isRemoved", known_values AS "knownValues", full_since AS "fullSince"
        FROM declared_fields ORDER BY id`,
    sql<{ boundary: Date }[]>`SELECT greatest(readable_from, to_timestamp(0)) AS boundary FROM retention`,
  ]);
  return { declared, boundary: retention?.boundary ?? new Date(0) };
}

/** Whether a field is complete for all events that can be read. */
function isWhole({ completeFrom }: FieldState, boundary: Date): boolean {
  return completeFrom !== null && completeFrom <= boundary;
}

/** @param declared those of the group's apps */
function changesOf(states: readonly FieldState[], declared: readonly Declaration[], boundary: Date): Changes {
  const known = new Map(states.map((state) => [state.id, state]));
  const kept = new Set(declared.filter(({ isRemoved }) => !isRemoved).map(({ id }) => id));
  const isToFill = ({ id, backfill }: Declaration): boolean => {
    const state = known.get(id);
    return backfill && state !== undefined && !state.backfill && !isWhole(state, boundary);
  };
  return {
    added: declared.filter(({ id, generation, isRemoved }) => !isRemoved && generation > 0 && !known.has(id)),
    filled: declared.filter((field) => kept.has(field.id) && isToFill(field)).map(({ id }) => id),
    removed: states.filter(({ id, isRemoved }) => !isRemoved && !kept.has(id)).map(({ id }) => id),
  };
}

/** Changes what a group of shards knows of fields. */
async function apply(tx: Transaction, { added, filled, removed }: Changes): Promise<void> {
  for (const { id, appId, typeId, path, kind, by, generation, backfill } of added)
    await tx`
      INSERT INTO declared_fields (app_id, id, type_id, path, kind, by_path, generation, backfill)
      SELECT ${appId}::integer, ${id}::integer, ${typeId}::integer, ${path}::text, ${kind}::text, ${by}::text, ${generation}::integer, ${backfill}::boolean
       WHERE NOT EXISTS (SELECT FROM declared_fields WHERE id = ${id})`;
  if (filled.length > 0) await tx`UPDATE declared_fields SET backfill = true WHERE id = ANY(${filled})`;
  if (removed.length > 0) await tx`UPDATE declared_fields SET removed_at = now() WHERE id = ANY(${removed})`;
}

/** Tells the coordinator how far the fields of a group are. @param declared those of the group's apps */
async function bringBack(
  sql: Sql,
  states: readonly FieldState[],
  declared: readonly Declaration[],
  boundary: Date,
): Promise<void> {
  const known = new Map(states.map((state) => [state.id, state]));
  for (const field of declared) {
    const { id, isRemoved } = field;
    const state = known.get(id);
    if (state === undefined) {
      // Nothing of it is left.
      if (isRemoved) await sql`DELETE FROM declared_fields WHERE id = ${id} AND removed_at IS NOT NULL`;
    } else if (!isRemoved && (!isSame(field, state) || (field.backfill && isWhole(state, boundary)))) {
      const { completeFrom, knownValues, fullSince } = state;
      // Should it just have been asked for again, there is nothing left to fill.
      await sql`
        UPDATE declared_fields
           SET complete_from = ${completeFrom}, known_values = ${knownValues}, full_since = ${fullSince},
               backfill = backfill AND ${!isWhole(state, boundary)}
         WHERE id = ${id}`;
    }
  }
}

function isSame(a: FieldState, b: FieldState): boolean {
  return (
    a.completeFrom?.getTime() === b.completeFrom?.getTime() &&
    a.knownValues === b.knownValues &&
    a.fullSince?.getTime() === b.fullSince?.getTime()
  );
}

/**
 * Does something for groups of shards: for those of all nodes at once, one after the other on each. What is just being moved, or
 * is on a node that is away, is left out.
 */
async function eachGroup<Item extends { readonly group: FieldGroup }>(
  sql: Sql,
  items: readonly Item[],
  work: (item: Item, countMs: number) => Promise<void>,
): Promise<void> {
  const pools = [...new Set(items.map(({ group }) => group.pool))];
  const outcomes = await Promise.allSettled(
    pools.map(async (pool) => {
      const ofNode = items.filter(({ group }) => group.pool === pool);
      const countMs = COUNT_MS / ofNode.length;
      for (const item of ofNode) await onShards(sql, item.group, () => work(item, countMs));
    }),
  );
  for (const outcome of outcomes)
    if (outcome.status === 'rejected' && !isUnavailable(outcome.reason)) throw outcome.reason;
}

/** Makes the schema of the shards where it is missing. */
async function onShards(sql: Sql, { pool, shard }: FieldGroup, work: () => Promise<void>): Promise<void> {
  try {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof NoShardSchema)) throw error;
      await makeShardSchema(sql, pool, shard);
      await work();
    }
  } catch (error) {
    if (!(error instanceof ShardsElsewhere) && errorCode(error) !== SQLSTATE.lockNotAvailable) throw error;
  }
}
