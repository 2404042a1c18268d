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
 * Every statement on events has both ends of its interval, and is planned for them, so that partitions are pruned: without an
 * end all of them would be planned.
 */

import { type Interval, type LevelInterval, splitByLevel } from '../counts/intervals.ts';
import { DAYS, floorTo, HOURS, type Level, MINUTE_MS, MINUTES, QUARTER_HOURS } from '../counts/levels.ts';
import { exactIntervals, type Snapshot } from '../counts/stale.ts';
import type { Fragment, Sql, Transaction } from '../database/connect.ts';
import {
  Retention,
  type RetentionRow,
  readRetention,
  retentionColumns,
  retentionOfRow,
  selectBoundary,
} from '../retention.ts';
import { readWithArchived } from './archived-page.ts';
import {
  type CountedInterval,
  countFilter,
  countOf,
  descend,
  hasExceptions,
  intervalOf,
  relationOf,
  rowsOf,
  type SkipInterval,
} from './count-descent.ts';
import { countMatchingRows, isSpread, readFilteredRows } from './filtered-page.ts';
import type { EventPage, PageRequest, Scope, StoredEvent } from './page-request.ts';
import { readCounts, withKeptPlan } from './snapshot.ts';

// What a bound may be in SQL: far from every event, and written with a year of four digits.
const EARLIEST = Date.UTC(1900, 0, 1);
const LATEST = Date.UTC(9999, 11, 31);

/** Reads one page. Rejects where the database fails. */
export async function readEventPage(sql: Sql, request: PageRequest): Promise<EventPage> {
  return isEmpty(request.scope)
    ? NO_EVENTS
    : await readCounts(sql, request.scope.appId, (tx) => readPageIn(tx, request));
}

const NO_EVENTS: EventPage = { total: 0, events: [], hasMore: false };

function isEmpty({ from, until, typeIds }: Scope): boolean {
  return typeIds?.length === 0 || clamp(from ?? EARLIEST) >= clamp(until ?? LATEST);
}

/**
 * Reads a page in the snapshot of a transaction.
 * @param alsoSkipped further events to skip, which are counted meanwhile
 */
export async function readPageIn(
  tx: Snapshot,
  given: PageRequest,
  alsoSkipped: Promise<number> | number = 0,
): Promise<EventPage> {
  const { scope } = given;
  const [{ counted, retention, isByType }, skipped] = await Promise.all([
    isEmpty(scope) ? NOTHING : countWhole(tx, scope),
    alsoSkipped,
  ]);
  const total = sumOfCounts(counted);
  const request = { ...given, offset: given.offset + skipped };
  if (request.offset >= total) return { total, events: [], hasMore: false };
  const size = Math.min(request.limit, total - request.offset);
  const read = async (): Promise<StoredEvent[]> => {
    const found = await locate(
      tx,
      request,
      { counted, coarseUntil: coarseUntilOf(tx, scope, retention) },
      size,
    );
    if (scope.field !== undefined)
      return await readFilteredRows(tx, { ...request, field: scope.field }, found, size);
    const groups = await tx.archived.groups(retention, { ...scope, ...found });
    return groups.length > 0
      ? await readWithArchived(tx, request, retention, { ...found, groups, size })
      : await readRows(tx, request, isByType ? retention : null, found, size);
  };
  const events = await read();
  // If a counted row were missing, an empty page with hasMore would make its reader ask forever.
  const hasMore = events.length > 0 && request.offset + events.length < total;
  return { total, events, hasMore };
}

/** All events of a scope that can be read, in the snapshot of a transaction. */
export async function countScope(tx: Snapshot, scope: Scope): Promise<number> {
  return isEmpty(scope) ? 0 : sumOfCounts((await countWhole(tx, scope)).counted);
}

function sumOfCounts(counted: readonly CountedInterval[]): number {
  return counted.reduce((sum, { count }) => sum + count, 0);
}

/** What of a scope can be read. */
interface Counted {
  /** The intervals that hold events, in order of time. */
  readonly counted: readonly CountedInterval[];
  readonly retention: Retention;
  /** Whether it differs by type; otherwise the intervals have all that it lets be read. */
  readonly isByType: boolean;
}

const NOTHING: Counted = { counted: [], retention: new Retention(0), isByType: false };

