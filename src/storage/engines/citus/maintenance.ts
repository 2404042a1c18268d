/**
 * Maintenance of a cluster, by one process at a time: deltas are folded on each node by itself, partitions are made and dropped
 * by the coordinator on all of them. A node that is away keeps the others from nothing but new partitions.
 */

import { PrefixSumBuilder } from '../../counts/daily-prefix-sums.ts';
import { DAY_MS, MINUTES } from '../../counts/levels.ts';
import { isUnavailable, type Sql, type Transaction } from '../../database/connect.ts';
import { hasConsumers, noteTicks } from '../../feed/ticks.ts';
import { ConsumerUpkeep } from '../../feed/upkeep.ts';
import { TABLES_OF_APP } from '../../fields/removal.ts';
import { noteUncounted } from '../../fields/uncounted-minutes.ts';
import { DeadRows } from '../../maintenance/dead-rows.ts';
import { type AppRemoval, removeDeletedApps } from '../../maintenance/deleted-apps.ts';
import {
  discardProfiles,
  dropEmptyCounts,
  type ErasureSlice,
  eraseRows,
  sumOf,
} from '../../maintenance/erasing.ts';
import { ExpiredRows, REMOVE_ROWS_MS } from '../../maintenance/expired-rows.ts';
import { type Folded, FoldPace } from '../../maintenance/folding.ts';
import { type MaintenanceTasks, REMOVE_APPS_MS, runSteps } from '../../maintenance/loop.ts';
import { removeRowsOfApp } from '../../maintenance/slices.ts';
import { hasNoOlderSnapshot, moveAppBoundaries, moveBoundary } from '../../retention.ts';
import { KEY_LIFE_MS } from '../../write/inserts.ts';
import {
  FOLDED_TABLES,
  removal as onOneServer,
  removeExpired,
  withCountsLock,
} from '../postgres/app-removal.ts';
import {
  COMMAND_TIMEOUT_MS,
  COUNTS_TIMEOUT_MS,
  clip,
  clipOnce,
  DAYS_AHEAD,
  DAYS_BEHIND,
  dropEmptyPartitions,
  dropPartition,
  ExpiredMinutes,
  ensurePartitions,
  expiredParts,
  FoldLock,
  intoCounts,
  partitionsBefore,
  type RetentionResult,
  underCountsLock,
  waitedInVain,
} from '../postgres/maintenance.ts';
import type { MaintenancePools } from '../storage-engine.ts';
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
  unlessMoving,
  untilAllAreReached,
} from './shards.ts';
import { writes } from './writes.ts';

