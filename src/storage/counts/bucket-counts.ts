/**
 * How many events of each type are in each bucket of a chart, from the counts alone.
 *
 * Buckets of 15 minutes and more are cut into pieces within one day (UTC). A day that has profiles (sql/0004) is read
 * from them, one subtraction a piece; the others, mostly today, from the counts by the hour or quarter-hour. Finer
 * buckets are added up from the minutes. Measured in bench/series.ts.
 */
import type { Transaction } from '../connect.ts';
import type { Buckets } from './buckets.ts';
import { LEVELS, type Level, MINUTE_MS, type Range, refine, type StaleBucket } from './count-segments.ts';
import { type CountScope, coarseStretchesOf, countsIn, EVER, stretchesOf } from './exact-counts.ts';

const DAY_MS = 86_400_000;
const QUARTER_HOUR_MS = 900_000;

/** Type → a count for each bucket. */
export type BucketCounts = ReadonlyMap<number, readonly number[]>;

/**
 * @param ids   internal ids of types, 0 for all of them together
 * @param stale every stale bucket of this snapshot
 */
export async function countBuckets(
  tx: Transaction,
  appId: number,
  ids: readonly number[],
  buckets: Buckets,
  stale: readonly StaleBucket[],
): Promise<BucketCounts> {
  const { starts, end, width } = buckets;
  const counts = new Map(ids.map((id) => [id, new Array<number>(starts.length).fill(0)]));
  const range = { from: starts[0] ?? end, until: end };
  if (width.ms < QUARTER_HOUR_MS) {
    await addRanges(tx, appId, counts, buckets, [range], stale);
    return counts;
  }
  const ready = await readyDays(tx, appId, range);
  const pieces = piecesOf(buckets).filter(({ day }) => ready.has(day));
  if (pieces.length > 0) await addPieces(tx, appId, counts, pieces);
  const rest = unreadyRanges(range, ready);
  if (rest.length > 0) await addRanges(tx, appId, counts, buckets, rest, stale);
  return counts;
}

/** One type's numbers as text, one space between them: ten times quicker to hand over than rows. */
interface Column {
  readonly id: number;
  readonly text: string;
}

function numbersOf({ text }: Column): number[] {
  return text.split(' ').map(Number);
}

/** The days of a range whose profiles tell everything. */
async function readyDays(
  tx: Transaction,
  appId: number,
  { from, until }: Range,
): Promise<ReadonlySet<number>> {
  const [row] = await tx<{ days: number[] }[]>`
    SELECT coalesce(json_agg(extract(epoch FROM day)::bigint * 1000), '[]') AS days
      FROM ready_profiles WHERE app_id = ${appId} AND day >= ${floor(from, DAY_MS)} AND day < ${until}`;
  return new Set(row?.days);
}

/** The part of a bucket within one day. */
interface Piece {
  readonly day: number;
  /** Index of the bucket. */
  readonly place: number;
  /** Quarter-hours of the day before the piece, and up to its end. */
  readonly low: number;
  readonly high: number;
}

function piecesOf({ starts, end }: Buckets): Piece[] {
  return starts.flatMap((start, place) => {
    const until = starts[place + 1] ?? end;
    const pieces: Piece[] = [];
    for (let from = start; from < until; ) {
      const day = floor(from, DAY_MS);
      const to = Math.min(until, day + DAY_MS);
      pieces.push({ day, place, low: (from - day) / QUARTER_HOUR_MS, high: (to - day) / QUARTER_HOUR_MS });
      from = to;
    }
    return pieces;
  });
}

/** The stretches of a range that are not in ready days. */
function unreadyRanges({ from, until }: Range, ready: ReadonlySet<number>): Range[] {
  const ranges: { from: number; until: number }[] = [];
  for (let day = floor(from, DAY_MS); day < until; day += DAY_MS) {
    if (ready.has(day)) continue;
    const start = Math.max(day, from);
    const last = ranges.at(-1);
    if (last?.until === start) last.until = Math.min(day + DAY_MS, until);
    else ranges.push({ from: start, until: Math.min(day + DAY_MS, until) });
  }
  return ranges;
}

