/**
 * Reads through the rows of a scope in the order of the index, some thousand at a time. Each step is a statement with a
 * snapshot of its own that ends within {@link STEP_TIMEOUT_MS}: a caller that waits between two steps holds no snapshot.
 *
 * A step reads an interval of few days, so that few partitions are planned; the interval grows while it finds few rows.
 * How many rows a step may read shrinks where they are large or slow to read, and grows again.
 */

import type { SearchedBy } from '../../base/searched-by.ts';
import { readAppSpan } from '../counts/app-stats.ts';
import type { Interval } from '../counts/intervals.ts';
import { DAY_MS } from '../counts/levels.ts';
import type { Snapshot } from '../counts/stale.ts';
import type { ArchivedGroup } from '../database/archive-source.ts';
import { errorCode, SQLSTATE, type Sql, type Transaction } from '../database/connect.ts';
import { passes, type TextTest, textLiteral, timeLiteral, type WordTest } from '../fields/row-filter.ts';
import { type Retention, readRetention } from '../retention.ts';
import { type Listed, WordLookup } from '../words/lookup.ts';
import { wantedOf } from './archived-rows.ts';
import { type Copied, CopiedRows, copyRows, RowBuffer } from './copied-rows.ts';
import type { EventScope, Order } from './page-request.ts';
import { comesBefore, inOrderOf, type Position } from './positions.ts';
import { readAppSnapshot } from './snapshot.ts';

export interface ScanRequest extends EventScope {
  readonly order: Order;
  /** Null: from the first event of the scope. */
  readonly after: Position | null;
}

export interface StepLimits {
  readonly rows: number;
  /** As they are sent: a row has some forty beside its payload. */
  readonly bytes: number;
}

/** A step is canceled after this time, and tried again with fewer rows. */
const STEP_TIMEOUT_MS = 2_000;
const FIRST_ROWS = 2_000;
/** With more, a step is no cheaper by the row. */
const MAX_ROWS = 16_384;
/** With more days, planning costs more than empty intervals. */
const MAX_DAYS = 64;

const FIRST_ID = '00000000-0000-0000-0000-000000000000';
const LAST_ID = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

/** What a step has read. */
export interface ScanStep {
  /** Valid until their buffer is used again. */
  readonly rows: CopiedRows;
  readonly buffer: RowBuffer;
  /** Rows that were looked at. */
  readonly looked: number;
  /** Whether rows come from the archive: then none is left out for what it contains. */
  readonly isArchived: boolean;
  /** By words where lists of them have named all rows that were looked at. */
  readonly searchedBy: SearchedBy;
}

interface Outcome extends Copied {
  readonly looked: number;
  /** The last row that was looked at, or that could have been; null where there was none. */
  readonly last: Position | null;
  /** What was read, where it is less than was to be. */
  readonly interval?: Interval;
  /** Whether there is more in the interval, where the number of rows does not tell. */
  readonly hasMore?: boolean;
  readonly isArchived?: boolean;
  readonly searchedBy?: SearchedBy;
}

interface Found {
  readonly looked: number;
  readonly lastId: string | null;
  readonly lastAt: Date | null;
  /** Separated by commas; null: none. */
  readonly ids: string | null;
}

const NO_ROWS = new CopiedRows(Buffer.alloc(0));

export class EventScan {
  readonly #sql: Sql;
  readonly #request: ScanRequest;
  /** Null until the first step. */
  #rest: Interval | null = null;
  #position: Position | null;
  #rows = FIRST_ROWS;
  #days = 1;
  /** The buffer of the next step comes first. */
  readonly #buffers: RowBuffer[];
  readonly #words: WordLookup;

  /**
   * @param words   what the payloads that are wanted have: where lists say that they have not, no row is looked at
   * @param buffers in turn, one for each step
   */
  constructor(sql: Sql, request: ScanRequest, words: readonly WordTest[] = [], buffers = [new RowBuffer()]) {
    this.#sql = sql;
    this.#words = new WordLookup(request.appId, words);
    this.#request = request;
    this.#position = request.after;
    this.#buffers = [...buffers];
  }

