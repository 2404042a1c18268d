/**
 * The buckets of a chart: where they start, on a fixed ladder of widths, in any time zone and across its changes.
 *
 * Buckets start where the local clock shows a multiple of their width: quarter-hours at :00, :15, :30, :45; three-hour ones
 * at 0, 3, 6, … o'clock; days at midnight, weeks on Mondays, months on the first. Where the clock changes:
 *  - forward over a start (a midnight that does not exist), the bucket starts at the change;
 *  - back, minutes to hours happen twice and so do their buckets, and longer buckets start once, at the first of the two.
 * So on those days hours stay an hour long, the bucket of several hours or longer that holds the change is shorter or
 * longer by it, and in a zone that changes by half an hour (Lord Howe) so is the hour of the change.
 */
import { grouped } from '../../base/grouped.ts';
import { MOST_BUCKETS, WIDTH_MINUTES, WIDTHS, type WidthName } from '../../base/widths.ts';
import { type Interval, isFilled, type LevelInterval, splitByLevel } from './intervals.ts';
import { coarsestLevel, DAY_MS, DAYS, floorTo, HOUR_MS, type Level, MINUTE_MS } from './levels.ts';
import { offsetChanges } from './timezone.ts';

export { WIDTHS, type WidthName };

/** `ms` is the width, for a month that of the shortest one. `most` bounds a width that is expensive to read. */
const LADDER: readonly Width[] = WIDTHS.map((name) => ({
  ...{ name, ms: WIDTH_MINUTES[name] * MINUTE_MS },
  // Summed from minutes, 15 ms for a day of ten types.
  ...(name === '5m' && { most: 300 }),
}));

export interface Width {
  readonly name: WidthName;
  readonly ms: number;
  readonly most?: number;
}

export interface Buckets {
  readonly width: Width;
  /** Milliseconds since 1970 at which each bucket starts, ascending; it ends where the next one starts. */
  readonly starts: readonly number[];
  /** Where the last one ends. */
  readonly end: number;
}

/** The longest month and a change of the clock. */
const MARGIN_MS = 34 * DAY_MS;

/** What is wrong with buckets of a width that was asked for, or with months. */
export type BucketsProblem = 'too many' | 'too fine';

/**
 * Buckets of one width that cover an interval. The first may start before it, and the last end after it.
 * @param interval         not empty
 * @param options.finestMs no narrower buckets than this
 */
export function bucketsOfWidth(
  interval: Interval,
  name: WidthName,
  { zone, finestMs }: { zone: string; finestMs: number },
): Buckets | BucketsProblem {
  const width = LADDER.find((one) => one.name === name);
  if (width === undefined) throw new Error(`There are no buckets of ${name}.`);
  if (width.ms < finestMs) return 'too fine';
  // The exact number is known only when they are computed; this is the least.
  const shortest = name === '1mo' ? 31 * DAY_MS : width.ms;
  if ((interval.until - interval.from) / shortest > MOST_BUCKETS + 1) return 'too many';
  const buckets = cover(interval, width, zone);
  return buckets.starts.length > MOST_BUCKETS ? 'too many' : buckets;
}

/**
 * Buckets of one width or, where there would be too many or finer ones than are kept, of the next one of which there are not.
 * @returns null where even months are too many
 */
export function bucketsFrom(
  interval: Interval,
  finest: WidthName,
  options: { zone: string; finestMs: number },
): Buckets | null {
  for (const name of WIDTHS.slice(WIDTHS.indexOf(finest))) {
    const buckets = bucketsOfWidth(interval, name, options);
    if (typeof buckets !== 'string') return buckets;
  }
  return null;
}

/**
 * The finest buckets, at most `most` or else months, that cover an interval. The first may start before it, and the last
 * end after it.
 * @param interval         not empty
 * @param options.finestMs no narrower buckets than this
 * @returns null where even months are too many
 */
export function bucketsOf(
  interval: Interval,
  options: { zone: string; most: number; finestMs: number },
): Buckets | null {
  for (const width of LADDER.filter(({ ms }) => ms >= options.finestMs)) {
    // Nothing is coarser than months: there may be more of them than was asked for.
    const most = width.name === '1mo' ? MOST_BUCKETS : Math.min(options.most, width.most ?? MOST_BUCKETS);
    // The exact number is known only when they are computed; this is the least.
    if ((interval.until - interval.from) / (width.name === '1mo' ? 31 * DAY_MS : width.ms) > most + 1)
      continue;
    const buckets = cover(interval, width, options.zone);
    if (buckets.starts.length <= most) return buckets;
  }
  return null;
}

/** The coarsest level of which every bucket consists. */
export function levelOf({ starts, end }: Pick<Buckets, 'starts' | 'end'>): Level {
  return coarsestLevel(({ ms }) => end % ms === 0 && starts.every((start) => start % ms === 0));
}

/**
 * As few counts as there are, none of which is in two buckets: those of days, and finer ones of the days in which a bucket starts. A
 * year of weeks in Berlin has 313 such days and 52 times 24 hours, where hours alone are 8,760.
 */