/** Adds the counts of pieces: a profile's running count at the end of each, less that at its beginning. */
async function addPieces(
  tx: Transaction,
  appId: number,
  counts: Map<number, number[]>,
  pieces: readonly Piece[],
): Promise<void> {
  const ofDay = new Map<number, Piece[]>();
  for (const piece of pieces) {
    const others = ofDay.get(piece.day);
    if (others === undefined) ofDay.set(piece.day, [piece]);
    else others.push(piece);
  }
  // Of a year of days in Berlin these are three: where summer's days begin, where winter's do, and the end.
  const cuts = [...new Set(pieces.flatMap(({ low, high }) => [low, high]))].filter((cut) => cut > 0);
  const picked = cuts.flatMap((cut, i) => (i === 0 ? [tx`running[${cut}]`] : [tx`,`, tx`running[${cut}]`]));
  const columns = await tx<Column[]>`
    SELECT type_id AS id,
           string_agg(concat_ws(' ', day::date - '1970-01-01'::date, ${picked}), ' ') AS text
      FROM day_profiles
     WHERE app_id = ${appId} AND type_id = ANY(${[...counts.keys()]})
       AND day >= ${pieces[0]?.day ?? 0} AND day <= ${pieces.at(-1)?.day ?? 0}
     GROUP BY type_id`;
  const stride = cuts.length + 1;
  const offsetOf = new Map(cuts.map((cut, i) => [cut, i + 1]));
  for (const column of columns) {
    const own = counts.get(column.id);
    const numbers = numbersOf(column);
    for (let row = 0; own !== undefined && row < numbers.length; row += stride) {
      for (const { place, low, high } of ofDay.get((numbers[row] ?? 0) * DAY_MS) ?? []) {
        const until = numbers[row + (offsetOf.get(high) ?? 0)] ?? 0;
        const before = low === 0 ? 0 : (numbers[row + (offsetOf.get(low) ?? 0)] ?? 0);
        own[place] = (own[place] ?? 0) + until - before;
      }
    }
  }
}

/**
 * Adds the counts of stretches, from the coarsest counts of which every bucket is made of whole ones; what is stale
 * there from finer ones, and from rows.
 */
async function addRanges(
  tx: Transaction,
  appId: number,
  counts: Map<number, number[]>,
  buckets: Buckets,
  ranges: readonly Range[],
  stale: readonly StaleBucket[],
): Promise<void> {
  const level = levelOf(buckets);
  const stretches = stretchesOf(ranges.flatMap((range) => refine({ level, ...range }, stale)));
  const starts = buckets.starts.map((start) => new Date(start).toISOString());
  const columns = await tx<Column[]>`
    SELECT id, string_agg(place || ' ' || count, ' ') AS text
      FROM (SELECT type_id AS id, width_bucket(bucket, ${starts}::timestamptz[]) - 1 AS place, sum(count) AS count
              FROM (${countsIn(tx, scopeOf(tx, appId, [...counts.keys()]), stretches)}) rows
             GROUP BY 1, 2) counted
     GROUP BY id`;
  for (const column of columns) {
    const own = counts.get(column.id);
    const numbers = numbersOf(column);
    for (let i = 0; own !== undefined && i < numbers.length; i += 2) {
      const place = numbers[i] ?? 0;
      own[place] = (own[place] ?? 0) + (numbers[i + 1] ?? 0);
    }
  }
}

function levelOf({ starts, end }: Buckets): Level {
  const fits = ({ ms }: Level): boolean => end % ms === 0 && starts.every((start) => start % ms === 0);
  return LEVELS.find(fits) ?? LEVELS[LEVELS.length - 1] ?? LEVELS[0];
}

/** Type → the count of everything before an instant that is a whole minute. */
export async function countBefore(
  tx: Transaction,
  appId: number,
  ids: readonly number[],
  until: number,
  stale: readonly StaleBucket[],
): Promise<ReadonlyMap<number, number>> {
  const stretches = coarseStretchesOf({ from: EVER.from, until: floor(until, MINUTE_MS) }, stale);
  const rows = await tx<{ id: number; count: number }[]>`
    SELECT type_id AS id, sum(count)::float8 AS count
      FROM (${countsIn(tx, scopeOf(tx, appId, ids), stretches)}) parts
     GROUP BY type_id`;
  return new Map(rows.map(({ id, count }) => [id, count]));
}

function scopeOf(tx: Transaction, appId: number, ids: readonly number[]): CountScope {
  return { apps: tx`${[appId]}::integer[]`, types: tx`${[...ids]}::integer[]` };
}

function floor(ms: number, unit: number): number {
  return Math.floor(ms / unit) * unit;
}
