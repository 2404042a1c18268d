/** Reads the rows of intervals whose payloads pass a filter, in order and in the snapshot of a transaction. */

import { countWhile } from '../../base/bisect.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import type { Interval } from '../counts/intervals.ts';
import { DAY_MS } from '../counts/levels.ts';
import type { Snapshot } from '../counts/stale.ts';
import type { ArchivedGroup } from '../database/archive-source.ts';
import type { Fragment, Transaction } from '../database/connect.ts';
import type { ArchivedRow } from '../read/archived-rows.ts';
import { comesBefore, inOrderOf, merged } from '../read/positions.ts';
import { type Retention, readRetention } from '../retention.ts';
import { EVERY_ROW, passes, type RowFilter } from './row-filter.ts';

/** Rows of one statement, and bytes of their payloads: what is in memory at once. */
const ROWS_AT_ONCE = 1_000;
const BYTES_AT_ONCE = 8 * 1_048_576;
/** Intervals of one statement: those of a page of a rare value. */
const INTERVALS_AT_ONCE = 100;
/**
 * Intervals up to this far apart are read by one SELECT, which is planned over each partition of events in between, mostly one a
 * day. A SELECT of its own for an interval is planned over one partition, and costs as much as two of these.
 */
const TOGETHER_MS = 2 * DAY_MS;

export interface RowScope {
  readonly appId: number;
  /** Internal ids; null: all types. */
  readonly typeIds: readonly number[] | null;
  readonly filter: RowFilter;
}

export type MatchingRow = ArchivedRow;

/**
 * The rows that match, some at a time.
 * @param intervals in the order of reading, apart from each other
 */
export async function* matchingRows(
  tx: Snapshot,
  scope: RowScope,
  intervals: readonly Interval[],
  order: 'asc' | 'desc',
): AsyncGenerator<MatchingRow[]> {
  if (intervals.length === 0) return;
  const retention = await readRetention(tx, scope.appId);
  const local = localRows(tx, { ...scope, retention }, intervals, order);
  const groups = await tx.archived.groups(retention, { ...scope, ...spanOf(intervals) });
  if (groups.length === 0) yield* local;
  else
    yield* mergedRows(local, archivedRows(tx, { ...scope, retention }, { intervals, groups, order }), order);
}

/** Matching rows of the archive alone, group by group. */
function* archivedRows(
  tx: Snapshot,
  { appId, typeIds, filter, retention }: ReadableScope,
  {
    intervals,
    groups,
    order,
  }: {
    readonly intervals: readonly Interval[];
    readonly groups: readonly ArchivedGroup[];
    readonly order: 'asc' | 'desc';
  },
): Generator<MatchingRow[]> {
  const scope = { appId, typeIds, ...spanOf(intervals) };
  const inTime = inOrderOf(intervals, order);
  const isWithin = (at: number): boolean => {
    const interval = inTime[lastNotAfter(inTime, at)];
    return interval !== undefined && at >= interval.from && at < interval.until;
  };
  const touched = inOrderOf(groups, order).filter(({ at, lastAt }) =>
    inTime
      .slice(lastNotAfter(inTime, at), lastNotAfter(inTime, lastAt) + 1)
      .some(({ from, until }) => at < until && lastAt >= from),
  );
  const only = {
    name: JSON.stringify(filter.contains),
    test: ({ payload }: MatchingRow) =>
      filter.contains.every((texts) => texts.some((text) => payload.includes(text))),
  };
  for (const [index] of touched.entries()) {
    const rows = tx.archived.rows(retention, scope, touched.slice(index), only);
    const found = rows.filter(({ at, payload }) => isWithin(at) && filter.matches(payload));
    yield [...inOrderOf(found, order)];
  }
}

/** Rows of both, some at a time. */
async function* mergedRows(
  one: AsyncIterable<MatchingRow[]>,
  other: Iterable<MatchingRow[]>,
  order: 'asc' | 'desc',
): AsyncGenerator<MatchingRow[]> {
  const rest = other[Symbol.iterator]();
  let archived: MatchingRow[] = [];
  let isOver = false;
  const more = (): void => {
    const { value, done } = rest.next();
    isOver = done === true;
    if (done !== true) archived = [...archived, ...value];
  };
  for await (const rows of one) {
    for (let last = rows.at(-1); last !== undefined && !isOver; ) {
      const end = archived.at(-1);
      if (end !== undefined && comesBefore(last, end, order)) break;
      more();
    }
    const last = rows.at(-1);
    if (last === undefined) continue;
    const upTo = archived.filter((row) => comesBefore(row, last, order));
    archived = archived.slice(upTo.length);
    yield [...merged(upTo, rows, order)];
  }
  yield archived;
  yield* { [Symbol.iterator]: () => rest };
}

/** The index of the last interval that does not begin after an instant, at least 0. @param intervals in order of time */
function lastNotAfter(intervals: readonly Interval[], instant: number): number {
  return Math.max(0, countWhile(intervals.length, (index) => (intervals[index]?.from ?? 0) <= instant) - 1);
}

interface ReadableScope extends RowScope {
  readonly retention: Retention;
}

/** Matching rows of the database alone. */
async function* localRows(
  tx: Snapshot,
  scope: ReadableScope,
  intervals: readonly Interval[],
  order: 'asc' | 'desc',
): AsyncGenerator<MatchingRow[]> {
  const slices = new TimeSlice(tx.turns);
  for (let first = 0; first < intervals.length; first += INTERVALS_AT_ONCE) {
    const some = intervals.slice(first, first + INTERVALS_AT_ONCE);
    for (let last: MatchingRow | undefined, isOver = false; !isOver; ) {
      const rows: Candidate[] = await readCandidates(tx, scope, some, order, last);
      // The number of the last row shows whether the statement came to its limits before it.
      isOver = rows.at(-1)?.isLast ?? true;
      last = rows.at(-1);
      const matching: MatchingRow[] = [];
      for (const row of rows) {
        if (scope.filter.matches(row.payload)) matching.push(row);
        if (slices.isOver) await slices.next();
      }
      yield matching;
    }
  }
}