export function levelsOf(buckets: Pick<Buckets, 'starts' | 'end'>, interval: Interval): LevelInterval[] {
  const level = levelOf(buckets);
  if (level === DAYS) return [{ level, ...interval }].filter(isFilled);
  const cuts = [...buckets.starts, buckets.end, interval.from, interval.until];
  const cutDays = new Set(cuts.filter((at) => at % DAY_MS !== 0).map((at) => floorTo(at, DAY_MS)));
  const parts: LevelInterval[] = [];
  let { from } = interval;
  for (const day of [...cutDays].sort((a, b) => a - b)) {
    if (day + DAY_MS <= from || day >= interval.until) continue;
    add(parts, DAYS, from, day);
    add(parts, level, Math.max(from, day), Math.min(day + DAY_MS, interval.until));
    from = day + DAY_MS;
  }
  add(parts, DAYS, from, interval.until);
  return parts;
}

/** Counts of which few tell those of every bucket, where a part of a day can be taken off the whole day. */
export interface BucketParts {
  /** Whole days, in order of time. Each belongs to the bucket that it begins in, or with `atEnd` to the one that it ends in. */
  readonly days: readonly LevelInterval[];
  readonly atEnd: boolean;
  /** Parts of these days that belong to the bucket after (with `atEnd` before) that of the day. */
  readonly moved: readonly LevelInterval[];
  /** All others, each within a bucket. */
  readonly rest: readonly LevelInterval[];
}

/**
 * As {@link levelsOf}, where counts may be subtracted: of a day in which one bucket starts only the shorter part is read beside the
 * day. A year of weeks, or of days, in Berlin is 365 days and two hours of each day in which a bucket starts.
 */
export function bucketParts(
  buckets: Pick<Buckets, 'starts' | 'end'>,
  intervals: readonly Interval[],
): BucketParts {
  const level = levelOf(buckets);
  const cutsOf = grouped(
    [...buckets.starts, buckets.end].filter((at) => at % DAY_MS !== 0),
    (at) => floorTo(at, DAY_MS),
  );
  const [days, moved, rest]: [LevelInterval[], LevelInterval[], LevelInterval[]] = [[], [], []];
  const single = [...cutsOf.values()].find((cuts) => cuts.length === 1)?.[0] ?? 0;
  const atEnd = single % DAY_MS < DAY_MS / 2;
  for (const { from, until } of intervals)
    for (let day = floorTo(from, DAY_MS); day < until; day += DAY_MS) {
      const [cut, ...more] = cutsOf.get(day) ?? [];
      const end = day + DAY_MS;
      if (day < from || end > until || more.length > 0)
        add(rest, level, Math.max(day, from), Math.min(end, until));
      else {
        add(days, DAYS, day, end);
        if (cut !== undefined)
          moved.push(...splitByLevel(atEnd ? { from: day, until: cut } : { from: cut, until: end }, level));
      }
    }
  return { days, atEnd, moved, rest };
}

/** Adds an interval, to the one before where it follows it at once. */
function add(intervals: LevelInterval[], level: Level, from: number, until: number): void {
  const last = intervals.at(-1);
  if (last?.level === level && last.until === from) intervals[intervals.length - 1] = { ...last, until };
  else if (from < until) intervals.push({ level, from, until });
}

function cover({ from, until }: Interval, width: Width, zone: string): Buckets {
  const margin = width.ms >= DAY_MS ? MARGIN_MS : 2 * DAY_MS;
  const starts = bucketStarts(width, zone, from - margin, until + margin);
  const first = starts.findLastIndex((start) => start <= from);
  const end = starts.findIndex((start) => start >= until);
  const endsAt = starts[end];
  if (first < 0 || endsAt === undefined) throw new Error('The margin around the buckets is too small.');
  return { width, starts: starts.slice(first, end), end: endsAt };
}

/** Every start in `[from, until)`. */
function bucketStarts(width: Width, zone: string, from: number, until: number): number[] {
  if (width.ms <= DAY_MS) return clockMultiples(width.ms, zone, from, until).map(({ at }) => at);
  const starts: number[] = [];
  let period: number | null = null;
  for (const { at, local } of clockMultiples(DAY_MS, zone, from, until)) {
    const own = width.name === '7d' ? weekOf(local) : monthOf(local);
    // Whether the first one had started before is not known.
    if (period !== null && own !== period) starts.push(at);
    period = own;
  }
  return starts;
}

/** Monday is the first day; 1970 began on a Thursday. */
function weekOf(local: number): number {
  return Math.floor((local / DAY_MS + 3) / 7);
}

function monthOf(local: number): number {
  const date = new Date(local);
  return date.getUTCFullYear() * 12 + date.getUTCMonth();
}

/**
 * The instants at which the local clock shows a multiple of `ms` since midnight, or jumps over one.
 * @param ms a divisor of a day
 * @returns with the local time that it shows then, as milliseconds since a local 1970
 */
function clockMultiples(
  ms: number,
  zone: string,
  from: number,
  until: number,
): { at: number; local: number }[] {
  const found: { at: number; local: number }[] = [];
  const changes = offsetChanges(zone, from, until);
  changes.forEach(({ at: begin, offset }, i) => {
    const end = changes[i + 1]?.at ?? until;
    const before = changes[i - 1]?.offset ?? offset;
    // Local times up to here have been on the clock before, when it is set back.
    const shown = begin + before;
    let next = Math.ceil((begin + offset) / ms) * ms;
    if (offset > before && Math.ceil(shown / ms) * ms < begin + offset && next > begin + offset)
      found.push({ at: begin, local: begin + offset });
    if (offset < before && ms > HOUR_MS) while (next < shown) next += ms;
    for (; next - offset < end; next += ms) found.push({ at: next - offset, local: next });
  });
  return found;
}
