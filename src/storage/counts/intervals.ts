/** How an interval is composed of whole buckets: what is read from counts, and what from rows. Pure arithmetic. */
import { ceilTo, coarserThan, floorTo, type Level, MINUTES } from './levels.ts';

/** `[from, until)`, in milliseconds since 1970. */
export interface Interval {
  readonly from: number;
  readonly until: number;
}

/** An interval of whole buckets of one level, or (null) of single rows. Never empty. */
export interface LevelInterval extends Interval {
  readonly level: Level | null;
}

/** An interval to read from one relation of counts, or (null) from rows. Never empty. */
export interface SourceInterval extends Interval {
  readonly view: string | null;
}

/** All of time that counts are kept for. */
export const ALL_TIME: Interval = { from: Date.UTC(1970, 0, 1), until: Date.UTC(9000, 0, 1) };

/** Intervals that are up to so many milliseconds apart become one. */
export function joined(intervals: readonly Interval[], apartMs = 0): Interval[] {
  const apart: { from: number; until: number }[] = [];
  for (const { from, until } of intervals.toSorted((a, b) => a.from - b.from)) {
    const last = apart.at(-1);
    if (last !== undefined && from <= last.until + apartMs) last.until = Math.max(last.until, until);
    else apart.push({ from, until });
  }
  return apart;
}

/**
 * Splits an interval, in order of time: rows up to the first whole minute, minutes, quarter-hours, hours, days, and down
 * again. Each kind appears only where it is needed: at most nine intervals, with at most 14 minutes, 3 quarter-hours and
 * 23 hours at either end, whatever the length.
 * @param finest what is no whole bucket of this level is read from rows
 */
export function splitByLevel(interval: Interval, finest: Level = MINUTES): LevelInterval[] {
  if (interval.from >= interval.until) return [];
  const from = ceilTo(interval.from, finest.ms);
  const until = floorTo(interval.until, finest.ms);
  // Within one bucket, or within two without a whole one.
  if (from >= until) return [{ level: null, ...interval }];
  return [
    { level: null, from: interval.from, until: from },
    ...splitBuckets({ level: finest, from, until }),
    { level: null, from: until, until: interval.until },
  ].filter(isFilled);
}

/** Replaces the middle of an interval by whole buckets of the coarser levels, if it contains any. */
function splitBuckets({ level, ...interval }: Interval & { readonly level: Level }): LevelInterval[] {
  const coarser = coarserThan(level);
  if (coarser === null) return [{ level, ...interval }];
  const from = ceilTo(interval.from, coarser.ms);
  const until = floorTo(interval.until, coarser.ms);
  if (from >= until) return [{ level, ...interval }];
  return [
    { level, from: interval.from, until: from },
    ...splitBuckets({ level: coarser, from, until }),
    { level, from: until, until: interval.until },
  ].filter(isFilled);
}

/** Where the counts of intervals are read from. */
export function sourcesOf(intervals: readonly LevelInterval[]): SourceInterval[] {
  return intervals.map(({ level, from, until }) => ({ view: level?.view ?? null, from, until }));
}

/** The start of the month (UTC) that holds an instant, or of one `later` months after it. */
export function startOfMonth(instant: number, later = 0): number {
  const date = new Date(instant);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + later);
}

/** The whole buckets of a width that an interval touches. */
export function wholeBuckets({ from, until }: Interval, ms: number): Interval {
  return { from: floorTo(from, ms), until: ceilTo(until, ms) };
}

/** Whether an interval holds anything. */
export function isFilled(interval: Interval): boolean {
  return interval.from < interval.until;
}
