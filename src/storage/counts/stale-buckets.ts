/**
 * Which counts are not exact in a snapshot. On PostgreSQL none is; on TimescaleDB buckets are marked as stale until their
 * refresh (sql/0002_events.timescale.sql), and readers count them from finer ones or from rows.
 */
import type { Transaction } from '../connect.ts';
import { LEVELS, type Range, type StaleBucket } from './count-segments.ts';

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
