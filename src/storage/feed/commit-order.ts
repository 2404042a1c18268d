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
import type { Fragment, Sql, Transaction } from '../database/connect.ts';
import type { StorageEngine } from '../engines/storage-engine.ts';
import { type FeedCursor, feedCursorOf } from '../read/arrivals.ts';
import { typesOf } from '../read/filtered-page.ts';
import type { StoredEvent } from '../read/page-request.ts';
import { readAppSnapshot } from '../read/snapshot.ts';
import { type Retention, readRetention } from '../retention.ts';
import { LEAVES_AFTER_HOURS } from '../write/days-away.ts';
import { type EventKey, encodePosition, type FeedPosition } from './position.ts';
import { NO_PLACE } from './ticks.ts';

export interface CommittedEvent extends Omit<StoredEvent, 'createdAt'> {
  readonly typeName: string;
  /** ISO 8601 in UTC, with milliseconds. */
  readonly createdAt: string;
  /** The position behind this event. */
  readonly position: FeedPosition;
}

export interface CommittedEvents {
  readonly events: readonly CommittedEvent[];
  /** The position behind the last event, and behind everything that was read without finding one. */
  readonly position: FeedPosition;
  /** Whether there may be more. */
  readonly hasMore: boolean;
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

interface Key {
  readonly id: string;
  readonly at: string;
  readonly xid: number | null;
}

/** An event's key, with the tick before that of the event. */
interface Found extends Key {
  readonly tick: string;
  /** How the position of the event says where it is. */
  readonly by: EventKey['by'];
}

/** Keys of events in commit order, from a position on. They stay what they are: what is deleted is left out where payloads are read. */
interface Run {
  readonly found: readonly Found[];
  /** The position behind everything that was looked for; null: there were more keys. */
  readonly beyond: FeedPosition | null;
  /** Whether there may be more behind it. */
  readonly hasMore: boolean;
}

/** Pages whose keys are read at once: minutes have more rows than a page, and are gone through for each run. */
const PAGES_AHEAD = 20;
const MOST_AHEAD = 50_000;
/** Keys that are kept, of all runs: about 160 bytes each. */
const MOST_KEPT = 150_000;

/** Keys that were read ahead, by the position that they follow. The longest unused go first. */
export class ReadAhead {
  readonly #kept = new Map<string, { readonly run: Run; readonly from: number }>();
  #keys = 0;

  /** What follows a position, if it is known. */
  find(appId: number, position: FeedPosition): { readonly run: Run; readonly from: number } | null {
    const key = keyOf(appId, position);
    const kept = this.#kept.get(key);
    if (kept === undefined) return null;
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    return kept;
  }

