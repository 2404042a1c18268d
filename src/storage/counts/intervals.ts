/** How an interval is composed of whole buckets: what is read from counts, and what from rows. Pure arithmetic. */
import { ceilTo, coarserThan, finerThan, floorTo, type Level, MINUTE_MS, MINUTES } from './levels.ts';

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

/** A bucket whose own count, and the counts of the coarser buckets around it, may lack rows. */
export interface StaleBucket {
  readonly level: Level;
  /** Its start in milliseconds since 1970. */
  readonly start: number;
}

/** All of time that counts are kept for. */
export const ALL_TIME: Interval = { from: Date.UTC(1970, 0, 1), until: Date.UTC(9000, 0, 1) };

/** Beyond this many intervals a statement costs more to plan than stale hours and days cost to count from rows. */
export const MAX_INTERVALS = 60;

/** The relation of counts by calendar month (UTC). Months are no level: their buckets have no fixed width. */
const MONTHS_VIEW = 'events_per_month';

/**
 * Splits an interval, in order of time: rows up to the first whole minute, minutes, quarter-hours, hours, days, and down
 * again. Each kind appears only where it is needed: at most nine intervals, with at most 14 minutes, 3 quarter-hours and
 * 23 hours at either end, whatever the length.
 */
export function splitByLevel(interval: Interval): LevelInterval[] {
  if (interval.from >= interval.until) return [];
  const from = ceilTo(interval.from, MINUTE_MS);
  const until = floorTo(interval.until, MINUTE_MS);
  // Within one minute, or within two without a whole one.
  if (from >= until) return [{ level: null, ...interval }];
  return [
    { level: null, from: interval.from, until: from },
    ...splitBuckets({ level: MINUTES, from, until }),
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

/**
 * Like {@link splitByLevel}, without counts that may be stale: a stale bucket is replaced by buckets of the next
 * finer level, and a stale minute by rows.
 */
export function splitExactly(interval: Interval, stale: readonly StaleBucket[]): LevelInterval[] {
  return withoutStale(splitByLevel(interval), stale);
}

/** Replaces the stale buckets of intervals. Where that makes too many intervals, whole stale buckets are read from rows. */
export function withoutStale(
  intervals: readonly LevelInterval[],
  stale: readonly StaleBucket[],
): LevelInterval[] {
  if (stale.length === 0) return [...intervals];
  const exact = joinRows(intervals.flatMap((interval) => replaceStale(interval, stale, finerThan)));
  if (exact.length <= MAX_INTERVALS) return exact;
  return joinRows(intervals.flatMap((interval) => replaceStale(interval, stale, () => null)));
}

/** @param replacement the level to read a stale bucket of a level from; null: rows */
function replaceStale(
  interval: LevelInterval,
  stale: readonly StaleBucket[],
  replacement: (level: Level) => Level | null,
): LevelInterval[] {
  const { level } = interval;
  if (level === null) return [interval];
  const within = stale.filter(
    (bucket) => bucket.level.ms <= level.ms && bucket.start >= interval.from && bucket.start < interval.until,
  );
  const starts = [...new Set(within.map(({ start }) => floorTo(start, level.ms)))].sort((a, b) => a - b);
  let from = interval.from;
  const parts: LevelInterval[] = [];
  for (const start of starts) {
    parts.push({ level, from, until: start });
    const bucket = { level: replacement(level), from: start, until: start + level.ms };
    parts.push(...replaceStale(bucket, within, replacement));
    from = start + level.ms;
  }
  return [...parts, { level, from, until: interval.until }].filter(isFilled);
}

/** Adjacent intervals of rows become one. */
function joinRows(intervals: readonly LevelInterval[]): LevelInterval[] {
  const joined: LevelInterval[] = [];
  for (const interval of intervals) {
    const last = joined.at(-1);
    if (last?.level === null && interval.level === null && last.until === interval.from) {
      joined[joined.length - 1] = { level: null, from: last.from, until: interval.until };
    } else {
      joined.push(interval);
    }
  }
  return joined;
}

/** Where the counts of intervals are read from. */
export function sourcesOf(intervals: readonly LevelInterval[]): SourceInterval[] {
  return intervals.map(({ level, from, until }) => ({ view: level?.view ?? null, from, until }));
}

/** An interval from as few counts as there are: whole months from the counts by month, unless a bucket in them is stale. */
export function coarseSourcesOf(interval: Interval, stale: readonly StaleBucket[]): SourceInterval[] {
  const months = { from: startOfMonth(interval.from - 1, 1), until: startOfMonth(interval.until) };
  const exact = (part: Interval): SourceInterval[] => sourcesOf(splitExactly(part, stale));
  if (months.from >= months.until) return exact(interval);
  const within = stale.filter(({ start }) => start >= months.from && start < months.until);
  const staleMonths = [...new Set(within.map(({ start }) => startOfMonth(start)))].sort((a, b) => a - b);
  const sources = exact({ from: interval.from, until: months.from });
  let from = months.from;
  for (const start of staleMonths) {
    const until = startOfMonth(start, 1);
    sources.push({ view: MONTHS_VIEW, from, until: start }, ...exact({ from: start, until }));
    from = until;
  }
  sources.push({ view: MONTHS_VIEW, from, until: months.until });
  sources.push(...exact({ from: months.until, until: interval.until }));
  return sources.length > MAX_INTERVALS ? exact(interval) : sources.filter(isFilled);
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

function isFilled(interval: Interval): boolean {
  return interval.from < interval.until;
}
