/**
 * How many events of each type are in each bucket of a chart, from the counts alone.
 *
 * Buckets of 15 minutes and more are split at midnight (UTC). A day that has profiles (sql/0002) is read from them, one
 * subtraction for each part of a bucket; the others, mostly today, from the counts by hour or quarter-hour. Finer buckets
 * are summed from minutes.
 */
import type { Fragment, Transaction } from '../database/connect.ts';
import type { FieldCounts } from '../fields/counts-relation.ts';
import { withKeptPlan } from '../read/snapshot.ts';
import { type BucketParts, type Buckets, bucketParts, levelOf } from './buckets.ts';
import { countsIn, readSources, scopeOf } from './count-sql.ts';
import {
  ALL_TIME,
  type Interval,
  joined,
  type SourceInterval,
  sourcesOf,
  splitByLevel,
} from './intervals.ts';
import { ALL_TYPES, DAY_MS, floorTo, MINUTE_MS, QUARTER_HOUR_MS } from './levels.ts';
import { type Counted, coarseSources, exactSources, type Snapshot } from './stale.ts';

export interface Counting {
  readonly appId: number;
  /** Internal ids of types, 0 for all of them together; or of series of a field. */
  readonly ids: readonly number[];
  readonly field?: FieldCounts | undefined;
}

const countedOf = (field: FieldCounts | undefined): Counted => (field === undefined ? 'events' : 'values');

export type BucketCounts = ReadonlyMap<number, readonly number[]>;

/** Counts the events of each bucket, in the snapshot of a transaction; 0 where there are none. Rejects where the database fails. */
export async function countBuckets(
  tx: Snapshot,
  { appId, ids, field }: Counting,
  buckets: Buckets,
): Promise<BucketCounts> {
  const { starts, end, width } = buckets;
  const counts = new Map(ids.map((id) => [id, new Array<number>(starts.length).fill(0)]));
  const interval = { from: starts[0] ?? end, until: end };
  // Days have no profiles of values.
  if (width.ms < QUARTER_HOUR_MS || field !== undefined) {
    await addIntervals(tx, appId, counts, buckets, [interval], field);
    return counts;
  }
  const profiled = await profiledDays(tx, appId, interval);
  const parts = splitByDay(buckets).filter(({ day }) => profiled.has(day));
  if (parts.length > 0) await addProfiles(tx, appId, counts, parts);
  const rest = unprofiledIntervals(interval, profiled);
  if (rest.length > 0) await addIntervals(tx, appId, counts, buckets, rest);
  return counts;
}

/** One type's numbers as text, separated by spaces: ten times faster to transfer than rows. */
interface Column {
  readonly id: number;
  readonly text: string;
}

function numbersOf({ text }: Column): number[] {
  return text.split(' ').map(Number);
}

/** The days of an interval whose profiles are complete. */
async function profiledDays(
  tx: Transaction,
  appId: number,
  { from, until }: Interval,
): Promise<ReadonlySet<number>> {
  // How many days there are decides whether pending deltas are looked through once, or for each day.
  const [row] = await tx<{ days: number[] }[]>`
    SELECT coalesce(json_agg(extract(epoch FROM day)::bigint * 1000), '[]') AS days
      FROM ready_profiles WHERE app_id = ${appId} AND day >= ${floorTo(from, DAY_MS)} AND day < ${until}`;
  return new Set(row?.days);
}

/** The part of a bucket within one day. */
interface BucketPart {
  readonly day: number;
  readonly index: number;
  /** Quarter-hours of the day before the part, and up to its end. */
  readonly low: number;
  readonly high: number;
}

function splitByDay({ starts, end }: Buckets): BucketPart[] {
  return starts.flatMap((start, index) => {
    const until = starts[index + 1] ?? end;
    const parts: BucketPart[] = [];
    for (let from = start; from < until; ) {
      const day = floorTo(from, DAY_MS);
      const to = Math.min(until, day + DAY_MS);
      parts.push({ day, index, low: (from - day) / QUARTER_HOUR_MS, high: (to - day) / QUARTER_HOUR_MS });
      from = to;
    }
    return parts;
  });
}

