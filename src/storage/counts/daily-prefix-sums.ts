/** Makes the profiles of days that are over (sql/0002), from which charts of long intervals are read. */
import type { Sql } from '../database/connect.ts';
import { saysNodeUnreachable } from '../database/nodes.ts';
import { DAY_MS } from './levels.ts';

/** A day is profiled this long after its end: until then a late commit would have it made again. */
const SETTLE_MS = 600_000;
const MOST_DAYS = 5_000;
/** What running counts are kept as; a day of an app with more (24,855 events a second) is read from its quarter-hours. */
const LARGEST = 2_147_483_647;

export interface AppDay {
  readonly appId: number;
  /** Its midnight (UTC), milliseconds since 1970. */
  readonly day: number;
}

/** The days that are over and have no profiles, newest first. */
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
 * Makes the profiles of one day from its quarter-hours. The lock keeps out folds (and on TimescaleDB whatever removes the
 * mark of a day): one that adds to the day is done before and is in the profiles, or comes after and discards them.
 */
export async function profileDay(sql: Sql, { appId, day }: AppDay): Promise<void> {
  await sql.begin('isolation level read committed', async (tx) => {
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
    await tx`
      INSERT INTO daily_prefix_sums (app_id, type_id, day, running)
      SELECT ${appId}, type_id, ${day}, running
        FROM (SELECT type_id, array_agg(quarter) AS quarters, array_agg(count) AS counts
                FROM (SELECT type_id, count, (extract(epoch FROM bucket - ${day}::timestamptz) / 900)::integer + 1 AS quarter
                        FROM settled_quarter_hour_counts
                       WHERE app_id = ${appId} AND bucket >= ${day} AND bucket < ${day + DAY_MS}
                         AND type_id = ANY(ARRAY(SELECT 0 UNION ALL SELECT id FROM type_names WHERE app_id = ${appId}))
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

/** How much of each second may go into profiles: no other maintenance runs meanwhile. */
const PROFILE_MS = 100;

/** Makes profiles, a bounded number at a time. */
export class PrefixSumBuilder {
  readonly #sql: Sql;
  readonly #now: () => number;
  readonly #poolOf: ((appId: number) => Promise<Sql>) | undefined;
  #unprofiled: AppDay[] = [];

  /** @param poolOf the pool of one connection for an app, where it is another one */
  constructor(sql: Sql, now: () => number, poolOf?: (appId: number) => Promise<Sql>) {
    this.#sql = sql;
    this.#now = now;
    this.#poolOf = poolOf;
  }

  /** Looks for days to profile. */
  async look(): Promise<void> {
    this.#unprofiled = await unprofiledDays(this.#sql, this.#now());
  }

  /** Makes profiles of days that the last look has found. */
  async profileSome(): Promise<void> {
    const until = this.#now() + PROFILE_MS;
    for (let day = this.#unprofiled.shift(); day !== undefined; day = this.#unprofiled.shift()) {
      await this.#profile(day);
      if (this.#now() >= until) return;
    }
  }

  /** A day of an app whose node is away is found again by a later look. */
  async #profile(day: AppDay): Promise<void> {
    try {
      await profileDay((await this.#poolOf?.(day.appId)) ?? this.#sql, day);
    } catch (error) {
      if (!saysNodeUnreachable(error)) throw error;
    }
  }
}
