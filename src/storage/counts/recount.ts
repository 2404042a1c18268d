/** Compares the counts of days with their rows: the doctor shows what differs, a recount corrects it. */
import { errorCode, SQLSTATE, type Sql, type Transactions } from '../database/connect.ts';
import { compareFieldDay, recountFieldDay } from '../fields/recount.ts';
import type { ErasureSlice } from '../maintenance/erasing.ts';
import { readSnapshot } from '../read/snapshot.ts';
import { readBoundary } from '../retention.ts';
import { findCountedAgain } from './counted-again.ts';
import { compareDay, type DayComparison, EXAMPLES, readNames } from './differences.ts';
import type { Interval } from './intervals.ts';
import { ALL_TYPES, ceilTo, DAY_MS, DAYS, floorTo, type Level } from './levels.ts';

/** Days of one check: the newest one, and random others, so that each day is checked in time. */
const SAMPLED_DAYS = 5;

/** What the check of one day may cost. */
export interface CheckLimits {
  /** On a day with more events one app is compared: by its index, where all of them would take a scan of the day. */
  readonly events: number;
  readonly ms: number;
}

export const LIMITS: CheckLimits = { events: 1_000_000, ms: 20_000 };

export interface CheckOptions {
  readonly limits: CheckLimits;
  /** From 0 to 1, 1 not included. */
  readonly random: () => number;
}

/** How an engine compares its counts with rows, and corrects them. */
export interface CountingEngine {
  /** A SELECT of `start, finish`: the intervals of the partitions or chunks of events. */
  readonly eventIntervals: string;
  /** The relation (app_id, type_id, bucket, count) of a level, for reads of all apps together; of `type_id` 0 at least. */
  totalsOfAllApps(level: Level): string;
  /**
   * Corrects the counts of a UTC day that differ from its rows, concurrently with readers and writers.
   * @param sql a pool of one connection
   * @param day its midnight in milliseconds since 1970; a day before the retention boundary is not changed
   * @returns how many differed
   */
  recountDay(sql: Sql, day: number): Promise<number>;
  /** Counts the declared fields of a day again, if their counts are on other nodes. */
  recountFields?(sql: Sql, day: number): Promise<number>;
  routes(sql: Sql): { at(appId: number): Promise<Sql> };
  /** Takes counts away, beside others. */
  erase(sql: Sql, slice: ErasureSlice): Promise<number>;
  /**
   * Compares the counts of a day with its rows, if that is not one statement over all apps; those of declared fields, too.
   * @returns null if it takes too long
   */
  compareApps?(sql: Sql, day: number, options: CheckOptions): Promise<DayComparison | null>;
}

export interface ComparedDay extends DayComparison {
  /** Its midnight (UTC), milliseconds since 1970. */
  readonly day: number;
}

export interface CountCheck {
  /** In order of time. */
  readonly days: readonly ComparedDay[];
  /** Days that could not be compared in time. */
  readonly unfinished: readonly number[];
}

/** Compares a sample of days within limits. */
export async function checkCounts(
  sql: Sql,
  engine: CountingEngine,
  now: number,
  { limits = LIMITS, random = Math.random }: Partial<CheckOptions> = {},
): Promise<CountCheck> {
  const days: ComparedDay[] = [];
  const unfinished: number[] = [];
  for (const day of sampleOf(await daysWithEvents(sql, engine, now), random)) {
    const compared = await checkDay(sql, engine, day, { limits, random });
    if (compared === null) unfinished.push(day);
    else days.push({ day, ...compared });
  }
  const again = await findCountedAgain(sql, engine.routes(sql).at, null);
  const names = await readNames(sql, again);
  for (const { appId, typeId, day, counted, events, excess } of again) {
    const [app, type] = [names.apps.get(appId) ?? String(appId), names.types.get(typeId) ?? String(typeId)];
    const example = { level: DAYS.name, app, type, bucket: day, counted, expected: events };
    const known = days.find((one) => one.day === day);
    const found = { day, ...joined([known ?? NONE, { differing: excess.length, examples: [example] }]) };
    if (known === undefined) days.push(found);
    else days[days.indexOf(known)] = found;
  }
  return { days: days.sort((a, b) => a.day - b.day), unfinished };
}

const NONE: DayComparison = { differing: 0, examples: [] };

/** The newest day and, by chance, others; in order of time. @param days in order of time */
export function sampleOf(days: readonly number[], random: () => number): number[] {
  const others = [...days];
  const sample = others.splice(-1);
  while (sample.length < SAMPLED_DAYS && others.length > 0)
    sample.push(...others.splice(Math.floor(random() * others.length), 1));
  return sample.sort((a, b) => a - b);
}

