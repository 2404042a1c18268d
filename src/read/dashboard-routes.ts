/** Routes of the dashboard's charts and lists of events. */
import { type Api, done, type MemberCall } from '../accounts/routes/api.ts';
import { Rejection } from '../errors.ts';
import type { Route } from '../http/route.ts';
import type { Sql } from '../storage/connect.ts';
import { decodeCursor, type EventReader, encodeCursor, type StoredEvent } from '../storage/storage.ts';
import { parseRangeQuery, parseSeriesQuery } from './series-query.ts';

export interface DashboardReadOptions {
  readonly api: Api;
  /** For lookups of event types. */
  readonly sql: Sql;
  readonly events: EventReader;
  readonly maxPageBytes: number;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

const DEFAULT_LIMIT = 50;
const MAX_LIMIT = 200;

const NO_TYPE = new Rejection('eventTypeNotFound', 'The app has no event type with one of these typeIds.');
const NO_EVENT = new Rejection('eventNotFound', 'The app has no such event, or its rows are no longer kept.');
const TOO_LONG = new Rejection('invalidParameters', 'from and to must be at most 1,000 months apart.');
const NO_CURSOR = new Rejection('invalidParameters', 'before must be the "next" of an earlier page.');
const NO_LIMIT = new Rejection('invalidParameters', 'limit must be a whole number of at least 1.');

export function dashboardReadRoutes(options: DashboardReadOptions): readonly Route[] {
  const { api, sql, events, maxPageBytes, now } = options;
  return [
    api.read('/api/apps/:appId/series', 'member', async ({ app, exchange }) => {
      const query = parseSeriesQuery(exchange.query);
      if (query instanceof Rejection) return query;
      const typeIds = await internalTypes(sql, app, query.typeIds);
      if (typeIds instanceof Rejection) return typeIds;
      const { from, timezone, buckets } = query;
      // Exclusive end: includes the current millisecond.
      const until = query.until ?? Math.max(now(), from ?? 0) + 1;
      const series = await events.series({ appId: app.id, typeIds, from, until, timezone, buckets });
      return series === null ? TOO_LONG : done(series);
    }),
    api.read('/api/apps/:appId/events', 'member', async ({ app, exchange }) => {
      const parameters = new URLSearchParams(exchange.query);
      const range = parseRangeQuery(parameters);
      if (range instanceof Rejection) return range;
      const limit = parameters.get('limit') || String(DEFAULT_LIMIT);
      if (!/^\d{1,6}$/.test(limit) || Number(limit) < 1) return NO_LIMIT;
      const cursor = parameters.get('before') || null;
      const before = cursor === null ? null : decodeCursor(cursor);
      if (cursor !== null && before === null) return NO_CURSOR;
      const typeIds = await internalTypes(sql, app, range.typeIds);
      if (typeIds instanceof Rejection) return typeIds;
      const page = await events.list({
        appId: app.id,
        typeIds,
        from: range.from,
        until: range.until,
        before,
        limit: Math.min(Number(limit), MAX_LIMIT),
        maxBytes: maxPageBytes,
      });
      const rows = page.events.map((event) => eventText(event)).join(',');
      const cursorText = page.next === null ? 'null' : `"${encodeCursor(page.next)}"`;
      return { status: 200, body: `{"success":true,"data":{"events":[${rows}],"next":${cursorText}}}` };
    }),
    api.read('/api/apps/:appId/events/:eventId', 'member', async ({ app, parameters }) => {
      const event = await events.event(app.id, parameters[1] ?? '');
      if (event === null) return NO_EVENT;
      return {
        status: 200,
        body: `{"success":true,"data":${eventText(event, { typeName: event.typeName, appId: app.appId })}}`,
      };
    }),
  ];
}

/** Public ids → internal ids; null if none is given. */
async function internalTypes(
  sql: Sql,
  app: MemberCall['app'],
  typeIds: readonly string[],
): Promise<number[] | null | Rejection> {
  if (typeIds.length === 0) return null;
  if (typeIds.some((typeId) => typeId.includes('\0'))) return NO_TYPE;
  const rows = await sql<{ id: number; publicId: string }[]>`
    SELECT id, public_id AS "publicId" FROM event_types
     WHERE app_id = ${app.id} AND public_id = ANY(${[...typeIds]})`;
  return rows.length === typeIds.length ? rows.map(({ id }) => id) : NO_TYPE;
}

/** The payload's text is inserted unchanged. */
function eventText(
  { id, typeId, createdAt, payload }: StoredEvent,
  more: Record<string, string> = {},
): string {
  const fields = JSON.stringify({ id, typeId, ...more, createdAt: createdAt.toISOString() });
  return `${fields.slice(0, -1)},"payload":${payload}}`;
}
