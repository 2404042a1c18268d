/** Pages of events by cursor, and one event. */
import { SEARCHED_BY } from '../../base/searched-by.ts';
import { Rejection } from '../../errors.ts';
import { dataOf, json, objectOf } from '../../http/operation.ts';
import { Invalid, invalidParameters, oneOf, Query, text, wholeNumber } from '../../http/query.ts';
import type { ReadPlace } from '../../http/read-slots.ts';
import type { RowFilter } from '../../storage/fields/row-filter.ts';
import { decodeCursor, encodeCursor } from '../../storage/read/event-list.ts';
import type { StoredEvent } from '../../storage/read/page-request.ts';
import {
  COUNT,
  CURSOR,
  EVENT,
  EVENT_ID,
  SEARCHED_BY_NOTE,
  SINGLE_EVENT,
  TIMESTAMP,
} from '../answer-shapes.ts';
import { type AppRead, appRead, type ReadCall } from '../app-read.ts';
import { COUNTED_LATER, COUNTED_LATER_NOTE, fieldFilterOf } from '../filter/counted-values.ts';
import { FILTER, filterOf } from '../filter/filter-query.ts';
import { checkScope, EXCEPT_TYPES, findScopedTypes, SCOPE } from '../scope-query.ts';
import { pageBody } from './event-text.ts';
import { DEFAULT_PAGE_EVENTS, MAX_PAGE_EVENTS } from './events-query.ts';
import { readSearchPage, SEARCH_BUDGET, type SearchBudget, type SearchPageRequest } from './search-page.ts';

const NO_EVENT = new Rejection('eventNotFound', 'The app has no such event, or its rows are no longer kept.');

const NOT_COUNTED = invalidParameters(
  'total must be none: the filter is not that a declared field has one of some values, or the field is not counted for all of ' +
    'the scope (see its completeFrom), or from lies in a minute with more than 200,000 events.',
);

const NOT_WITHOUT_TYPES = invalidParameters(
  'total must be none together with filter and hidden=exclude or exceptTypeId.',
);

const EVENTS_QUERY = new Query(
  {
    ...SCOPE,
    order: oneOf('By `createdAt`, then `id`: oldest first, or newest first.', ['asc', 'desc'], 'asc'),
    limit: wholeNumber(`Most events of the page. A larger number is reduced to ${MAX_PAGE_EVENTS}.`, {
      minimum: 1,
      absent: DEFAULT_PAGE_EVENTS,
      largest: MAX_PAGE_EVENTS,
    }),
    cursor: text('`nextCursor` of the page before, with the same other parameters.', {
      convert: (sent) => decodeCursor(sent) ?? new Invalid('must be the nextCursor of an earlier page'),
    }),
    total: oneOf(
      '`exact` also counts all events of the scope. With `filter` only if the counts of a declared field answer it; not with `q` or `word`.',
      ['none', 'exact'],
      'none',
    ),
    ...EXCEPT_TYPES,
    ...FILTER,
  },
  (query) => {
    if (query.cursor !== null && query.cursor.order !== query.order)
      return 'cursor must be the nextCursor of a page of the same order.';
    return checkScope(query);
  },
);

const PAGINATION = objectOf(
  {
    limit: { ...COUNT, minimum: 1, maximum: MAX_PAGE_EVENTS, description: 'The limit applied.' },
    nextCursor: {
      ...CURSOR,
      description:
        'Where the next page begins; absent on the last page. With a filter, a page may have it and few events or none.',
    },
    searchedUntil: {
      ...TIMESTAMP,
      description:
        `With a filter, where the page has ended because it looked at ${SEARCH_BUDGET.rows.toLocaleString('en-US')} ` +
        'events or took too long: about how far it has come. The next page goes on from there.',
    },
    searchedBy: {
      enum: SEARCHED_BY,
      description: `With \`filteredBy\` \`search\`, how the events of the page were found. ${SEARCHED_BY_NOTE}`,
    },
    filteredBy: {
      enum: ['counts', 'search'],
      description:
        'With a filter, how it was answered. `counts`: a declared field has one of some values; such a page ends only at its ' +
        'limit or its largest size, whatever lies between. `search`: all events of the scope are looked at.',
    },
    total: { ...COUNT, description: 'All events of the scope, in the snapshot of the page; on request.' },
  },
  {
    title: 'CursorPagination',
    optional: ['nextCursor', 'searchedUntil', 'searchedBy', 'filteredBy', 'total'],
  },
);

export const EVENTS = {
  path: '/events',
  query: EVENTS_QUERY,
  operation: {
    id: 'listEvents',
    summary: 'Read events page by page.',
    description: COUNTED_LATER_NOTE,
    answers: {
      200: json(
        'A page of events.',
        dataOf(objectOf({ events: { type: 'array', items: EVENT }, pagination: PAGINATION })),
      ),
    },
    refusals: ['eventTypeNotFound'],
  },
} as const;