async function countWhole(tx: Snapshot, scope: Scope): Promise<Counted> {
  const interval = { from: clamp(scope.from ?? EARLIEST), until: clamp(scope.until ?? LATEST) };
  const counted = scope.field === undefined ? 'events' : 'values';
  // Where it decides from which counts a scope is read, it is known before these; otherwise one statement tells both.
  const [known] = await Promise.all([
    tx.stale.minutesOutliveRows || counted === 'values' ? null : readRetention(tx, scope.appId),
    counted === 'events' ? tx.stale.within(interval) : null,
  ]);
  const split = async (whole: Interval): Promise<LevelInterval[]> => {
    const coarseUntil = known === null ? EARLIEST : coarseUntilOf(tx, scope, known);
    const [coarse, fine] = [
      { from: whole.from, until: Math.min(whole.until, coarseUntil) },
      { from: Math.max(whole.from, coarseUntil), until: whole.until },
    ];
    return [
      ...(await exactIntervals(tx, splitByLevel(coarse, QUARTER_HOURS), counted, QUARTER_HOURS)),
      ...(await exactIntervals(tx, splitByLevel(fine), counted)),
    ];
  };
  const boundary = selectBoundary(tx, scope.appId);
  const { counts, retention } = await countIntervals(tx, scope, await split(interval), boundary, known);
  if (!differs(retention, scope)) return { counted: counts, retention, isByType: false };
  const parts = retention.parts(scope, interval).map(async ({ typeIds, exceptTypes, ...part }) => {
    const own = { ...scope, typeIds, exceptTypes };
    const readable = tx`SELECT ${new Date(part.from)}::timestamptz AS readable_from`;
    return (await countIntervals(tx, own, await split(part), readable, retention)).counts;
  });
  return { counted: (await Promise.all(parts)).flat(), retention, isByType: true };
}

/** Up to where counts are kept by the quarter-hour alone, because rows have left. Values of fields are counted apart from rows. */
function coarseUntilOf(tx: Snapshot, { field }: Scope, { archivedUntil }: Retention): number {
  const isFine =
    tx.stale.minutesOutliveRows || field !== undefined || !tx.archived.reaches({ archivedUntil }, 0);
  return isFine ? EARLIEST : archivedUntil;
}

/** Whether types of a scope have a boundary of their own. Values of fields are not counted by parts: their scopes have one boundary. */
function differs({ own }: Retention, { typeIds, exceptTypes = [] }: Scope): boolean {
  if (own.size === 0) return false;
  return typeIds === null
    ? [...own.keys()].some((id) => !exceptTypes.includes(id))
    : typeIds.some((id) => own.has(id));
}

/**
 * Sums each interval, as far as retention lets it be read, and returns those that hold events.
 * @param retention SELECT of `readable_from`
 * @param known     what can be read; null: it is read, too
 */
async function countIntervals(
  tx: Snapshot,
  scope: Scope,
  intervals: readonly LevelInterval[],
  retention: Fragment,
  known: Retention | null,
): Promise<{ readonly counts: CountedInterval[]; readonly retention: Retention }> {
  // The retention boundary is the start of a day: an interval that it cuts still consists of whole buckets.
  const sums = intervals.map((interval) => countSelect(tx, scope, interval));
  const ofRows = async ({ level, ...interval }: LevelInterval): Promise<number> =>
    scope.field === undefined || level !== null
      ? 0
      : await countMatchingRows(tx, scope, scope.field, interval);
  const counting = tx<(RetentionRow & { readableFrom: number; counts: number[] })[]>`
    SELECT ${known === null ? tx`${retentionColumns(tx, scope.appId)},` : tx``} (extract(epoch FROM greatest(readable_from, ${EARLIEST})) * 1000)::float8 AS "readableFrom",
           ARRAY[${sums.flatMap((sum, i) => (i === 0 ? [sum] : [tx`,`, sum]))}]::float8[] AS counts
      FROM (${retention}) AS retention`;
  const [[row], matching] = await Promise.all([
    intervals.some(({ level }) => level === null) ? counting : withKeptPlan(tx, counting),
    Promise.all(intervals.map(ofRows)),
  ]);
  if (row === undefined) throw new Error('The table retention has lost its row.');
  const { readableFrom, counts } = row;
  const found = known ?? retentionOfRow(row);
  const archived = await Promise.all(
    intervals.map(({ level, ...interval }) =>
      level === null && scope.field === undefined ? tx.archived.count(found, { ...scope, ...interval }) : 0,
    ),
  );
  const all = intervals.map((interval, i) => ({
    ...interval,
    scope,
    from: Math.max(interval.from, readableFrom),
    count: (counts[i] ?? 0) + (matching[i] ?? 0) + (archived[i] ?? 0),
  }));
  return { counts: all.filter(({ count }) => count > 0), retention: found };
}

