/**
 * Maintenance of a cluster, by one process at a time: deltas are folded on each node by itself, partitions are made and dropped
 * by the coordinator on all of them. A node that is away keeps the others from nothing but new partitions.
 */
import type { Sql, Transaction } from '../connect.ts';
import { DayProfiler } from '../counts/day-profiles.ts';
import { DAY_MS } from '../counts/levels.ts';
import { removeDeletedApps } from '../deleted-apps.ts';
import { KEY_LIFE_MS } from '../expired-keys.ts';
import { noteUncounted } from '../fields/uncounted.ts';
import { DeadRows } from '../maintenance/dead-rows.ts';
import { type MaintenanceTasks, REMOVE_APPS_MS } from '../maintenance/loop.ts';
import {
  DAYS_AHEAD,
  DAYS_BEHIND,
  dropPartition,
  ensurePartitions,
  intoCounts,
  partitionsBefore,
  type RetentionResult,
} from '../postgres/maintenance.ts';
import { hasNoOlderSnapshot, moveBoundary } from '../retention.ts';
import { removal } from './app-removal.ts';
import { ClusterFields } from './fields.ts';
import { poolOfApp } from './reads.ts';
import { changeShards, onEveryNode, type ShardGroup, shardGroups } from './shards.ts';

/** Folded deltas after which their dead rows are vacuumed. */
const VACUUM_AFTER_DELTAS = 2_000;

/** Moves the deltas of a group of shards into the counts, in one statement, so that every snapshot sees each of them once. */
function foldStatement({ nameOf }: ShardGroup): string {
  return `
    WITH folded AS (
      DELETE FROM ${nameOf('count_deltas')}
       WHERE (SELECT pg_try_advisory_xact_lock(hashtext('tidemark counts')))
      RETURNING app_id, type_id, bucket, count, fields
    ),
    ${noteUncounted('folded', { apps: true, nameOf: fieldTables(nameOf) })},
    ${intoCounts(nameOf)}
    SELECT count(*)::float8 AS folded FROM folded`;
}

/** On its node a field has a state in the place of its declaration. */
export function fieldTables(nameOf: ShardGroup['nameOf']): (table: string) => string {
  return (table) => nameOf(table === 'declared_fields' ? 'field_states' : table);
}

/** Folds the deltas of a group of shards. @returns their number */
async function foldGroup(pool: Sql, group: ShardGroup): Promise<number> {
  const folded = await changeShards(pool, group, async (tx: Transaction) => {
    // Dead rows, which the planner does not know of, make nothing but the index bearable.
    const [result] = await tx.unsafe<{ folded: number }[]>(foldStatement(group));
    return result?.folded ?? 0;
  });
  return folded ?? 0;
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

/** Folds all deltas of all nodes. @param onFolded called for each group of shards with the number of its deltas */
export async function foldCluster(
  sql: Sql,
  onFolded: (pool: Sql, table: string, deltas: number) => Promise<void> = async () => undefined,
): Promise<void> {
  await onEveryNode(sql, async (pool) => {
    for (const group of await groupsWithDeltas(pool))
      await onFolded(pool, group.nameOf('count_deltas'), await foldGroup(pool, group));
  });
}

/** Changes every group of shards of every node, one after the other on each. */
export async function changeAllShards(
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
): Promise<RetentionResult> {
  const boundary = await moveBoundary(sql, options);
  await changeAllShards(sql, async (tx, { nameOf }) => {
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
    await tx`DELETE FROM ${tx(nameOf('minute_counts'))} WHERE bucket < ${boundary}::text::timestamptz`;
  });
  const dropped: string[] = [];
  const postponed: string[] = [];
  for (const partition of await partitionsBefore(sql, boundary)) {
    const free = (await nobodyReadsBefore(sql)) && (await dropPartition(sql, partition, ON_ALL_NODES));
    (free ? dropped : postponed).push(partition);
  }
  await clipPartitions(sql);
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

/** Removes rows before the boundary from the partition that it lies in. Nobody reads them. */
async function clipPartitions(sql: Sql): Promise<void> {
  const wide = await sql<{ start: string }[]>`
    SELECT start::text FROM events_partitions, retention WHERE start < readable_from AND finish > readable_from`;
  for (const { start } of wide)
    await changeAllShards(sql, async (tx, { nameOf }) => {
      await tx`
        DELETE FROM ${tx(nameOf('events'))} USING ${tx(nameOf('retention'))} AS retention
         WHERE created_at >= ${start}::text::timestamptz AND created_at < readable_from`;
    });
}

/** @param sql a pool of one connection: with it one on each node is used */
export function clusterMaintenance(
  sql: Sql,
  options: { retentionDays: number; now: () => number },
): MaintenanceTasks {
  const { retentionDays, now } = options;
  const deadDeltas = new Map<string, DeadRows>();
  const profiler = new DayProfiler(sql, now, (appId) => poolOfApp(sql, appId));
  const fields = new ClusterFields(sql, now);
  const prepare = (): Promise<void> =>
    ensurePartitions(sql, now() - DAYS_BEHIND * DAY_MS, now() + DAYS_AHEAD * DAY_MS);
  return {
    fields,
    prepare,
    everySecond: async () => {
      await foldCluster(sql, async (pool, table, deltas) => {
        const dead = deadDeltas.get(table) ?? new DeadRows(pool, table, VACUUM_AFTER_DELTAS);
        deadDeltas.set(table, dead);
        await dead.vacuumAfter(deltas);
      });
      await fields.everySecond();
      await profiler.profileSome();
    },
    everyTenMinutes: async () => {
      await prepare();
      await removeExpiredKeys(sql, now());
      await profiler.look();
      await removeDeletedApps(sql, removal, now, now() + REMOVE_APPS_MS);
      const { dropped } = await applyRetention(sql, { days: retentionDays, now: now() });
      await fields.everyTenMinutes();
      return dropped;
    },
  };
}
