/** GET /public/get_events: the read path as the list of its steps. */
import type { PublicIds } from '../../apps/public-ids.ts';
import { Rejection } from '../../errors.ts';
import type { Exchange, Outcome } from '../../http/exchange.ts';
import { dataOf, json, objectOf, READS } from '../../http/operation.ts';
import type { ReadSlots } from '../../http/read-slots.ts';
import type { Declaration } from '../../http/route.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import type { EventPage } from '../../storage/read/page-request.ts';
import { COUNT, EVENT } from '../answer-shapes.ts';
import type { ResourceTokenAccess } from '../resource-token-access.ts';
import { pageBody } from './event-text.ts';
import { EVENTS_QUERY, type EventsQuery, MAX_PAGE_EVENTS, parseEventsQuery } from './events-query.ts';

/** Its declaration. */
export const GET_EVENTS: Declaration = {
  method: 'GET',
  path: '/public/get_events',
  headers: ['authorization'],
  operation: {
    id: 'getEvents',
    ...READS,
    summary: 'Read events by offset, with their exact total.',
    query: EVENTS_QUERY,
    answers: {
      200: json(
        'A page of events.',
        dataOf(
          objectOf({
            events: { type: 'array', items: EVENT, maxItems: MAX_PAGE_EVENTS },
            pagination: objectOf(
              {
                total: { ...COUNT, description: 'All events of the scope, in the snapshot of the page.' },
                limit: { ...COUNT, minimum: 1, maximum: MAX_PAGE_EVENTS, description: 'The limit applied.' },
                offset: COUNT,
                hasMore: { type: 'boolean', description: 'Whether there are events after this page.' },
              },
              { title: 'OffsetPagination' },
            ),
          }),
        ),
      ),
    },
    refusals: ['accessDenied', 'appNotFound'],
  },
};

export interface GetEventsDependencies {
  readonly access: ResourceTokenAccess;
  readonly slots: ReadSlots;
  readonly apps: PublicIds;
  /** Payload bytes after which a page ends early (MAX_PAGE_BYTES). */
  readonly maxPageBytes: number;
}

/** Makes the handler. It rejects only where the database fails. */
export function createGetEvents(
  dependencies: GetEventsDependencies,
): (exchange: Exchange) => Promise<Outcome> {
  const { access, slots } = dependencies;

  return async function getEvents(exchange) {
    const token = await access.admit(exchange);
    if (token instanceof Rejection) return token;

    const query = parseEventsQuery(exchange.query);
    if (query instanceof Rejection) return query;

    const appId = await access.app(token, query.appId);
    if (appId instanceof Rejection) return appId;

    const page = await slots.run(
      { kind: 'get_events', turns: token.holder, waiter: exchange },
      ({ events }) => readPage(dependencies, events, appId, query),
    );
    if (page instanceof Rejection) return page;
    const { total, events, hasMore } = page;
    const { limit, offset } = query;
    return { status: 200, body: pageBody(events, { total, limit, offset, hasMore }) };
  };
}

async function readPage(
  { apps, maxPageBytes }: GetEventsDependencies,
  events: EventReader,
  appId: number,
  query: EventsQuery,
): Promise<EventPage> {
  const typeId = query.typeId === null ? null : await apps.typeId(appId, query.typeId);
  if (query.typeId !== null && typeId === null) return { total: 0, events: [], hasMore: false };
  const { from, until, offset, limit, order } = query;
  return await events.page({
    scope: { appId, typeIds: typeId === null ? null : [typeId], from, until },
    offset,
    limit,
    order,
    maxBytes: maxPageBytes,
  });
}
