/** How each engine removes the events and counts of a deleted app. */
import type { Sql } from './connect.ts';
import type { AppRemoval } from './deleted-apps.ts';

const BATCH = 10_000;
const COUNTS = ['minute_counts', 'quarter_hour_counts', 'hour_counts', 'day_counts'] as const;
/** What is made of the counts by the day, on both engines. */
const FROM_DAYS = ['month_counts', 'profiled_days', 'day_profiles'] as const;

export const postgresRemoval: AppRemoval = {
  removeEvents: async (sql, appId, isOver) => {
    for (;;) {
      const [gone] = await sql<{ rows: number }[]>`
        WITH oldest AS (SELECT created_at, id FROM events WHERE app_id = ${appId} ORDER BY created_at, id LIMIT ${BATCH}),
             gone AS (DELETE FROM events USING oldest
                       WHERE events.app_id = ${appId} AND events.created_at = oldest.created_at AND events.id = oldest.id
                      RETURNING 1)
        SELECT count(*)::integer AS rows FROM gone`;
      if ((gone?.rows ?? 0) < BATCH) return true;
      if (isOver()) return false;
    }
  },
  removeCounts: async (sql, appId) => {
    await sql.begin('isolation level read committed', async (tx) => {
      // Not while a fold adds to the same counts.
      await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
      await tx`DELETE FROM count_deltas WHERE app_id = ${appId}`;
      for (const table of [...COUNTS, ...FROM_DAYS])
        await tx`DELETE FROM ${tx(table)} WHERE app_id = ${appId}`;
    });
  },
};

/** Most events of a piece: 0.1 s as rows, and less in the columnstore, where whole batches go at once. */
const PIECE = 100_000;

/**
 * What the aggregates hold of the app is deleted beside them, as they themselves would find only by a refresh of all of
 * time. Not while another process refreshes: its older snapshot would bring counts back.
 */
export const timescaleRemoval: AppRemoval = {
  removeEvents: async (sql, appId, isOver) => {
    for (const { from, until } of await chunksOf(sql, 'events')) {
      for (let start: string | null = from; start !== null; ) {
        start = await removePiece(sql, appId, start, until);
        if (start !== null && isOver()) return false;
      }
      if (isOver()) return false;
    }
    return true;
  },
  removeCounts: async (sql, appId) => {
    const aggregates = await sql<{ schema: string; name: string }[]>`
      SELECT materialization_hypertable_schema AS schema, materialization_hypertable_name AS name
        FROM timescaledb_information.continuous_aggregates WHERE view_schema = current_schema()`;
    for (const { schema, name } of aggregates) {
      for (const { from, until } of await chunksOf(sql, name)) {
        await sql`
          DELETE FROM ${sql(schema)}.${sql(name)}
           WHERE app_id = ${appId} AND bucket >= ${from}::text::timestamptz AND bucket < ${until}::text::timestamptz`;
      }
    }
    await sql.begin('isolation level read committed', async (tx) => {
      await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
      for (const table of FROM_DAYS) await tx`DELETE FROM ${tx(table)} WHERE app_id = ${appId}`;
    });
  },
};

interface Stretch {
  /** As PostgreSQL writes it; `until` is not included. */
  readonly from: string;
  readonly until: string;
}

async function chunksOf(sql: Sql, hypertable: string): Promise<Stretch[]> {
  return await sql<Stretch[]>`
    SELECT range_start::text AS from, range_end::text AS until FROM timescaledb_information.chunks
     WHERE hypertable_name = ${hypertable} ORDER BY range_start`;
}

/** Removes up to {@link PIECE} events from `from` on. @returns where the next piece begins, null where that was all */
async function removePiece(sql: Sql, appId: number, from: string, until: string): Promise<string | null> {
  return await sql.begin('isolation level read committed', async (tx) => {
    // By default no more than 100,000 rows of the columnstore may be opened up.
    await tx`SET LOCAL timescaledb.max_tuples_decompressed_per_dml_transaction = 0`;
    const [next] = await tx<{ at: string }[]>`
      SELECT (created_at + interval '1 ms')::text AS at FROM events
       WHERE app_id = ${appId} AND created_at >= ${from}::text::timestamptz AND created_at < ${until}::text::timestamptz
       ORDER BY created_at OFFSET ${PIECE - 1} LIMIT 1`;
    await tx`
      DELETE FROM events
       WHERE app_id = ${appId} AND created_at >= ${from}::text::timestamptz
         AND created_at < ${next?.at ?? until}::text::timestamptz`;
    return next?.at ?? null;
  });
}