/** Days that may be read and have room for events, or counts; in order of time, the future left out. */
async function daysWithEvents(sql: Sql, engine: CountingEngine, now: number): Promise<number[]> {
  const boundary = await readBoundary(sql);
  const counted = sql.unsafe(engine.totalsOfAllApps(DAYS));
  const rows = await sql<{ day: number }[]>`
    SELECT DISTINCT (extract(epoch FROM day) * 1000)::float8 AS day
      FROM (SELECT generate_series(date_trunc('day', start, 'UTC'), finish - interval '1 ms', interval '24 hours') AS day
              FROM (${sql.unsafe(engine.eventIntervals)}) AS parts) AS days`;
  const others = await sql<{ day: number }[]>`
    SELECT DISTINCT (extract(epoch FROM bucket) * 1000)::float8 AS day FROM ${counted} AS counts WHERE type_id = ${ALL_TYPES}`;
  return [...new Set([...rows, ...others].map(({ day }) => day))]
    .filter((day) => day >= boundary && day <= now)
    .sort((a, b) => a - b);
}

/** @returns null if it takes too long */
async function checkDay(
  sql: Sql,
  engine: CountingEngine,
  day: number,
  options: CheckOptions,
): Promise<DayComparison | null> {
  try {
    return await (engine.compareApps?.(sql, day, options) ?? compareSome(sql, day, options.limits));
  } catch (error) {
    if (errorCode(error) === SQLSTATE.queryCanceled) return null;
    throw error;
  }
}

async function compareSome(
  sql: Sql,
  day: number,
  { events, ms }: CheckLimits,
): Promise<DayComparison | null> {
  const end = performance.now() + ms;
  return await readSnapshot(sql, async (tx) => {
    await tx.unsafe(`SET LOCAL statement_timeout = ${ms}`);
    const apps = await tx<{ appId: number; total: number }[]>`
      SELECT app_id AS "appId", (sum(sum(count)) OVER ())::float8 AS total
        FROM ${tx(DAYS.view)}
       WHERE type_id = ${ALL_TYPES} AND bucket = ${new Date(day)}
         AND app_id NOT IN (SELECT app_id FROM deleted_apps)
       GROUP BY app_id
       ORDER BY sum(count) > ${events}, random()
       LIMIT 1`;
    const [app] = apps;
    const compared = (app?.total ?? 0) > events ? (app?.appId ?? null) : null;
    const ofEvents = await compareDay(tx, day, compared);
    const ofFields = await compareFieldDay(tx, day, compared, () => performance.now() >= end);
    return ofFields === null ? null : joined([ofEvents, ofFields]);
  });
}

/** Several comparisons as one. */
export function joined(comparisons: readonly DayComparison[]): DayComparison {
  return {
    differing: comparisons.reduce((sum, { differing }) => sum + differing, 0),
    examples: comparisons.flatMap(({ examples }) => examples).slice(0, EXAMPLES),
  };
}

export interface RecountedDay {
  /** Its midnight (UTC), milliseconds since 1970. */
  readonly day: number;
  /** How many of its counts differed from its rows before. */
  readonly differing: number;
}

/**
 * Corrects the counts of the UTC days that an interval touches, those of declared fields too. Readers and writers go on, and
 * totals that were exact stay so. Days before the retention boundary are left out: their rows are gone, and their counts
 * are all that is left of them.
 * @param sql   a pool of one connection
 * @param onDay called after each day
 * @returns how many days were left out
 */
export async function recount(
  sql: Sql,
  engine: CountingEngine,
  interval: Interval,
  onDay: (day: RecountedDay) => void,
): Promise<{ readonly leftOut: number }> {
  const until = ceilTo(interval.until, DAY_MS);
  let leftOut = 0;
  for (let day = floorTo(interval.from, DAY_MS); day < until; day += DAY_MS) {
    if (day < (await readBoundary(sql))) {
      leftOut += 1;
      continue;
    }
    const ofEvents = await engine.recountDay(sql, day);
    const ofFields = await (engine.recountFields?.(sql, day) ?? recountFields(sql, day));
    let again = 0;
    for (const { appId, excess } of await findCountedAgain(sql, engine.routes(sql).at, day)) {
      await engine.erase(sql, { appId, erasureId: 0, events: [], payloads: null, excess });
      again += excess.length;
    }
    onDay({ day, differing: ofEvents + ofFields + again });
  }
  return { leftOut };
}

/**
 * Rebuilds the counts of declared fields of a UTC day.
 * @param names what knows the public ids of apps and types, if that is not the server of the counts
 * @returns how many differed
 */
export async function recountFields(sql: Transactions, day: number, names?: Sql): Promise<number> {
  const compared = await readSnapshot(sql, (tx) => compareFieldDay(tx, day, null, undefined, names));
  await recountFieldDay(sql, day);
  return compared?.differing ?? 0;
}
