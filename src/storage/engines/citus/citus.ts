/** A Citus cluster: events and counts distributed by app over its nodes, everything else on its coordinator. */
import { countsOf, HOUR_MS } from '../../counts/levels.ts';
import { createPartitions } from '../postgres/maintenance.ts';
import { postgres } from '../postgres/postgres.ts';
import type { StorageEngine } from '../storage-engine.ts';
import { removal } from './app-removal.ts';
import { closeNodes } from './closing.ts';
import { clusterOf } from './cluster.ts';
import { clusterMaintenance, settleCluster } from './maintenance.ts';
import { clusterRoutes, placeOf, poolOfApp } from './reads.ts';
import { compareApps, recountDayOfCluster, recountFieldsOfCluster } from './recount.ts';
import { beginClusterSnapshot } from './snapshot.ts';
import { strayRows } from './stray-rows.ts';
import { writes } from './writes.ts';

export const citus: StorageEngine = {
  name: 'citus',
  snapshots: { locks: false, keepsPlans: false, isExact: true },
  hasNodes: true,
  nodesOf: clusterOf,
  poolOfApp,
  routes: clusterRoutes,
  placeOf,
  maintenance: ({ sql }, { RETENTION_DAYS, CONSUMER_REACH_HOURS }, now) =>
    clusterMaintenance(sql, {
      retentionDays: RETENTION_DAYS,
      reachMs: CONSUMER_REACH_HOURS * HOUR_MS,
      now,
    }),
  removal,
  writes,
  createPartitions,
  settleCounts: (sql) => settleCluster(sql),
  settlesBesideWriters: true,
  recountDay: recountDayOfCluster,
  recountFields: recountFieldsOfCluster,
  unsettled: async (sql) => {
    const [row] = await sql<{ waiting: number }[]>`SELECT count(*)::float8 AS waiting FROM count_deltas`;
    return row?.waiting ?? 0;
  },
  strayRows,
  compareApps,
  totalsOfAllApps: ({ name, ms }) => `(SELECT app_id, type_id, bucket, count FROM ${countsOf(name)}
     UNION ALL SELECT app_id, 0, date_bin('${ms} ms', bucket, 'epoch'), count FROM count_deltas)`,
  settledCounts: ({ name }) => countsOf(name),
  closeNodes,
  eventIntervals: 'SELECT start, finish FROM events_partitions WHERE isfinite(start) AND isfinite(finish)',
  beginSnapshot: beginClusterSnapshot,
  keepsFieldCounts: false,
  tablesToExport: async () => [],
  // In one transaction with rows of a table that every node has.
  restoreSettings: "SET LOCAL citus.multi_shard_modify_mode = 'sequential'",
  addCounts: postgres.addCounts,
};
