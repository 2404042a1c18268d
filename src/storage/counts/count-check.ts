/** Compares the counts of some days with their rows, for the doctor. */
import { errorCode, SQLSTATE, type Sql } from '../database/connect.ts';
import type { StorageEngine } from '../engines/storage-engine.ts';
import { compareFieldDay } from '../fields/compare-day.ts';
import { readSnapshot } from '../read/snapshot.ts';
import { compareDay, type DayComparison, EXAMPLES } from './differences.ts';
import { ALL_TYPES, DAYS } from './levels.ts';

/** Days of one check: the newest one, and random others, so that each day is checked in time. */
const SAMPLED_DAYS = 5;

/** What the check of one day may cost. */
export interface CheckLimits {
  /** Of a day with more events one app is compared: by its index, where all of them would take a scan of the day. */
  readonly events: number;
  readonly ms: number;
}

export const LIMITS: CheckLimits = { events: 1_000_000, ms: 20_000 };

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

/**
 * @param now    milliseconds since 1970
 * @param random from 0 to 1, 1 not included
 */
export async function checkCounts(
  sql: Sql,
  engine: StorageEngine,
  now: number,
  random: () => number = Math.random,
): Promise<CountCheck> {
  const days: ComparedDay[] = [];
  const unfinished: number[] = [];
  for (const day of sampleOf(await daysWithEvents(sql, engine, now), random)) {
    const compared = await compareInTime(sql, day);
    if (compared === null) unfinished.push(day);
    else days.push({ day, ...compared });
  }
  return { days, unfinished };
}

/** The newest day and, by chance, others; in order of time. @param days in order of time */
export function sampleOf(days: readonly number[], random: () => number): number[] {
  const others = [...days];
  const sample = others.splice(-1);
  while (sample.length < SAMPLED_DAYS && others.length > 0)
    sample.push(...others.splice(Math.floor(random() * others.length), 1));
  return sample.sort((a, b) => a - b);
}

/** Days that may be read and have room for events, or counts; in order of time, the future left out. */
async function daysWithEvents(sql: Sql, engine: StorageEngine, now: number): Promise<number[]> {
  const rows = await sql<{ day: number }[]>`
    SELECT DISTINCT (extract(epoch FROM day) * 1000)::float8 AS day
      FROM (SELECT generate_series(date_trunc('day', start, 'UTC'), finish - interval '1 ms', interval '24 hours') AS day
              FROM (${sql.unsafe(engine.eventIntervals)}) AS parts
            UNION
            SELECT bucket FROM ${sql(DAYS.view)} WHERE type_id = ${ALL_TYPES}) AS days, retention
     WHERE day >= readable_from AND day <= ${new Date(now)}
     ORDER BY day`;
  return rows.map(({ day }) => day);
}

/** @returns null if it takes too long */
async function compareInTime(sql: Sql, day: number): Promise<DayComparison | null> {
  const end = performance.now() + LIMITS.ms;
  try {
    return await readSnapshot(sql, async (tx) => {
      await tx.unsafe(`SET LOCAL statement_timeout = ${LIMITS.ms}`);
      const apps = await tx<{ appId: number; total: number }[]>`
        SELECT app_id AS "appId", (sum(sum(count)) OVER ())::float8 AS total
          FROM ${tx(DAYS.view)}
         WHERE type_id = ${ALL_TYPES} AND bucket = ${new Date(day)}
           AND app_id NOT IN (SELECT app_id FROM deleted_apps)
         GROUP BY app_id
         ORDER BY sum(count) > ${LIMITS.events}, random()
         LIMIT 1`;
      const [app] = apps;
      const compared = (app?.total ?? 0) > LIMITS.events ? (app?.appId ?? null) : null;
      const events = await compareDay(tx, day, compared);
      const fields = await compareFieldDay(tx, day, compared, () => performance.now() >= end);
      if (fields === null) return null;
      return {
        differing: events.differing + fields.differing,
        examples: [...events.examples, ...fields.examples].slice(0, EXAMPLES),
      };
    });
  } catch (error) {
    if (errorCode(error) === SQLSTATE.queryCanceled) return null;
    throw error;
  }
}
