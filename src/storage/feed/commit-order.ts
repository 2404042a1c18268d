/**
 * Reads an app's events in commit order from a position on.
 *
 * The events of a tick are the rows of its minutes that its snapshot has and that of the tick before has not. Their order is that
 * of their transactions' numbers: one that began after another had been committed has the greater number. Ticks follow each
 * other a second apart, so that a transaction that stays open for longer comes with the tick that first sees it committed.
 *
 * Some rows do not tell their transaction: on TimescaleDB those of the columnstore, and on any engine those that were moved to
 * another server since the tick. Their minutes are then read as a whole: none is missed, some come again.
 */
import { countWhile } from '../../base/bisect.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import { MINUTE_MS } from '../counts/levels.ts';
import type { Sql, Transaction } from '../database/connect.ts';
import type { StorageEngine } from '../engines/storage-engine.ts';
import { textLiteral } from '../fields/row-filter.ts';
import { type FeedCursor, feedCursorOf, xidOf } from '../read/arrivals.ts';
import { CopiedRows, copyRows, RowBuffer } from '../read/copied-rows.ts';
import { newTypesOf } from '../read/filtered-page.ts';
import { readSnapshot } from '../read/snapshot.ts';
import { type Retention, readRetention } from '../retention.ts';
import { LEAVES_AFTER_HOURS } from '../write/days-away.ts';
import {
  type CommittedEvent,
  EventObjects,
  type EventTaker,
  EventTexts,
  type EventType,
  timeOf,
} from './committed-events.ts';
import type { EventKey, FeedPosition } from './position.ts';
import { KeyList, ReadAhead, type RestOfRun, type Run } from './read-ahead.ts';
import { NO_PLACE } from './ticks.ts';

/** A page of events is read. */
export interface CommittedPage {
  /** The position behind the last event, and behind everything that was read without finding one. */
  readonly position: FeedPosition;
  /** Whether there may be more. */
  readonly hasMore: boolean;
}

export interface CommittedEvents extends CommittedPage {
  readonly events: readonly CommittedEvent[];
}

export interface CommittedTexts extends CommittedPage {
  /** How many events were written. */
  readonly length: number;
}

export interface FeedRequest {
  readonly appId: number;
  readonly position: FeedPosition;
  /** Most events. */
  readonly limit: number;
  /** Payload bytes after which the batch ends early; one event is always read. */
  readonly maxBytes: number;
}

/** Ticks that one read goes through at most: those of ten minutes. */
const MOST_TICKS = 600;

interface Tick {
  readonly tick: string;
  /** When it was noted, by the database's clock. */
  readonly at: Date;
  readonly place: number;
  readonly cursor: FeedCursor;
  readonly minutes: readonly Date[];
  readonly counts: readonly number[];
}

/** Pages whose keys are read at once: minutes have more rows than a page, and are gone through for each run. */
const PAGES_AHEAD = 20;
const MOST_AHEAD = 50_000;
/** Rows that a statement asks for where nothing is known of their length, and how many times more the next one may. */
const FIRST_ROWS = 256;
const GROWTH = 4;
/** By how much rows may be shorter than those before. */
const SPREAD = 1.25;
/** What COPY sends beside a payload, and beside all rows. */
const ROW_BYTES = 51;
const BESIDE_ROWS = 32;
/** Apps of which the length of payloads is known. */
const MOST_KNOWN = 10_000;

/** Reads a batch. @param sql a pool where the app is */
export async function readCommitted(
  engine: StorageEngine,
  sql: Sql,
  request: FeedRequest,
  ahead?: ReadAhead,
): Promise<CommittedEvents> {
  const taker = new EventObjects();
  const page = await readWith(engine, sql, { request, ahead, taker });
  return { ...page, events: taker.events };
}

/** Reads a batch as the answer to a consumer has it. @param ahead.answer to which it is added */
export async function writeCommitted(
  engine: StorageEngine,
  sql: Sql,
  request: FeedRequest,
  { ahead, answer }: { readonly ahead: ReadAhead; readonly answer: RowBuffer },
): Promise<CommittedTexts> {
  const taker = new EventTexts(answer);
  const page = await readWith(engine, sql, { request, ahead, taker });
  return { ...page, length: taker.length };
}

