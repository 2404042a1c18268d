/** The stats of an app, from the counts: totals, today's count, first and last event. */
import type { Sql, Transaction } from '../database/connect.ts';
import { readAppSnapshot, readSnapshot } from '../read/snapshot.ts';
import { bucketsOf } from './buckets.ts';
import { countsIn, scopeOf } from './count-sql.ts';
import { ALL_TIME, type Interval, splitByLevel } from './intervals.ts';
import {
  ALL_TYPES,
  DAY_MS,
  DAYS,
  floorTo,
  HOUR_MS,
  HOURS,
  QUARTER_HOUR_MS,
  QUARTER_HOURS,
} from './levels.ts';
import { coarseSources, exactSources } from './stale.ts';
import { selectLastEvents } from './type-stats.ts';

export interface AppStats {
  /** All events ever counted. */
  readonly total: number;
  /** Events since midnight in the reader's time zone. */
  readonly today: number;
  /** Events of each of the last 24 hours (UTC), the current one last. */
  readonly sparkline: readonly number[];
  /** Where retention has removed its row, the start of its quarter-hour. Null where there is none. */
  readonly lastEventAt: Date | null;
}

const SPARKLINE_HOURS = 24;

/** The stats of each app. */
export async function readAppStats(
  sql: Sql,
  appIds: readonly number[],
  { timezone, now }: { timezone: string; now: number },
): Promise<Map<number, AppStats>> {
  const firstHour = Math.floor(now / HOUR_MS) - (SPARKLINE_HOURS - 1);
  const hours = { from: firstHour * HOUR_MS, until: (firstHour + SPARKLINE_HOURS) * HOUR_MS };
  const today = { from: startOfDay(now, timezone), until: floorTo(now, QUARTER_HOUR_MS) + DAY_MS };
  return await readSnapshot(sql, async (tx) => {
    const scope = { apps: tx`${[...appIds]}::integer[]`, types: tx`${[ALL_TYPES]}::integer[]` };
    const sources = await coarseSources(tx, ALL_TIME);
    const [ofQuarters, ofHours] = await Promise.all([
      exactSources(tx, [{ level: QUARTER_HOURS, ...today }]),
      exactSources(tx, [{ level: HOURS, ...hours }]),
    ]);
    const [totals, ofToday, hourly] = await Promise.all([
      tx<{ id: number; total: number; at: Date | null }[]>`
        SELECT app_id AS id, total, at FROM (${selectLastEvents(tx, scope, sources)}) AS stats`,
      tx<{ id: number; count: number }[]>`
        SELECT app_id AS id, sum(count)::float8 AS count
          FROM (${countsIn(tx, scope, ofQuarters)}) counts GROUP BY app_id`,
      tx<{ id: number; hour: number; count: number }[]>`
        SELECT app_id AS id, floor(extract(epoch FROM bucket) / 3600)::integer AS hour, sum(count)::float8 AS count
          FROM (${countsIn(tx, scope, ofHours)}) counts GROUP BY 1, 2`,
    ]);
    const statsOf = new Map(totals.map((stats) => [stats.id, stats]));
    const todayOf = new Map(ofToday.map(({ id, count }) => [id, count]));
    const sparklines = new Map(appIds.map((id) => [id, new Array<number>(SPARKLINE_HOURS).fill(0)]));
    for (const { id, hour, count } of hourly) sparklines.get(id)?.splice(hour - firstHour, 1, count);
    return new Map(
      appIds.map((id) => [
        id,
        {
          total: statsOf.get(id)?.total ?? 0,
          today: todayOf.get(id) ?? 0,
          sparkline: sparklines.get(id) ?? [],
          lastEventAt: statsOf.get(id)?.at ?? null,
        },
      ]),
    );
  });
}

