/** Removes the events and counts of a deleted app. */
import type { Sql, Transaction } from '../../database/connect.ts';
import { TABLES_OF_APP } from '../../fields/removal.ts';
import { type AppRemoval, FROM_DAYS } from '../../maintenance/deleted-apps.ts';
import { bucketSlices, removeRowsOfApp } from '../../maintenance/slices.ts';
import { withCountsLock } from '../postgres/app-removal.ts';

/** Most events that one transaction removes: 0.1 s as rows, and less in the columnstore, where whole batches go at once. */
const REMOVED_EVENTS = 100_000;

/**
 * Counts are deleted from the aggregates' own hypertables, as the aggregates would notice only by a refresh of all time.
 * Not while another process refreshes: its older snapshot would bring counts back.
 */
export const removal: AppRemoval = {
  removeEvents: async (sql, appId, isOver) => {
    for (const { from, until } of await chunksOf(sql, 'events')) {
      for (let start: string | null = from; start !== null; ) {
        start = await removeSome(sql, appId, start, until);
        if (start !== null && isOver()) return false;
      }
      if (isOver()) return false;
    }
    return true;
  },
  removeCounts: async (sql, appId, isOver) => {
    const aggregates = await sql<{ table: string; hypertable: string }[]>`
      SELECT materialization_hypertable_schema || '.' || materialization_hypertable_name AS table,
             materialization_hypertable_name AS hypertable
        FROM timescaledb_information.continuous_aggregates WHERE view_schema = current_schema()`;
    for (const { table, hypertable } of aggregates)
      for (const chunk of await chunksOf(sql, hypertable))
        for (const { from, to } of await bucketSlices(sql, table, chunk, appId)) {
          await sql.begin('isolation level read committed', async (tx) => {
            await openColumnstore(tx);
            await tx`
              DELETE FROM ${tx(table)}
               WHERE app_id = ${appId} AND bucket BETWEEN ${from}::text::timestamptz AND ${to}::text::timestamptz`;
          });
          if (isOver()) return false;
        }
    return (
      (await removeRowsOfApp(withCountsLock(sql), FROM_DAYS, appId, isOver)) &&
      (await removeRowsOfApp((work) => sql.begin(work), TABLES_OF_APP, appId, isOver))
    );
  },
};

/** `[from, until)` as PostgreSQL writes it. */
interface ChunkInterval {
  readonly from: string;
  readonly until: string;
}

async function chunksOf(sql: Sql, hypertable: string): Promise<ChunkInterval[]> {
  return await sql<ChunkInterval[]>`
    SELECT range_start::text AS from, range_end::text AS until FROM timescaledb_information.chunks
     WHERE hypertable_name = ${hypertable} ORDER BY range_start`;
}

/** By default a statement may decompress at most 100,000 rows of the columnstore. */
export async function openColumnstore(tx: Transaction): Promise<void> {
  await tx`SET LOCAL timescaledb.max_tuples_decompressed_per_dml_transaction = 0`;
}

/** Removes up to {@link REMOVED_EVENTS} events. @returns where to continue, null if those were all */
async function removeSome(sql: Sql, appId: number, from: string, until: string): Promise<string | null> {
  return await sql.begin('isolation level read committed', async (tx) => {
    await openColumnstore(tx);
    const [next] = await tx<{ at: string }[]>`
      SELECT (created_at + interval '1 ms')::text AS at FROM events
       WHERE app_id = ${appId} AND created_at >= ${from}::text::timestamptz AND created_at < ${until}::text::timestamptz
       ORDER BY created_at OFFSET ${REMOVED_EVENTS - 1} LIMIT 1`;
    await tx`
      DELETE FROM events
       WHERE app_id = ${appId} AND created_at >= ${from}::text::timestamptz
         AND created_at < ${next?.at ?? until}::text::timestamptz`;
    return next?.at ?? null;
  });
}