/** What of an interval is not in profiled days; adjacent days form one interval. */
function unprofiledIntervals({ from, until }: Interval, profiled: ReadonlySet<number>): Interval[] {
  const days: Interval[] = [];
  for (let day = floorTo(from, DAY_MS); day < until; day += DAY_MS)
    if (!profiled.has(day)) days.push({ from: Math.max(day, from), until: Math.min(day + DAY_MS, until) });
  return joined(days);
}

/** Adds the counts of parts: a profile's running count at the end of each, less that at its start. */
async function addProfiles(
  tx: Snapshot,
  appId: number,
  counts: Map<number, number[]>,
  parts: readonly BucketPart[],
): Promise<void> {
  const ofDay = new Map<number, BucketPart[]>();
  for (const part of parts) {
    const others = ofDay.get(part.day);
    if (others === undefined) ofDay.set(part.day, [part]);
    else others.push(part);
  }
  // A year of days in Berlin has three of them: where summer's days begin, where winter's do, and the end.
  const cuts = [...new Set(parts.flatMap(({ low, high }) => [low, high]))].filter((cut) => cut > 0);
  const picked = cuts.flatMap((cut, i) => (i === 0 ? [tx`running[${cut}]`] : [tx`,`, tx`running[${cut}]`]));
  const columns = await withKeptPlan(
    tx,
    tx<Column[]>`
      SELECT type_id AS id,
             string_agg(concat_ws(' ', day::date - '1970-01-01'::date, ${picked}), ' ') AS text
        FROM daily_prefix_sums
       WHERE app_id = ${appId} AND type_id = ANY(${[...counts.keys()]})
         AND day >= ${parts[0]?.day ?? 0} AND day <= ${parts.at(-1)?.day ?? 0}
       GROUP BY type_id`,
  );
  const stride = cuts.length + 1;
  const offsetOf = new Map(cuts.map((cut, i) => [cut, i + 1]));
  for (const column of columns) {
    const own = counts.get(column.id);
    const numbers = numbersOf(column);
    for (let row = 0; own !== undefined && row < numbers.length; row += stride) {
      for (const { index, low, high } of ofDay.get((numbers[row] ?? 0) * DAY_MS) ?? []) {
        const until = numbers[row + (offsetOf.get(high) ?? 0)] ?? 0;
        const before = low === 0 ? 0 : (numbers[row + (offsetOf.get(low) ?? 0)] ?? 0);
        own[index] = (own[index] ?? 0) + until - before;
      }
    }
  }
}

const NO_PARTS: BucketParts = { days: [], atEnd: false, moved: [], rest: [] };

