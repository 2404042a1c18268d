/** A Citus cluster: events and counts distributed by app over its nodes, everything else on its coordinator. */

import { countTable } from '../../counts/levels.ts';
import type { Sql } from '../../database/connect.ts';
import { movesBesideCounts } from '../../maintenance/days-away.ts';
import { createPartitions } from '../postgres/maintenance.ts';
import { postgres } from '../postgres/postgres.ts';
import type { StorageEngine } from '../storage-engine.ts';
import { clusterOf } from './cluster.ts';
import { clusterMaintenance, eraseSlice, removal, settleCluster } from './maintenance.ts';
import { clusterRoutes, placeOf, poolOfApp, readFieldsOfApp } from './reads.ts';
import { compareApps, recountDayOfCluster, recountFieldsOfCluster } from './recount.ts';
import { nodePools } from './shards.ts';
import { beginClusterSnapshot } from './snapshot.ts';
import { strayRows } from './stray-rows.ts';
import { writes } from './writes.ts';

export const citus: StorageEngine = {
  name: 'citus',
  snapshots: { locks: false, keepsPlans: false, countsAreExact: true, groupsDeltas: false },
  hasNodes: true,
  nodesOf: clusterOf,
  routes: clusterRoutes,
  placeOf,
  maintenance: clusterMaintenance,
  removal,
  erase: eraseSlice,
  days: {
    takeAway: async (sql, day) => await movesBesideCounts.takeAway(await poolOfApp(sql, day.appId), day),
    bringBack: async (sql, day) => await movesBesideCounts.bringBack(await poolOfApp(sql, day.appId), day),
  },
  atFields: readFieldsOfApp,
  writes,
  createPartitions,
  settleCounts: (sql) => settleCluster(sql),
  settlesBesideWriters: true,
  recountDay: recountDayOfCluster,
  recountFields: recountFieldsOfCluster,
  pending: async (sql) => {
    const [row] = await sql<{ waiting: number }[]>`SELECT count(*)::float8 AS waiting FROM count_deltas`;
    return row?.waiting ?? 0;
  },
  strayRows,
  compareApps,
  totalsOfAllApps: ({ name, ms }) => `(SELECT app_id, type_id, bucket, count FROM ${countTable(name)}
     UNION ALL SELECT app_id, 0, date_bin('${ms} ms', bucket, 'epoch'), count FROM count_deltas)`,
  materializedCounts: ({ name }) => countTable(name),
  closeNodes,
  eventIntervals: 'SELECT start, finish FROM events_partitions WHERE isfinite(start) AND isfinite(finish)',
  beginSnapshot: beginClusterSnapshot,
  keepsFieldCounts: false,
  unticked: (nameOf) =>
    `SELECT app_id, bucket FROM ${nameOf('count_deltas')} UNION ALL SELECT app_id, bucket FROM ${nameOf('changed_minutes')}`,
  tablesToExport: async () => [],
  // In one transaction with rows of a table that every node has.
  restoreSettings: "SET LOCAL citus.multi_shard_modify_mode = 'sequential'",
  addCounts: postgres.addCounts,
};

/**
 * Makes new sessions of the nodes beside the coordinator read-only, or takes that back.
 * @returns the pools of these nodes, whose old sessions go on as before
 */
export async function closeNodes(sql: Sql, isClosed: boolean): Promise<readonly Sql[]> {
  const pools = (await nodePools(sql)).filter((pool) => pool !== sql);
  for (const pool of pools)
    await pool.begin('isolation level read committed read write', async (tx) => {
      await tx`SET LOCAL citus.enable_ddl_propagation = off`;
      const [database] = await tx<{ name: string }[]>`SELECT quote_ident(current_database()) AS name`;
      const change = isClosed
        ? 'SET default_transaction_read_only = on'
        : 'RESET default_transaction_read_only';
      await tx.unsafe(`ALTER DATABASE ${database?.name ?? ''} ${change}`);
    });
  return pools;
}
