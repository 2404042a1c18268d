/** The query of GET /public/get_events: raw text → what to read, or the refusal that names the parameter at fault. */
import { Rejection } from '../../errors.ts';
import { Invalid, oneOf, type Parameter, Query, text, wholeNumber } from '../../http/query.ts';
import type { Order } from '../../storage/read/page-request.ts';
import { APP_ID, TYPE_ID } from '../answer-shapes.ts';
import { parseBound } from '../iso-date.ts';

/** A query that says what it should. Whether its app and its type exist is not known yet. */
export interface EventsQuery {
  /** Public id, as sent. */
  readonly appId: string;
  /** Public id, as sent; null: all types. */
  readonly typeId: string | null;
  /** First millisecond since 1970 of the range; null: from the beginning. */
  readonly from: number | null;
  /** First millisecond since 1970 that is after the range; null: to the end. */
  readonly until: number | null;
  /** 1 to {@link MAX_PAGE_EVENTS}: what is applied, which may be less than was asked for. */
  readonly limit: number;
  /** 0 to Number.MAX_SAFE_INTEGER. */
  readonly offset: number;
  readonly order: Order;
}

export const DEFAULT_PAGE_EVENTS = 100;
export const MAX_PAGE_EVENTS = 1_000;

export const EVENTS_QUERY = new Query(
  {
    appId: {
      description: 'The app to read.',
      schema: { ...APP_ID, minLength: 1 },
      rule: 'is missing',
      required: true,
      // The schema lets nothing else through.
      convert: (value) => value as string,
    } satisfies Parameter<string>,
    typeId: text('Only events of this type. An unknown type gives an empty page.', {
      schema: TYPE_ID,
      convert: (typeId) => typeId,
    }),
    limit: wholeNumber(`Most events of the page. A larger number is reduced to ${MAX_PAGE_EVENTS}.`, {
      minimum: 1,
      absent: DEFAULT_PAGE_EVENTS,
      largest: MAX_PAGE_EVENTS,
    }),
    offset: wholeNumber('Events to skip. The cost of a page does not depend on it.', {
      minimum: 0,
      maximum: Number.MAX_SAFE_INTEGER,
      absent: 0,
    }),
    startDate: bound('From this instant on, inclusive.', 'start'),
    endDate: bound('Up to this instant, inclusive.', 'end'),
    order: oneOf('By `createdAt`, then `id`: oldest first, or newest first.', ['asc', 'desc'], 'asc'),
  },
  ({ startDate, endDate }) =>
    startDate !== null && endDate !== null && startDate > endDate
      ? 'startDate must not be after endDate.'
      : null,
);

/** @param query the query as it was sent, percent-encoded, without the question mark */
export function parseEventsQuery(query: string): EventsQuery | Rejection {
  const values = EVENTS_QUERY.parse(query);
  if (values instanceof Rejection) return values;
  const { startDate, endDate, ...rest } = values;
  return { ...rest, from: startDate, until: endDate === null ? null : endDate + 1 };
}

function bound(description: string, edge: 'start' | 'end'): Parameter<number | null> {
  return text(
    `${description} ISO 8601, to the millisecond. A date without a time is the whole UTC day; a time without an offset is UTC.`,
    {
      schema: { examples: ['2026-01-31', '2026-01-31T08:30:00.123Z'] },
      convert: (sent) => {
        const instant = parseBound(sent, edge);
        return typeof instant === 'string' ? new Invalid(instant) : instant;
      },
    },
  );
}
