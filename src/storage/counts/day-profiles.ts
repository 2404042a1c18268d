/** Makes the profiles of days that are over (sql/0004): what charts over long ranges are read from. */
import type { Sql } from '../connect.ts';

const DAY_MS = 86_400_000;
/** A day is profiled this long after its end: until then a late commit would have it made again. */
const SETTLE_MS = 600_000;
const MOST_DAYS = 5_000;
/** What running counts are kept as; a day of an app with more (24,855 events a second) is read from its quarter-hours. */
const LARGEST = 2_147_483_647;

/** A day of an app. */
export interface AppDay {
  /** Internal id. */
  readonly appId: number;
  /** Its midnight (UTC), milliseconds since 1970. */
  readonly day: number;
}

/** The days that are over and have no profiles, newest first. @param now milliseconds since 1970 */
export async function unprofiledDays(sql: Sql, now: number): Promise<AppDay[]> {
  return [
    ...(await sql<AppDay[]>`
      SELECT app_id AS "appId", (extract(epoch FROM bucket) * 1000)::float8 AS day
        FROM settled_day_counts
       WHERE type_id = 0 AND bucket < ${now - DAY_MS - SETTLE_MS} AND count <= ${LARGEST}
         AND NOT EXISTS (SELECT FROM profiled_days WHERE profiled_days.app_id = settled_day_counts.app_id AND day = bucket)
       ORDER BY bucket DESC
       LIMIT ${MOST_DAYS}`),
  ];
}

/**
 * Makes the profiles of one day from its quarter-hours. No fold works meanwhile (and on TimescaleDB nothing takes a
 * mark off a day): one that adds to the day comes before and is in them, or after and strikes the day off again.
 */
export async function profileDay(sql: Sql, { appId, day }: AppDay): Promise<void> {
  await sql.begin('isolation level read committed', async (tx) => {
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
    await tx`
      INSERT INTO day_profiles (app_id, type_id, day, running)
      SELECT ${appId}, type_id, ${day}, running
        FROM (SELECT type_id, array_agg(quarter) AS quarters, array_agg(count) AS counts
                FROM (SELECT type_id, count, (extract(epoch FROM bucket - ${day}::timestamptz) / 900)::integer + 1 AS quarter
                        FROM settled_quarter_hour_counts
                       WHERE app_id = ${appId} AND bucket >= ${day} AND bucket < ${day + DAY_MS}
                         AND type_id = ANY(ARRAY(SELECT 0 UNION ALL SELECT id FROM event_types WHERE app_id = ${appId}))
                     ) quarter_hours
               GROUP BY type_id) types
       CROSS JOIN LATERAL (
              SELECT array_agg(total ORDER BY quarter) AS running
                FROM (SELECT quarter, (sum(coalesce(count, 0)) OVER (ORDER BY quarter))::integer AS total
                        FROM generate_series(1, 96) AS quarter
                        LEFT JOIN unnest(quarters, counts) AS known (quarter, count) USING (quarter)) totals) profile
      ON CONFLICT (app_id, type_id, day) DO UPDATE SET running = excluded.running`;
    await tx`INSERT INTO profiled_days (app_id, day) VALUES (${appId}, ${day}) ON CONFLICT DO NOTHING`;
  });
}

/** Of each second, how much may go into profiles of days: nothing else is maintained meanwhile. */
const PROFILE_MS = 100;

/** Makes profiles in small pieces. */
export class DayProfiler {
  readonly #sql: Sql;
  readonly #now: () => number;
  #unprofiled: AppDay[] = [];

  /** @param now milliseconds since 1970 */
  constructor(sql: Sql, now: () => number) {
    this.#sql = sql;
    this.#now = now;
  }

  /** Looks for days to profile. */
  async look(): Promise<void> {
    this.#unprofiled = await unprofiledDays(this.#sql, this.#now());
  }

  async profileSome(): Promise<void> {
    const until = this.#now() + PROFILE_MS;
    for (let day = this.#unprofiled.shift(); day !== undefined; day = this.#unprofiled.shift()) {
      await profileDay(this.#sql, day);
      if (this.#now() >= until) return;
    }
  }
}
