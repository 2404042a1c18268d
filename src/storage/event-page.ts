/**
 * A page of events and the exact total, both from one snapshot, at a cost that does not depend on the offset.
 *
 * The algorithm (order statistics over a tree of counts: day → hour → quarter-hour → minute):
 *  1. total: the interval is split into intervals of whole buckets (counts/intervals.ts); one statement sums each of them.
 *  2. page bounds: step 1 shows in which interval the running total passes the offset; a statement descends from it level
 *     by level to the minute. The same for the page's last event.
 *  3. rows: a last statement reads from the first minute to the last and skips what is left of the offset.
 * Descending order is the same walk from the other end.
 *
 * Times are literals in every statement, so that partitions are pruned when it is planned: an interval without an end
 * would have all of them planned.
 */
import type { Sql, Transaction } from './connect.ts';
import { type Fragment, readStaleBuckets } from './counts/exact-counts.ts';
import { type Interval, type LevelInterval, splitExactly } from './counts/intervals.ts';
import {
  ALL_TYPES,
  DAYS,
  floorTo,
  HOURS,
  type Level,
  MINUTE_MS,
  MINUTES,
  QUARTER_HOURS,
} from './counts/levels.ts';
import { countsRelation } from './fields/counts-relation.ts';
import type { FieldScope } from './fields/field-scope.ts';
import { type MatchingRow, matchingRows } from './fields/matching-rows.ts';
import { readSnapshot } from './snapshot.ts';

/** By time of creation, then id. */
export type Order = 'asc' | 'desc';

/** Which events: of one app, of one type or all, of an interval. */
export interface Scope {
  readonly appId: number;
  /** Internal id; null: all types. */
  readonly typeId: number | null;
  /** First millisecond since 1970; null: from the beginning. */
  readonly from: number | null;
  /** The end in milliseconds since 1970, not included; null: to the end. */
  readonly until: number | null;
  /** Only events whose payload passes its filter, which the counts of a declared field answer; `typeId` is then not used. */
  readonly field?: FieldScope;
}

export interface PageRequest {
  readonly scope: Scope;
  /** Events to skip. */
  readonly offset: number;
  /** Most events of the page, at least 1. */
  readonly limit: number;
  readonly order: Order;
  /** The page ends before the event whose payload would take it beyond this many bytes, unless it is the first. */
  readonly maxBytes: number;
}

export interface StoredEvent {
  readonly id: string;
  /** Public id of the type. */
  readonly typeId: string;
  readonly createdAt: Date;
  /** The very JSON text that was sent. */
  readonly payload: string;
}

export interface EventPage {
  /** All events of the scope that can be read. */
  readonly total: number;
  readonly events: readonly StoredEvent[];
  /** True where there are events after this page. */
  readonly hasMore: boolean;
}

/** An interval, and how many of its events, in the order of the page, to skip. */
interface SkipInterval extends Interval {
  readonly skip: number;
}

interface CountedInterval extends LevelInterval {
  readonly count: number;
}

// What a bound may be in SQL: far from every event, and written with a year of four digits.
const EARLIEST = Date.UTC(1900, 0, 1);
const LATEST = Date.UTC(9999, 11, 31);

/**
 * A page with fewer events than one in this many minutes is read minute by minute. One with more is faster read as a
 * whole, with the rows of other types: in the columnstore each lookup decompresses a batch of rows.
 */
const SPARSE_MINUTES = 2;

/** Reads one page. Rejects where the database fails. */
export async function readEventPage(sql: Sql, request: PageRequest): Promise<EventPage> {
  return isEmpty(request.scope) ? NO_EVENTS : await readSnapshot(sql, (tx) => readPageIn(tx, request));
}

const NO_EVENTS: EventPage = { total: 0, events: [], hasMore: false };

function isEmpty({ from, until }: Scope): boolean {
  return clamp(from ?? EARLIEST) >= clamp(until ?? LATEST);
}

/** The same in the snapshot of a transaction. */
export async function readPageIn(tx: Transaction, request: PageRequest): Promise<EventPage> {
  const { scope } = request;
  if (isEmpty(scope)) return NO_EVENTS;
  const interval = { from: clamp(scope.from ?? EARLIEST), until: clamp(scope.until ?? LATEST) };
  const counted = await countIntervals(tx, scope, await intervalsOf(tx, scope, interval));
  const total = counted.reduce((sum, { count }) => sum + count, 0);
  if (request.offset >= total) return { total, events: [], hasMore: false };
  const size = Math.min(request.limit, total - request.offset);
  const events = await readRows(tx, request, await locate(tx, request, counted, size), size);
  // If a counted row were missing, an empty page with hasMore would make its reader ask forever.
  const hasMore = events.length > 0 && request.offset + events.length < total;
  return { total, events, hasMore };
}