async function readWith(
  engine: StorageEngine,
  sql: Sql,
  given: { readonly request: FeedRequest; readonly ahead: ReadAhead | undefined; readonly taker: EventTaker },
): Promise<CommittedPage> {
  const { request, ahead = new ReadAhead(), taker } = given;
  const { appId, position, limit } = request;
  const known = ahead.find(appId, position);
  const rows = new PageRows(request, taker, ahead, new TimeSlice(sql.pool.archive?.turns));
  const page =
    known !== null
      ? await readPage(sql, request, known, { rows, ahead })
      : // No counts are read: their deltas need not be looked at.
        await readSnapshot(sql, async (tx) => {
          const after = position.after?.by === 'history' ? position.after : null;
          const [place = 0, compressedUntil = null, retention, [start, ...next]] = await Promise.all([
            engine.placeOf?.(tx, appId),
            engine.compressedUntil?.(tx),
            readRetention(tx, appId),
            ticksFrom(tx, appId, position.tick, after === null ? MOST_TICKS : 0),
          ]);
          if (start === undefined) throw new Error('The tick of a position is gone.');
          const scene: Scene = { place, compressedUntil, retention };
          if (after !== null) return await readHistory(tx, request, scene, { start, after, rows });
          const most = Math.max(limit, Math.min(limit * PAGES_AHEAD, MOST_AHEAD));
          const run = await new CommitReader(tx, { appId, position, most }, scene).read(start, next);
          return await readPage(tx, request, { run, from: 0 }, { rows, ahead });
        });
  // Not where it has failed: a transaction fails as soon as its connection is lost, though it may be in the middle of rows.
  rows.release();
  return page;
}

/** Reads the events of the keys that come next. */
async function readPage(
  sql: Sql | Transaction,
  { appId, position, limit }: FeedRequest,
  { run, from }: RestOfRun,
  { rows, ahead }: { readonly rows: PageRows; readonly ahead: ReadAhead },
): Promise<CommittedPage> {
  const { keys, beyond, hasMore } = run;
  const end = Math.min(from + limit, keys.length);
  if (from === end) return { position: beyond ?? position, hasMore };
  const read = await readPayloads(sql, appId, keys, { from, end, rows });
  ahead.forget(appId, position);
  if (read === keys.length && beyond !== null) return { position: beyond, hasMore };
  const after = keys.position(read - 1);
  if (read < keys.length) ahead.keep(appId, after, { run, from: read });
  return { position: after, hasMore: true };
}

/** @returns up to which key the page has what there is */
async function readPayloads(
  sql: Sql | Transaction,
  appId: number,
  keys: KeyList,
  { from, end, rows }: { readonly from: number; readonly end: number; readonly rows: PageRows },
): Promise<number> {
  let index = from;
  while (index < end && !rows.isFull) {
    const part = keys.literals(index, Math.min(end, index + rows.next(end - index)));
    const query = `
      SELECT events.id, events.created_at, events.type_id, events.payload
        FROM (SELECT id, ${textLiteral(part.base)}::timestamptz + micros * interval '1 microsecond' AS at, place
                FROM unnest('{${part.ids}}'::uuid[], '{${part.offsets}}'::float8[]) WITH ORDINALITY AS wanted (id, micros, place)
              OFFSET 0) AS wanted
        JOIN events ON events.app_id = ${appId} AND events.created_at = wanted.at AND events.id = wanted.id
                   AND events.created_at BETWEEN ${textLiteral(part.first)}::timestamptz AND ${textLiteral(part.last)}::timestamptz
       ORDER BY place`;
    // They come in the order of their keys; what is deleted does not come.
    await rows.read(sql, query, part.until - index, (row, type, taker) => {
      while (index < end && !keys.isOf(index, row)) index += 1;
      if (index === end) throw new Error('A row came that is of no key.');
      if (type !== null) taker.add(type, keys.tickOf(index), keys.byOf(index));
      index += 1;
    });
    if (!rows.isFull) index = part.until;
  }
  return index;
}

/** The rows of a page, some with each statement, up to its limits. */
class PageRows {
  readonly #request: FeedRequest;
  readonly #taker: EventTaker;
  readonly #ahead: ReadAhead;
  readonly #slices: TimeSlice;
  readonly #buffer = new RowBuffer();
  readonly #types = new Map<number, EventType>();
  #rows = 0;
  #bytes = 0;
  /** Whether a row was left out that is beyond the limits. */
  isFull = false;
  /** The last row that was not; null: there was none. */
  last: { readonly createdAt: string; readonly id: string } | null = null;

  constructor(request: FeedRequest, taker: EventTaker, ahead: ReadAhead, slices: TimeSlice) {
    this.#request = request;
    this.#taker = taker;
    this.#ahead = ahead;
    this.#slices = slices;
  }

