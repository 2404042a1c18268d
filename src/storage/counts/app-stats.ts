/** The figures of the dashboard beside its charts: totals, today's count, first and last event. From the counts. */

import type { Sql, Transaction } from '../connect.ts';
import { bucketsOf } from './buckets.ts';
import {
  ALL_TYPES,
  exactSegmentsOf,
  LEVELS,
  type Range,
  refine,
  type StaleBucket,
} from './count-segments.ts';
import { type CountScope, coarseStretchesOf, countsIn, EVER, stretchesOf } from './exact-counts.ts';
import { readStaleBuckets } from './stale-buckets.ts';

export interface AppStats {
  /** All events ever counted. */
  readonly total: number;
  /** Events since midnight in the reader's time zone. */
  readonly today: number;
  /** Events of each of the last 24 hours (UTC), the current one last. */
  readonly sparkline: readonly number[];
}

const QUARTER_HOUR_MS = 900_000;
const HOUR_MS = 3_600_000;
const HOURS = 24;
const DAY_MS = HOURS * HOUR_MS;

/** Reads in one snapshot, with all of its stale buckets. */
async function inSnapshot<T>(
  sql: Sql,
  read: (tx: Transaction, stale: readonly StaleBucket[]) => Promise<T>,
): Promise<T> {
  const outcome = await sql.begin('isolation level repeatable read read only', async (tx) => ({
    // Wrapped: the pool would wait for each element of an array.
    value: await read(tx, await readStaleBuckets(tx, EVER)),
  }));
  return outcome.value;
}

/** The figures of each app. @param appIds internal ids */
export async function appStats(
  sql: Sql,
  appIds: readonly number[],
  { timezone, now }: { timezone: string; now: number },
): Promise<Map<number, AppStats>> {
  const firstHour = Math.floor(now / HOUR_MS) - (HOURS - 1);
  const hours = { from: firstHour * HOUR_MS, until: (firstHour + HOURS) * HOUR_MS };
  const today = { from: startOfDay(now, timezone), until: floor(now, QUARTER_HOUR_MS) + DAY_MS };
  return await inSnapshot(sql, async (tx, stale) => {
    const scope = { apps: tx`${[...appIds]}::integer[]`, types: tx`${[ALL_TYPES]}::integer[]` };
    const [totals, ofToday, hourly] = await Promise.all([
      tx<{ id: number; count: number }[]>`
        SELECT app_id AS id, sum(count)::float8 AS count
          FROM (${countsIn(tx, scope, coarseStretchesOf(EVER, stale))}) counts GROUP BY app_id`,
      tx<{ id: number; count: number }[]>`
        SELECT app_id AS id, sum(count)::float8 AS count
          FROM (${countsOf(tx, scope, QUARTER_HOUR_MS, today, stale)}) counts GROUP BY app_id`,
      tx<{ id: number; hour: number; count: number }[]>`
        SELECT app_id AS id, floor(extract(epoch FROM bucket) / 3600)::integer AS hour, sum(count)::float8 AS count
          FROM (${countsOf(tx, scope, HOUR_MS, hours, stale)}) counts GROUP BY 1, 2`,
    ]);
    const totalOf = new Map(totals.map(({ id, count }) => [id, count]));
    const todayOf = new Map(ofToday.map(({ id, count }) => [id, count]));
    const sparklines = new Map(appIds.map((id) => [id, new Array<number>(HOURS).fill(0)]));
    for (const { id, hour, count } of hourly) sparklines.get(id)?.splice(hour - firstHour, 1, count);
    return new Map(
      appIds.map((id) => [
        id,
        { total: totalOf.get(id) ?? 0, today: todayOf.get(id) ?? 0, sparkline: sparklines.get(id) ?? [] },
      ]),
    );
  });
}

/** A SELECT of the counts of a range, from buckets of one width where they are not stale. */
function countsOf(
  tx: Transaction,
  scope: CountScope,
  ms: number,
  range: Range,
  stale: readonly StaleBucket[],
): ReturnType<typeof countsIn> {
  const level = LEVELS.find((one) => one.ms === ms) ?? LEVELS[0];
  return countsIn(tx, scope, stretchesOf(refine({ level, ...range }, stale)));
}

function floor(ms: number, unit: number): number {
  return Math.floor(ms / unit) * unit;
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
  const days = await inSnapshot(sql, async (tx, stale) => {
    const scope = { apps: tx`${[appId]}::integer[]`, types: tx`${[ALL_TYPES]}::integer[]` };
    const [row] = await tx<{ total: number; first: Date | null; last: Date | null }[]>`
      SELECT coalesce(sum(count), 0)::float8 AS total, date_trunc('day', min(bucket), 'UTC') AS first,
             date_trunc('day', max(bucket), 'UTC') AS last
        FROM (${countsIn(tx, scope, stretchesOf(exactSegmentsOf(EVER, stale)))}) counts WHERE count > 0`;
    return row;
  });
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
  return await inSnapshot(sql, async (tx, stale) => {
    const types = tx`ARRAY(SELECT id FROM event_types WHERE app_id = ${appId})`;
    const scope = { apps: tx`${[appId]}::integer[]`, types };
    const rows = await tx<{ typeId: string; total: number }[]>`
      SELECT public_id AS "typeId", total
        FROM (SELECT type_id, sum(count)::float8 AS total
                FROM (${countsIn(tx, scope, coarseStretchesOf(EVER, stale))}) counts GROUP BY type_id) counted
        JOIN event_types ON event_types.id = type_id`;
    return new Map(rows.map(({ typeId, total }) => [typeId, total]));
  });
}
