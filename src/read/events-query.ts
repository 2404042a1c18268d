/** Parses the query of GET /public/get_events; a refusal names the invalid parameter. */
import { Rejection } from '../errors.ts';
import type { Order } from '../storage/storage.ts';
import { parseBound } from './iso-date.ts';

/** A valid query. Its app and type may not exist. */
export interface EventsQuery {
  /** Public id, as sent. */
  readonly appId: string;
  /** Public id, as sent; null: all types. */
  readonly typeId: string | null;
  /** First millisecond since 1970 of the interval; null: from the beginning. */
  readonly from: number | null;
  /** First millisecond since 1970 after the interval; null: to the end. */
  readonly until: number | null;
  /** The applied limit, 1 to {@link MAX_LIMIT}: may be less than the requested one. */
  readonly limit: number;
  /** 0 to Number.MAX_SAFE_INTEGER. */
  readonly offset: number;
  readonly order: Order;
}

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1_000;

const PARAMETERS = ['appId', 'typeId', 'limit', 'offset', 'startDate', 'endDate', 'order'] as const;
type Parameter = (typeof PARAMETERS)[number];
type Parameters = Readonly<Partial<Record<Parameter, string>>>;

/**
 * @param query the query as sent, percent-encoded, without the question mark. It is read like an HTML form: `+` is a
 *              space, a malformed escape stays as it is, bytes that are not UTF-8 become U+FFFD.
 */
export function parseEventsQuery(query: string): EventsQuery | Rejection {
  const parameters = single(new URLSearchParams(query));
  if (parameters instanceof Rejection) return parameters;
  const { appId, typeId } = parameters;
  if (appId === undefined || appId === '') return refuse('appId is missing.');
  const limit = parseLimit(parameters.limit);
  if (limit instanceof Rejection) return limit;
  const offset = parseOffset(parameters.offset);
  if (offset instanceof Rejection) return offset;
  const range = parseRange(parameters);
  if (range instanceof Rejection) return range;
  const order = parseOrder(parameters.order);
  if (order instanceof Rejection) return order;
  return {
    appId,
    typeId: typeId === undefined || typeId === '' ? null : typeId,
    ...range,
    limit,
    offset,
    order,
  };
}

/** The known parameters, each given at most once. */
function single(given: URLSearchParams): Parameters | Rejection {
  const values: Partial<Record<Parameter, string>> = {};
  for (const name of PARAMETERS) {
    const [value, second] = given.getAll(name);
    if (second !== undefined) return refuse(`${name} is given more than once.`);
    if (value !== undefined) values[name] = value;
  }
  return values;
}

function parseLimit(text: string | undefined): number | Rejection {
  if (text === undefined) return DEFAULT_LIMIT;
  const limit = wholeNumber(text);
  if (limit === null || limit < 1) return refuse('limit must be a whole number of at least 1.');
  return Math.min(limit, MAX_LIMIT);
}

function parseOffset(text: string | undefined): number | Rejection {
  if (text === undefined) return 0;
  const offset = wholeNumber(text);
  if (offset === null) return refuse('offset must be a whole number of at least 0.');
  if (offset > Number.MAX_SAFE_INTEGER) return refuse(`offset must be at most ${Number.MAX_SAFE_INTEGER}.`);
  return offset;
}

/** Digits only: no sign, exponent or space. Not exact beyond 2^53, and Infinity beyond 1e308. */
function wholeNumber(text: string): number | null {
  return /^\d+$/.test(text) ? Number(text) : null;
}

function parseOrder(text: string | undefined): Order | Rejection {
  if (text === undefined) return 'asc';
  return text === 'asc' || text === 'desc' ? text : refuse('order must be asc or desc.');
}

function parseRange({ startDate, endDate }: Parameters): Pick<EventsQuery, 'from' | 'until'> | Rejection {
  const start = bound(startDate, 'start');
  if (typeof start === 'string') return refuse(`startDate ${start}.`);
  const end = bound(endDate, 'end');
  if (typeof end === 'string') return refuse(`endDate ${end}.`);
  if (start !== null && end !== null && start > end) return refuse('startDate must not be after endDate.');
  return { from: start, until: end === null ? null : end + 1 };
}

function bound(text: string | undefined, edge: 'start' | 'end'): number | string | null {
  return text === undefined || text === '' ? null : parseBound(text, edge);
}

function refuse(details: string): Rejection {
  return new Rejection('invalidParameters', details);
}
