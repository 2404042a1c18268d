/**
 * A page of events and the exact total, both from one snapshot, at a cost that does not depend on the offset.
 *
 * The algorithm (order statistics over a tree of counts, the tree being day → hour → quarter-hour → minute):
 *  1. total: the range is cut into segments of whole buckets (count-segments.ts); one statement adds up each of them.
 *  2. place: the segment in which the running total passes the offset is known from 1; a statement descends from it
 *     level by level to the minute. The same for the page's last event.
 *  3. rows: a last statement reads from the one minute to the other and skips what is left of the offset.
 * Descending order is the same walk from the other end.
 *
 * Times are literal in every statement, so that partitions are pruned when it is planned: a range without an end would
 * have all of them planned. Measured in bench/read-depth.ts.
 */
import type postgres from 'postgres';
import type { Order } from '../read/events-query.ts';
import type { Sql, Transaction } from './connect.ts';
import {
  ALL_TYPES,
  exactSegmentsOf,
  LEVELS,
  type Level,
  MINUTE_MS,
  type Range,
  type Segment,
} from './counts/count-segments.ts';
import { readStaleBuckets } from './counts/stale-buckets.ts';

/** Which events: of one app, of one type or all, of a range of time. */
export interface Scope {
  readonly appId: number;
  /** Internal id; null: all types. */
  readonly typeId: number | null;
  /** First millisecond since 1970; null: from the beginning. */
  readonly from: number | null;
  /** First millisecond since 1970 that is behind the range; null: to the end. */
  readonly until: number | null;
}

export interface PageRequest {
  readonly scope: Scope;
  /** Events to skip. */
  readonly offset: number;
  /** Most events of the page, at least 1. */
  readonly limit: number;
  /** By time of creation, then id. */
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
  /** True where there are events behind this page. */
  readonly hasMore: boolean;
}

/** A stretch of time, and how many events of it, in the order of the page, to skip. */
interface Place extends Range {
  readonly skip: number;
}

type Fragment = postgres.PendingQuery<postgres.Row[]>;

interface CountedSegment extends Segment {
  readonly count: number;
}

// What a bound may be in SQL: wide of every event, and written with a year of four digits.
const EARLIEST = Date.UTC(1900, 0, 1);
const LATEST = Date.UTC(9999, 11, 31);

/**
 * A page with fewer events than one in this many minutes is read minute by minute. One with more is quicker read as a
 * whole, with the rows of other types: in the columnstore each look-up opens a batch of a thousand rows.
 */
const SPARSE_MINUTES = 2;

/** Reads one page. Rejects where the database fails. */
export async function readEventPage(sql: Sql, request: PageRequest): Promise<EventPage> {
  const range = { from: clamp(request.scope.from ?? EARLIEST), until: clamp(request.scope.until ?? LATEST) };
  if (range.from >= range.until) return { total: 0, events: [], hasMore: false };
  return await sql.begin('isolation level repeatable read read only', async (tx) => {
    const segments = exactSegmentsOf(range, await readStaleBuckets(tx, range));
    const counted = await countSegments(tx, request.scope, segments);
    const total = counted.reduce((sum, segment) => sum + segment.count, 0);
    if (request.offset >= total) return { total, events: [], hasMore: false };
    const size = Math.min(request.limit, total - request.offset);
    const events = await readRows(tx, request, await locate(tx, request, counted, size), size);
    // Were a row missing that was counted, an empty page with more to come would have its reader ask for ever.
    const hasMore = events.length > 0 && request.offset + events.length < total;
    return { total, events, hasMore };
  });
}