  /** How many of the rows that are wanted to ask for next: those that do not fit would be sent and forgotten. */
  next(wanted: number): number {
    const { maxBytes, appId } = this.#request;
    const isFirst = this.#rows === 0;
    const usual = isFirst ? this.#ahead.usualBytes.get(appId) : this.#bytes / this.#rows;
    if (usual === undefined) return Math.min(wanted, FIRST_ROWS);
    const fitting = Math.ceil((SPREAD * (maxBytes - this.#bytes)) / Math.max(1, usual));
    return Math.max(1, Math.min(wanted, fitting, isFirst ? wanted : GROWTH * this.#rows));
  }

  /**
   * @param query of at most `asked` rows in the order of the page, as {@link copyRows} takes it
   * @param take  is called for each that is within the limits; without a type where that was removed with its app
   * @returns how many the statement has found
   */
  async read(
    sql: Sql | Transaction,
    query: string,
    asked: number,
    take: (row: CopiedRows, type: EventType | null, taker: EventTaker) => void,
  ): Promise<number> {
    const { limit, maxBytes } = this.#request;
    const most = Math.max(0, maxBytes - this.#bytes) + asked * ROW_BYTES + BESIDE_ROWS;
    const { rows, isWhole } = await copyRows(sql, query, { most, buffer: this.#buffer });
    for (const [id, type] of await newTypesOf(sql, this.#request.appId, rows, this.#types))
      this.#types.set(id, type);
    this.#taker.begin(rows, this.#buffer);
    let lastPlace = -1;
    for (rows.rewind(); !this.isFull && rows.next(); ) {
      if (this.#slices.isOverAfterStep) await this.#slices.next();
      const bytes = this.#bytes + rows.end - rows.start;
      this.isFull = this.#rows === limit || (this.#rows > 0 && bytes > maxBytes);
      if (this.isFull) break;
      this.#rows += 1;
      this.#bytes = bytes;
      lastPlace = rows.place;
      take(rows, this.#types.get(rows.typeId) ?? null, this.#taker);
    }
    if (lastPlace >= 0) {
      rows.seek(lastPlace);
      this.last = { createdAt: timeOf(rows), id: rows.id };
    }
    this.#taker.end();
    this.isFull ||= !isWhole;
    return rows.length;
  }

  release(): void {
    this.#buffer.release();
    const { usualBytes } = this.#ahead;
    if (this.#rows === 0) return;
    if (usualBytes.size >= MOST_KNOWN) usualBytes.clear();
    usualBytes.set(this.#request.appId, this.#bytes / this.#rows);
  }
}

interface Reading {
  readonly appId: number;
  readonly position: FeedPosition;
  readonly most: number;
}

interface Scene {
  readonly place: number;
  readonly compressedUntil: string | null;
  readonly retention: Retention;
}

/**
 * The tick of a position, and up to `most` after it. Where another consumer has begun is no tick for this one: what was committed before
 * it has no tick yet. After a restore it is: events there have been told of by another server.
 */
async function ticksFrom(
  tx: Transaction,
  appId: number,
  tick: string,
  most: number,
): Promise<readonly Tick[]> {
  const rows = await tx<
    { tick: string; at: Date; place: number; snapshot: string; minutes: Date[]; counts: string[] }[]
  >`
    SELECT tick::text, at, place::float8, snapshot, minutes, counts FROM feed_ticks
     WHERE app_id = ${appId} AND tick >= ${tick}::text::bigint
       AND (minutes <> '{}' OR tick = ${tick}::text::bigint
            OR ${NO_PLACE} = (SELECT place FROM feed_ticks WHERE app_id = ${appId} AND tick = ${tick}::text::bigint))
     ORDER BY feed_ticks.tick LIMIT ${most + 1}`;
  if (rows[0]?.tick !== tick) return [];
  return rows.map(({ snapshot, counts, ...row }) => ({
    ...row,
    counts: counts.map(Number),
    cursor: feedCursorOf(snapshot, 0),
  }));
}

class CommitReader {
  readonly #tx: Transaction;
  readonly #reading: Reading;
  readonly #scene: Scene;

  constructor(tx: Transaction, reading: Reading, scene: Scene) {
    this.#tx = tx;
    this.#reading = reading;
    this.#scene = scene;
  }

  /** @param before the tick of the position */
  async read(before: Tick, next: readonly Tick[]): Promise<Run> {
    const { position, most } = this.#reading;
    const joined = groupOf(next, most);
    const group = this.#split(before, joined).whole.length > 0 ? joined.slice(0, 1) : joined;
    const last = group.at(-1);
    if (last === undefined) return { keys: new KeyList([], [], () => -1, 0), beyond: null, hasMore: false };
    const buffers = [new RowBuffer(), new RowBuffer()] as const;
    const { keys, found } =
      group.length === 1
        ? await this.#keysOfTick(before, last, position.after, buffers)
        : await this.#keysOfGroup(before, group, position.after, buffers);
    for (const buffer of buffers) buffer.release();
    const isAll = found <= most;
    return {
      keys,
      beyond: isAll ? { tick: last.tick, after: null } : null,
      hasMore: !isAll || next.length > group.length,
    };
  }

  /** Whether the rows of two ticks tell which of them they belong to. */
  #isExact(before: Tick, last: Tick): boolean {
    const { place } = this.#scene;
    return before.place === place && last.place === place;
  }

  /** One more is found than wanted, if there are as many, of one tick. */
  async #keysOfTick(
    before: Tick,
    tick: Tick,
    after: EventKey | null,
    [ofWhole, ofExact]: Buffers,
  ): Promise<FoundKeys> {
    const { most } = this.#reading;
    const { whole, exact } = this.#split(before, [tick]);
    const parts: CopiedRows[] = [];
    let found = 0;
    const add = (rows: CopiedRows): void => {
      parts.push(rows);
      found += rows.length;
    };
    if (whole.length > 0 && typeof after?.by !== 'number')
      add(await this.#wholeMinutes(whole, after, most + 1, ofWhole));
    if (found <= most && exact.length > 0) {
      const from = typeof after?.by === 'number' ? after : null;
      add(await this.#newRows(before, tick, exact, { from, most: most + 1 - found, buffer: ofExact }));
    }
    return { keys: new KeyList(parts, [before.tick], () => 0, most), found };
  }

  /** All events of several ticks, in their order. */
  async #keysOfGroup(
    before: Tick,
    group: readonly Tick[],
    after: EventKey | null,
    [buffer]: Buffers,
  ): Promise<FoundKeys> {
    const last = group.at(-1) ?? before;
    const { exact } = this.#split(before, group);
    const rows = await this.#newRows(before, last, exact, { from: null, most: null, buffer });
    const ticks = [before, ...group];
    const { xmax } = last.cursor;
    let known = { xid: -1, tick: -1 };
    const tickOf = (row: CopiedRows): number => {
      const { xid } = row;
      if (xid !== known.xid) {
        const at = firstWith(ticks, fullXid(xid, xmax));
        known = { xid, tick: at === ticks.length ? -1 : at - 1 };
      }
      // The position is inside the first tick: its events are there, as nothing of a snapshot changes.
      return known.tick === 0 && after !== null && !isAfter(row, after, xmax) ? -1 : known.tick;
    };
    const keys = new KeyList(
      [rows],
      ticks.slice(0, -1).map(({ tick }) => tick),
      tickOf,
      Number.POSITIVE_INFINITY,
    );
    return { keys, found: keys.length };
  }

  /** Minutes that are read as a whole, and those whose rows tell their transaction. */
  #split(before: Tick, group: readonly Tick[]): { whole: readonly Minute[]; exact: readonly Minute[] } {
    const { retention, compressedUntil } = this.#scene;
    const boundary = retention.first();
    const counts = new Map<number, number>();
    for (const { minutes, counts: added } of group)
      for (const [index, minute] of minutes.entries()) {
        const start = minute.getTime();
        if (start + MINUTE_MS <= boundary) continue;
        const known = counts.get(start);
        const count = added[index] ?? 0;
        counts.set(start, known === 0 || count === 0 ? 0 : (known ?? 0) + count);
      }
    const minutes = [...counts].sort(([a], [b]) => a - b).map(([start, most]) => ({ start, most }));
    const last = group.at(-1);
    if (last === undefined || !this.#isExact(before, last)) return { whole: minutes, exact: [] };
    const border = compressedUntil === null ? 0 : Date.parse(compressedUntil);
    return {
      whole: minutes.filter(({ start }) => start < border),
      exact: minutes.filter(({ start }) => start >= border),
    };
  }

  async #wholeMinutes(
    minutes: readonly Minute[],
    after: EventKey | null,
    most: number,
    buffer: RowBuffer,
  ): Promise<CopiedRows> {
    const from = after?.by === 'minute' ? after : null;
    const query = `
      SELECT found.id, found.created_at, '0'::xid, NULL
        FROM unnest('{${minutes.map(({ start }) => start / 1_000)}}'::float8[]) AS minute (start)
       CROSS JOIN LATERAL (
             SELECT id, created_at FROM events
              WHERE ${this.#within(minutes)} ${from === null ? '' : `AND (created_at, id) > ${keyLiteral(from)}`}
              ORDER BY created_at, id LIMIT ${most}) AS found
       ORDER BY found.created_at, found.id LIMIT ${most}`;
    return await this.#copy(query, buffer);
  }

  /** Rows of the app in the minute that begins with `start`, which is one of some. */
  #within(minutes: readonly Minute[]): string {
    const starts = minutes.map(({ start }) => start / 1_000);
    return `app_id = ${this.#reading.appId}
        AND created_at >= to_timestamp(${Math.min(...starts)}) AND created_at < to_timestamp(${Math.max(...starts) + 60})
        AND created_at >= to_timestamp(start) AND created_at < to_timestamp(start) + interval '1 minute'
        AND ${this.#scene.retention.readableText()}`;
  }

  async #copy(query: string, buffer: RowBuffer): Promise<CopiedRows> {
    return (await copyRows(this.#tx, query, { most: Number.POSITIVE_INFINITY, buffer })).rows;
  }

  /** The rows that the snapshot of `tick` has, and that of `before` has not. */
  async #newRows(
    before: Tick,
    tick: Tick,
    minutes: readonly Minute[],
    {
      from,
      most,
      buffer,
    }: { readonly from: EventKey | null; readonly most: number | null; readonly buffer: RowBuffer },
  ): Promise<CopiedRows> {
    if (minutes.length === 0) return new CopiedRows(Buffer.alloc(0));
    const later =
      from === null
        ? ''
        : `WHERE age(found.writer) < age('${from.by}'::xid) OR found.writer = '${from.by}'::xid
             AND (found.created_at, found.id) > ${keyLiteral(from)}`;
    const rows = (part: string, direction: 'ASC' | 'DESC'): string => `
      SELECT id, created_at, xmin AS writer FROM events
       WHERE ${this.#within(minutes)} AND ${part} AND ${isSince(before.cursor)}
         AND age(xmin) > age('${xidOf(tick.cursor.xmax)}'::xid) AND xmin <> ALL(${xidsLiteral(tick.cursor.running)})
       ORDER BY created_at ${direction}, id ${direction}`;
    // Where as many are found as there may be, none is looked for in the rest of a minute: most were stored since the tick before.
    const likely = textLiteral(new Date(before.at.getTime() - SKEW_MS).toISOString());
    planByIndex(this.#tx);
    const query = `
      SELECT found.id, found.created_at, found.writer, NULL
        FROM unnest('{${minutes.map(({ start }) => start / 1_000)}}'::float8[],
                    '{${minutes.map(({ most }) => (most === 0 ? ALL : Math.min(most, ALL)))}}'::bigint[]) AS minute (start, most)
       CROSS JOIN LATERAL (
             SELECT * FROM ((${rows(`created_at >= ${likely}::timestamptz`, 'ASC')}) UNION ALL (${rows(`created_at < ${likely}::timestamptz`, 'DESC')})) AS part
              LIMIT CASE WHEN start > extract(epoch FROM now()) - ${BACK_AFTER_S} THEN most ELSE ${ALL} END) AS found
       ${later}
       ORDER BY age(found.writer) DESC, found.created_at, found.id
       ${most === null ? '' : `LIMIT ${most}`}`;
    return await this.#copy(query, buffer);
  }
}

/** One for whole minutes, and one for others. */
type Buffers = readonly [RowBuffer, RowBuffer];

interface FoundKeys {
  readonly keys: KeyList;
  readonly found: number;
}

/** Whether a row was written after the snapshot of a cursor. */
function isSince({ xmax, running }: FeedCursor): string {
  return `(age(xmin) BETWEEN 0 AND age('${xidOf(xmax)}'::xid) OR xmin = ANY(${xidsLiteral(running)}))`;
}

function xidsLiteral(transactions: readonly bigint[]): string {
  return `'{${transactions.map(xidOf)}}'::xid[]`;
}

function keyLiteral({ createdAt, id }: EventKey): string {
  return `(${textLiteral(createdAt)}::timestamptz, ${textLiteral(id || BEFORE_ALL)}::uuid)`;
}

/**
 * Has the statements of a transaction read rows by the index of their order, whatever statistics say: right after an import they know
 * nothing of its rows, and all that is behind a position would be sorted.
 */
function planByIndex(tx: Transaction): void {
  tx`SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)`
    .execute()
    // What follows fails too.
    .catch(() => undefined);
}

/** Reads events that the snapshot of a tick has, in order of time. */
async function readHistory(
  tx: Transaction,
  { appId, limit }: FeedRequest,
  { place, compressedUntil, retention }: Scene,
  { start, after, rows }: { readonly start: Tick; readonly after: EventKey; readonly rows: PageRows },
): Promise<CommittedPage> {
  const { tick } = start;
  const isInside = compressedUntil !== null && Date.parse(after.createdAt) < Date.parse(compressedUntil);
  const known = isInside || start.place !== place ? '' : `AND NOT ${isSince(start.cursor)}`;
  const border = isInside ? `AND created_at < ${textLiteral(compressedUntil)}::timestamptz` : '';
  planByIndex(tx);
  let isAtEnd = false;
  for (let left = limit + 1; !isAtEnd && !rows.isFull; ) {
    const asked = rows.next(left);
    const { createdAt, id } = rows.last ?? after;
    const time = `${textLiteral(createdAt)}::timestamptz`;
    const query = `
      SELECT id, created_at, type_id, payload FROM events
       WHERE app_id = ${appId} AND ${retention.readableText()} AND created_at >= ${time}
         AND (created_at, id) > (${time}, ${textLiteral(id || BEFORE_ALL)}::uuid) ${border} ${known}
       ORDER BY created_at, id LIMIT ${asked}`;
    const found = await rows.read(tx, query, asked, (_, type, taker) => {
      if (type !== null) taker.add(type, tick, 'history');
    });
    left -= found;
    isAtEnd = found < asked;
  }
  if (rows.isFull && rows.last !== null)
    return { position: { tick, after: { by: 'history', ...rows.last } }, hasMore: true };
  const beyond = isInside ? ({ by: 'history', createdAt: compressedUntil, id: '' } as const) : null;
  return { position: { tick, after: beyond }, hasMore: true };
}

interface Minute {
  readonly start: number;
  /** At most so many of its events are new; 0: not known. */
  readonly most: number;
}

/** Older minutes may have rows that were brought back from the archive: these look new, and are no part of the number that is. */
const BACK_AFTER_S = (LEAVES_AFTER_HOURS / 2) * 3_600;

/** Clocks of services and databases are mostly less apart, and events are mostly stored within it. */
const SKEW_MS = 1_000;
const ALL = 1_000_000_000;

/** The ticks that one run may take: one, or as many as have no more events than are wanted together. */
function groupOf(ticks: readonly Tick[], most: number): readonly Tick[] {
  const [first] = ticks;
  if (first === undefined) return [];
  let events = 0;
  const group: Tick[] = [];
  for (const tick of ticks) {
    if (tick.place !== first.place || tick.counts.includes(0)) break;
    events += tick.counts.reduce((sum, count) => sum + count, 0);
    if (events > most) break;
    group.push(tick);
  }
  return group.length === 0 ? [first] : group;
}

const BEFORE_ALL = '00000000-0000-0000-0000-000000000000';

/** The number of a transaction before `xmax` with these lower bits. */
function fullXid(xid: number, xmax: bigint): bigint {
  return xmax - BigInt.asUintN(32, xmax - BigInt(xid));
}

/** The first of some ticks whose snapshot has what a transaction wrote: those after it have it, too. */
function firstWith(ticks: readonly Tick[], xid: bigint): number {
  return countWhile(ticks.length, (index) => {
    const tick = ticks[index];
    return tick === undefined || !hasXid(tick.cursor, xid);
  });
}

/** Whether a snapshot has what a transaction wrote. */
function hasXid({ xmax, running }: FeedCursor, xid: bigint): boolean {
  return xid < xmax && !running.includes(xid);
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function isAfter(row: CopiedRows, after: EventKey, xmax: bigint): boolean {
  if (typeof after.by !== 'number') return true;
  if (row.xid !== after.by) return fullXid(row.xid, xmax) > fullXid(after.by, xmax);
  const byTime = compareText(timeOf(row), after.createdAt);
  return byTime > 0 || (byTime === 0 && compareText(row.id, after.id) > 0);
}