/** Adds the counts of intervals, from the coarsest levels of which every bucket consists; what is stale there comes from finer ones, and from rows. */
export async function addIntervals(
  tx: Snapshot,
  appId: number,
  counts: Map<number, number[]>,
  buckets: Buckets,
  intervals: readonly Interval[],
  field?: FieldCounts,
): Promise<void> {
  // Counts that may be stale are replaced, and of what replaces them nothing can be taken off.
  const isExact = field !== undefined || tx.stale.countsAreExact;
  const { days, atEnd, moved, rest } = isExact
    ? bucketParts(buckets, intervals)
    : { ...NO_PARTS, rest: intervals.map((interval) => ({ level: levelOf(buckets), ...interval })) };
  const scope = scopeOf(tx, appId, [...counts.keys()], field);
  const starts = buckets.starts.map((start) => new Date(start).toISOString());
  const indexOf = (time: Fragment): Fragment => tx`width_bucket(${time}, ${starts}::timestamptz[]) - 1`;
  const ofRest = await exactSources(tx, rest, countedOf(field));
  const [ofDays, ofMoved] = [sourcesOf(days), sourcesOf(moved)];
  // A day's last millisecond is in the bucket that it ends in.
  const timeOfDay = atEnd ? tx`bucket + interval '1 day' - interval '1 ms'` : tx`bucket`;
  const shift = atEnd ? 1 : -1;
  const parts = [
    {
      sources: ofDays,
      select: tx`SELECT type_id, ${indexOf(timeOfDay)} AS index, count FROM (${countsIn(tx, scope, ofDays)}) AS days`,
    },
    {
      sources: ofMoved,
      select: tx`
        SELECT type_id, ${indexOf(tx`bucket`)} + shift, count * sign
          FROM (${countsIn(tx, scope, ofMoved)}) AS moved CROSS JOIN (VALUES (0, 1), (${shift}::integer, -1)) AS move (shift, sign)`,
    },
    {
      sources: ofRest,
      select: tx`SELECT type_id, ${indexOf(tx`bucket`)} AS index, count FROM (${countsIn(tx, scope, ofRest)}) AS rest`,
    },
  ].filter(({ sources }) => sources.length > 0);
  if (parts.length === 0) return;
  const columns = await readSources(
    tx,
    [...ofDays, ...ofMoved, ...ofRest],
    tx<Column[]>`
      SELECT id, string_agg(index || ' ' || count, ' ') AS text
        FROM (SELECT type_id AS id, index, sum(count) AS count
                FROM (${parts.flatMap(({ select }, i) => (i === 0 ? [select] : [tx` UNION ALL `, select]))}) AS rows
               GROUP BY 1, 2) counted
       GROUP BY id`,
  );
  for (const column of columns) {
    const own = counts.get(column.id);
    const numbers = numbersOf(column);
    for (let i = 0; own !== undefined && i < numbers.length; i += 2) {
      const index = numbers[i] ?? 0;
      own[index] = (own[index] ?? 0) + (numbers[i + 1] ?? 0);
    }
  }
}

/**
 * Type → the count of an interval, to the millisecond; empty for an empty interval.
 * @param archivedUntil the end of the last day whose rows are in the archive alone
 */
export async function countInterval(
  tx: Snapshot,
  { appId, ids, field }: Counting,
  interval: Interval,
  archivedUntil: number,
): Promise<ReadonlyMap<number, number>> {
  const sources = await exactSources(tx, splitByLevel(interval), countedOf(field));
  if (sources.length === 0) return new Map();
  const counts = new Map(await sumByType(tx, { appId, ids, field }, sources));
  // Values are counted from the rows that a read has looked at already; and where counts are stale, those of rows that have left are kept apart.
  if (field !== undefined || !tx.stale.minutesOutliveRows) return counts;
  const everything = { archivedUntil, boundaryOf: () => 0 };
  for (const { view, from, until } of sources) {
    if (view !== null) continue;
    const archived = await tx.archived.countByType(everything, { appId, typeIds: null, from, until });
    for (const [typeId, count] of archived)
      for (const id of [typeId, ALL_TYPES])
        if (ids.includes(id)) counts.set(id, (counts.get(id) ?? 0) + count);
  }
  return counts;
}

/** Type → the count of everything before an instant that is a whole minute. */
export async function countBefore(
  tx: Snapshot,
  { appId, ids, field }: Counting,
  until: number,
): Promise<ReadonlyMap<number, number>> {
  const interval = { from: ALL_TIME.from, until: floorTo(until, MINUTE_MS) };
  const sources = await coarseSources(tx, interval, countedOf(field));
  return await sumByType(tx, { appId, ids, field }, sources);
}

async function sumByType(
  tx: Snapshot,
  { appId, ids, field }: Counting,
  sources: readonly SourceInterval[],
): Promise<ReadonlyMap<number, number>> {
  const rows = await readSources(
    tx,
    sources,
    tx<{ id: number; count: number }[]>`
      SELECT type_id AS id, sum(count)::float8 AS count
        FROM (${countsIn(tx, scopeOf(tx, appId, ids, field), sources)}) counts
       GROUP BY type_id`,
  );
  return new Map(rows.map(({ id, count }) => [id, count]));
}