/** Adds up each segment, as far as retention lets it be read, and gives those back that hold something. */
async function countSegments(
  tx: Transaction,
  scope: Scope,
  segments: readonly Segment[],
): Promise<CountedSegment[]> {
  // The boundary is the start of a day, so a segment that it cuts still is whole buckets.
  const sums = segments.map(({ level, from, until }) =>
    level === null
      ? tx`(SELECT count(*) FROM events
             WHERE ${rowsOf(tx, scope)} AND created_at >= ${from} AND created_at < ${until}
               AND created_at >= readable_from)`
      : tx`(SELECT coalesce(sum(count), 0) FROM ${tx(level.view)}
             WHERE ${countsOf(tx, scope)} AND bucket >= greatest(${from}, readable_from) AND bucket < ${until})`,
  );
  const [row] = await tx<{ readableFrom: number; counts: number[] }[]>`
    SELECT (extract(epoch FROM greatest(readable_from, ${EARLIEST})) * 1000)::float8 AS "readableFrom",
           ARRAY[${sums.flatMap((sum, i) => (i === 0 ? [sum] : [tx`,`, sum]))}]::float8[] AS counts
      FROM retention`;
  if (row === undefined) throw new Error('The table retention has lost its row.');
  const { readableFrom, counts } = row;
  return segments
    .map((segment, i) => ({ ...segment, from: Math.max(segment.from, readableFrom), count: counts[i] ?? 0 }))
    .filter((segment) => segment.count > 0);
}

/**
 * Finds the page's first and last event in the counts.
 * @param size how many events the page has, at least 1
 * @returns the whole minutes (cut off where the scope begins or ends within one) from one to the other
 */
async function locate(
  tx: Transaction,
  request: PageRequest,
  counted: readonly CountedSegment[],
  size: number,
): Promise<Place> {
  const walk = request.order === 'asc' ? counted : counted.toReversed();
  const { offset } = request;
  const [first, last] = [segmentOf(walk, offset), segmentOf(walk, offset + size - 1)];
  // Sent together: the second does not wait for the answer to the first.
  const places =
    first.segment === last.segment
      ? find(tx, request, first.segment, [first.skip, last.skip])
      : Promise.all([
          find(tx, request, first.segment, [first.skip]),
          find(tx, request, last.segment, [last.skip]),
        ]).then((found) => found.flat());
  const [begin, end] = await places;
  if (begin === undefined || end === undefined) {
    throw new Error('The finer counts hold fewer events than the coarser ones.');
  }
  return { from: Math.min(begin.from, end.from), until: Math.max(begin.until, end.until), skip: begin.skip };
}

/** The segment that holds one event. @param skip how many events of the walk come before it */
function segmentOf(
  walk: readonly CountedSegment[],
  skip: number,
): { readonly segment: CountedSegment; readonly skip: number } {
  let before = 0;
  for (const segment of walk) {
    if (skip - before < segment.count) return { segment, skip: skip - before };
    before += segment.count;
  }
  throw new Error(`There is no event ${skip} among ${before}.`);
}

/**
 * Finds the minutes in which `skips` events of a segment are passed, ascending. The days by themselves first: then the
 * finer counts are looked for in those days alone, which are a chunk or two of many on TimescaleDB.
 */
async function find(
  tx: Transaction,
  request: PageRequest,
  { level, from, until }: CountedSegment,
  skips: readonly number[],
): Promise<Place[]> {
  const places = skips.map((skip) => ({ from, until, skip }));
  if (level === null) return places;
  if (level !== LEVELS[0] || until - from === level.ms) {
    return await descend(tx, request, LEVELS.slice(LEVELS.indexOf(level)), places);
  }
  return await descend(tx, request, LEVELS.slice(1), await descend(tx, request, [level], places));
}

/** Goes down, level by level, from ranges of whole buckets to the bucket in which the `skip` of each is passed. */
async function descend(
  tx: Transaction,
  { scope, order }: PageRequest,
  levels: readonly Level[],
  places: readonly Place[],
): Promise<Place[]> {
  const direction = order === 'asc' ? tx`ASC` : tx`DESC`;
  const instants = (times: readonly number[]): string[] => times.map((time) => new Date(time).toISOString());
  const bounds = tx`
    bucket >= ${Math.min(...places.map((place) => place.from))} AND bucket < ${Math.max(...places.map((place) => place.until))}`;
  let found = tx`
    SELECT * FROM unnest(${instants(places.map(({ from }) => from))}::timestamptz[],
                         ${instants(places.map(({ until }) => until))}::timestamptz[],
                         ${places.map(({ skip }) => skip)}::numeric[]) WITH ORDINALITY AS place (start, finish, skip, nth)`;
  for (const { view, ms } of levels) {
    found = tx`
      SELECT below.*, nth
        FROM (${found}) place
       CROSS JOIN LATERAL (
              SELECT bucket AS start, bucket + ${ms} * interval '1 ms' AS finish, place.skip - (passed - here) AS skip
                FROM (SELECT bucket, sum(count) AS here, sum(sum(count)) OVER (ORDER BY bucket ${direction}) AS passed
                        FROM ${tx(view)}
                       WHERE ${countsOf(tx, scope)} AND ${bounds} AND bucket >= place.start AND bucket < place.finish
                       GROUP BY bucket) running
               WHERE passed > place.skip
               ORDER BY bucket ${direction}
               LIMIT 1) below`;
  }
  return await tx<Place[]>`
    SELECT (extract(epoch FROM start) * 1000)::float8 AS from, (extract(epoch FROM finish) * 1000)::float8 AS until,
           skip::float8
      FROM (${found}) place ORDER BY nth`;
}