/** All events of a scope that can be read, in the snapshot of a transaction. */
export async function countScope(tx: Transaction, scope: Scope): Promise<number> {
  if (isEmpty(scope)) return 0;
  const interval = { from: clamp(scope.from ?? EARLIEST), until: clamp(scope.until ?? LATEST) };
  const counted = await countIntervals(tx, scope, await intervalsOf(tx, scope, interval));
  return counted.reduce((sum, { count }) => sum + count, 0);
}

/** The counts of fields lack nothing that their corrections do not have. */
async function intervalsOf(
  tx: Transaction,
  { field }: Scope,
  interval: Interval,
): Promise<readonly LevelInterval[]> {
  return splitExactly(interval, field === undefined ? await readStaleBuckets(tx, interval) : []);
}

/** Sums each interval, as far as retention lets it be read, and returns those that hold events. */
async function countIntervals(
  tx: Transaction,
  scope: Scope,
  intervals: readonly LevelInterval[],
): Promise<CountedInterval[]> {
  // The retention boundary is the start of a day: an interval that it cuts still consists of whole buckets.
  const sums = intervals.map((interval) => sumOf(tx, scope, interval));
  const [row] = await tx<{ readableFrom: number; counts: number[] }[]>`
    SELECT (extract(epoch FROM greatest(readable_from, ${EARLIEST})) * 1000)::float8 AS "readableFrom",
           ARRAY[${sums.flatMap((sum, i) => (i === 0 ? [sum] : [tx`,`, sum]))}]::float8[] AS counts
      FROM retention`;
  if (row === undefined) throw new Error('The table retention has lost its row.');
  const { readableFrom, counts } = row;
  if (scope.field !== undefined)
    for (const [index, interval] of intervals.entries())
      if (interval.level === null) counts[index] = await countMatching(tx, scope, scope.field, interval);
  return intervals
    .map((interval, i) => ({
      ...interval,
      from: Math.max(interval.from, readableFrom),
      count: counts[i] ?? 0,
    }))
    .filter(({ count }) => count > 0);
}

function sumOf(tx: Transaction, scope: Scope, { level, from, until }: LevelInterval): Fragment {
  if (level !== null)
    return tx`(SELECT coalesce(sum(count), 0) FROM ${relationOf(tx, scope, level)}
                WHERE ${countsOf(tx, scope)} AND bucket >= greatest(${from}, readable_from) AND bucket < ${until})`;
  // Which rows a filter passes is not decided by SQL.
  if (scope.field !== undefined) return tx`0`;
  return tx`(SELECT count(*) FROM events
              WHERE ${rowsOf(tx, scope)} AND created_at >= ${from} AND created_at < ${until}
                AND created_at >= readable_from)`;
}

/** Counts the rows of an interval that a filter passes. */
async function countMatching(
  tx: Transaction,
  { appId }: Scope,
  field: FieldScope,
  interval: Interval,
): Promise<number> {
  let count = 0;
  for await (const rows of matchingRows(tx, { ...field, appId }, [interval], 'asc')) count += rows.length;
  return count;
}

/**
 * Finds the page's first and last event in the counts.
 * @param size how many events the page has, at least 1
 * @returns the whole minutes from the first to the last, cut where the scope begins or ends within one
 */
async function locate(
  tx: Transaction,
  request: PageRequest,
  counted: readonly CountedInterval[],
  size: number,
): Promise<SkipInterval> {
  const walk = request.order === 'asc' ? counted : counted.toReversed();
  const { offset } = request;
  const [first, last] = [intervalOf(walk, offset), intervalOf(walk, offset + size - 1)];
  // Sent together: the second does not wait for the answer to the first.
  const minutes =
    first.interval === last.interval
      ? findMinutes(tx, request, first.interval, [first.skip, last.skip])
      : Promise.all([
          findMinutes(tx, request, first.interval, [first.skip]),
          findMinutes(tx, request, last.interval, [last.skip]),
        ]).then((found) => found.flat());
  const [begin, end] = await minutes;
  if (begin === undefined || end === undefined) {
    throw new Error('The finer counts hold fewer events than the coarser ones.');
  }
  return { from: Math.min(begin.from, end.from), until: Math.max(begin.until, end.until), skip: begin.skip };
}

