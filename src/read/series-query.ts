/** Parses the query of a series or a list of events; a refusal names the invalid parameter. */
import { Rejection } from '../errors.ts';
import { type FieldFilter, isTimezone, type RowFilter } from '../storage/storage.ts';
import { fieldFilterOf } from './filter/counted-values.ts';
import { MAX_FILTERS } from './filter/filter-query.ts';
import { type Condition, MAX_FILTER_LENGTH, parsePath } from './filter/parse-filter.ts';
import { parseFilters, payloadFilter } from './filter/payload-filter.ts';
import { parseBound } from './iso-date.ts';
import { EARLIEST, LATEST, MAX_TYPES } from './scope-query.ts';

export interface RangeQuery {
  /** First millisecond since 1970; null: from the first event. */
  readonly from: number | null;
  /** First millisecond since 1970 after the interval; null: to now. */
  readonly until: number | null;
  /** Public ids without duplicates; empty: all types. */
  readonly typeIds: readonly string[];
}

export interface SeriesQuery extends RangeQuery {
  readonly timezone: string;
  /** Limit of buckets. */
  readonly buckets: number;
  /** Limit of lines that are counted apart. */
  readonly lines: number;
  /** An earlier interval to count as well; null: none. */
  readonly compared: { readonly from: number; readonly until: number } | null;
  /** The condition on payloads that counts may answer; null: none, or one that has to be searched for. */
  readonly filter: FieldFilter | null;
  /** Whether there are conditions on payloads. */
  readonly hasConditions: boolean;
  /** The conditions as a search needs them, null where there are none; or what is wrong with them. */
  readonly rows: RowFilter | null | Rejection;
  /** The field whose values are the lines; null: event types are. */
  readonly by: readonly string[] | null;
}

const MAX_BUCKETS = 1_000;
const DEFAULT_BUCKETS = 200;
const MAX_LINES = 1_000;
/** Lines that are easy to distinguish in a chart. */
const DEFAULT_LINES = 5;

/** @param query the query as sent, without the question mark */
export function parseSeriesQuery(query: string): SeriesQuery | Rejection {
  const parameters = new URLSearchParams(query);
  const range = parseRangeQuery(parameters);
  if (range instanceof Rejection) return range;
  const timezone = parameters.get('timezone') || 'UTC';
  if (!isTimezone(timezone)) return refuse('timezone must be an IANA time zone, such as Europe/Berlin.');
  const buckets = parameters.get('buckets') || String(DEFAULT_BUCKETS);
  if (!/^\d{1,6}$/.test(buckets) || Number(buckets) < 1)
    return refuse('buckets must be a whole number of at least 1.');
  const lines = parameters.get('lines') || String(DEFAULT_LINES);
  if (!/^\d{1,6}$/.test(lines) || Number(lines) < 1)
    return refuse('lines must be a whole number of at least 1.');
  const compared = parseInterval(parameters, ['compareFrom', 'compareTo']);
  if (compared instanceof Rejection) return compared;
  const { from, until } = compared;
  const [texts, search] = [parameters.getAll('filter'), parameters.get('q') ?? ''];
  const conditions = parseFilters(texts);
  const by = parsePath(parameters.get('by') ?? '');
  return {
    ...range,
    // What is wrong with a condition is said once, by the list beside the chart.
    filter: typeof conditions === 'string' ? null : fieldFilterOf({ filter: conditions, q: search }),
    hasConditions: search !== '' || texts.length > 0,
    rows: rowsOf(conditions, search),
    // A path that is none is not counted either: the chart is by type, and says so.
    by: 'problem' in by ? null : by,
    timezone,
    buckets: Math.min(Number(buckets), MAX_BUCKETS),
    lines: Math.min(Number(lines), MAX_LINES),
    compared: from === null || until === null ? null : { from, until },
  };
}

/** The limits are those of the list of the same events. */
function rowsOf(conditions: readonly Condition[] | string, search: string): RowFilter | null | Rejection {
  if (typeof conditions === 'string') return refuse(`filter ${conditions}.`);
  if (conditions.length > MAX_FILTERS) return refuse(`filter may be given at most ${MAX_FILTERS} times.`);
  if (search.length > MAX_FILTER_LENGTH)
    return refuse(`q must have at most ${MAX_FILTER_LENGTH} characters.`);
  return payloadFilter(conditions, search);
}

/** `from` is inclusive, `to` is exclusive. */
function parseRangeQuery(parameters: URLSearchParams): RangeQuery | Rejection {
  const interval = parseInterval(parameters, ['from', 'to']);
  if (interval instanceof Rejection) return interval;
  const typeIds = [...new Set(parameters.getAll('typeId').filter((id) => id !== ''))];
  if (typeIds.length > MAX_TYPES) return refuse(`typeId may be given at most ${MAX_TYPES} times.`);
  return { ...interval, typeIds };
}

function parseInterval(
  parameters: URLSearchParams,
  [start, end]: readonly [start: string, end: string],
): { readonly from: number | null; readonly until: number | null } | Rejection {
  const from = parseInstant(parameters, start);
  if (from instanceof Rejection) return from;
  const until = parseInstant(parameters, end);
  if (until instanceof Rejection) return until;
  if (from !== null && until !== null && from >= until) return refuse(`${start} must be before ${end}.`);
  return { from, until };
}

function parseInstant(parameters: URLSearchParams, name: string): number | null | Rejection {
  const [text, second] = parameters.getAll(name);
  if (second !== undefined) return refuse(`${name} is given more than once.`);
  if (text === undefined || text === '') return null;
  // A date without a time is its first millisecond, also for `to`, which is exclusive.
  const instant = parseBound(text, 'start');
  if (typeof instant === 'string') return refuse(`${name} ${instant}.`);
  return Math.min(Math.max(instant, EARLIEST), LATEST);
}

function refuse(details: string): Rejection {
  return new Rejection('invalidParameters', details);
}
