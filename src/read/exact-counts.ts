/**
 * Counts that are exact in a snapshot, whichever engine keeps them. On PostgreSQL the views of counts always are; on
 * TimescaleDB some buckets are marked as stale (sql/0002_events.timescale.sql) and counted from finer ones or from rows.
 */
import type postgres from 'postgres';
import type { Transaction } from '../database/connect.ts';
import { LEVELS, type Level, type Range, refine, type StaleBucket } from './count-segments.ts';

type Fragment = postgres.PendingQuery<postgres.Row[]>;

const DAY_MS = 86_400_000;

/** The buckets in and around a range that must not be counted from the views of counts in this snapshot. */
export async function readStaleBuckets(tx: Transaction, range: Range): Promise<StaleBucket[]> {
  const rows = await tx<{ level: number; start: number }[]>`
    SELECT DISTINCT level, (extract(epoch FROM bucket) * 1000)::float8 AS start
      FROM stale_buckets
     WHERE bucket > ${range.from - DAY_MS} AND bucket < ${range.until}
     ORDER BY start`;
  // Marks count from the finest level.
  return rows.map(({ level, start }) => ({ ms: LEVELS[LEVELS.length - 1 - level]?.ms ?? DAY_MS, start }));
}

/**
 * A SELECT of `type_id, bucket, count` of one app, type 0 standing for all types. A bucket may come in several rows, and
 * as several finer ones or single instants within it: add them up.
 * @param app   SQL of the app's internal id
 * @param range whole buckets of the level
 * @param stale all that lie in the range
 */
export function exactCounts(
  tx: Transaction,
  app: Fragment,
  level: Level,
  range: Range,
  stale: readonly StaleBucket[],
): Fragment {
  const parts = refine({ level, ...range }, stale).map(({ level: view, from, until }) =>
    view === null
      ? tx`SELECT kind AS type_id, created_at AS bucket, 1::bigint AS count
             FROM events CROSS JOIN LATERAL (VALUES (type_id), (0)) AS kinds (kind)
            WHERE app_id = ${app} AND created_at >= ${from} AND created_at < ${until}`
      : tx`SELECT type_id, bucket, count FROM ${tx(view.view)}
            WHERE app_id = ${app} AND bucket >= ${from} AND bucket < ${until}`,
  );
  if (parts.length === 0) return tx`SELECT 0 AS type_id, now() AS bucket, 0::bigint AS count WHERE false`;
  return tx`${parts.flatMap((part, i) => (i === 0 ? [part] : [tx` UNION ALL `, part]))}`;
}
