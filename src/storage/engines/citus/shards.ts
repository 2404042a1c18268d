/**
 * Work on the shards of a node as on the ordinary tables that they are: all apps of a shard in one statement, with all of SQL.
 * Only what is on the node is seen, and no other node is needed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { OperatorError } from '../../../errors.ts';
import {
  isUnavailable,
  poolOnNode,
  type Sql,
  type Transaction,
  unlessLocked,
} from '../../database/connect.ts';
import { clusterOf } from './cluster.ts';

/** The shards of all tables with the same apps, on one node. */
export interface ShardGroup {
  /** The name of a table's shard. */
  readonly nameOf: (table: string) => string;
  readonly shards: readonly string[];
  /** The names of all of them. */
  readonly tables: readonly string[];
  /** The names of the tables, also of those that every node has. */
  readonly names: readonly string[];
}

/** Something that is kept for each shard while it is on one node, for as long as it is there. */
export class ByShard<T> {
  readonly #kept = new Map<string, { readonly pool: Sql; readonly value: T }>();
  readonly #onMoved: (value: T) => void;

  /** @param onMoved called with what was kept of a shard that is on another node now */
  constructor(onMoved: (value: T) => void = () => undefined) {
    this.#onMoved = onMoved;
  }

  /**
   * @param pool  on the node of the shard
   * @param shard its number or name, which it keeps when it is moved
   */
  of(pool: Sql, shard: string, make: () => T): T {
    const known = this.#kept.get(shard);
    if (known?.pool === pool) return known.value;
    if (known !== undefined) this.#onMoved(known.value);
    const value = make();
    this.#kept.set(shard, { pool, value });
    return value;
  }

  /** What is kept of all shards. */
  values(): T[] {
    return [...this.#kept.values()].map(({ value }) => value);
  }
}

/** The nodes that have shards, each with its pool; those that are away are left out. */
export async function nodePools(sql: Sql): Promise<readonly Sql[]> {
  const cluster = clusterOf(sql.pool.database);
  await cluster.renew(sql);
  const present = cluster.places.filter(({ node }) => !node.isUnreachable);
  return [
    ...new Set(present.map(({ isCoordinator, node }) => (isCoordinator ? sql : poolOnNode(sql, node)))),
  ];
}

/**
 * The pool of another purpose on the same node.
 * @param pool  on the node, by `sql`
 * @param other like `sql` a pool on the coordinator
 */
export function poolBeside(pool: Sql, sql: Sql, other: Sql): Sql {
  if (pool === sql) return other;
  const { places } = clusterOf(sql.pool.database);
  const place = places.find(({ isCoordinator, node }) => !isCoordinator && poolOnNode(sql, node) === pool);
  return place === undefined ? pool : poolOnNode(other, place.node);
}

/** Does something on every node at once. A node that is away is left out: what is due there is done when it is back. */
export async function onEveryNode<T>(sql: Sql, work: (pool: Sql) => Promise<T>): Promise<T[]> {
  const outcomes = await Promise.allSettled((await nodePools(sql)).map(work));
  const done: T[] = [];
  for (const outcome of outcomes) {
    if (outcome.status === 'fulfilled') done.push(outcome.value);
    else if (!isUnavailable(outcome.reason)) throw outcome.reason;
  }
  return done;
}

/** Rounds of a command over all groups of shards, and the time between two. */
const MOST_ROUNDS = 60;
const RETRY_MS = 1_000;

/**
 * Repeats a round of work until it has reached all groups of shards, some of which are being moved, or on nodes that do not answer.
 * @param round whether all are done
 * @throws OperatorError if they are not after a minute
 */
export async function untilAllAreReached(round: () => Promise<boolean>): Promise<void> {
  for (let rounds = 1; rounds <= MOST_ROUNDS; rounds += 1) {
    if (await round()) return;
    await sleep(RETRY_MS);
  }
  throw new OperatorError(
    'Shards of the cluster were being moved for too long, or a node does not answer; run the command again after that.',
  );
}

export interface ShardRow {
  readonly name: string;
  readonly shard: string;
  readonly least: string | null;
}

/** A SELECT of the shards on a node: of tables that have all apps' rows, and of those that every node has. */
export const SHARD_ROWS = `
    SELECT relname AS name, shardid::text AS shard, shardminvalue AS least
      FROM pg_dist_shard
      JOIN pg_dist_placement USING (shardid)
      JOIN pg_class ON pg_class.oid = logicalrelid AND NOT relispartition
      JOIN pg_dist_partition USING (logicalrelid)
     WHERE groupid = (SELECT groupid FROM pg_dist_local_group) AND relnamespace = current_schema()::regnamespace
       AND (shardminvalue IS NULL
            OR colocationid = (SELECT colocationid FROM pg_dist_partition WHERE logicalrelid = 'events'::regclass))`;

/** The groups of shards on the node of a pool. */
export async function shardGroups(pool: Sql): Promise<ShardGroup[]> {
  return groupsOf(await pool.unsafe<ShardRow[]>(SHARD_ROWS));
}

export function groupsOf(rows: readonly ShardRow[]): ShardGroup[] {
  const everywhere = new Map(
    rows.filter(({ least }) => least === null).map(({ name, shard }) => [name, shard]),
  );
  const groups = new Map<string, Map<string, string>>();
  for (const { name, shard, least } of rows) {
    if (least === null) continue;
    const group = groups.get(least) ?? new Map<string, string>();
    groups.set(least, group.set(name, shard));
  }
  return [...groups.values()].map((group) => ({
    nameOf: (table) => `${table}_${group.get(table) ?? everywhere.get(table) ?? 'missing'}`,
    shards: [...group.values()],
    tables: [...group].map(([table, shard]) => `${table}_${shard}`),
    names: [...group.keys(), ...everywhere.keys()],
  }));
}

/** How long a shard that is being moved is waited for. */
const LOCK_TIMEOUT_MS = 1_000;
/** ShareLock: as every write takes it. Whoever moves the shards waits for its end, and keeps it out when they leave. */
export const SHARE_LOCK = 5;

/**
 * Keeps the shards of a group where they are until the end of a transaction on their node.
 * @returns false if they have been moved away
 * @throws lock_not_available while they are being moved
 */
export async function holdShards(tx: Transaction, { shards }: ShardGroup): Promise<boolean> {
  await tx.unsafe(
    `SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS};
     SET LOCAL citus.enable_manual_changes_to_shards = on;
     SELECT lock_shard_metadata(${SHARE_LOCK}, '{${shards.join()}}'::bigint[])`,
  );
  const here = await tx`
    SELECT FROM pg_dist_placement
     WHERE shardid = ANY(${shards}::text[]::bigint[]) AND groupid = (SELECT groupid FROM pg_dist_local_group)`;
  return here.length === shards.length;
}

/**
 * Changes shards of a group in one transaction on their node.
 * @returns null if they have been moved away, or are just being moved
 */
export async function changeShards<T>(
  pool: Sql,
  group: ShardGroup,
  change: (tx: Transaction) => Promise<T>,
): Promise<T | null> {
  return await unlessLocked(() =>
    pool.begin('isolation level read committed', async (tx) =>
      (await holdShards(tx, group)) ? await change(tx) : null,
    ),
  );
}
