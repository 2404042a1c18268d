/** GET /api/apps/:appId/numbers: the statistics of a field for a chart, also by the values of another field or by event types. */

import type { NumberStats, StatColumns, StatLine } from '../api-types/answers.ts';
import { Rejection } from '../errors.ts';
import { done } from '../http/data.ts';
import type { ReadPlace } from '../http/read-slots.ts';
import type { Route } from '../http/route.ts';
import {
  type BucketsProblem,
  NumbersOfEvents,
  type RowFilter,
  type SeriesRequest,
  type Stats,
  type SummaryLine,
  type SummaryQuestion,
  type SummarySeries,
} from '../storage/storage.ts';
import { conditionsOf, intervalOf, NUMBERS_QUERY } from './chart-query.ts';
import { type ChartRouteOptions, TOO_LONG } from './chart-route.ts';
import { nameOf } from './fields/shown-value.ts';
import { whyNotCounted } from './fields/why-not-counted.ts';
import { COUNTED_LATER } from './filter/counted-values.ts';
import { statColumns } from './number-stats.ts';
import { EVERY_ROW } from './scan-route.ts';
import { findTypes, findTypesLeft } from './scope-query.ts';
import { type SearchBudget, searchThrough } from './search-page.ts';

const NOT_COUNTED = new Rejection(
  'invalidParameters',
  'of must be a declared field of the kind number that is counted for the whole interval.',
);
const TOO_MANY_ROWS = new Rejection(
  'invalidParameters',
  'the range has more events than can be read for a statistic that is not counted: choose a shorter range',
);
const NOT_BY_FILTER =
  'Counts are kept by the values of one other field, and not of the events that meet these conditions.';

/** What is read for statistics that counts do not answer: about 100,000 events take a third of a second. */
const ROWS: SearchBudget = { rows: 2_000_000, ms: 2_000 };
/** Event types that are told apart: each takes a read of its own. */
const MOST_TYPES = 50;

/**
 * Columns of statistics, as doubles, in the buckets of the chart of the same parameters. `hidden=exclude` leaves out types as the
 * chart does: the least and the greatest number of what remains cannot be told from those of all, so its types are read one by one.
 * Conditions on payloads, and fields that are not counted, are answered from the rows, if these are few enough; `counted` says which.
 * Different values, and lines, are only counted.
 */
export function numbersRoute(options: ChartRouteOptions): Route {
  return options.api.readInTurn('/api/apps/:appId/numbers', 'viewer', async ({ app, exchange, ...place }) => {
    const query = NUMBERS_QUERY.parse(exchange.query);
    if (query instanceof Rejection) return query;
    const numbers = await readNumbersOf(options, place, app, query, { readsRows: true });
    return numbers instanceof Rejection ? numbers : done<NumberStats>(numbers);
  });
}

/** The statistics of a query. @param readsRows whether events are read where counts do not answer */
export async function readNumbersOf(
  options: Pick<ChartRouteOptions, 'now' | 'monotonic'>,
  place: ReadPlace,
  app: { /** Internal id. */ readonly id: number; readonly appId: string },
  query: Exclude<ReturnType<typeof NUMBERS_QUERY.parse>, Rejection>,
  { readsRows }: { readonly readsRows: boolean },
): Promise<NumberStats | Rejection> {
  const { now } = options;
  const { sql, events } = place;
  const { rows, filter } = conditionsOf(query);
  if (rows instanceof Rejection) return rows;
  const { typeId, exceptTypeId, hidden, timezone, buckets, by, byType, lines, stat: kind } = query;
  // It is required.
  const { sent, path } = query.of ?? { sent: '', path: [] };
  const typeIds = await findTypesLeft(sql, app.id, { typeId, typeName: [], exceptTypeId, hidden });
  if (typeIds instanceof Rejection) return typeIds;
  const request = {
    ...({ appId: app.id, typeIds, timezone: timezone ?? 'UTC', exactEnds: 'both' } as const),
    ...intervalOf(query, now()),
    buckets,
  };
  const question: SummaryQuestion = { kind, of: path, by: null, filter };
  const isCountable = rows === null || filter !== null;
  const counted = isCountable ? await events.summarySeries({ ...request, question }) : 'not counted';
  const why = async (second: readonly string[] | null): Promise<Rejection | null> => {
    const read = { app, param: 'of', path, kind, by: second, typeIds, from: request.from } as const;
    return await whyNotCounted(sql, read);
  };
  if (counted === 'not counted' && kind === 'distinct')
    return (isCountable && (await why(filter?.path ?? null))) || refusal(NOT_BY_FILTER);
  if (counted === 'not counted' && !readsRows)
    return (isCountable && (await why(filter?.path ?? null))) || NOT_COUNTED;
  const whole =
    counted === 'not counted' ? await numbersOfRows(options, place, request, { path, rows }) : counted;
  if (whole === 'not counted yet') return COUNTED_LATER;
  if (whole instanceof Rejection) return whole;
  if (typeof whole === 'string') return TOO_LONG;
  const { bucket, timezone: zone, starts, end, interval, countsOnlyBefore } = whole;
  const [line] = whole.lines;
  // Nobody sends numbers there: the path may be misspelled.
  if (rows === null && counted === 'not counted' && (line?.overall.count ?? 0) === 0) return NOT_COUNTED;
  const same = { ...request, buckets: whole.bucket };
  const apart = byType
    ? await linesOfTypes(place, { ...same, topTypes: Math.min(lines, MOST_TYPES) }, question)
    : by !== null && isCountable
      ? await linesOfValues(place, { ...same, topTypes: lines }, { ...question, by })
      : null;
  if (apart === 'not counted yet') return COUNTED_LATER;
  const isAsked = byType || by !== null;
  const reason =
    isAsked && apart === null
      ? (isCountable && (await why(by ?? filter?.path ?? null))) || refusal(NOT_BY_FILTER)
      : null;
  return {
    of: sent,
    counted: counted !== 'not counted',
    ...{ bucket, timezone: zone, starts, end, interval, countsOnlyBefore },
    ...columnsOf(line),
    lines: apart?.lines ?? null,
    rest: apart?.rest ?? null,
    notBy: reason && { details: reason.details, declare: declarationOf(reason) },
    leftOut: whole.leftOut,
  };
}

