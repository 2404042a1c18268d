/**
 * The rows of a page of events that pass a filter, found through the counts of a declared field.
 *
 * The counts tell in which minutes the page lies, and how many of its events each has. So one statement, which goes on from the
 * hours that the page begins and ends in, gives all of these minutes; another one reads the rows that may match in them.
 */

import type { Interval } from '../counts/intervals.ts';
import { DAYS, HOURS, MINUTE_MS, MINUTES } from '../counts/levels.ts';
import type { Snapshot } from '../counts/stale.ts';
import type { Sql, Transaction } from '../database/connect.ts';
import type { FieldScope } from '../fields/field-scope.ts';
import { type MatchingRow, matchingRows } from '../fields/matching-rows.ts';
import { joinMinutes } from '../fields/uncounted-minutes.ts';
import {
  type CountedInterval,
  countFilter,
  descend,
  intervalOf,
  relationOf,
  type SkipInterval,
} from './count-descent.ts';
import type { PageRequest, Scope, StoredEvent } from './page-request.ts';

/**
 * A page with fewer events than one in this many minutes is read minute by minute. One with more is faster read as a
 * whole, with the rows of other types: in the columnstore each lookup decompresses a batch of rows.
 */
const SPARSE_MINUTES = 2;
/** So few events are in so few minutes that these are looked through at once, without coarser counts. */
const FEW_EVENTS = 2_000;

/** Whether the events of a page are far apart in the interval that holds them. */
export function isSpread({ from, until }: Interval, events: number): boolean {
  return until - from > SPARSE_MINUTES * (events + 1) * MINUTE_MS;
}

export interface FilteredPageRequest extends PageRequest {
  readonly field: FieldScope;
}

/** What a page is made of. */
interface PageParts {
  /** In the order of the page. */
  readonly intervals: readonly Interval[];
  /** Events of the first one that come before the page. */
  readonly skip: number;
}

/**
 * Reads the rows of a page. Those before it are looked at, too, but no further than its first minute.
 * @param counted the intervals of the scope that hold events, in order of time
 * @param size    how many events the page has, at least 1
 */
export async function readFilteredRows(
  tx: Snapshot,
  request: FilteredPageRequest,
  counted: readonly CountedInterval[],
  size: number,
): Promise<StoredEvent[]> {
  const { scope, field, order, maxBytes } = request;
  const parts = await partsOfPage(tx, request, counted, size);
  const { skip } = parts;
  const whole = {
    from: Math.min(...parts.intervals.map(({ from }) => from)),
    until: Math.max(...parts.intervals.map(({ until }) => until)),
  };
  const intervals = isSpread(whole, size) ? parts.intervals : [whole];
  const found: MatchingRow[] = [];
  let left = skip;
  let bytes = 0;
  for await (const rows of matchingRows(tx, { ...field, appId: scope.appId }, intervals, order)) {
    for (const row of rows.slice(left)) {
      bytes += Buffer.byteLength(row.payload);
      if (found.length > 0 && bytes > maxBytes) return await withTypes(tx, scope.appId, found);
      found.push(row);
      if (found.length === size) return await withTypes(tx, scope.appId, found);
    }
    left = Math.max(0, left - rows.length);
  }
  return await withTypes(tx, scope.appId, found);
}

/** Finds what a page is made of in the counts. */
async function partsOfPage(
  tx: Snapshot,
  request: FilteredPageRequest,
  counted: readonly CountedInterval[],
  size: number,
): Promise<PageParts> {
  const { order, offset } = request;
  const walk = order === 'asc' ? counted : counted.toReversed();
  const ends = [intervalOf(walk, offset), intervalOf(walk, offset + size - 1)] as const;
  const [first, last] = ends;
  const [begin, end] = await findHours(tx, request, ends);
  if (begin === undefined || end === undefined)
    throw new Error('The finer counts hold fewer events than the coarser ones.');
  // Parts of minutes, which were counted from rows, have no counts to go on with.
  const isBeginCut = first.interval.level === null;
  const isEndCut = last.interval.level === null;
  if (isBeginCut && first.interval === last.interval) return { intervals: [begin], skip: begin.skip };
  const inner = innerInterval(order, { begin, isBeginCut, end, isEndCut });
  const inMinutes =
    size - (isBeginCut ? first.interval.count - begin.skip : 0) - (isEndCut ? last.skip + 1 : 0);
  const minutes = await findMinutes(tx, request, { ...inner, skip: isBeginCut ? 0 : begin.skip }, inMinutes);
  return {
    intervals: [...(isBeginCut ? [begin] : []), ...minutes.intervals, ...(isEndCut ? [end] : [])],
    skip: isBeginCut ? begin.skip : minutes.skip,
  };
}

