/** The dashboard's list of events, newest first, by cursor; and single events. */
import type { Sql, Transaction } from './connect.ts';
import { HOUR_MS } from './counts/levels.ts';
import { type EventPage, readEventPage, readPageIn, type StoredEvent } from './event-page.ts';
import { readSnapshot } from './snapshot.ts';

/** The last event of a page: the next page starts after it. */
export interface Cursor {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly id: string;
}

export interface EventListRequest {
  /** Internal id of the app. */
  readonly appId: number;
  /** Internal ids; null: all types. */
  readonly typeIds: readonly number[] | null;
  readonly from: number | null;
  readonly until: number | null;
  readonly before: Cursor | null;
  readonly limit: number;
  readonly maxBytes: number;
}

export interface EventList {
  readonly events: readonly StoredEvent[];
  /** Where the next page starts; null where there is none. */
  readonly next: Cursor | null;
}

/**
 * Reads a page. It starts at a cursor, so that new events at the head move nothing; the rows are found through the counts,
 * so that a rare type costs no more than a common one. Several types are read one by one and merged.
 */
export async function readEventList(sql: Sql, request: EventListRequest): Promise<EventList> {
  const pages = await Promise.all(
    (request.typeIds ?? [null]).map((typeId) => readPage(sql, request, typeId)),
  );
  const merged = pages.flatMap(({ events }) => events).sort(newestFirst);
  const events = merged.slice(0, request.limit);
  const last = events.at(-1);
  const hasMore = events.length < merged.length || pages.some((page) => page.hasMore);
  return {
    events,
    next: hasMore && last !== undefined ? { at: last.createdAt.getTime(), id: last.id } : null,
  };
}

async function readPage(sql: Sql, list: EventListRequest, typeId: number | null): Promise<EventPage> {
  const { appId, from, until, before, limit, maxBytes } = list;
  const scope = { appId, typeId, from, until: before === null ? until : before.at + 1 };
  const request = { scope, limit, order: 'desc', maxBytes } as const;
  if (before === null) return await readEventPage(sql, { ...request, offset: 0 });
  const page = await readSnapshot(sql, async (tx) => {
    const offset = await countSameInstant(tx, appId, typeId, before);
    return await readPageIn(tx, { ...request, offset });
  });
  // An event that has arrived since in the cursor's millisecond would push one of the last page into this one.
  const events = page.events.filter(({ createdAt, id }) => createdAt.getTime() < before.at || id < before.id);
  return { ...page, events };
}

/** How many events of the cursor's millisecond were on the pages before. */
async function countSameInstant(
  tx: Transaction,
  appId: number,
  typeId: number | null,
  { at, id }: Cursor,
): Promise<number> {
  const [row] = await tx<{ count: number }[]>`
    SELECT count(*)::integer AS count FROM events
     WHERE app_id = ${appId} AND created_at = ${at} AND id >= ${id}
       ${typeId === null ? tx`` : tx`AND type_id = ${typeId}`}`;
  return row?.count ?? 0;
}

function newestFirst(a: StoredEvent, b: StoredEvent): number {
  const apart = b.createdAt.getTime() - a.createdAt.getTime();
  if (apart !== 0) return apart;
  return a.id < b.id ? 1 : -1;
}

const CURSOR = /^(\d{1,15})\.([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$/;

/** Opaque to clients. */
export function encodeCursor({ at, id }: Cursor): string {
  return Buffer.from(`${at}.${id}`).toString('base64url');
}

/** @returns null for a text that is no cursor */
export function decodeCursor(text: string): Cursor | null {
  const [, at, id] = CURSOR.exec(Buffer.from(text, 'base64url').toString('latin1')) ?? [];
  return at === undefined || id === undefined ? null : { at: Number(at), id };
}

export interface SingleEvent extends StoredEvent {
  readonly typeName: string;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
/** How far an id's own time may be from the event's: ids continue where the clock stands still or steps back. */
const APART_MS = HOUR_MS;

/**
 * One event. Rows are found by their time, with which the id (UUIDv7) starts.
 * @returns null where the app has no such event that can be read
 */
export async function readEvent(sql: Sql, appId: number, eventId: string): Promise<SingleEvent | null> {
  if (!UUID.test(eventId)) return null;
  const at = Number.parseInt(eventId.replace('-', '').slice(0, 12), 16);
  const [event] = await readSnapshot(
    sql,
    (tx) => tx<SingleEvent[]>`
    SELECT events.id, event_types.public_id AS "typeId", event_types.name AS "typeName",
           events.created_at AS "createdAt", payload::text AS payload
      FROM events JOIN event_types ON event_types.id = type_id
     WHERE events.app_id = ${appId} AND events.id = ${eventId}
       AND events.created_at BETWEEN ${clampYear(at - APART_MS)} AND ${clampYear(at + APART_MS)}
       AND events.created_at >= (SELECT readable_from FROM retention)`,
  );
  return event ?? null;
}

function clampYear(ms: number): number {
  return Math.min(Math.max(ms, 0), Date.UTC(9999, 0, 1));
}