  /** Up to where everything has been looked at; null where nothing has been. */
  get position(): Position | null {
    return this.#position;
  }

  /** Whether there is nothing left to look at. Known after the first step. */
  get isAtEnd(): boolean {
    return this.#rest !== null && this.#rest.from >= this.#rest.until;
  }

  /**
   * Reads on.
   * @param most     what to look at at most: rows, at least 1; and bytes, if it is more than one row
   * @param contains what the payloads that are wanted contain: other rows are left out. Empty: no row is left out, but those
   *                 of other types have no payload
   * @returns null at the end of the scope; what was read may hold no rows
   */
  async step(most: StepLimits, contains: readonly TextTest[]): Promise<ScanStep | null> {
    const rest = await this.#restOfScope();
    if (rest.from >= rest.until) return null;
    const interval = this.#nextInterval(rest);
    for (;;) {
      const limit = Math.min(this.#rows, most.rows);
      const outcome = await this.#read(interval, { ...most, rows: limit }, contains);
      if (outcome === null) {
        this.#rows = Math.max(1, limit >> 2);
        continue;
      }
      const { rows, looked, last, isWhole, hasMore = looked === limit } = outcome;
      const { isArchived = false, searchedBy = 'scan' } = outcome;
      const buffer = this.#buffer;
      this.#buffers.push(...this.#buffers.splice(0, 1));
      this.#advance(outcome.interval ?? interval, { looked, last, isDone: isWhole && !hasMore });
      this.#rows = rowsOfNext(rows, isWhole ? limit * 2 : rows.length, most.bytes);
      return { rows, buffer, looked, isArchived, searchedBy };
    }
  }

  get #buffer(): RowBuffer {
    const [buffer] = this.#buffers;
    if (buffer === undefined) throw new Error('A scan has at least one buffer.');
    return buffer;
  }

