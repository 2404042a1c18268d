/** The figures of the dashboard beside its charts: totals, today's count, first and last event. From the counts. */

import type { Sql } from '../database/connect.ts';
import { bucketsOf } from './buckets.ts';
import { ALL_TYPES } from './count-segments.ts';

export interface AppFigures {
  /** All events ever counted. */
  readonly total: number;
  /** Events since midnight in the reader's time zone. */
  readonly today: number;
  /** Events of each of the last 24 hours (UTC), the current one last. */
  readonly sparkline: readonly number[];
}

const HOUR_MS = 3_600_000;
const HOURS = 24;
const DAY_MS = HOURS * HOUR_MS;

/** The figures of each app. @param appIds internal ids */
export async function appFigures(
  sql: Sql,
  appIds: readonly number[],
  { timezone, now }: { timezone: string; now: number },
): Promise<Map<number, AppFigures>> {
  const firstHour = Math.floor(now / HOUR_MS) - (HOURS - 1);
  const midnight = startOfDay(now, timezone);
  const rows = await sql<{ id: number; total: number; today: number; hours: [number, number][] }[]>`
    SELECT app.id,
           (SELECT coalesce(sum(count), 0)::float8 FROM events_per_month
             WHERE app_id = app.id AND type_id = ${ALL_TYPES}) AS total,
           (SELECT coalesce(sum(count), 0)::float8 FROM events_per_quarter_hour
             WHERE app_id = app.id AND type_id = ${ALL_TYPES} AND bucket >= ${midnight}) AS today,
           (SELECT coalesce(json_agg(json_build_array(extract(epoch FROM bucket)::bigint / 3600, count)), '[]')
              FROM events_per_hour
             WHERE app_id = app.id AND type_id = ${ALL_TYPES} AND bucket >= ${firstHour * HOUR_MS}) AS hours
      FROM unnest(${[...appIds]}::integer[]) AS app (id)`;
  return new Map(
    rows.map(({ id, total, today, hours }) => {
      const sparkline = new Array<number>(HOURS).fill(0);
      for (const [hour, count] of hours) {
        const place = hour - firstHour;
        if (place < HOURS) sparkline[place] = (sparkline[place] ?? 0) + count;
      }
      return [id, { total, today, sparkline }];
    }),
  );
}

function startOfDay(now: number, zone: string): number {
  return bucketsOf({ from: now, until: now + 1 }, { zone, most: 2, finestMs: DAY_MS })?.starts[0] ?? now;
}

export interface AppSpan {
  readonly total: number;
  readonly firstEventAt: Date | null;
  readonly lastEventAt: Date | null;
}

/**
 * How many events an app has, and from when to when. Where the rows of the first day are gone by retention, it is the
 * quarter-hour of the first event.
 * @param appId internal id
 */
export async function appSpan(sql: Sql, appId: number): Promise<AppSpan> {
  const [days] = await sql<{ total: number; first: Date | null; last: Date | null }[]>`
    SELECT coalesce(sum(count), 0)::float8 AS total, min(bucket) AS first, max(bucket) AS last
      FROM events_per_day WHERE app_id = ${appId} AND type_id = ${ALL_TYPES} AND count > 0`;
  if (days?.first == null || days.last == null) return { total: 0, firstEventAt: null, lastEventAt: null };
  const [firstEventAt, lastEventAt] = await Promise.all([
    eventOfDay(sql, appId, days.first, 'first'),
    eventOfDay(sql, appId, days.last, 'last'),
  ]);
  return { total: days.total, firstEventAt, lastEventAt };
}

async function eventOfDay(sql: Sql, appId: number, day: Date, which: 'first' | 'last'): Promise<Date> {
  const end = new Date(day.getTime() + HOURS * HOUR_MS);
  const [row] = await sql<{ at: Date | null }[]>`
    SELECT coalesce(
             (SELECT created_at FROM events
               WHERE app_id = ${appId} AND created_at >= ${day} AND created_at < ${end}
               ORDER BY created_at ${which === 'first' ? sql`ASC` : sql`DESC`} LIMIT 1),
             (SELECT ${which === 'first' ? sql`min` : sql`max`}(bucket) FROM events_per_quarter_hour
               WHERE app_id = ${appId} AND type_id = ${ALL_TYPES} AND bucket >= ${day} AND bucket < ${end})) AS at`;
  return row?.at ?? day;
}

/** How many events each type of an app has, by the type's public id; types without events are left out. */
export async function typeTotals(sql: Sql, appId: number): Promise<Map<string, number>> {
  const rows = await sql<{ typeId: string; total: number }[]>`
    SELECT public_id AS "typeId", total
      FROM (SELECT type_id, sum(count)::float8 AS total
              FROM events_per_month WHERE app_id = ${appId} AND type_id <> ${ALL_TYPES} GROUP BY type_id) counted
      JOIN event_types ON event_types.id = type_id`;
  return new Map(rows.map(({ typeId, total }) => [typeId, total]));
}
