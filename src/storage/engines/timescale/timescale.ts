/** TimescaleDB: events in a hypertable with a columnstore, counts in a hierarchy of continuous aggregates. */
import { addOutlived } from '../../backup/catalog.ts';
import { countTable } from '../../counts/levels.ts';
import { oneServerRoutes } from '../../read/event-reader.ts';
import type { StorageEngine } from '../storage-engine.ts';
import { removal } from './app-removal.ts';
import { days } from './days.ts';
import { eraseSlice, recountDay, settleCounts, timescaleMaintenance, UNTICKED } from './maintenance.ts';
import { compressedUntil, readCompression } from './policies.ts';
import { strayRows } from './stray-rows.ts';
import { writes } from './writes.ts';

export const timescale: StorageEngine = {
  name: 'timescale',
  snapshots: { locks: true, keepsPlans: false, countsAreExact: false, groupsDeltas: false },
  hasNodes: false,
  routes: oneServerRoutes,
  maintenance: timescaleMaintenance,
  compressedUntil,
  removal,
  erase: eraseSlice,
  days,
  writes,
  // Chunks are made by the rows that need them.
  createPartitions: async () => undefined,
  settleCounts,
  settlesBesideWriters: false,
  recountDay,
  pending: async (sql) => {
    // The marks of the last hour are still written to.
    const [row] = await sql<{ waiting: number }[]>`
      SELECT count(*)::float8 AS waiting FROM stale_buckets
       WHERE written >= (SELECT pending_from FROM last_fold) AND bucket < now() - interval '1 hour'`;
    return row?.waiting ?? 0;
  },
  strayRows,
  readCompression,
  totalsOfAllApps: ({ view }) => view,
  materializedCounts: ({ view }) => view,
  keepsFieldCounts: true,
  unticked: () => UNTICKED,
  eventIntervals: `
    SELECT range_start AS start, range_end AS finish FROM timescaledb_information.chunks
     WHERE hypertable_schema = current_schema() AND hypertable_name = 'events'`,
  // Recompression moves late rows to where an older snapshot does not find them.
  tablesToExport: async (client) => {
    const { rows } = await client.query<{ name: string }>(
      "SELECT chunk::text AS name FROM show_chunks('events') AS chunk ORDER BY chunk",
    );
    return rows.map(({ name }) => name);
  },
  /** They stay beside the aggregates, which would lose them with the next refresh of other counts of the same time. */
  addCounts: (client, level, copyTo) => addOutlived(client, level, `outlived_${countTable(level)}`, copyTo),
};