/** Reads the page's `size` rows: from `place`, which holds them all, without the first `place.skip` of it. */
async function readRows(
  tx: Transaction,
  request: PageRequest,
  place: Place,
  size: number,
): Promise<StoredEvent[]> {
  const { scope, order, limit, maxBytes } = request;
  const inOrder = order === 'asc' ? tx`ORDER BY created_at, id` : tx`ORDER BY created_at DESC, id DESC`;
  const inPlace = tx`
    SELECT id, type_id, created_at, payload FROM events
     WHERE ${rowsOf(tx, scope)} AND created_at >= ${place.from} AND created_at < ${place.until}`;
  const isSparse = place.until - place.from > SPARSE_MINUTES * (size + 1) * MINUTE_MS;
  const rows = scope.typeId !== null && isSparse ? rowsByMinute(tx, scope, place, inPlace) : inPlace;
  const before = tx`(${inOrder} ROWS UNBOUNDED PRECEDING)`;
  // What is stored is compressed at best, and known without reading it: no text is as short, but for 4 bytes of header.
  // So the rows that can not be on the page are left out before the texts of the others are measured.
  return await tx<StoredEvent[]>`
    SELECT id, (SELECT public_id FROM event_types WHERE event_types.id = type_id) AS "typeId",
           created_at AS "createdAt", payload
      FROM (SELECT id, type_id, created_at, payload, number, sum(octet_length(payload)) OVER ${before} AS bytes
              FROM (SELECT id, type_id, created_at, payload::text AS payload, number
                      FROM (SELECT *, row_number() OVER ${before} AS number,
                                   sum(pg_column_size(payload) - 4) OVER ${before} AS least_bytes
                              FROM (${rows} ${inOrder} OFFSET ${place.skip} LIMIT ${limit}) page) page
                     WHERE number = 1 OR least_bytes <= ${maxBytes}) page) page
     WHERE number = 1 OR bytes <= ${maxBytes}
     ${inOrder}`;
}

/**
 * Between the minutes of a rare type lie all other types' rows: only minutes that hold the type, or whose count may be
 * stale, are looked at.
 */
function rowsByMinute(tx: Transaction, scope: Scope, place: Place, inPlace: Fragment): Fragment {
  const first = Math.floor(place.from / MINUTE_MS) * MINUTE_MS;
  const inBuckets = tx`bucket >= ${first} AND bucket < ${place.until}`;
  return tx`
    SELECT found.*
      FROM (SELECT bucket FROM events_per_minute WHERE ${countsOf(tx, scope)} AND ${inBuckets}
             UNION SELECT bucket FROM stale_buckets WHERE level = 0 AND ${inBuckets}) minutes
     CROSS JOIN LATERAL (
             ${inPlace} AND created_at >= bucket AND created_at < bucket + interval '1 minute' OFFSET 0) found`;
}

function rowsOf(tx: Transaction, { appId, typeId }: Scope): Fragment {
  return typeId === null ? tx`app_id = ${appId}` : tx`app_id = ${appId} AND type_id = ${typeId}`;
}

function countsOf(tx: Transaction, { appId, typeId }: Scope): Fragment {
  return tx`app_id = ${appId} AND type_id = ${typeId ?? ALL_TYPES}`;
}

function clamp(ms: number): number {
  return Math.min(Math.max(ms, EARLIEST), LATEST);
}
