/** Lists of events by cursor, in either order; and single events. */

import { HOUR_MS } from '../counts/levels.ts';
import type { Snapshot } from '../counts/stale.ts';
import type { ArchivedGroup } from '../database/archive-source.ts';
import type { Sql, Transactions } from '../database/connect.ts';
import {
  type FieldFilter,
  type FieldScope,
  type NotCounted,
  resolveFieldScope,
} from '../fields/field-scope.ts';
import { matchingRows } from '../fields/matching-rows.ts';
import { type Retention, readRetention } from '../retention.ts';
import type { ArchivedRow } from './archived-rows.ts';
import { ofTypes } from './count-descent.ts';
import { countScope, readPageIn } from './event-page.ts';
import type { EventPage, EventScope, Order, Scope, StoredEvent } from './page-request.ts';
import { readAppSnapshot, readCounts, readSnapshot } from './snapshot.ts';

/**
 * A position between two events: after the event of this time and id, in this order. It names nothing of one database but
 * the event itself, which keeps its time and its id when chunks are compressed, when types are renamed and in a restore.
 */
export interface Cursor {
  readonly at: number;
  readonly id: string;
  readonly order: Order;
}

export interface EventListRequest extends EventScope {
  readonly order: Order;
  /** Where the page begins, of the same order; null: at the first event of the scope. */
  readonly after: Cursor | null;
  readonly limit: number;
  readonly maxBytes: number;
  /** Whether to count the whole scope, too. */
  readonly withTotal?: boolean;
}

export interface EventList {
  readonly events: readonly StoredEvent[];
  /** Where the next page begins; null where there is none. */
  readonly next: Cursor | null;
  /** All events of the scope, whatever the cursor; null where they were not asked for. */
  readonly total: number | null;
}

/**
 * Reads a page, in one snapshot. It begins at a cursor, so that new events move nothing; the rows are found through the
 * counts, so that a rare type costs no more than a common one.
 */
export async function readEventList(sql: Sql, request: EventListRequest): Promise<EventList> {
  return await readCounts(sql, request.appId, (tx) => readListIn(tx, request));
}

/** Reads a list of the events that pass a filter. */
export async function readFilteredList(
  sql: Transactions,
  request: EventListRequest,
  filter: FieldFilter,
): Promise<EventList | NotCounted> {
  return await readAppSnapshot(sql, request.appId, async (tx) => {
    const isCountedAlone = request.withTotal === true;
    const field = await resolveFieldScope(tx, { ...request, isCountedAlone }, filter);
    return typeof field === 'string' ? field : await readListIn(tx, request, field);
  });
}

async function readListIn(tx: Snapshot, request: EventListRequest, field?: FieldScope): Promise<EventList> {
  const { order, after, withTotal = false } = request;
  // A page from the beginning knows the total.
  const [page, counted] = await Promise.all([
    readPage(tx, request, field),
    withTotal && after !== null ? countScope(tx, { ...request, ...(field && { field }) }) : null,
  ]);
  const { events, hasMore } = page;
  const last = events.at(-1);
  return {
    events,
    next: hasMore && last !== undefined ? { at: last.createdAt.getTime(), id: last.id, order } : null,
    total: withTotal ? (counted ?? page.total) : null,
  };
}

async function readPage(tx: Snapshot, list: EventListRequest, field?: FieldScope): Promise<EventPage> {
  const { appId, typeIds, exceptTypes = [], from, until, order, after, limit, maxBytes } = list;
  const scope = { appId, typeIds, exceptTypes, from, until, ...(field !== undefined && { field }) };
  const request = { limit, order, maxBytes } as const;
  if (after === null) return await readPageIn(tx, { ...request, scope, offset: 0 });
  const rest =
    order === 'asc'
      ? { ...scope, from: Math.max(from ?? after.at, after.at) }
      : { ...scope, until: Math.min(until ?? after.at + 1, after.at + 1) };
  return await readPageIn(tx, { ...request, scope: rest, offset: 0 }, countSameInstant(tx, rest, after));
}