export interface EventsReadOptions {
  /** Milliseconds since 1970: pages of the newest events say where a live feed goes on. Absent: none does. */
  readonly now?: () => number;
  /** Payload bytes after which a page ends early (MAX_PAGE_BYTES). */
  readonly maxPageBytes: number;
  readonly monotonic: () => number;
  /** What one page of a search may look at. */
  readonly searchBudget?: SearchBudget;
}

interface EventPage {
  readonly events: readonly StoredEvent[];
  /** Its fields in the answer. */
  readonly pagination: object;
}

/** Pages of events. */
export function eventsRead(options: EventsReadOptions): AppRead {
  const { now } = options;
  return appRead(EVENTS, async (call, query) => {
    const isNewest = query.order === 'desc' && query.cursor === null && query.to === null;
    const feed =
      now === undefined || !isNewest ? undefined : await call.events.feedCursor(call.app.id, now());
    const page = await readEventPage(options, call, query);
    if (page instanceof Rejection) return page;
    const { events } = page;
    const pagination = { ...page.pagination, feed };
    return {
      data: () => ({ events, pagination }),
      present: () => ({ status: 200, body: pageBody(events, pagination) }),
    };
  });
}

/** One page. @returns also a refusal of its types, or of a total that cannot be counted */
export async function readEventPage(
  options: EventsReadOptions,
  { app, sql, events, pass }: Pick<ReadCall, 'app'> & ReadPlace,
  query: Exclude<ReturnType<typeof EVENTS_QUERY.parse>, Rejection>,
): Promise<EventPage | Rejection> {
  const types = await findScopedTypes(sql, app.id, query);
  if (types instanceof Rejection) return types;
  const { typeIds, exceptTypes, exceptIds } = types;
  const { from, to: until, order, cursor: after, limit } = query;
  const scope = { appId: app.id, typeIds, exceptTypes, from, until };
  const request = { ...scope, order, after, limit, maxBytes: options.maxPageBytes };
  const filter = filterOf(query);
  const counted = fieldFilterOf(query);
  const withTotal = query.total === 'exact';
  if (withTotal && counted !== null && exceptIds.size > 0) return NOT_WITHOUT_TYPES;
  const found =
    counted === null ? 'not counted' : await events.filteredList({ ...request, withTotal }, counted);
  const isCounted = typeof found !== 'string';
  if (filter !== null && !isCounted) {
    if (withTotal) return found === 'not counted' ? NOT_COUNTED : COUNTED_LATER;
    return await searchedPage(options, { events, pass }, request, filter);
  }
  const page = isCounted ? found : await events.list({ ...request, withTotal });
  const pagination = {
    limit,
    ...(isCounted && { filteredBy: 'counts' }),
    ...(page.next !== null && { nextCursor: encodeCursor(page.next) }),
    ...(page.total !== null && { total: page.total }),
  };
  // What counts find is of all types.
  const shown = found === null ? page.events : page.events.filter(({ typeId }) => !exceptIds.has(typeId));
  return { events: shown, pagination };
}

async function searchedPage(
  { monotonic: now, searchBudget: budget = SEARCH_BUDGET }: EventsReadOptions,
  { events, pass }: Pick<ReadPlace, 'events' | 'pass'>,
  request: SearchPageRequest,
  filter: RowFilter,
): Promise<EventPage> {
  const page = await readSearchPage(events, request, filter, { budget, now, pass });
  const { order, limit } = request;
  const pagination = {
    limit,
    filteredBy: 'search',
    searchedBy: page.searchedBy ?? 'scan',
    ...(page.next !== null && { nextCursor: encodeCursor({ ...page.next, order }) }),
    ...(page.searchedUntil !== null && { searchedUntil: page.searchedUntil.toISOString() }),
  };
  return { events: page.events, pagination };
}

export const SINGLE = {
  path: '/events/:eventId',
  query: new Query({}),
  operation: {
    id: 'getEvent',
    summary: 'Read one event.',
    path: { eventId: { description: 'The id of the event.', schema: EVENT_ID } },
    answers: { 200: json('The event.', dataOf(SINGLE_EVENT)) },
    refusals: ['eventNotFound'],
  },
} as const;

/** One event, by its id. */
export function eventRead(): AppRead {
  return appRead(SINGLE, async ({ app, parameters, events }) => {
    const event = await events.event(app.id, parameters[0] ?? '');
    if (event === null) return NO_EVENT;
    const { id, typeId, typeName, payload } = event;
    const known = JSON.stringify({ id, typeId, typeName, appId: app.appId });
    const createdAt = event.createdAt.toISOString();
    const body = `{"success":true,"data":${known.slice(0, -1)},"payload":${payload},"createdAt":"${createdAt}"}}`;
    return {
      data: () => ({ id, typeId, typeName, payload, createdAt }),
      present: () => ({ status: 200, body }),
    };
  });
}
