/**
 * Maintenance of a cluster, by one process at a time: deltas are folded on each node by itself, partitions are made and dropped
 * by the coordinator on all of them. A node that is away keeps the others from nothing but new partitions.
 */

import { MINUTES } from '../../counts/levels.ts';
import { isUnavailable, type Sql, type Transaction, unlessLocked } from '../../database/connect.ts';
import { hasConsumers, noteTicks } from '../../feed/ticks.ts';
import { TABLES_OF_APP } from '../../fields/removal.ts';
import { noteUncounted } from '../../fields/uncounted-minutes.ts';
import { DeadRows } from '../../maintenance/dead-rows.ts';
import type { AppRemoval } from '../../maintenance/deleted-apps.ts';
import { type ErasureSlice, eraseIn } from '../../maintenance/erasing.ts';
import { type Folded, FoldPace } from '../../maintenance/folding.ts';
import { removeRowsOfApp } from '../../maintenance/slices.ts';
import { type EveryPlace, maintenanceTasks } from '../../maintenance/steps.ts';
import { KEY_LIFE_MS } from '../../write/inserts.ts';
import {
  FOLDED_TABLES,
  removal as onOneServer,
  removeExpired,
  withCountsLock,
} from '../postgres/app-removal.ts';
import {
  COMMAND_TIMEOUT_MS,
  FoldLock,
  intoCounts,
  type PartitionedServers,
  partitionSteps,
  underCountsLock,
  VACUUM_AFTER_DELTAS,
  waitedInVain,
} from '../postgres/maintenance.ts';
import type { StorageEngine } from '../storage-engine.ts';
import { clusterOf } from './cluster.ts';
import { ClusterFields } from './fields.ts';
import { poolOfApp } from './reads.ts';
import { shardOf } from './shard-schema.ts';
import {
  ByShard,
  changeShards,
  holdShards,
  nodePools,
  onEveryNode,
  poolBeside,
  type ShardGroup,
  shardGroups,
  untilAllAreReached,
} from './shards.ts';
import { writes } from './writes.ts';

/** Moves the deltas of a group of shards into the counts, in one statement, so that every snapshot sees each of them once. */
function foldStatement({ nameOf }: ShardGroup): string {
  return `
    WITH folded AS (
      DELETE FROM ${nameOf('count_deltas')} RETURNING app_id, type_id, bucket, count, fields
    ),
    ${noteUncounted('folded', { apps: true, nameOf: fieldTables(nameOf) })},
    ${noteTicks('SELECT app_id, bucket, count FROM folded', { nameOf, place: `to_regclass('${nameOf('events')}')::oid::bigint` })},
    ${intoCounts(nameOf)}
    SELECT count(*)::float8 AS deltas, (SELECT count(*) FROM new_${MINUTES.name})::float8 AS minutes FROM folded`;
}

/** On its node a field has a state in the place of its declaration. */
export function fieldTables(nameOf: ShardGroup['nameOf']): (table: string) => string {
  return (table) => nameOf(table === 'declared_fields' ? 'field_states' : table);
}

/** Folds the deltas of a group of shards in a transaction that has the lock of counts. */
async function foldIn(tx: Transaction, group: ShardGroup): Promise<Folded> {
  const [result] = await tx.unsafe<Folded[]>(foldStatement(group));
  return result ?? { deltas: 0, minutes: 0 };
}

/** In place of an outcome: the shards have been moved away, or are just being moved. */
const MOVED = 'moved';

/**
 * Changes the counts of a group of shards. The lock of counts comes first: whoever waits for it must not keep shards from being
 * moved, nor a backup from its snapshot.
 * @param waitMs how long it waits for the lock; 0: not at all
 * @returns null where others have the lock
 */
async function changeCounts<T>(
  pool: Sql,
  group: ShardGroup,
  waitMs: number,
  change: (tx: Transaction) => Promise<T>,
): Promise<T | typeof MOVED | null> {
  const outcome = await unlessLocked(async () => ({
    value: await underCountsLock<T | typeof MOVED>(pool, waitMs, async (tx) =>
      (await holdShards(tx, group)) ? await change(tx) : MOVED,
    ),
  }));
  return outcome === null ? MOVED : outcome.value;
}

