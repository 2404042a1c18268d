/**
 * Running counts of an app's types at any instants, from the counts alone: what a scraper would have kept that has read them at each
 * whole minute, and before the retention boundary, where only they are kept, at each quarter-hour.
 */
import type { Sql } from '../database/connect.ts';
import { readCounts, readSnapshot } from '../read/snapshot.ts';
import { readRetention } from '../retention.ts';
import { addIntervals, countBefore, countBuckets } from './bucket-counts.ts';
import { ALL_TIME, type Interval } from './intervals.ts';
import { ALL_TYPES, floorTo, MINUTE_MS, QUARTER_HOUR_MS } from './levels.ts';
import { MAX_INTERVALS, type Snapshot } from './stale.ts';

export interface CountersRequest {
  readonly appId: number;
  /** Internal ids of types; 0 is all of them together. */
  readonly typeIds: readonly number[];
  /** Milliseconds since 1970, ascending, each once. */
  readonly instants: readonly number[];
}

export interface Counters {
  /** For each instant the one that is counted up to: the last whole minute, or quarter-hour, that is not after it. */
  readonly times: readonly number[];
  /** Type → for each instant, how many events have a time before that of `times`. */
  readonly counts: ReadonlyMap<number, readonly number[]>;
  /** The retention boundary if an instant is before it: quarter-hours are counted there. */
  readonly quarterHoursBefore: number | null;
}

/** Most counts by the minute that are read at once, of all types of all apps: about a second of the database's. */
const MOST_MINUTES = 1_000_000;

/**
 * Reads counters in one snapshot, in the order of the requests.
 * @returns 'too many' where instants that are no quarter-hours ask for more minutes than are read at once
 */
export async function readCounters(
  sql: Sql,
  requests: readonly CountersRequest[],
): Promise<readonly Counters[] | 'too many'> {
  const [only] = requests;
  const read = async (tx: Snapshot): Promise<readonly Counters[] | 'too many'> => {
    const found: Counters[] = [];
    const room = { minutes: MOST_MINUTES };
    for (const request of requests) {
      const counters = await readCountersOf(tx, request, room);
      if (counters === 'too many') return counters;
      found.push(counters);
    }
    return found;
  };
  if (only !== undefined && requests.length === 1) return await readCounts(sql, only.appId, read);
  return await readSnapshot(sql, read);
}

async function readCountersOf(
  tx: Snapshot,
  { appId, typeIds, instants }: CountersRequest,
  room: { minutes: number },
): Promise<Counters | 'too many'> {
  // Looked for once, whatever the parts ask for.
  const [retention] = await Promise.all([readRetention(tx, appId), tx.stale.within(ALL_TIME)]);
  const boundary = retention.whole({ typeIds: typeIds.includes(ALL_TYPES) ? null : typeIds });
  const times = instants.map((at) => floorTo(at, at < boundary ? QUARTER_HOUR_MS : MINUTE_MS));
  const quarters = [...new Set(times.map((time) => floorTo(time, QUARTER_HOUR_MS)))];
  const [first = 0, last = first] = [quarters[0], quarters.at(-1)];
  const fine = minutesOf(times);
  const minutes = fine.intervals.reduce((sum, { from, until }) => sum + (until - from) / MINUTE_MS, 0);
  room.minutes -= minutes * typeIds.length;
  if (room.minutes < 0) return 'too many';
  const counting = { appId, ids: typeIds };
  const ofMinutes = new Map(typeIds.map((id) => [id, new Array<number>(fine.cuts.length).fill(0)]));
  const width = { name: '15m', ms: QUARTER_HOUR_MS } as const;
  const [before, ofQuarters] = await Promise.all([
    countBefore(tx, counting, first),
    first === last
      ? new Map<number, number[]>()
      : countBuckets(tx, counting, { width, starts: quarters.slice(0, -1), end: last }),
    fine.cuts.length > 0 &&
      addIntervals(
        tx,
        appId,
        ofMinutes,
        { width: { name: '1m', ms: MINUTE_MS }, starts: fine.cuts, end: (fine.cuts.at(-1) ?? 0) + MINUTE_MS },
        fine.intervals,
      ),
  ]);
  const counts = typeIds.map((id): [number, number[]] => [
    id,
    running(
      { times, quarters, cuts: fine.cuts },
      before.get(id) ?? 0,
      ofQuarters.get(id) ?? [],
      ofMinutes.get(id) ?? [],
    ),
  ]);
  return {
    times,
    counts: new Map(counts),
    quarterHoursBefore: (instants[0] ?? boundary) < boundary ? boundary : null,
  };
}

interface MinuteParts {
  /** Where counts by the minute begin, ascending: quarter-hours, and the times in them. */
  readonly cuts: readonly number[];
  /** What of them is read: those around a neighbor's, together with it. */
  readonly intervals: readonly Interval[];
}

/** The minutes between quarter-hours and the times after them. @param times ascending */
function minutesOf(times: readonly number[]): MinuteParts {
  const cuts: number[] = [];
  const intervals: { from: number; until: number }[] = [];
  for (const time of times) {
    const quarter = floorTo(time, QUARTER_HOUR_MS);
    if (time === quarter || time === cuts.at(-1)) continue;
    if ((cuts.at(-1) ?? -1) < quarter) cuts.push(quarter);
    cuts.push(time);
    const known = intervals.at(-1);
    if (known !== undefined && quarter - known.until <= QUARTER_HOUR_MS) known.until = time;
    else intervals.push({ from: quarter, until: time });
  }
  // Beyond this many a statement takes longer than one that reads what is between them, too.
  const [first, last] = [intervals[0], intervals.at(-1)];
  if (intervals.length <= MAX_INTERVALS || first === undefined || last === undefined)
    return { cuts, intervals };
  return { cuts, intervals: [{ from: first.from, until: last.until }] };
}

/** The count up to each time. @param before all before the first quarter-hour */
function running(
  {
    times,
    quarters,
    cuts,
  }: { times: readonly number[]; quarters: readonly number[]; cuts: readonly number[] },
  before: number,
  ofQuarters: readonly number[],
  ofMinutes: readonly number[],
): number[] {
  let [quarter, atQuarter, cut, sinceQuarter] = [0, before, 0, 0];
  return times.map((time) => {
    for (; (quarters[quarter + 1] ?? Number.POSITIVE_INFINITY) <= time; quarter += 1)
      atQuarter += ofQuarters[quarter] ?? 0;
    const start = quarters[quarter] ?? 0;
    if (time === start) return atQuarter;
    // The cuts of the quarter-hour before are passed, and begin anew at this one's start.
    for (; (cuts[cut] ?? Number.POSITIVE_INFINITY) < time; cut += 1)
      sinceQuarter = (cuts[cut] === start ? 0 : sinceQuarter) + (ofMinutes[cut] ?? 0);
    return atQuarter + sinceQuarter;
  });
}
