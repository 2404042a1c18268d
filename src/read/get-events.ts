/** GET /public/get_events: the steps of the read path. */

import type { PublicIds } from '../apps/public-ids.ts';
import type { ResourceToken, ResourceTokens } from '../apps/resource-token-lookup.ts';
import { Rejection } from '../errors.ts';
import type { Exchange, Outcome } from '../http/exchange.ts';
import type { Limiter } from '../limits/limiter.ts';
import type { EventPage, EventReader, StoredEvent } from '../storage/storage.ts';
import { type EventsQuery, parseEventsQuery } from './events-query.ts';
import type { ReadSlots } from './read-slots.ts';

export interface GetEventsDependencies {
  readonly events: EventReader;
  readonly slots: ReadSlots;
  readonly resourceTokens: ResourceTokens;
  /** Limits by the token's internal id. */
  readonly limiter: Limiter;
  readonly apps: PublicIds;
  /** Payload bytes after which a page ends early (MAX_PAGE_BYTES). */
  readonly maxPageBytes: number;
}

/** Creates the handler. It rejects only if the database fails. */
export function createGetEvents(
  dependencies: GetEventsDependencies,
): (exchange: Exchange) => Promise<Outcome> {
  const { resourceTokens, limiter } = dependencies;

  return async function getEvents(exchange) {
    const token = await resourceTokens.authenticate(exchange.header('authorization'));
    if (token instanceof Rejection) return token;

    const overLimit = await countRequest(limiter, token, exchange);
    if (overLimit !== null) return overLimit;

    const query = parseEventsQuery(exchange.query);
    if (query instanceof Rejection) return query;

    const appId = await permittedApp(dependencies.apps, token, query);
    if (appId instanceof Rejection) return appId;

    const page = await dependencies.slots.run(exchange, () => readPage(dependencies, appId, query));
    return page instanceof Rejection ? page : { status: 200, body: pageBody(page, query) };
  };
}

/** @returns 429 if the token's window is full */
async function countRequest(
  limiter: Limiter,
  token: ResourceToken,
  exchange: Exchange,
): Promise<Rejection | null> {
  const decision = await limiter.take(token.tokenId);
  exchange.rateLimit = decision;
  if (decision === null || decision.accepted) return null;
  return new Rejection(
    'rateLimitExceeded',
    `A resource token may read ${decision.limit} times in 60 seconds.`,
    {
      retryAfterSeconds: decision.resetSeconds,
    },
  );
}

/** The internal id of an app that the token may read; 404 if there is no such app, 403 if the token may not read it. */
async function permittedApp(
  apps: PublicIds,
  token: ResourceToken,
  query: EventsQuery,
): Promise<number | Rejection> {
  const permitted = token.apps.get(query.appId);
  if (permitted !== undefined) return permitted;
  if ((await apps.appId(query.appId)) === null) return new Rejection('appNotFound', 'No app has this appId.');
  return new Rejection('accessDenied', 'The resource token has no permission on this app.');
}

async function readPage(
  { events, apps, maxPageBytes }: GetEventsDependencies,
  appId: number,
  query: EventsQuery,
): Promise<EventPage> {
  const typeId = query.typeId === null ? null : await apps.typeId(appId, query.typeId);
  if (query.typeId !== null && typeId === null) return { total: 0, events: [], hasMore: false };
  const { from, until, offset, limit, order } = query;
  return await events.page({
    scope: { appId, typeId, from, until },
    offset,
    limit,
    order,
    maxBytes: maxPageBytes,
  });
}

/** The response's body. The text of payloads is inserted unchanged, and everything is copied once, into one buffer. */
function pageBody({ total, events, hasMore }: EventPage, { limit, offset }: EventsQuery): Buffer {
  const parts = events.map((event, i) => (i === 0 ? '' : ',') + eventText(event));
  parts.unshift('{"success":true,"data":{"events":[');
  parts.push(`],"pagination":${JSON.stringify({ total, limit, offset, hasMore })}}}`);

  const body = Buffer.allocUnsafe(parts.reduce((bytes, part) => bytes + Buffer.byteLength(part), 0));
  let written = 0;
  for (const part of parts) written += body.write(part, written);
  return body;
}

/** Only the type's id is escaped: it may come from an import, while other fields consist of safe characters. */
function eventText({ id, typeId, createdAt, payload }: StoredEvent): string {
  return `{"id":"${id}","typeId":${JSON.stringify(typeId)},"payload":${payload},"createdAt":"${createdAt.toISOString()}"}`;
}