/** How many events of the cursor's millisecond, as far as it is in the scope, come before the cursor. */
async function countSameInstant(
  tx: Snapshot,
  { appId, typeIds, exceptTypes = [], from, until, field }: Scope,
  { at, id, order }: Cursor,
): Promise<number> {
  if ((from !== null && at < from) || (until !== null && at >= until)) return 0;
  if (field !== undefined) {
    let count = 0;
    for await (const rows of matchingRows(tx, { ...field, appId }, [{ from: at, until: at + 1 }], order))
      count += rows.filter((row) => (order === 'asc' ? row.id <= id : row.id >= id)).length;
    return count;
  }
  const retention = await readRetention(tx, appId);
  const [row] = await tx<{ count: number }[]>`
    SELECT count(*)::integer AS count FROM events
     WHERE app_id = ${appId} AND created_at = ${at} AND id ${order === 'asc' ? tx`<=` : tx`>=`} ${id}
       AND ${retention.readable(tx)} AND type_id <> ALL(${[...exceptTypes]}::integer[])
       ${typeIds === null ? tx`` : tx`AND ${ofTypes(tx, typeIds)}`}`;
  const instant = { appId, typeIds, exceptTypes, from: at, until: at + 1 };
  const groups = await tx.archived.groups(retention, instant);
  const archived = groups.flatMap((_, index) => tx.archived.rows(retention, instant, groups.slice(index)));
  const before = archived.filter((event) => (order === 'asc' ? event.id <= id : event.id >= id));
  return (row?.count ?? 0) + before.length;
}

const CURSOR = /^([ad])(\d{1,15})\.([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$/;

/** Opaque to clients. */
export function encodeCursor({ at, id, order }: Cursor): string {
  return Buffer.from(`${order === 'asc' ? 'a' : 'd'}${at}.${id}`).toString('base64url');
}

/** @returns null for a text that is no cursor */
export function decodeCursor(text: string): Cursor | null {
  const [, order, at, id] = CURSOR.exec(Buffer.from(text, 'base64url').toString('latin1')) ?? [];
  if (at === undefined || id === undefined) return null;
  const time = Number(at);
  return time > LATEST_CURSOR ? null : { at: time, id, order: order === 'a' ? 'asc' : 'desc' };
}

/** No event is later; PostgreSQL takes years of four digits. */
const LATEST_CURSOR = Date.UTC(9999, 0, 1);

export interface SingleEvent extends StoredEvent {
  readonly typeName: string;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
/** How far an id's own time may be from the event's: ids continue where the clock stands still or steps back. */
const APART_MS = HOUR_MS;

/**
 * One event. Rows are found by their time, with which the id (UUIDv7 or v8) starts.
 * @returns null where the app has no such event that can be read
 */
export async function readEvent(sql: Sql, appId: number, eventId: string): Promise<SingleEvent | null> {
  if (!UUID.test(eventId)) return null;
  const at = Number.parseInt(eventId.replace('-', '').slice(0, 12), 16);
  return await readSnapshot(sql, async (tx) => {
    const retention = await readRetention(tx, appId);
    const [event] = await tx<SingleEvent[]>`
    SELECT events.id, type_names.public_id AS "typeId", type_names.name AS "typeName",
           events.created_at AS "createdAt", payload::text AS payload
      FROM events JOIN type_names ON type_names.app_id = ${appId} AND type_names.id = type_id
     WHERE events.app_id = ${appId} AND events.id = ${eventId}
       AND events.created_at BETWEEN ${clampYear(at - APART_MS)} AND ${clampYear(at + APART_MS)}
       AND ${retention.readable(tx)}`;
    return event ?? (await readArchivedEvent(tx, retention, { appId, id: eventId.toLowerCase(), at }));
  });
}

/** One event of an archived day: most probably it is in the group whose time its id has. */
async function readArchivedEvent(
  tx: Snapshot,
  retention: Retention,
  { appId, id, at }: { readonly appId: number; readonly id: string; readonly at: number },
): Promise<SingleEvent | null> {
  const scope = { appId, typeIds: null, from: clampYear(at - APART_MS), until: clampYear(at + APART_MS) + 1 };
  const groups = await tx.archived.groups(retention, scope);
  const distance = ({ at: first, lastAt }: ArchivedGroup): number => Math.max(0, first - at, at - lastAt);
  const nearest = groups.toSorted((a, b) => distance(a) - distance(b));
  const only = { name: id, test: (row: ArchivedRow) => row.id === id };
  for (const group of nearest) {
    const [event] = tx.archived.rows(retention, scope, [group], only);
    if (event === undefined) continue;
    const [type] = await tx<{ typeId: string; typeName: string }[]>`
      SELECT public_id AS "typeId", name AS "typeName" FROM type_names WHERE app_id = ${appId} AND id = ${event.typeId}`;
    return type === undefined ? null : { id, ...type, createdAt: new Date(event.at), payload: event.payload };
  }
  return null;
}

function clampYear(ms: number): number {
  return Math.min(Math.max(ms, 0), Date.UTC(9999, 0, 1));
}