  /** What has not been read. Ends that the request leaves open are those of the events that there are now. */
  async #restOfScope(): Promise<Interval> {
    if (this.#rest !== null) return this.#rest;
    const { appId, from, until, order, after } = this.#request;
    const isOpen = from === null || until === null;
    const [retention, span] = await Promise.all([
      readRetention(this.#sql, appId),
      isOpen ? readAppSpan(this.#sql, appId) : null,
    ]);
    const first = from ?? span?.firstEventAt?.getTime() ?? 0;
    const boundary = retention.first(this.#request);
    const end = until ?? (span?.lastEventAt?.getTime() ?? -1) + 1;
    this.#rest =
      order === 'asc'
        ? { from: Math.max(first, boundary, beginOfRest(after)), until: end }
        : { from: Math.max(first, boundary), until: Math.min(end, endOfRest(after)) };
    return this.#rest;
  }

  /** From where the scan is, a few whole days. */
  #nextInterval({ from, until }: Interval): Interval {
    const length = this.#days * DAY_MS;
    return this.#request.order === 'asc'
      ? { from, until: Math.min(until, (Math.floor(from / DAY_MS) + 1) * DAY_MS + length - DAY_MS) }
      : { from: Math.max(from, (Math.ceil(until / DAY_MS) - 1) * DAY_MS - length + DAY_MS), until };
  }

  /** @returns null where it took too long */
  async #read(
    interval: Interval,
    { rows: limit, bytes: most }: StepLimits,
    contains: readonly TextTest[],
  ): Promise<Outcome | null> {
    const buffer = this.#buffer;
    try {
      return await readAppSnapshot(this.#sql, this.#request.appId, async (tx) => {
        // Behind a position the planner expects half of the rows that there are, and would rather sort these than go by the index.
        const limits = `SET LOCAL statement_timeout = ${STEP_TIMEOUT_MS}; SET LOCAL enable_sort = off`;
        tx.unsafe(limits)
          .execute()
          .catch(() => undefined); // What follows fails too.
        const retention = await readRetention(tx, this.#request.appId);
        const listed = await this.#words.find(tx, interval, this.#request.order);
        const searchedBy = listed?.searchedBy ?? 'scan';
        if (listed?.intervals.length === 0)
          return { rows: NO_ROWS, looked: 0, last: null, isWhole: true, interval, searchedBy };
        const { interval: before, group } = await this.#findArchived(tx, listed, interval, retention);
        const part = { interval: before, searchedBy } as const;
        if (group !== null) {
          const limits = { rows: limit, bytes: most };
          return { ...(await this.#readArchived(tx, { ...part, group }, retention, limits)), searchedBy };
        }
        const page =
          listed === null
            ? this.#page(before, limit, retention)
            : this.#pageWithin(before, limit, retention, listed.intervals);
        if (contains.length > 0) return { ...(await this.#readNarrowed(tx, page, contains, most)), ...part };
        const copied = await copyRows(tx, this.#withPayloads(page), { most, buffer });
        return { ...copied, looked: copied.rows.length, last: copied.rows.last, ...part };
      });
    } catch (error) {
      if (errorCode(error) !== SQLSTATE.queryCanceled || limit === 1) throw error;
      return null;
    }
  }

  /**
   * The next group of the archive that may have wanted rows, in the interval that ends with its day; where others come before it, null
   * and the interval up to its day.
   */
  async #findArchived(
    tx: Snapshot,
    listed: Listed | null,
    whole: Interval,
    retention: Retention,
  ): Promise<{ readonly interval: Interval; readonly group: ArchivedGroup | null }> {
    const { appId, order } = this.#request;
    const isAscending = order === 'asc';
    const { interval, intervals } = listed ?? { interval: whole, intervals: [whole] };
    const day = await tx.archived.firstDay(retention, { appId, ...interval }, order);
    if (day === null) return { interval, group: null };
    const end = day + DAY_MS;
    const first = isAscending ? { ...interval, until: day } : { ...interval, from: end };
    if (first.from < first.until) return { interval: first, group: null };
    const ofDay = { from: Math.max(interval.from, day), until: Math.min(interval.until, end) };
    const groups = await tx.archived.groups(retention, { appId, typeIds: null, ...ofDay });
    const position = this.#position;
    const next = inOrderOf(groups, order).find(
      (group) =>
        intervals.some(({ from, until }) => group.at < until && group.lastAt >= from) &&
        (position === null || comesBefore(position, isAscending ? lastOf(group) : group, order)),
    );
    return { interval: ofDay, group: next ?? null };
  }

  /** Reads up to the end of a group: its rows, and those of the database that lie among them. */
  async #readArchived(
    tx: Snapshot,
    { interval, group }: { readonly interval: Interval; readonly group: ArchivedGroup },
    retention: Retention,
    { rows: limit, bytes: most }: StepLimits,
  ): Promise<Outcome> {
    const { appId, order, typeIds, exceptTypes = [] } = this.#request;
    const isAscending = order === 'asc';
    const archived = tx.archived.whole(appId, group);
    const end = isAscending ? lastOf(group) : group;
    const within = isAscending
      ? { ...interval, until: Math.min(interval.until, group.lastAt + 1) }
      : { ...interval, from: Math.max(interval.from, group.at) };
    const local = await copyRows(
      tx,
      this.#withPayloads(this.#page(within, limit, retention, { upTo: end })),
      {
        most,
        buffer: new RowBuffer(),
      },
    );
    // After its last row there may be more, which come before others of the group.
    const isCut = !local.isWhole || local.rows.length === limit;
    const buffer = this.#buffer;
    buffer.clear();
    const isReadable = wantedOf(retention, { typeIds: null, ...interval });
    const isOfType = wantedOf(retention, { typeIds, exceptTypes, ...interval });
    const position = this.#position;
    let looked = 0;
    let last: Position | null = null;
    /** @returns whether there is room for more */
    const look = (row: CopiedRows, hasPayload: boolean): boolean => {
      looked += 1;
      const { at, id } = row;
      last = { at, id };
      if (hasPayload) buffer.addRow(row.tuple);
      return looked < limit && buffer.length < most;
    };
    const lookAtLocal = (): boolean => look(local.rows, local.rows.hasPayload);
    let hasLocal = local.rows.next();
    let hasRoom = true;
    for (const place of inOrderOf(archived.places(), order)) {
      archived.seek(place);
      const row = { at: archived.at, id: archived.id };
      while (hasRoom && hasLocal && comesBefore({ at: local.rows.at, id: local.rows.id }, row, order)) {
        hasRoom = lookAtLocal();
        hasLocal = local.rows.next();
      }
      if (!hasRoom || (isCut && !hasLocal)) break;
      if (!isReadable(archived) || (position !== null && !comesBefore(position, row, order))) continue;
      hasRoom = look(archived, isOfType(archived));
    }
    const outcome = { rows: new CopiedRows(buffer.bytes), looked, isWhole: true, interval, isArchived: true };
    if (!hasRoom || hasLocal || isCut) return { ...outcome, last, hasMore: true };
    const isAtEnd = isAscending ? group.lastAt >= interval.until : group.at < interval.from;
    return { ...outcome, last: isAtEnd ? last : end, hasMore: !isAtEnd };
  }

  /** The database looks for the rows first: where few pass, none of the others is sent. */
  async #readNarrowed(
    tx: Transaction,
    page: string,
    contains: readonly TextTest[],
    most: number,
  ): Promise<Outcome> {
    const latest = this.#request.order === 'asc' ? 'max' : 'min';
    // Without OFFSET 0 each use of the text would be a conversion of its own.
    const [found] = await tx.unsafe<Found[]>(`
      SELECT count(*)::integer AS looked, (array_agg(id))[count(*)] AS "lastId", ${latest}(created_at) AS "lastAt",
             array_to_string(array_agg(id) FILTER (WHERE ${passes('text', contains)}), ',') AS ids
        FROM (SELECT id, created_at, CASE WHEN ${this.#isOfType} THEN payload::text END AS text
                FROM (${page}) page OFFSET 0) texts`);
    const { looked = 0, lastId = null, lastAt = null, ids = null } = found ?? {};
    const last = lastId === null || lastAt === null ? null : { at: lastAt.getTime(), id: lastId };
    if (ids === null) return { rows: NO_ROWS, looked, last, isWhole: true };
    const query = `SELECT id, created_at, type_id, payload FROM (${page}) page WHERE id = ANY('{${ids}}'::uuid[])`;
    const copied = await copyRows(tx, query, { most, buffer: this.#buffer });
    // Everything after the last row that was kept is read again.
    return { ...copied, looked, last: copied.isWhole ? last : copied.rows.last };
  }

  /** Rows of all types: of a rare one the statement would look at more rows than it returns. */
  #page(
    { from, until }: Interval,
    rows: number,
    retention: Retention,
    { upTo = null, within = '' }: { readonly upTo?: Position | null; readonly within?: string } = {},
  ): string {
    const { appId, order } = this.#request;
    const [inOrder, beyond, before] = order === 'asc' ? ['', '>', '<='] : ['DESC', '<', '>='];
    const compared = (comparison: string, position: Position | null): string =>
      position === null
        ? ''
        : `AND (created_at, id) ${comparison} (${timeLiteral(position.at)}, ${textLiteral(position.id)}::uuid)`;
    // By a comparison of rows each part would be looked for from the position on, and not where it begins.
    const { at, id } = this.#position ?? { at: 0, id: '' };
    const time = timeLiteral(at);
    const after =
      within === '' || this.#position === null
        ? `${compared(beyond, this.#position)} ${compared(before, upTo)}`
        : `AND (created_at ${beyond} ${time} OR created_at = ${time} AND id ${beyond} ${textLiteral(id)}::uuid)`;
    return `
      SELECT id, created_at, type_id, payload FROM events
       WHERE app_id = ${appId} AND created_at >= ${timeLiteral(from)} AND created_at < ${timeLiteral(until)} ${after}
         AND ${retention.readableText()} ${within}
       ORDER BY created_at ${inOrder}, id ${inOrder} LIMIT ${rows}`;
  }

  /**
   * The rows of a page that are in some intervals. These are gone through in order, and what is found of each is in order, so that no more
   * rows are read than the page may have.
   */
  #pageWithin(
    interval: Interval,
    rows: number,
    retention: Retention,
    intervals: readonly Interval[],
  ): string {
    const inOrder = this.#request.order === 'asc' ? intervals : intervals.toReversed();
    const [starts, ends] = (['from', 'until'] as const).map((end) =>
      inOrder.map((one) => new Date(one[end]).toISOString()).join(),
    );
    const within = 'AND created_at >= part.start AND created_at < part.finish';
    return `
      SELECT found.* FROM unnest('{${starts}}'::timestamptz[], '{${ends}}'::timestamptz[]) AS part (start, finish)
       CROSS JOIN LATERAL (${this.#page(interval, rows, retention, { within })}) AS found LIMIT ${rows}`;
  }

  #withPayloads(page: string): string {
    return `SELECT id, created_at, type_id, CASE WHEN ${this.#isOfType} THEN payload END FROM (${page}) page`;
  }

  get #isOfType(): string {
    const { typeIds, exceptTypes = [] } = this.#request;
    if (typeIds !== null) return `type_id = ANY('{${typeIds.join()}}'::integer[])`;
    return exceptTypes.length === 0 ? 'true' : `type_id <> ALL('{${exceptTypes.join()}}'::integer[])`;
  }

  /** @param end the last row, and whether the interval has no further ones */
  #advance(
    interval: Interval,
    { looked, last, isDone }: Pick<Outcome, 'looked' | 'last'> & { readonly isDone: boolean },
  ): void {
    const isAscending = this.#request.order === 'asc';
    const rest = this.#rest ?? interval;
    if (!isDone) {
      this.#position = last ?? this.#position;
      const at = this.#position?.at ?? interval.from;
      this.#rest = isAscending ? { ...rest, from: at } : { ...rest, until: at + 1 };
      // As many rows as these lie in about as many days.
      const read = isAscending ? at - interval.from : interval.until - at;
      this.#days = Math.max(1, Math.min(this.#days, Math.ceil(read / DAY_MS)));
      return;
    }
    // The interval is done, whatever position the next one begins with.
    this.#position = isAscending
      ? { at: interval.until - 1, id: LAST_ID }
      : { at: interval.from, id: FIRST_ID };
    this.#rest = isAscending ? { ...rest, from: interval.until } : { ...rest, until: interval.from };
    // So many more days would hold no more rows than a step may have, where they are like these.
    const growth = Math.min(4, Math.floor(this.#rows / Math.max(1, looked)));
    this.#days = Math.min(MAX_DAYS, this.#days * Math.max(1, growth));
  }
}

/** The position of the last event of a group. */
function lastOf({ lastAt, lastId }: ArchivedGroup): Position {
  return { at: lastAt, id: lastId };
}

/** How many rows of the size of these are few enough. */
function rowsOfNext(rows: CopiedRows, wanted: number, bytes: number): number {
  const fitting = rows.length === 0 ? wanted : Math.floor((bytes * rows.length) / rows.bytes.length);
  return Math.max(1, Math.min(wanted, fitting, MAX_ROWS));
}

/** The first millisecond after a position that may hold rows. Of one at the end of an interval that is the next one. */
function beginOfRest(after: Position | null): number {
  if (after === null) return 0;
  return after.id === LAST_ID ? after.at + 1 : after.at;
}

/** The end of what may hold rows in descending order, exclusive. */
function endOfRest(after: Position | null): number {
  if (after === null) return Number.POSITIVE_INFINITY;
  return after.id === FIRST_ID ? after.at : after.at + 1;
}
