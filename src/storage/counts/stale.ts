/**
 * Where counts are exact in a snapshot. On TimescaleDB a materialized bucket may lack rows: the transactions that stored them have
 * marked it as stale, and it is counted from the next finer level, or from rows. This is the one file that knows of it: readers ask
 * for the sources of intervals. Views that do the same take a hundred times as long to plan: docs/architecture.md has the figures.
 */
import type { Path } from '../../base/turns.ts';
import type { Transaction } from '../database/connect.ts';
import type { ArchivedRows } from '../read/archived-rows.ts';
import {
  ALL_TIME,
  type Interval,
  isFilled,
  type LevelInterval,
  type SourceInterval,
  sourcesOf,
  splitByLevel,
  startOfMonth,
} from './intervals.ts';
import { DAY_MS, DAYS, finerThan, floorTo, LEVELS, type Level, MINUTES } from './levels.ts';

/** A transaction of reads in one snapshot. */
export interface Snapshot extends Transaction {
  /** Whether statements on counts may keep their plans (read/snapshot.ts). */
  readonly keepsPlans: boolean;
  /** Whether each look at a view of counts unpacks the pending deltas of all apps. */
  readonly unpacksDeltas: boolean;
  readonly stale: StaleBuckets;
  readonly archived: ArchivedRows;
  /** Whose computations its reads are; undefined: nobody's. */
  readonly turns: Path | undefined;
  /** What its reads know already. */
  readonly once: Once;
}

/**
 * What a snapshot says stays as it is, so that its charts ask for it once: retention, declarations, names, minutes that are not counted.
 * It is forgotten with the snapshot.
 */
export class Once {
  readonly #known = new Map<string, unknown>();

  /** @param key says what is read and all that it depends on @returns what the first `read` of this key returned */
  get<T>(key: string, read: () => T): T {
    if (!this.#known.has(key)) this.#known.set(key, read());
    // A key has one kind of answer.
    return this.#known.get(key) as T;
  }
}

/** A bucket whose own count, and the counts of the coarser buckets around it, may lack rows. */
export interface StaleBucket {
  readonly level: Level;
  /** Its start in milliseconds since 1970. */
  readonly start: number;
}

/** Beyond this many intervals a statement costs more to plan than stale hours and days cost to count from rows. */
export const MAX_INTERVALS = 60;

/** The relation of counts by calendar month (UTC). Months are no level: their buckets have no fixed width. */
const MONTHS_VIEW = 'events_per_month';

/** The buckets that a snapshot must not take from the counts. */
export class StaleBuckets {
  readonly #tx: Transaction;
  /** Whether no bucket ever is stale. */
  readonly countsAreExact: boolean;
  #known: { readonly within: Interval; readonly buckets: Promise<readonly StaleBucket[]> } | null = null;

  /** @param countsAreExact whether the counts of the engine always are */
  constructor(tx: Transaction, countsAreExact: boolean) {
    this.#tx = tx;
    this.countsAreExact = countsAreExact;
  }

  /** Whether counts by the minute stay when rows leave; otherwise those by the quarter-hour do. What can be stale is made from rows. */
  get minutesOutliveRows(): boolean {
    return this.countsAreExact;
  }

  /** The stale buckets in and around an interval at least; read once for an interval and all that lie in it. */
  within(interval: Interval): Promise<readonly StaleBucket[]> {
    const known = this.#known;
    if (known !== null && known.within.from <= interval.from && known.within.until >= interval.until)
      return known.buckets;
    const buckets = this.countsAreExact ? Promise.resolve([]) : readStaleBuckets(this.#tx, interval);
    this.#known = { within: interval, buckets };
    return buckets;
  }
}

async function readStaleBuckets(tx: Transaction, interval: Interval): Promise<readonly StaleBucket[]> {
  const rows = await tx<{ level: number; start: number }[]>`
    SELECT DISTINCT level, (extract(epoch FROM bucket) * 1000)::float8 AS start
      FROM pending_marks
     WHERE bucket > ${interval.from - DAY_MS} AND bucket < ${interval.until}
     ORDER BY start`;
  return rows.map(({ level, start }) => ({ level: LEVELS[level] ?? DAYS, start }));
}

/** What is counted: events, or values of a declared field, whose counts are never stale. */
export type Counted = 'events' | 'values';

/**
 * Intervals of buckets that are exact in a snapshot, in place of those that may not be.
 * @param intervals in order of time
 * @param finest    what is stale at this level is read from rows
 */
export async function exactIntervals(
  tx: Snapshot,
  intervals: readonly LevelInterval[],
  counted: Counted = 'events',
  finest: Level = MINUTES,
): Promise<LevelInterval[]> {
  const whole = { from: intervals[0]?.from ?? 0, until: intervals.at(-1)?.until ?? 0 };
  return withoutStale(intervals, counted === 'events' ? await tx.stale.within(whole) : [], finest);
}

/** From where the counts of intervals are read, so that they are exact in a snapshot. @param intervals in order of time */
export async function exactSources(
  tx: Snapshot,
  intervals: readonly LevelInterval[],
  counted: Counted = 'events',
): Promise<SourceInterval[]> {
  return sourcesOf(await exactIntervals(tx, intervals, counted));
}

/** The sources of an interval from as few counts as there are, counts of whole months among them. */
export async function coarseSources(
  tx: Snapshot,
  interval: Interval,
  counted: Counted = 'events',
): Promise<SourceInterval[]> {
  return coarseSourcesOf(interval, counted === 'events' ? await tx.stale.within(interval) : []);
}

/** From the first stale bucket to the start of the last one; null where there are none. */
export async function staleSpan(tx: Snapshot): Promise<Interval | null> {
  const stale = await tx.stale.within(ALL_TIME);
  const [first, last] = [stale[0], stale.at(-1)];
  return first === undefined || last === undefined ? null : { from: first.start, until: last.start };
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
  finest: Level = MINUTES,
): LevelInterval[] {
  if (stale.length === 0) return [...intervals];
  const finer = (level: Level): Level | null => (level === finest ? null : finerThan(level));
  const exact = joinRows(intervals.flatMap((interval) => replaceStale(interval, stale, finer)));
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