function refusal(details: string): Rejection {
  return new Rejection('invalidParameters', details);
}

function declarationOf(reason: Rejection): string | null {
  const declare = reason.field('declare');
  return typeof declare === 'string' ? declare : null;
}

const NO_STATS: Stats = { count: 0 };

function columnsOf(line: SummaryLine | undefined): StatColumns {
  return statColumns(line?.stats ?? [], line?.overall ?? NO_STATS);
}

interface Lines {
  readonly lines: readonly StatLine[];
  readonly rest: StatColumns | null;
}

type NoLines = null | 'not counted yet';

async function linesOfValues(
  { events }: ReadPlace,
  request: SeriesRequest,
  question: SummaryQuestion,
): Promise<Lines | NoLines> {
  const series = await events.summarySeries({ ...request, question });
  if (series === 'not counted yet') return series;
  if (typeof series === 'string') return null;
  const rest = series.lines.find(({ value }) => value === null);
  const lines = series.lines.flatMap(({ value, ...line }) =>
    value === null ? [] : [{ key: value, name: nameOf(value), ...columnsOf({ value, ...line }) }],
  );
  return { lines, rest: rest === undefined || rest.overall.count === 0 ? null : columnsOf(rest) };
}

/** The types with the most events, each with what its own series say. */
async function linesOfTypes(
  { sql, events }: ReadPlace,
  request: SeriesRequest,
  question: SummaryQuestion,
): Promise<Lines | NoLines> {
  const top = await events.series(request);
  if (typeof top === 'string') return null;
  const lines: StatLine[] = [];
  for (const { typeId, name } of top.types) {
    const typeIds = await findTypes(sql, request.appId, { typeId: [typeId], typeName: [] });
    // It may have been deleted since.
    if (typeIds instanceof Rejection) continue;
    const series = await events.summarySeries({ ...request, typeIds, question });
    if (series === 'not counted yet') return series;
    if (typeof series === 'string') return null;
    const [line] = series.lines;
    if (line !== undefined && line.overall.count > 0) lines.push({ key: typeId, name, ...columnsOf(line) });
  }
  return { lines, rest: null };
}

async function numbersOfRows(
  { monotonic }: Pick<ChartRouteOptions, 'monotonic'>,
  { events, pass }: ReadPlace,
  request: SeriesRequest,
  { path, rows }: { readonly path: readonly string[]; readonly rows: RowFilter | null },
): Promise<Omit<SummarySeries, 'completeFrom'> | BucketsProblem | Rejection> {
  const frame = await events.frame(request);
  if (typeof frame === 'string') return frame;
  const numbers = new NumbersOfEvents(frame, path);
  const { appId, typeIds } = request;
  const { next } = await searchThrough(
    events,
    { appId, typeIds, ...frame.interval, order: 'asc', after: null },
    rows ?? EVERY_ROW,
    { budget: ROWS, now: monotonic, pass },
    (event) => {
      numbers.add(event);
      return false;
    },
  );
  if (next !== null) return TOO_MANY_ROWS;
  const { stats, overall, ...rest } = numbers.finish();
  return { ...rest, lines: [{ value: null, stats, overall }] };
}