/** The groups of shards of a node that have deltas. */
async function groupsWithDeltas(pool: Sql): Promise<readonly ShardGroup[]> {
  const groups = await shardGroups(pool);
  if (groups.length === 0) return [];
  const found = await pool.unsafe<{ at: number }[]>(
    groups
      .map((group, at) => `SELECT ${at} AS at WHERE EXISTS (SELECT FROM ${group.nameOf('count_deltas')})`)
      .join(' UNION ALL '),
  );
  return found.flatMap(({ at }) => groups[at] ?? []);
}

/** When the folds of a node are due: it has a lock of counts of its own. */
interface NodeFolds {
  readonly lock: FoldLock;
  readonly pace: FoldPace;
}

/**
 * Folds the deltas of all nodes, as far as their counts and shards are free.
 * @param foldsOf  those of a node
 * @param onFolded called for each group of shards with the number of its deltas
 */
async function foldCluster(
  sql: Sql,
  foldsOf: (pool: Sql) => NodeFolds,
  onFolded: (pool: Sql, table: string, deltas: number) => Promise<void>,
): Promise<void> {
  await onEveryNode(sql, async (pool) => {
    const { lock, pace } = foldsOf(pool);
    if (!pace.isDue && !(await hasConsumers(pool))) return;
    const groups = await groupsWithDeltas(pool);
    await lock.take(async (waitMs) => {
      let deltas = 0;
      let minutes = 0;
      for (const group of groups) {
        const folded = await changeCounts(pool, group, waitMs, (tx) => foldIn(tx, group));
        // The other groups need the same lock.
        if (folded === null) return null;
        if (folded === MOVED) continue;
        deltas += folded.deltas;
        minutes += folded.minutes;
        await onFolded(pool, group.nameOf('count_deltas'), folded.deltas);
      }
      pace.folded({ deltas, minutes });
      return groups.length;
    });
  });
}

/**
 * Changes the counts of every group of shards, wherever it is moved meanwhile. Waits for whoever else changes counts.
 * @throws OperatorError where it has waited in vain
 */