/**
 * Whether intervals hold more rows than a read may look at. It looks at no more itself, and at no payload; counts would not tell, for
 * which late rows are missing.
 * @param intervals in order of time, apart from each other
 */
export async function hasMoreRows(
  tx: Snapshot,
  { appId, typeIds }: Omit<RowScope, 'filter'>,
  intervals: readonly Interval[],
  most: number,
): Promise<boolean> {
  const [first, last] = [intervals.at(0), intervals.at(-1)];
  if (first === undefined || last === undefined) return false;
  const isOfType = typeIds === null ? tx`true` : tx`type_id = ANY(${[...typeIds]}::integer[])`;
  const [row] = await tx<{ count: number }[]>`
    SELECT count(*)::integer AS count
      FROM (SELECT FROM unnest(${intervals.map(({ from }) => new Date(from).toISOString())}::timestamptz[],
                               ${intervals.map(({ until }) => new Date(until).toISOString())}::timestamptz[]) AS part (start, finish)
             CROSS JOIN LATERAL (SELECT FROM events
                                  WHERE app_id = ${appId} AND ${isOfType} AND created_at >= start AND created_at < finish
                                    AND created_at >= ${new Date(first.from)} AND created_at < ${new Date(last.until)}
                                  LIMIT ${most + 1}) AS found
             LIMIT ${most + 1}) AS found`;
  let count = row?.count ?? 0;
  const retention = await readRetention(tx, appId);
  const groups = await tx.archived.groups(retention, { appId, typeIds, ...spanOf(intervals) });
  const scope = { appId, typeIds, filter: EVERY_ROW, retention };
  for (const rows of archivedRows(tx, scope, { intervals, groups, order: 'asc' })) {
    if (count > most) break;
    count += rows.length;
  }
  return count > most;
}

interface Candidate extends MatchingRow {
  /** Whether no row follows. */
  readonly isLast: boolean;
}

async function readCandidates(
  tx: Transaction,
  { appId, typeIds, filter, retention }: ReadableScope,
  intervals: readonly Interval[],
  order: 'asc' | 'desc',
  after: MatchingRow | undefined,
): Promise<Candidate[]> {
  const isAscending = order === 'asc';
  const inOrder = isAscending ? tx`ORDER BY created_at, id` : tx`ORDER BY created_at DESC, id DESC`;
  const isOfType = typeIds === null ? tx`true` : tx`type_id = ANY(${[...typeIds]}::integer[])`;
  const isBeyond =
    after === undefined
      ? tx`true`
      : tx`(created_at, id) ${isAscending ? tx`>` : tx`<`} (${new Date(after.at)}::timestamptz, ${after.id}::uuid)`;
  // Without OFFSET 0 each use of the text would be a conversion of its own.
  const rowsIn = ({ from, until }: Interval, within = tx``) => tx`
    SELECT id, type_id, created_at, text
      FROM (SELECT id, type_id, created_at, payload::text AS text FROM events
             WHERE app_id = ${appId} AND ${isOfType} AND ${isBeyond}
               AND created_at >= ${new Date(from)} AND created_at < ${new Date(until)}
               AND ${retention.readable(tx)} ${within} OFFSET 0) AS texts
     WHERE ${tx.unsafe(passes('text', filter.contains))}`;
  const ofGroup = (group: readonly Interval[]): Fragment => {
    const whole = spanOf(group);
    if (group.length === 1) return rowsIn(whole);
    return tx`
    SELECT found.* FROM unnest(${group.map((one) => new Date(one.from).toISOString())}::timestamptz[],
                               ${group.map((one) => new Date(one.until).toISOString())}::timestamptz[]) AS part (start, finish)
     CROSS JOIN LATERAL (${rowsIn(whole, tx`AND created_at >= start AND created_at < finish`)}) AS found`;
  };
  const page = nearEachOther(intervals)
    .map(ofGroup)
    .flatMap((rows, index) => (index === 0 ? [rows] : [tx` UNION ALL `, rows]));
  const before = tx`(${inOrder} ROWS UNBOUNDED PRECEDING)`;
  return await tx<Candidate[]>`
    SELECT id, type_id AS "typeId", (extract(epoch FROM created_at) * 1000)::float8 AS at, text AS payload,
           number = found AND found < ${ROWS_AT_ONCE} AS "isLast"
      FROM (SELECT *, row_number() OVER ${before} AS number, count(*) OVER () AS found,
                   sum(octet_length(text)) OVER ${before} AS bytes
              FROM (${page} ${inOrder} LIMIT ${ROWS_AT_ONCE}) AS page) AS page
     WHERE number = 1 OR bytes <= ${BYTES_AT_ONCE}
     ORDER BY number`;
}

/** The interval that holds several. */
function spanOf(intervals: readonly Interval[]): Interval {
  return {
    from: Math.min(...intervals.map(({ from }) => from)),
    until: Math.max(...intervals.map(({ until }) => until)),
  };
}

/** Puts together what is near each other. @param intervals in order of time, either way */
function nearEachOther(intervals: readonly Interval[]): Interval[][] {
  const groups: Interval[][] = [];
  for (const interval of intervals) {
    const last = groups.at(-1);
    const before = last?.at(-1);
    const gap =
      before === undefined ? 0 : Math.max(interval.from - before.until, before.from - interval.until);
    if (last === undefined || gap > TOGETHER_MS) groups.push([interval]);
    else last.push(interval);
  }
  return groups;
}