/** The interval that holds one event. @param skip how many events of the walk come before it */
function intervalOf(
  walk: readonly CountedInterval[],
  skip: number,
): { readonly interval: CountedInterval; readonly skip: number } {
  let before = 0;
  for (const interval of walk) {
    if (skip - before < interval.count) return { interval, skip: skip - before };
    before += interval.count;
  }
  throw new Error(`There is no event ${skip} among ${before}.`);
}

/**
 * Finds the minutes of an interval in which each of the ascending `skips` is passed. The days are found by a statement of
 * their own: the finer counts are then searched in those days alone, which are one or two chunks of many on TimescaleDB.
 */
async function findMinutes(
  tx: Transaction,
  request: PageRequest,
  { level, from, until }: CountedInterval,
  skips: readonly number[],
): Promise<SkipInterval[]> {
  const whole = skips.map((skip) => ({ from, until, skip }));
  if (level === null) return whole;
  const isDays = level === DAYS && until - from > level.ms;
  const found = isDays ? await descend(tx, request, [DAYS], whole) : whole;
  // Quarter-hours between would save the sums of a few minutes, and cost a relation that is planned.
  const isFine = level === MINUTES || level === QUARTER_HOURS;
  return await descend(tx, request, isFine ? [MINUTES] : [HOURS, MINUTES], found);
}

/**
 * Goes from intervals of whole buckets down to the bucket in which the `skip` of each is passed, in one statement.
 * @param levels the coarsest first; the buckets of the last are returned
 */
async function descend(
  tx: Transaction,
  { scope, order }: PageRequest,
  levels: readonly Level[],
  intervals: readonly SkipInterval[],
): Promise<SkipInterval[]> {
  const direction = order === 'asc' ? tx`ASC` : tx`DESC`;
  const instants = (times: readonly number[]): string[] => times.map((time) => new Date(time).toISOString());
  const bounds = tx`
    bucket >= ${Math.min(...intervals.map((one) => one.from))} AND bucket < ${Math.max(...intervals.map((one) => one.until))}`;
  let found = tx`
    SELECT * FROM unnest(${instants(intervals.map(({ from }) => from))}::timestamptz[],
                         ${instants(intervals.map(({ until }) => until))}::timestamptz[],
                         ${intervals.map(({ skip }) => skip)}::numeric[]) WITH ORDINALITY AS whole (start, finish, skip, nth)`;
  for (const level of levels) {
    found = tx`
      SELECT below.*, nth
        FROM (${found}) above
       CROSS JOIN LATERAL (
              SELECT bucket AS start, bucket + ${level.ms} * interval '1 ms' AS finish, above.skip - (passed - here) AS skip
                FROM (SELECT bucket, sum(count) AS here, sum(sum(count)) OVER (ORDER BY bucket ${direction}) AS passed
                        FROM ${relationOf(tx, scope, level)}
                       WHERE ${countsOf(tx, scope)} AND ${bounds} AND bucket >= above.start AND bucket < above.finish
                       GROUP BY bucket) running
               WHERE passed > above.skip
               ORDER BY bucket ${direction}
               LIMIT 1) below`;
  }
  return await tx<SkipInterval[]>`
    SELECT (extract(epoch FROM start) * 1000)::float8 AS from, (extract(epoch FROM finish) * 1000)::float8 AS until,
           skip::float8
      FROM (${found}) found ORDER BY nth`;
}