function countSelect(tx: Transaction, scope: Scope, { level, from, until }: LevelInterval): Fragment {
  if (level !== null)
    return tx`(SELECT coalesce(sum(${countOf(tx, scope)}), 0) FROM ${relationOf(tx, scope, level)}
                WHERE ${countFilter(tx, scope)} AND bucket >= greatest(${from}, readable_from) AND bucket < ${until})`;
  // Which rows a filter passes is not decided by SQL.
  if (scope.field !== undefined) return tx`0`;
  return tx`(SELECT count(*) FROM events
              WHERE ${rowsOf(tx, scope)} AND created_at >= ${from} AND created_at < ${until}
                AND created_at >= readable_from)`;
}

/**
 * Finds the page's first and last event in the counts.
 * @param size how many events the page has, at least 1
 * @returns the whole minutes from the first to the last, cut where the scope begins or ends within one
 */
async function locate(
  tx: Snapshot,
  request: PageRequest,
  { counted, coarseUntil }: { readonly counted: readonly CountedInterval[]; readonly coarseUntil: number },
  size: number,
): Promise<SkipInterval> {
  const walk = request.order === 'asc' ? counted : counted.toReversed();
  const { offset } = request;
  const [first, last] = [intervalOf(walk, offset), intervalOf(walk, offset + size - 1)];
  const find = (interval: CountedInterval, skips: readonly number[]): Promise<SkipInterval[]> =>
    findMinutes(tx, request, interval, skips, interval.until <= coarseUntil ? QUARTER_HOURS : MINUTES);
  // Sent together: the second does not wait for the answer to the first.
  const minutes =
    first.interval === last.interval
      ? find(first.interval, [first.skip, last.skip])
      : Promise.all([find(first.interval, [first.skip]), find(last.interval, [last.skip])]).then((found) =>
          found.flat(),
        );
  const [begin, end] = await minutes;
  if (begin === undefined || end === undefined) {
    throw new Error('The finer counts hold fewer events than the coarser ones.');
  }
  return { from: Math.min(begin.from, end.from), until: Math.max(begin.until, end.until), skip: begin.skip };
}

/**
 * Finds the minutes of an interval in which each of the ascending `skips` is passed. Where counts have partitions, the days are
 * found by a statement of their own: the finer counts are then searched in those days alone, which are one or two chunks of many.
 * @param finest quarter-hours where there are no finer counts
 */
async function findMinutes(
  tx: Snapshot,
  { order }: PageRequest,
  { level, from, until, scope }: CountedInterval,
  skips: readonly number[],
  finest: Level,
): Promise<SkipInterval[]> {
  const request = { scope, order };
  const whole = skips.map((skip) => ({ from, until, skip }));
  if (level === null) return whole;
  const isDays = level === DAYS && until - from > level.ms;
  if (isDays && tx.keepsPlans) return await descend(tx, request, [DAYS, HOURS, MINUTES], whole);
  const found = isDays ? await descend(tx, request, [DAYS], whole) : whole;
  // Quarter-hours between would save the sums of a few minutes, and cost a relation that is planned.
  const isFine = level === MINUTES || level === QUARTER_HOURS;
  return await descend(tx, request, isFine ? [finest] : [HOURS, finest], found);
}

/** Reads the page's rows from an interval that holds them all, without the first `skip` of it. */
async function readRows(
  tx: Transaction,
  { scope, order, limit, maxBytes }: PageRequest,
  retention: Retention | null,
  { from, until, skip }: SkipInterval,
  size: number,
): Promise<StoredEvent[]> {
  const inOrder = order === 'asc' ? tx`ORDER BY created_at, id` : tx`ORDER BY created_at DESC, id DESC`;
  const inInterval = tx`
    SELECT id, type_id, created_at, payload FROM events
     WHERE ${rowsOf(tx, scope)} AND created_at >= ${from} AND created_at < ${until}
           ${retention === null ? tx`` : tx`AND ${retention.readable(tx)}`}`;
  const rows =
    (scope.typeIds !== null || hasExceptions(scope)) && isSpread({ from, until }, size)
      ? rowsByMinute(tx, scope, { from, until }, inInterval)
      : inInterval;
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

/**
 * Rows by the minutes that hold one of the types, or whose count may be stale: between them lie the rows of all other types,
 * which are not looked at.
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
      FROM (SELECT bucket FROM ${tx(MINUTES.view)} WHERE ${countFilter(tx, scope)} AND ${inBuckets}
                   ${hasExceptions(scope) ? tx`GROUP BY bucket HAVING sum(${countOf(tx, scope)}) > 0` : tx``}
             UNION SELECT bucket FROM pending_marks WHERE level = 0 AND ${inBuckets}) minutes
     CROSS JOIN LATERAL (
             ${inInterval} AND created_at >= bucket AND created_at < bucket + interval '1 minute' OFFSET 0) found`;
}

function clamp(ms: number): number {
  return Math.min(Math.max(ms, EARLIEST), LATEST);
}