type PageEnd = ReturnType<typeof intervalOf>;

/** The hours that a page begins and ends in; whole intervals where these hold few events. */
async function findHours(
  tx: Snapshot,
  request: FilteredPageRequest,
  [first, last]: readonly [PageEnd, PageEnd],
): Promise<SkipInterval[]> {
  const find = async (interval: CountedInterval, skips: readonly number[]): Promise<SkipInterval[]> => {
    const { level, from, until, count } = interval;
    const whole = skips.map((skip) => ({ from, until, skip }));
    if (count <= FEW_EVENTS || (level !== DAYS && level !== HOURS)) return whole;
    return await descend(tx, request, level === DAYS ? [DAYS, HOURS] : [HOURS], whole);
  };
  if (first.interval === last.interval) return await find(first.interval, [first.skip, last.skip]);
  // Sent together: the second does not wait for the answer to the first.
  const found = [find(first.interval, [first.skip]), find(last.interval, [last.skip])];
  return (await Promise.all(found)).flat();
}

interface PageEnds {
  readonly begin: Interval;
  readonly isBeginCut: boolean;
  readonly end: Interval;
  readonly isEndCut: boolean;
}

/** From the begin to the end of a page, without parts of minutes. */
function innerInterval(order: 'asc' | 'desc', { begin, isBeginCut, end, isEndCut }: PageEnds): Interval {
  return order === 'asc'
    ? { from: isBeginCut ? begin.until : begin.from, until: isEndCut ? end.from : end.until }
    : { from: isEndCut ? end.until : end.from, until: isBeginCut ? begin.from : begin.until };
}

/** The whole minutes of an interval that hold some events after those to skip, in the order of the page. */
async function findMinutes(
  tx: Snapshot,
  { scope, order }: FilteredPageRequest,
  { from, until, skip }: SkipInterval,
  events: number,
): Promise<PageParts> {
  if (events === 0) return { intervals: [], skip: 0 };
  const direction = order === 'asc' ? tx`ASC` : tx`DESC`;
  const minutes = await tx<{ at: number; before: number }[]>`
    SELECT (extract(epoch FROM bucket) * 1000)::float8 AS at, (passed - here)::float8 AS before
      FROM (SELECT bucket, sum(count) AS here, sum(sum(count)) OVER (ORDER BY bucket ${direction}) AS passed
              FROM ${relationOf(tx, scope, MINUTES)}
             WHERE ${countFilter(tx, scope)} AND bucket >= ${from} AND bucket < ${until}
             GROUP BY bucket) AS running
     WHERE here > 0 AND passed > ${skip}::numeric AND passed - here < ${skip + events}::numeric
     ORDER BY bucket ${direction}`;
  const [first] = minutes;
  if (first === undefined) throw new Error('The finer counts hold fewer events than the coarser ones.');
  const intervals = joinMinutes(minutes.map(({ at }) => at).sort((a, b) => a - b));
  return { intervals: order === 'asc' ? intervals : intervals.toReversed(), skip: skip - first.before };
}

/** Counts the rows of an interval that a filter passes. */
export async function countMatching(
  tx: Snapshot,
  { appId }: Scope,
  field: FieldScope,
  interval: Interval,
): Promise<number> {
  let count = 0;
  for await (const rows of matchingRows(tx, { ...field, appId }, [interval], 'asc')) count += rows.length;
  return count;
}

/** Gives rows the public ids of their types. */
export async function withTypes(
  sql: Sql | Transaction,
  appId: number,
  rows: readonly MatchingRow[],
): Promise<StoredEvent[]> {
  if (rows.length === 0) return [];
  const types = await sql<{ id: number; typeId: string }[]>`
    SELECT id, public_id AS "typeId" FROM type_names
     WHERE app_id = ${appId} AND id = ANY(${[...new Set(rows.map(({ typeId }) => typeId))]})`;
  const publicIds = new Map(types.map(({ id, typeId }) => [id, typeId]));
  return rows.map(({ id, typeId, at, payload }) => ({
    id,
    typeId: publicIds.get(typeId) ?? '',
    createdAt: new Date(at),
    payload,
  }));
}
