/** A year of counts of an app without events: charts read nothing else. */

import { profileDay, unprofiledDays } from '../../src/storage/counts/daily-prefix-sums.ts';
import type { Sql } from '../../src/storage/database/connect.ts';

const DAY_MS = 86_400_000;
const DAYS = 365;
const TYPES = 20;
/** The year ends with whole days, so that all of them have profiles. */
export const YEAR_END = Date.UTC(2026, 0, 1);
const YEAR_START = YEAR_END - DAYS * DAY_MS;

const MINUTES_FROM = new Date(YEAR_END - 2 * DAY_MS);

/** Draws evenly spread events and keeps their counts, folded in the order of time. @param appId internal id */
export async function seedYear(sql: Sql, appId: number, events: number): Promise<void> {
  await sql.begin(async (tx) => {
    const made = await tx<{ id: number }[]>`
      INSERT INTO event_types (public_id, app_id, name)
      SELECT 'typ_year' || ${appId}::text || '_' || n, ${appId}::integer, 'type ' || n
        FROM generate_series(1, ${TYPES}::integer) n RETURNING id`;
    const ids = made.map(({ id }) => id);
    // Charts of a day are made from minutes, which only the last days need to have.
    await tx`
      CREATE TEMP TABLE drawn ON COMMIT DROP AS
      SELECT type_id, date_bin(CASE WHEN at >= ${MINUTES_FROM} THEN '1 minute' ELSE '15 minutes' END::interval, at, 'epoch') AS bucket,
             count(*) AS count
        FROM (SELECT (${ids}::integer[])[1 + floor(random() * ${TYPES}::integer)::integer] AS type_id,
                     to_timestamp(${YEAR_START / 1_000}::float8 + random() * ${(YEAR_END - YEAR_START) / 1_000}::float8) AS at
                FROM generate_series(1, ${events}::integer)) events
       GROUP BY 1, 2`;
    await tx`INSERT INTO drawn SELECT 0, bucket, sum(count) FROM drawn GROUP BY bucket`;
    await tx`
      INSERT INTO minute_counts (app_id, type_id, bucket, count)
      SELECT ${appId}, type_id, bucket, count FROM drawn WHERE bucket >= ${MINUTES_FROM} ORDER BY bucket, type_id`;
    for (const [table, width] of [
      ['quarter_hour_counts', '15 minutes'],
      ['hour_counts', '1 hour'],
      ['day_counts', '1 day'],
    ] as const) {
      await tx`
        INSERT INTO ${tx(table)} (app_id, type_id, bucket, count)
        SELECT ${appId}, type_id, date_bin(${width}::interval, bucket, 'epoch') AS start, sum(count)
          FROM drawn GROUP BY 2, 3 ORDER BY start, type_id`;
    }
    await tx`
      INSERT INTO month_counts (app_id, type_id, bucket, count)
      SELECT ${appId}, type_id, date_trunc('month', bucket, 'UTC') AS start, sum(count)
        FROM drawn GROUP BY 2, 3 ORDER BY start, type_id`;
  });
  for (const day of await unprofiledDays(sql, YEAR_END + 2 * DAY_MS)) await profileDay(sql, day);
}
