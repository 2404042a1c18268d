/**
 * The buckets of a chart: where they begin, on a fixed ladder of widths, in any time zone and across its changes.
 *
 * Buckets begin where the local clock shows a multiple of their width: every quarter of an hour at :00, :15, :30, :45;
 * three-hour ones at 0, 3, 6, … o'clock; days at midnight, weeks on Mondays, months on the first. Where the clock jumps:
 *  - forward over a beginning (a midnight that does not exist), the bucket begins at the jump;
 *  - back, minutes to hours happen twice and so do their buckets, and longer buckets begin once, at the first of the two.
 * So on those days hours stay an hour long, the bucket of several hours or longer that holds the change is shorter or
 * longer by it, and in a zone that changes by half an hour (Lord Howe) the hour of the change is.
 */
import { offsetChanges } from './timezone.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;

/**
 * The ladder, finest first. `ms` is the width; of a month the shortest one's. `most` bounds a width that is dear to read:
 * five-minute buckets are added up from minutes, 15 ms for a day of ten types.
 */
export const LADDER: readonly Width[] = [
  { name: '1m', ms: MINUTE_MS },
  { name: '5m', ms: 5 * MINUTE_MS, most: 300 },
  { name: '15m', ms: 15 * MINUTE_MS },
  { name: '1h', ms: HOUR_MS },
  { name: '3h', ms: 3 * HOUR_MS },
  { name: '6h', ms: 6 * HOUR_MS },
  { name: '12h', ms: 12 * HOUR_MS },
  { name: '1d', ms: DAY_MS },
  { name: '7d', ms: 7 * DAY_MS },
  { name: '1mo', ms: 28 * DAY_MS },
];

export interface Width {
  readonly name: '1m' | '5m' | '15m' | '1h' | '3h' | '6h' | '12h' | '1d' | '7d' | '1mo';
  readonly ms: number;
  readonly most?: number;
}

export interface Buckets {
  readonly width: Width;
  /** Milliseconds since 1970 at which each bucket begins, ascending; it ends where the next one begins. */
  readonly starts: readonly number[];
  /** Where the last one ends. */
  readonly end: number;
}

/** Whatever is asked for, never more buckets. */
const MOST = 1_000;

/** The longest month and a change of the clock. */
const MARGIN_MS = 34 * DAY_MS;

/**
 * The finest buckets, at most `most` or else months, that cover a range. The first may begin before it, and the last end behind it.
 * @param range.from   milliseconds since 1970
 * @param range.until       behind `from`
 * @param options.finestMs  no finer ones than this
 * @returns null where even months are too many
 */
export function bucketsOf(
  range: { from: number; until: number },
  options: { zone: string; most: number; finestMs: number },
): Buckets | null {
  for (const width of LADDER.filter(({ ms }) => ms >= options.finestMs)) {
    // Nothing is coarser than months: there may be more of them than was asked for.
    const most = width.name === '1mo' ? MOST : Math.min(options.most, width.most ?? MOST);
    // The exact number is known only when they are made; this many they are at least.
    if ((range.until - range.from) / (width.name === '1mo' ? 31 * DAY_MS : width.ms) > most + 1) continue;
    const buckets = cover(range, width, options.zone);
    if (buckets.starts.length <= most) return buckets;
  }
  return null;
}

function cover({ from, until }: { from: number; until: number }, width: Width, zone: string): Buckets {
  const margin = width.ms >= DAY_MS ? MARGIN_MS : 2 * DAY_MS;
  const starts = beginnings(width, zone, from - margin, until + margin);
  const first = starts.findLastIndex((start) => start <= from);
  const end = starts.findIndex((start) => start >= until);
  const endsAt = starts[end];
  if (first < 0 || endsAt === undefined)
    throw new Error('The margin around a range of buckets is too small.');
  return { width, starts: starts.slice(first, end), end: endsAt };
}

/** Every beginning from `from` (inclusive) to `until`. */
function beginnings(width: Width, zone: string, from: number, until: number): number[] {
  if (width.ms <= DAY_MS) return clockMultiples(width.ms, zone, from, until).map(({ at }) => at);
  const starts: number[] = [];
  let period: number | null = null;
  for (const { at, local } of clockMultiples(DAY_MS, zone, from, until)) {
    const own = width.name === '7d' ? weekOf(local) : monthOf(local);
    // Of the first one nobody knows whether it had begun before.
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
    // Local times up to here were on the clock already, before it was set back.
    const shown = begin + before;
    let next = Math.ceil((begin + offset) / ms) * ms;
    if (offset > before && Math.ceil(shown / ms) * ms < begin + offset && next > begin + offset)
      found.push({ at: begin, local: begin + offset });
    if (offset < before && ms > HOUR_MS) while (next < shown) next += ms;
    for (; next - offset < end; next += ms) found.push({ at: next - offset, local: next });
  });
  return found;
}
