/** TimescaleDB: events in a hypertable with a columnstore, counts in a hierarchy of continuous aggregates. */
import type pg from 'pg';
import { addMonthCounts, COUNT_COLUMNS } from '../../backup/catalog.ts';
import { countTable } from '../../counts/levels.ts';
import { oneServerRoutes } from '../../read/event-reader.ts';
import type { StorageEngine } from '../storage-engine.ts';
import { removal } from './app-removal.ts';
import { eraseSlice, recountDay, settleCounts, timescaleMaintenance } from './maintenance.ts';
import { compressedUntil, readCompression } from './policies.ts';
import { strayRows } from './stray-rows.ts';
import { writes } from './writes.ts';

const STAGED = 'staged_counts';

export const timescale: StorageEngine = {
  name: 'timescale',
  snapshots: { locks: true, keepsPlans: false, isExact: false, groupsDeltas: false },
  hasNodes: false,
  routes: oneServerRoutes,
  maintenance: timescaleMaintenance,
  compressedUntil,
  removal,
  erase: eraseSlice,
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
  /**
   * A continuous aggregate is kept in a hypertable of its own and never looks for rows before what it has materialized:
   * counts that are put there are as good as its own, and readers find them there.
   */
  addCounts: async (client, level, copyTo) => {
    await client.query(
      `CREATE TEMPORARY TABLE ${STAGED} (app_id integer, type_id integer, bucket timestamptz, count bigint) ON COMMIT DROP`,
    );
    const rows = await copyTo(STAGED);
    // All types together are an aggregate of their own.
    const ofAllTypes = COUNT_COLUMNS.filter((column) => column !== 'type_id');
    await insertStaged(client, countTable(level), COUNT_COLUMNS, 'type_id <> 0');
    await insertStaged(client, `app_${countTable(level)}`, ofAllTypes, 'type_id = 0');
    if (level === 'day' && rows > 0) await addMonthCounts(client, STAGED);
    await client.query(`DROP TABLE ${STAGED}`);
    return rows;
  },
};

async function insertStaged(
  client: pg.Client,
  aggregate: string,
  columns: readonly string[],
  condition: string,
): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT format('%I.%I', materialization_hypertable_schema, materialization_hypertable_name) AS name
       FROM timescaledb_information.continuous_aggregates
      WHERE view_schema = current_schema() AND view_name = $1`,
    [aggregate],
  );
  const [table] = rows;
  if (table === undefined) throw new Error(`The continuous aggregate ${aggregate} is gone.`);
  const list = columns.join(', ');
  await client.query(`INSERT INTO ${table.name} (${list}) SELECT ${list} FROM ${STAGED} WHERE ${condition}`);
}