/** Reads the page's `size` rows from an interval that holds them all, without the first `skip` of it. */
async function readRows(
  tx: Transaction,
  request: PageRequest,
  { from, until, skip }: SkipInterval,
  size: number,
): Promise<StoredEvent[]> {
  const { scope, order, limit, maxBytes } = request;
  if (scope.field !== undefined)
    return await readMatching(tx, request, scope.field, { from, until, skip }, size);
  const inOrder = order === 'asc' ? tx`ORDER BY created_at, id` : tx`ORDER BY created_at DESC, id DESC`;
  const inInterval = tx`
    SELECT id, type_id, created_at, payload FROM events
     WHERE ${rowsOf(tx, scope)} AND created_at >= ${from} AND created_at < ${until}`;
  const isSparse = until - from > SPARSE_MINUTES * (size + 1) * MINUTE_MS;
  const rows =
    scope.typeId !== null && isSparse ? rowsByMinute(tx, scope, { from, until }, inInterval) : inInterval;
  const before = tx`(${inOrder} ROWS UNBOUNDED PRECEDING)`;
  // The stored size is known without reading the value: at most the text's length, plus 4 bytes of header. So the rows
  // that cannot be on the page are left out before the texts of the others are measured.
  return await tx<StoredEvent[]>`
    SELECT id, (SELECT public_id FROM type_names WHERE type_names.app_id = ${scope.appId} AND type_names.id = type_id) AS "typeId",
           created_at AS "createdAt", payload
      FROM (SELECT id, type_id, created_at, payload, number, sum(octet_length(payload)) OVER ${before} AS bytes
              FROM (SELECT id, type_id, created_at, payload::text AS payload, number
                      FROM (SELECT *, row_number() OVER ${before} AS number,
                                   sum(pg_column_size(payload) - 4) OVER ${before} AS least_bytes
                              FROM (${rows} ${inOrder} OFFSET ${skip} LIMIT ${limit}) page) page
                     WHERE number = 1 OR least_bytes <= ${maxBytes}) page) page
     WHERE number = 1 OR bytes <= ${maxBytes}
     ${inOrder}`;
}

/** The same rows where a filter decides: those before the page are looked at, too, but no further than its first minute. */
async function readMatching(
  tx: Transaction,
  { scope, order, maxBytes }: PageRequest,
  field: FieldScope,
  { from, until, skip }: SkipInterval,
  size: number,
): Promise<StoredEvent[]> {
  const isSparse = until - from > SPARSE_MINUTES * (size + 1) * MINUTE_MS;
  const minutes = isSparse ? await minutesWithCounts(tx, scope, { from, until }) : [{ from, until }];
  const intervals = order === 'asc' ? minutes : minutes.toReversed();
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

/** The minutes of an interval that hold events of a scope, cut to the interval. */
async function minutesWithCounts(
  tx: Transaction,
  scope: Scope,
  { from, until }: Interval,
): Promise<Interval[]> {
  const minutes = await tx<{ at: number }[]>`
    SELECT (extract(epoch FROM bucket) * 1000)::float8 AS at FROM ${relationOf(tx, scope, MINUTES)}
     WHERE ${countsOf(tx, scope)} AND bucket >= ${floorTo(from, MINUTE_MS)} AND bucket < ${until}
     GROUP BY bucket HAVING sum(count) > 0 ORDER BY bucket`;
  return minutes.map(({ at }) => ({ from: Math.max(from, at), until: Math.min(until, at + MINUTE_MS) }));
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

/**
 * Rows by the minutes that hold the type, or whose count may be stale: between them lie the rows of all other types, which
 * are not looked at.
 */
function rowsByMinute(
  tx: Transaction,
  scope: Scope,
  { from, until }: Interval,
  inInterval: Fragment,
): Fragment {
  const inBuckets = tx`bucket >= ${floorTo(from, MINUTE_MS)} AND bucket < ${until}`;
  return tx`
    SELECT found.*
      FROM (SELECT bucket FROM ${tx(MINUTES.view)} WHERE ${countsOf(tx, scope)} AND ${inBuckets}
             UNION SELECT bucket FROM pending_marks WHERE level = 0 AND ${inBuckets}) minutes
     CROSS JOIN LATERAL (
             ${inInterval} AND created_at >= bucket AND created_at < bucket + interval '1 minute' OFFSET 0) found`;
}

function rowsOf(tx: Transaction, { appId, typeId }: Scope): Fragment {
  return typeId === null ? tx`app_id = ${appId}` : tx`app_id = ${appId} AND type_id = ${typeId}`;
}

function relationOf(tx: Transaction, { appId, field }: Scope, { view }: Level): Fragment {
  return countsRelation(tx, view, field && { appId, corrections: field.corrections });
}

function countsOf(tx: Transaction, { appId, typeId, field }: Scope): Fragment {
  if (field !== undefined) return tx`app_id = ${appId} AND type_id = ANY(${[...field.ids]})`;
  return tx`app_id = ${appId} AND type_id = ${typeId ?? ALL_TYPES}`;
}

function clamp(ms: number): number {
  return Math.min(Math.max(ms, EARLIEST), LATEST);
}