/** Events of each of the last 24 hours (UTC), the current one last, of the types of an app that have some, by public id. */
export async function readTypeActivity(
  sql: Sql,
  appId: number,
  now: number,
): Promise<Map<string, readonly number[]>> {
  const firstHour = Math.floor(now / HOUR_MS) - (SPARKLINE_HOURS - 1);
  const hours = { from: firstHour * HOUR_MS, until: (firstHour + SPARKLINE_HOURS) * HOUR_MS };
  return await readAppSnapshot(sql, appId, async (tx) => {
    const scope = {
      apps: tx`${[appId]}::integer[]`,
      types: tx`ARRAY(SELECT id FROM type_names WHERE app_id = ${appId})`,
    };
    const ofHours = await exactSources(tx, [{ level: HOURS, ...hours }]);
    const rows = await tx<{ typeId: string; hour: number; count: number }[]>`
      SELECT public_id AS "typeId", floor(extract(epoch FROM bucket) / 3600)::integer AS hour, sum(count)::float8 AS count
        FROM (${countsIn(tx, scope, ofHours)}) counts
        JOIN type_names ON type_names.app_id = ${appId} AND type_names.id = type_id
       GROUP BY 1, 2 HAVING sum(count) > 0`;
    const activity = new Map<string, number[]>();
    for (const { typeId, hour, count } of rows) {
      const counts = activity.get(typeId) ?? new Array<number>(SPARKLINE_HOURS).fill(0);
      counts[hour - firstHour] = count;
      activity.set(typeId, counts);
    }
    return activity;
  });
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
 * How many events an app has, and from when to when. Where retention has removed the rows of the first day, that is the
 * quarter-hour of the first event.
 */
export async function readAppSpan(sql: Sql, appId: number): Promise<AppSpan> {
  return await readAppSnapshot(sql, appId, async (tx) => {
    const sources = await exactSources(tx, splitByLevel(ALL_TIME));
    const [days] = await tx<{ total: number; first: Date | null; last: Date | null }[]>`
      SELECT coalesce(sum(count), 0)::float8 AS total, date_trunc('day', min(bucket), 'UTC') AS first,
             date_trunc('day', max(bucket), 'UTC') AS last
        FROM (${countsIn(tx, scopeOf(tx, appId, [ALL_TYPES]), sources)}) counts
       WHERE count > 0`;
    if (days?.first == null || days.last == null) return { total: 0, firstEventAt: null, lastEventAt: null };
    const [firstEventAt, lastEventAt] = await Promise.all([
      readEventTime(tx, appId, days.first, 'first'),
      readEventTime(tx, appId, days.last, 'last'),
    ]);
    return { total: days.total, firstEventAt, lastEventAt };
  });
}

/**
 * How many events an app has of each UTC day that has some, by the first millisecond of the day.
 * @param interval of whole UTC days
 */
export async function readDayCounts(
  sql: Sql,
  appId: number,
  interval: Interval,
): Promise<ReadonlyMap<number, number>> {
  return await readSnapshot(sql, async (tx) => {
    const sources = await exactSources(tx, [{ level: DAYS, ...interval }]);
    const days = await tx<{ day: number; count: number }[]>`
      SELECT extract(epoch FROM date_trunc('day', bucket, 'UTC'))::float8 * 1000 AS day, sum(count)::float8 AS count
        FROM (${countsIn(tx, scopeOf(tx, appId, [ALL_TYPES]), sources)}) counts
       GROUP BY 1 HAVING sum(count) > 0 ORDER BY 1`;
    return new Map(days.map(({ day, count }) => [day, count]));
  });
}

/** The time of a day's first or last event. */
async function readEventTime(
  tx: Transaction,
  appId: number,
  day: Date,
  which: 'first' | 'last',
): Promise<Date> {
  const end = new Date(day.getTime() + DAY_MS);
  // Both leave out a null: of an archived day there may be rows that came late.
  const [extreme, archived] =
    which === 'first'
      ? [tx`least`, tx`min((groups -> 0 ->> 'at')::float8)`]
      : [tx`greatest`, tx`max((groups -> -1 ->> 'lastAt')::float8)`];
  const [row] = await tx<{ at: Date | null }[]>`
    SELECT coalesce(
             ${extreme}(
               (SELECT created_at FROM events
                 WHERE app_id = ${appId} AND created_at >= ${day} AND created_at < ${end}
                 ORDER BY created_at ${which === 'first' ? tx`ASC` : tx`DESC`} LIMIT 1),
               (SELECT to_timestamp(${archived} / 1000) FROM archived_parts
                 WHERE app_id = ${appId} AND day = (${day}::timestamptz AT TIME ZONE 'UTC')::date)),
             (SELECT ${which === 'first' ? tx`min` : tx`max`}(bucket) FROM ${tx(QUARTER_HOURS.view)}
               WHERE app_id = ${appId} AND type_id = ${ALL_TYPES} AND bucket >= ${day} AND bucket < ${end})) AS at`;
  return row?.at ?? day;
}
