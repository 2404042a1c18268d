/** Counts by month in a restore: a backup has none, as they are sums of days. */
import type pg from 'pg';

/**
 * Computes months from counts by day that outlive their rows. Later days are added when they are settled.
 * @param days a table of counts by day
 */
export async function addMonthCounts(client: pg.Client, days: string): Promise<void> {
  await client.query(`
    INSERT INTO month_counts (app_id, type_id, bucket, count)
    SELECT app_id, type_id, date_trunc('month', bucket, 'UTC'), sum(count) FROM ${days} GROUP BY 1, 2, 3`);
}