/** Folded deltas after which their dead rows are vacuumed. */
const VACUUM_AFTER_DELTAS = 2_000;

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
  const outcome = await unlessMoving(async () => ({
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
 * @param waitMs how long it waits for the lock of counts
 * @throws OperatorError where it has waited in vain
 */
export async function changeAllCounts(
  sql: Sql,
  change: (tx: Transaction, group: ShardGroup) => Promise<unknown>,
  waitMs = COMMAND_TIMEOUT_MS,
): Promise<void> {
  const cluster = clusterOf(sql.pool.database);
  const changed = new Set<string>();
  await untilAllAreReached(async () => {
    const nodes = (await nodePools(sql)).map(async (pool) => {
      for (const group of await shardGroups(pool)) {
        const name = group.nameOf('events');
        if (changed.has(name)) continue;
        const outcome = await changeCounts(pool, group, waitMs, async (tx) => {
          await change(tx, group);
          return name;
        });
        if (outcome === null) throw waitedInVain(waitMs);
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
        : await changeCounts(pool, group, COMMAND_TIMEOUT_MS, async (tx) => {
            const { nameOf } = group;
            const minutes = await eraseRows(tx, writes, slice, nameOf);
            if (slice.payloads === null && minutes.length > 0) {
              await discardProfiles(tx, appId, minutes, nameOf);
              await foldIn(tx, group);
              await dropEmptyCounts(tx, appId, minutes, nameOf);
            }
            return sumOf(minutes);
          });
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

/** Changes every group of shards of every node, one after the other on each. Those that are being moved are left out. */
async function changeAllShards(
  sql: Sql,
  change: (tx: Transaction, group: ShardGroup) => Promise<void>,
): Promise<void> {
  await onEveryNode(sql, async (pool) => {
    for (const group of await shardGroups(pool))
      await changeShards(pool, group, async (tx) => {
        await change(tx, group);
        return true;
      });
  });
}

/** Removes expired Idempotency-Keys. @param now milliseconds since 1970 */
async function removeExpiredKeys(sql: Sql, now: number): Promise<void> {
  await changeAllShards(sql, async (tx, { nameOf }) => {
    await tx`DELETE FROM ${tx(nameOf('idempotency_keys'))} WHERE created_at <= ${new Date(now - KEY_LIFE_MS)}`;
  });
}

/**
 * Moves the retention boundary on all nodes, and removes what an earlier call has made unreadable. Counts by quarter-hour and
 * coarser stay.
 */
export async function applyRetention(
  sql: Sql,
  options: { days: number; now: number },
  expiredMinutes = new ExpiredMinutes(),
): Promise<RetentionResult> {
  const boundary = await moveBoundary(sql, options);
  await expiredMinutes.remove(sql, boundary, async (...interval) => {
    const removed = await onEveryNode(sql, async (pool) => {
      for (const group of await shardGroups(pool)) {
        // Not while a fold adds to the same minutes: the two could deadlock.
        const underLock = async (work: (tx: Transaction) => Promise<unknown>): Promise<boolean> => {
          const outcome = await changeCounts(pool, group, COUNTS_TIMEOUT_MS, work);
          return outcome !== null && outcome !== MOVED;
        };
        const minutes = group.nameOf('minute_counts');
        if (!(await expiredMinutes.removeFrom(pool, minutes, interval, underLock))) return false;
      }
      return true;
    });
    return removed.every((isRemoved) => isRemoved);
  });
  const dropped: string[] = [];
  const postponed: string[] = [];
  for (const partition of await partitionsBefore(sql, boundary)) {
    const free =
      (await nobodyReadsBefore(sql)) && (await dropPartition(sql, partition, { prepare: ON_ALL_NODES }));
    (free ? dropped : postponed).push(partition);
  }
  return { dropped, postponed };
}

/** Settings of a transaction are those of its parts on other nodes, too: no session waits there for a lock either. */
const ON_ALL_NODES = "SET LOCAL citus.propagate_set_commands = 'local'";

/** Whether no snapshot of any node is older than the boundary. */
async function nobodyReadsBefore(sql: Sql): Promise<boolean> {
  const free = await onEveryNode(sql, async (pool) => {
    const [group] = await shardGroups(pool);
    return group === undefined || (await hasNoOlderSnapshot(pool, group.nameOf('retention')));
  });
  return free.every((isFree) => isFree);
}

/** Whether no snapshot of any node is older than the boundaries of apps. */
async function nobodyReadsRemoved(sql: Sql): Promise<boolean> {
  const free = await onEveryNode(sql, async (pool) => {
    for (const group of await shardGroups(pool))
      if (!(await hasNoOlderSnapshot(pool, group.nameOf('app_boundaries')))) return false;
    return true;
  });
  return free.every((isFree) => isFree);
}

/** A lock on a distributed table is one on each node, where writers take theirs. It cannot leave out its partitions. */
const LOCKS_OF_CLUSTER: readonly string[] = ['events'];

/** Removes rows before the boundary from the partition that it lies in. Nobody reads them. @returns how many were removed */
export async function clipPartitions(sql: Sql): Promise<number> {
  let removed = 0;
  for (const part of await expiredParts(sql))
    await onEveryNode(sql, async (pool) => {
      for (const group of await shardGroups(pool)) {
        const clipped = await clip(
          async () =>
            (await changeShards(pool, group, (tx) => clipOnce(tx, group.nameOf('events'), part))) ?? 0,
        );
        removed += clipped;
      }
    });
  return removed;
}

/** @param pools of one connection: with each of them one on each node is used */
export function clusterMaintenance(
  { sql, slow }: MaintenancePools,
  options: {
    retentionDays: number;
    reachMs: number;
    now: () => number;
    judged?: (() => number) | undefined;
  },
): MaintenanceTasks {
  const { retentionDays, reachMs, now, judged = now } = options;
  const expiredMinutes = new ExpiredMinutes();
  const expiredRows = new ExpiredRows(
    sql,
    async (_, part, isOver) => await removeExpired(await poolOfApp(sql, part.appId), part, isOver),
    now,
  );
  const folds = new Map<Sql, NodeFolds>();
  const foldsOf = (pool: Sql): NodeFolds => {
    const known = folds.get(pool) ?? { lock: new FoldLock(), pace: new FoldPace(now) };
    folds.set(pool, known);
    return known;
  };
  const deadDeltas = new ByShard<DeadRows>();
  const profiler = new PrefixSumBuilder(sql, now, (appId) => poolOfApp(sql, appId));
  const fields = new ClusterFields(sql, now, slow);
  const consumers = new ConsumerUpkeep(sql, reachMs, now, judged, async (prune) => {
    await changeAllShards(sql, async (tx, { nameOf }) => prune(tx, nameOf));
  });
  const prepare = (): Promise<void> =>
    ensurePartitions(sql, now() - DAYS_BEHIND * DAY_MS, now() + DAYS_AHEAD * DAY_MS);
  return {
    fields,
    consumers,
    prepare,
    everySecond: () =>
      runSteps({
        fold: async () => {
          await foldCluster(sql, foldsOf, async (pool, table, deltas) => {
            const dead = deadDeltas.of(
              pool,
              table,
              () => new DeadRows(pool, poolBeside(pool, sql, slow), [table], VACUUM_AFTER_DELTAS),
            );
            dead.deleted(deltas);
            await dead.vacuumIfDue();
          });
        },
        fields: () => fields.everySecond(),
        consumers: () => unlessAway(sql, () => consumers.look()),
        profiles: () => profiler.profileSome(),
        'expired rows': () => expiredRows.removeSome(now() + REMOVE_ROWS_MS),
      }),
    everyTenMinutes: async () => {
      let dropped: readonly string[] = [];
      await runSteps({
        partitions: () => unlessAway(sql, prepare),
        'expired keys': () => removeExpiredKeys(sql, judged()),
        profiles: () => unlessAway(sql, () => profiler.look()),
        'deleted apps': () => removeDeletedApps(sql, removal, now, now() + REMOVE_APPS_MS, judged()),
        retention: async () => {
          const options = { days: retentionDays, now: judged() };
          const applied = await unlessAway(sql, () => applyRetention(sql, options, expiredMinutes));
          dropped = applied?.dropped ?? [];
        },
        'retained partitions': () => clipPartitions(sql),
        'retention of apps': async () => {
          await unlessAway(sql, async () => {
            await moveAppBoundaries(sql, judged());
            await expiredRows.look();
          });
          await expiredRows.removeSome(now() + REMOVE_APPS_MS);
          const options = { prepare: ON_ALL_NODES, locks: LOCKS_OF_CLUSTER };
          const empty = await unlessAway(sql, () =>
            dropEmptyPartitions(sql, () => nobodyReadsRemoved(sql), options),
          );
          dropped = [...dropped, ...(empty ?? [])];
        },
        fields: () => fields.everyTenMinutes(),
      });
      return dropped;
    },
  };
}

/** Does what needs all nodes. While one is away it fails, and is due again in ten minutes: nothing else waits for that. */
async function unlessAway<T>(sql: Sql, task: () => Promise<T>): Promise<T | null> {
  try {
    return await task();
  } catch (error) {
    if (isUnavailable(error) && clusterOf(sql.pool.database).unreachable.length > 0) return null;
    throw error;
  }
}

/** What is on the coordinator. */
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