export async function changeAllCounts(
  sql: Sql,
  change: (tx: Transaction, group: ShardGroup) => Promise<unknown>,
): Promise<void> {
  const cluster = clusterOf(sql.pool.database);
  const changed = new Set<string>();
  await untilAllAreReached(async () => {
    const nodes = (await nodePools(sql)).map(async (pool) => {
      for (const group of await shardGroups(pool)) {
        const name = group.nameOf('events');
        if (changed.has(name)) continue;
        const outcome = await changeCounts(pool, group, COMMAND_TIMEOUT_MS, async (tx) => {
          await change(tx, group);
          return name;
        });
        if (outcome === null) throw waitedInVain(COMMAND_TIMEOUT_MS);
        if (outcome === name) changed.add(name);
      }
    });
    // None goes on when this has ended.
    const failed = (await Promise.allSettled(nodes)).find((outcome) => outcome.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    return changed.size >= cluster.places.length;
  });
}

/**
 * Erases a slice on the shards of its app, as on one server.
 * @returns how many events there were
 * @throws OperatorError where it has waited in vain; an error that says so if the node is away
 */
export async function eraseSlice(sql: Sql, slice: ErasureSlice): Promise<number> {
  const { appId } = slice;
  const cluster = clusterOf(sql.pool.database);
  let erased = 0;
  await untilAllAreReached(async () => {
    const pool = await poolOfApp(sql, appId);
    const shard = String(cluster.placeOf(appId)?.shard);
    const group = (await shardGroups(pool)).find((one) => shardOf(one) === shard);
    const outcome =
      group === undefined
        ? MOVED
        : await changeCounts(pool, group, COMMAND_TIMEOUT_MS, (tx) =>
            eraseIn(tx, writes, slice, () => foldIn(tx, group), group.nameOf),
          );
    if (outcome === null) throw waitedInVain(COMMAND_TIMEOUT_MS);
    if (outcome === MOVED) await cluster.renew();
    else erased = outcome;
    return outcome !== MOVED;
  });
  return erased;
}

/** Folds all deltas of all nodes. */
export async function settleCluster(sql: Sql): Promise<void> {
  await changeAllCounts(sql, foldIn);
}

/** The shards of some apps are a place. Those that are being moved are left out. */
const everyGroup: EveryPlace = async (sql, work) => {
  const ofNodes = await onEveryNode(sql, async (pool) => {
    for (const group of await shardGroups(pool)) {
      const isDone = await work({
        sql: pool,
        nameOf: group.nameOf,
        change: (change) => changeShards(pool, group, change),
        changeCounts: async (waitMs, change) => {
          const outcome = await changeCounts(pool, group, waitMs, change);
          return outcome === MOVED ? null : outcome;
        },
      });
      if (!isDone) return false;
    }
    return true;
  });
  return ofNodes.every((isDone) => isDone);
};

export const CLUSTER: PartitionedServers = {
  everyPlace: everyGroup,
  // Settings of a transaction are those of its parts on other nodes, too: no session waits there for a lock either.
  prepare: "SET LOCAL citus.propagate_set_commands = 'local'",
  // A lock on a distributed table is one on each node, where writers take theirs. It cannot leave out its partitions.
  locks: ['events'],
};

/** @param pools of one connection: with each of them one on each node is used */
export const clusterMaintenance: StorageEngine['maintenance'] = (
  { sql, slow },
  settings,
  now,
  judged = now,
) => {
  const folds = new Map<Sql, NodeFolds>();
  const foldsOf = (pool: Sql): NodeFolds => {
    const known = folds.get(pool) ?? { lock: new FoldLock(), pace: new FoldPace(now) };
    folds.set(pool, known);
    return known;
  };
  const deadDeltas = new ByShard<DeadRows>();
  const options = { sql, settings, now, judged };
  const partitions = partitionSteps(options, CLUSTER);
  return maintenanceTasks(options, {
    ...partitions,
    fields: new ClusterFields(sql, now, slow),
    poolOf: (appId) => poolOfApp(sql, appId),
    removal,
    removeExpired,
    withAll: (work) => unlessAway(sql, work),
    first: [
      {
        name: 'fold',
        every: 'second',
        run: () =>
          foldCluster(sql, foldsOf, async (pool, table, deltas) => {
            const dead = deadDeltas.of(
              pool,
              table,
              () => new DeadRows(pool, poolBeside(pool, sql, slow), [table], VACUUM_AFTER_DELTAS),
            );
            dead.deleted(deltas);
            await dead.vacuumIfDue();
          }),
      },
      { name: 'partitions', every: 'ten minutes', run: () => unlessAway(sql, partitions.prepare) },
      {
        name: 'expired keys',
        every: 'ten minutes',
        run: () =>
          everyGroup(sql, async ({ nameOf, change }) => {
            await change(
              (tx) => tx`
                DELETE FROM ${tx(nameOf('idempotency_keys'))} WHERE created_at <= ${new Date(judged() - KEY_LIFE_MS)}`,
            );
            return true;
          }),
      },
    ],
  });
};

/** Does what needs all nodes. While one is away it fails, and is due again in ten minutes: nothing else waits for that. */
async function unlessAway<T>(sql: Sql, task: () => Promise<T>): Promise<T | null> {
  try {
    return await task();
  } catch (error) {
    if (isUnavailable(error) && clusterOf(sql.pool.database).unreachable.length > 0) return null;
    throw error;
  }
}

const ON_COORDINATOR = ['usage_days'];
/** What is on the node of an app, beside its events. */
const ON_NODE = [
  ...FOLDED_TABLES.filter((table) => !ON_COORDINATOR.includes(table)),
  'type_names',
  ...TABLES_OF_APP,
  'field_series',
  'field_states',
];

export const removal: AppRemoval = {
  removeEvents: async (sql, appId, isOver) =>
    await onOneServer.removeEvents(await poolOfApp(sql, appId), appId, isOver),
  removeCounts: async (sql, appId, isOver) =>
    (await removeRowsOfApp(withCountsLock(await poolOfApp(sql, appId)), ON_NODE, appId, isOver)) &&
    (await removeRowsOfApp((work) => sql.begin(work), ON_COORDINATOR, appId, isOver)),
};
