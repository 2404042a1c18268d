/** PostgreSQL without extensions: events in partitions by day, counts in tables that the service folds deltas into. */
import { addOutlived } from '../../backup/catalog.ts';
import { countTable } from '../../counts/levels.ts';
import { movesBesideCounts } from '../../maintenance/days-away.ts';
import { oneServerRoutes } from '../../read/event-reader.ts';
import type { StorageEngine } from '../storage-engine.ts';
import { removal } from './app-removal.ts';
import {
  countPending,
  createPartitions,
  eraseSlice,
  foldCounts,
  postgresMaintenance,
  recountDay,
} from './maintenance.ts';
import { writes } from './writes.ts';

export const postgres: StorageEngine = {
  name: 'postgres',
  snapshots: { locks: true, keepsPlans: true, countsAreExact: true, groupsDeltas: true },
  hasNodes: false,
  routes: oneServerRoutes,
  maintenance: postgresMaintenance,
  removal,
  erase: eraseSlice,
  days: movesBesideCounts,
  writes,
  createPartitions,
  settleCounts: async (sql) => {
    await foldCounts(sql);
  },
  settlesBesideWriters: true,
  recountDay,
  pending: countPending,
  totalsOfAllApps: ({ view }) => view,
  materializedCounts: ({ view }) => view,
  keepsFieldCounts: true,
  unticked: () =>
    'SELECT app_id, bucket FROM pending_deltas UNION ALL SELECT app_id, bucket FROM changed_minutes',
  eventIntervals: 'SELECT start, finish FROM events_partitions WHERE isfinite(start) AND isfinite(finish)',
  // Nothing rewrites a partition.
  tablesToExport: async () => [],
  addCounts: (client, level, copyTo) => addOutlived(client, level, countTable(level), copyTo),
};
