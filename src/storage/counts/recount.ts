/** Rebuilds counts from their rows, should they ever differ. */
import type { Sql } from '../database/connect.ts';
import type { StorageEngine } from '../engines/storage-engine.ts';
import { compareFieldDay } from '../fields/compare-day.ts';
import { recountFieldDay } from '../fields/recount-day.ts';
import { readSnapshot } from '../read/snapshot.ts';
import { readBoundary } from '../retention.ts';
import { compareDay } from './differences.ts';
import type { Interval } from './intervals.ts';
import { ceilTo, DAY_MS, floorTo } from './levels.ts';

export interface RecountedDay {
  /** Its midnight (UTC), milliseconds since 1970. */
  readonly day: number;
  /** How many of its counts differed from its rows before. */
  readonly differing: number;
}

/**
 * Rebuilds the counts of the UTC days that an interval touches, those of declared fields too. Readers and writers go on, and
 * totals that were exact stay so. Days before the retention boundary are left out: their rows are gone, and their counts
 * are all that is left of them.
 * @param sql   a pool of one connection
 * @param onDay called after each day
 * @returns how many days were left out
 */
export async function recount(
  sql: Sql,
  engine: StorageEngine,
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
    const { differing } = await (engine.compareDay?.(sql, day) ?? compareAll(sql, day));
    await engine.recountDay(sql, day);
    await (engine.recountFields?.(sql, day) ?? recountFieldDay(sql, day));
    onDay({ day, differing });
  }
  return { leftOut };
}

async function compareAll(sql: Sql, day: number): Promise<{ readonly differing: number }> {
  const { differing } = await compareDay(sql, day, null);
  const ofFields = await readSnapshot(sql, (tx) => compareFieldDay(tx, day, null));
  return { differing: differing + (ofFields?.differing ?? 0) };
}