  keep(appId: number, position: FeedPosition, kept: { readonly run: Run; readonly from: number }): void {
    const key = keyOf(appId, position);
    this.#forget(key);
    this.#kept.set(key, kept);
    this.#keys += kept.run.found.length;
    for (const oldest of this.#kept.keys()) {
      if (this.#keys <= MOST_KEPT || oldest === key) return;
      this.#forget(oldest);
    }
  }

  /** A client that goes on does not come back to the position before. */
  forget(appId: number, position: FeedPosition): void {
    this.#forget(keyOf(appId, position));
  }

  #forget(key: string): void {
    const kept = this.#kept.get(key);
    if (kept === undefined) return;
    this.#kept.delete(key);
    this.#keys -= kept.run.found.length;
  }
}

function keyOf(appId: number, position: FeedPosition): string {
  return `${appId} ${encodePosition(position)}`;
}

function positionOf({ tick, by, at, id }: Found): FeedPosition {
  return { tick, after: { by, createdAt: at, id } };
}

/** Reads a batch. @param sql a pool where the app is */
export async function readCommitted(
  engine: StorageEngine,
  sql: Sql,
  request: FeedRequest,
  ahead: ReadAhead = new ReadAhead(),
): Promise<CommittedEvents> {
  const { appId, position, limit } = request;
  const known = ahead.find(appId, position);
  if (known !== null) return await readPage(sql, request, known, ahead);
  return await readAppSnapshot(sql, appId, async (tx) => {
    const [place = 0, compressedUntil = null, retention] = await Promise.all([
      engine.placeOf?.(tx, appId),
      engine.compressedUntil?.(tx),
      readRetention(tx, appId),
    ]);
    const scene: Scene = { place, compressedUntil, retention };
    if (position.after?.by === 'history')
      return await readHistory(tx, request, scene, { tick: position.tick, after: position.after });
    const most = Math.max(limit, Math.min(limit * PAGES_AHEAD, MOST_AHEAD));
    const run = await new CommitReader(tx, { appId, position, most }, scene).read();
    return await readPage(tx, request, { run, from: 0 }, ahead);
  });
}

/** Reads the events of the keys that come next. */
async function readPage(
  sql: Sql | Transaction,
  request: FeedRequest,
  { run, from }: { readonly run: Run; readonly from: number },
  ahead: ReadAhead,
): Promise<CommittedEvents> {
  const { appId, position, limit } = request;
  const { found, beyond, hasMore } = run;
  const page = found.slice(from, from + limit);
  const isEnd = from + page.length === found.length;
  const last = page.at(-1);
  if (last === undefined) return { events: [], position: beyond ?? position, hasMore };
  const { events, read } = await readPayloads(sql, request, page);
  if (read === page.length && isEnd && beyond !== null) {
    ahead.forget(appId, position);
    return { events, position: beyond, hasMore };
  }
  const after = positionOf(page[read - 1] ?? last);
  if (from + read < found.length) ahead.keep(appId, after, { run, from: from + read });
  ahead.forget(appId, position);
  return { events, position: after, hasMore: true };
}

/** @returns the events that are there, and how many of the keys they are of: fewer where their payloads are too long */
async function readPayloads(
  sql: Sql | Transaction,
  { appId, maxBytes }: FeedRequest,
  page: readonly Found[],
): Promise<{ readonly events: readonly CommittedEvent[]; readonly read: number }> {
  const times = page.map(({ at }) => Date.parse(at));
  const first = new Date(Math.min(...times)).toISOString();
  const end = new Date(Math.max(...times) + 1).toISOString();
  const rows = await sql<PayloadRow[]>`
    SELECT place::integer, type_id AS "typeId", CASE WHEN bytes <= ${maxBytes} OR bytes = octet_length(payload) THEN payload END AS payload FROM (
      SELECT place, type_id, payload, sum(octet_length(payload)) OVER (ORDER BY place ROWS UNBOUNDED PRECEDING) AS bytes FROM (
        SELECT wanted.place, events.type_id, events.payload::text AS payload
          FROM unnest(${page.map(({ id }) => id)}::uuid[], ${page.map(({ at }) => at)}::text[]::timestamptz[])
               WITH ORDINALITY AS wanted (id, at, place)
          JOIN events ON events.app_id = ${appId} AND events.created_at = wanted.at AND events.id = wanted.id
                     AND events.created_at >= ${first} AND events.created_at <= ${end}) AS found) AS read
     ORDER BY place`;
  return await eventsOf(sql, appId, page, rows);
}

interface PayloadRow {
  /** The place of its key, from 1 on. */
  readonly place: number;
  readonly typeId: number;
  /** Null: the payloads before it and this one are too long together. */
  readonly payload: string | null;
}

/** @returns the events of some keys whose type is there, up to the first without a payload, and how many keys they are of */
async function eventsOf(
  sql: Sql | Transaction,
  appId: number,
  page: readonly Found[],
  rows: readonly PayloadRow[],
): Promise<{ readonly events: readonly CommittedEvent[]; readonly read: number }> {
  const types = await typesOf(sql, appId, new Set(rows.map(({ typeId }) => typeId)));
  const events: CommittedEvent[] = [];
  for (const { place, typeId, payload } of rows) {
    if (payload === null) return { events, read: place - 1 };
    const [key, type] = [page[place - 1], types.get(typeId)];
    if (key === undefined || type === undefined) continue;
    const { name: typeName, publicId } = type;
    const { id, at } = key;
    const createdAt = isoOf(at);
    events.push({ id, typeId: publicId, typeName, createdAt, payload, position: positionOf(key) });
  }
  return { events, read: page.length };
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

  async read(): Promise<Run> {
    const { position, most } = this.#reading;
    const [before, ...next] = await ticksFrom(this.#tx, this.#reading.appId, position.tick, MOST_TICKS);
    if (before === undefined) throw new Error('The tick of a position is gone.');
    const joined = groupOf(next, most);
    const group = this.#split(before, joined).whole.length > 0 ? joined.slice(0, 1) : joined;
    const last = group.at(-1);
    if (last === undefined) return { found: [], beyond: null, hasMore: false };
    const found =
      group.length === 1
        ? await this.#keysOfTick(before, last, position.after)
        : await this.#keysOfGroup(before, group, position.after);
    const isAll = found.length <= most;
    return {
      found: isAll ? found : found.slice(0, most),
      beyond: isAll ? { tick: last.tick, after: null } : null,
      hasMore: !isAll || next.length > group.length,
    };
  }

  /** Whether the rows of two ticks tell which of them they belong to. */
  #isExact(before: Tick, last: Tick): boolean {
    const { place } = this.#scene;
    return before.place === place && last.place === place;
  }

  /** One more than wanted, if there are as many, of one tick. */
  async #keysOfTick(before: Tick, tick: Tick, after: EventKey | null): Promise<readonly Found[]> {
    const { most } = this.#reading;
    const { whole, exact } = this.#split(before, [tick]);
    const found: Found[] = [];
    const add = (keys: readonly Key[], by: 'minute' | null): void => {
      for (const key of keys)
        found.push({ id: key.id, at: key.at, xid: key.xid, tick: before.tick, by: by ?? key.xid ?? 0 });
    };
    if (whole.length > 0 && typeof after?.by !== 'number')
      add(await this.#wholeMinutes(whole, after, most + 1), 'minute');
    if (found.length <= most && exact.length > 0) {
      const from = typeof after?.by === 'number' ? after : null;
      add(await this.#newRows(before, tick, exact, { from, most: most + 1 - found.length }), null);
    }
    return found;
  }

  /** All events of several ticks, in their order. */
  async #keysOfGroup(
    before: Tick,
    group: readonly Tick[],
    after: EventKey | null,
  ): Promise<readonly Found[]> {
    const last = group.at(-1);
    if (last === undefined) return [];
    const { exact } = this.#split(before, group);
    const rows = await this.#newRows(before, last, exact, { from: null, most: null });
    const ticks = [before, ...group];
    const { xmax } = last.cursor;
    const tickOf = new Map<number, number>();
    const placed = rows.flatMap((key) => {
      const xid = key.xid ?? 0;
      const at = tickOf.get(xid) ?? firstWith(ticks, fullXid(xid, xmax));
      tickOf.set(xid, at);
      return at === 0 || at === ticks.length ? [] : [{ key, at }];
    });
    // They come in the order of transactions, which a stable sort keeps.
    placed.sort((a, b) => a.at - b.at);
    const found = placed.map(({ key, at }): Found => {
      const { id, xid } = key;
      return { id, at: key.at, xid, tick: (ticks[at - 1] ?? before).tick, by: xid ?? 0 };
    });
    // The position is inside the first tick: its events are there, as nothing of a snapshot changes.
    if (after === null) return found;
    return found.filter((key) => key.tick !== before.tick || isAfter(key, after, xmax));
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
  ): Promise<readonly Key[]> {
    const tx = this.#tx;
    const from = after?.by === 'minute' ? after : null;
    const [first, end] = spanOf(minutes);
    return await tx<Key[]>`
      SELECT found.id, found.created_at::text AS at, NULL::float8 AS xid
        FROM unnest(${minutes.map(({ start }) => start / 1_000)}::float8[]) AS minute (start)
       CROSS JOIN LATERAL (
             SELECT id, created_at FROM events
              WHERE app_id = ${this.#reading.appId} AND created_at >= ${first} AND created_at < ${end}
                AND created_at >= to_timestamp(start) AND created_at < to_timestamp(start) + interval '1 minute'
                AND ${this.#scene.retention.readable(tx)}
                ${from === null ? tx`` : tx`AND (created_at, id) > (${from.createdAt}::text::timestamptz, ${idOf(from)}::text::uuid)`}
              ORDER BY created_at, id LIMIT ${most}) AS found
       ORDER BY found.created_at, found.id LIMIT ${most}`;
  }

  /** The rows that the snapshot of `tick` has, and that of `before` has not. */
  async #newRows(
    before: Tick,
    tick: Tick,
    minutes: readonly Minute[],
    { from, most }: { readonly from: EventKey | null; readonly most: number | null },
  ): Promise<readonly Key[]> {
    const tx = this.#tx;
    if (minutes.length === 0) return [];
    const [first, end] = spanOf(minutes);
    const xid = typeof from?.by === 'number' ? String(from.by) : null;
    const later =
      xid === null || from === null
        ? tx``
        : tx`WHERE age(found.writer) < age(${xid}::text::xid) OR found.writer = ${xid}::text::xid
               AND (found.created_at, found.id) > (${from.createdAt}::text::timestamptz, ${idOf(from)}::text::uuid)`;
    const rows = (part: Fragment, direction: Fragment): Fragment => tx`
      SELECT id, created_at, xmin AS writer FROM events
       WHERE app_id = ${this.#reading.appId} AND created_at >= ${first} AND created_at < ${end}
         AND created_at >= to_timestamp(start) AND created_at < to_timestamp(start) + interval '1 minute' AND ${part}
         AND ${this.#scene.retention.readable(tx)}
         AND (age(xmin) BETWEEN 0 AND age(${xidOf(before.cursor.xmax)}::text::xid)
              OR xmin = ANY(${before.cursor.running.map(xidOf)}::text[]::xid[]))
         AND age(xmin) > age(${xidOf(tick.cursor.xmax)}::text::xid)
         AND xmin <> ALL(${tick.cursor.running.map(xidOf)}::text[]::xid[])
       ORDER BY created_at ${direction}, id ${direction}`;
    // Where as many are found as there may be, none is looked for in the rest of a minute: most were stored since the tick before.
    const likely = new Date(before.at.getTime() - SKEW_MS).toISOString();
    planByIndex(tx);
    const keys = await tx<Key[]>`
      SELECT found.id, found.created_at::text AS at, found.writer::text::float8 AS xid
        FROM unnest(${minutes.map(({ start }) => start / 1_000)}::float8[],
                    ${minutes.map(({ most }) => (most === 0 ? ALL : Math.min(most, ALL)))}::bigint[]) AS minute (start, most)
       CROSS JOIN LATERAL (
             SELECT * FROM ((${rows(tx`created_at >= ${likely}`, tx`ASC`)}) UNION ALL (${rows(tx`created_at < ${likely}`, tx`DESC`)})) AS part
              LIMIT CASE WHEN start > extract(epoch FROM now()) - ${BACK_AFTER_S} THEN most ELSE ${ALL} END) AS found
       ${later}
       ORDER BY age(found.writer) DESC, found.created_at, found.id
       ${most === null ? tx`` : tx`LIMIT ${most}`}`;
    return keys;
  }
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
  { appId, limit, maxBytes }: FeedRequest,
  { place, compressedUntil, retention }: Scene,
  { tick, after }: { readonly tick: string; readonly after: EventKey },
): Promise<CommittedEvents> {
  const [start] = await ticksFrom(tx, appId, tick, 0);
  if (start === undefined) throw new Error('The tick of a position is gone.');
  const isInside = compressedUntil !== null && Date.parse(after.createdAt) < Date.parse(compressedUntil);
  const known =
    isInside || start.place !== place
      ? tx``
      : tx`AND NOT (age(xmin) BETWEEN 0 AND age(${xidOf(start.cursor.xmax)}::text::xid)
                    OR xmin = ANY(${start.cursor.running.map(xidOf)}::text[]::xid[]))`;
  planByIndex(tx);
  const rows = await tx<(PayloadRow & { readonly id: string; readonly at: string })[]>`
    SELECT place::integer, id, created_at::text AS at, type_id AS "typeId",
           CASE WHEN bytes <= ${maxBytes} OR place = 1 THEN payload END AS payload FROM (
      SELECT row_number() OVER own AS place, id, created_at, type_id, payload, sum(octet_length(payload)) OVER own AS bytes FROM (
        SELECT id, created_at, type_id, payload::text AS payload FROM events
         WHERE app_id = ${appId} AND ${retention.readable(tx)} AND created_at >= ${after.createdAt}::text::timestamptz
           AND (created_at, id) > (${after.createdAt}::text::timestamptz, ${idOf(after)}::text::uuid)
           ${isInside ? tx`AND created_at < ${compressedUntil}::text::timestamptz` : tx``} ${known}
         ORDER BY created_at, id LIMIT ${limit + 1}) AS found
      WINDOW own AS (ORDER BY created_at, id ROWS UNBOUNDED PRECEDING)) AS read
     ORDER BY created_at, id`;
  const keys = rows.map(({ id, at }): Found => ({ id, at, xid: null, tick, by: 'history' }));
  const isLast = keys.length <= limit;
  const page = isLast ? keys : keys.slice(0, limit);
  const { events, read } = await eventsOf(tx, appId, page, isLast ? rows : rows.slice(0, limit));
  const last = page[read - 1];
  if (last !== undefined && (!isLast || read < page.length))
    return { events, position: positionOf(last), hasMore: true };
  const beyond = isInside ? ({ by: 'history', createdAt: compressedUntil, id: '' } as const) : null;
  return { events, position: { tick, after: beyond }, hasMore: true };
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
const MINUTE_MS = 60_000;
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

function spanOf(minutes: readonly Minute[]): [string, string] {
  const starts = minutes.map(({ start }) => start);
  return [
    new Date(Math.min(...starts)).toISOString(),
    new Date(Math.max(...starts) + MINUTE_MS).toISOString(),
  ];
}

/** A time in UTC as PostgreSQL writes it, as answers do. */
function isoOf(at: string): string {
  const time = at.indexOf(' ') + 1;
  const milliseconds = at
    .slice(time + 9, -3)
    .slice(0, 3)
    .padEnd(3, '0');
  return `${at.slice(0, time - 1)}T${at.slice(time, time + 8)}.${milliseconds}Z`;
}

const BEFORE_ALL = '00000000-0000-0000-0000-000000000000';
const idOf = ({ id }: EventKey): string => (id === '' ? BEFORE_ALL : id);

/** xmin has the lower 32 bits of a transaction's number. */
function xidOf(transaction: bigint): string {
  return BigInt.asUintN(32, transaction).toString();
}

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

function isAfter(key: Key, after: EventKey, xmax: bigint): boolean {
  if (typeof after.by !== 'number') return true;
  const [a, b] = [fullXid(key.xid ?? 0, xmax), fullXid(after.by, xmax)];
  if (a !== b) return a > b;
  const byTime = compareText(key.at, after.createdAt);
  return byTime > 0 || (byTime === 0 && compareText(key.id, after.id) > 0);
}
