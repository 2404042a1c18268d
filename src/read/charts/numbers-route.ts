/** GET /api/apps/:appId/numbers: the statistics of a field for a chart, also by the values of another field or by event types. */

import type { NumberStats, StatColumns, StatLine } from '../../api-types/answers.ts';
import { typeNames } from '../../apps/event-types.ts';
import { readNumberFormat } from '../../apps/fields.ts';
import { HISTOGRAM, STATS } from '../../base/measures.ts';
import { Rejection } from '../../errors.ts';
import { done } from '../../http/data.ts';
import type { ReadPlace } from '../../http/read-slots.ts';
import type { Route } from '../../http/route.ts';
import type { BucketsProblem } from '../../storage/counts/buckets.ts';
import type { SeriesFrame, SeriesRequest } from '../../storage/counts/series.ts';
import {
  noStats,
  type Stats,
  type SummaryLine,
  type SummaryQuestion,
  type SummarySeries,
  statsOf,
} from '../../storage/counts/summary-series.ts';
import { type EventGroup, EventGroups } from '../../storage/fields/event-groups.ts';
import { EVERY_ROW, type RowFilter } from '../../storage/fields/row-filter.ts';
import { type SearchBudget, searchThrough } from '../events/search-page.ts';
import { nameOf } from '../fields/shown-value.ts';
import { whyNotCounted } from '../fields/why-not-counted.ts';
import { COUNTED_LATER } from '../filter/counted-values.ts';
import { findTypesLeft } from '../scope-query.ts';
import { conditionsOf, NUMBERS_QUERY, type NumbersQuestion, requestOf } from './chart-query.ts';
import { binsOf, histogramOfAll, statColumns } from './number-stats.ts';
import { type ChartRouteOptions, TOO_LONG } from './series-columns.ts';

const NOT_COUNTED = new Rejection(
  'invalidParameters',
  'of must be a declared field of the kind number that is counted for the whole interval.',
);
const TOO_MANY_ROWS =
  'it is not counted, and the events of this range cannot be read in the time that a chart may take: choose a shorter range';
const NOT_BY_FILTER =
  'Counts are kept by the values of one other field, and not of the events that meet these conditions.';

/** What is read for statistics that counts do not answer: about 100,000 events take a third of a second. */
const ROWS: SearchBudget = { rows: 2_000_000, ms: 2_000 };
/** Memory of the lines of one answer from rows: some hundreds in a hundred buckets. Where it does not hold all, none is exact. */
const ROWS_BYTES = 64 * 1_048_576;
const TOO_MANY_LINES =
  'There are too many values to read the numbers of each from the events: choose a shorter range.';
/** Event types that are told apart. */
const MOST_TYPES = 50;

/**
 * Columns of statistics, as doubles, in the buckets of the chart of the same parameters. `hidden=exclude` leaves out types as the
 * chart does: the least and the greatest number of what remains cannot be told from those of all, so its types are read one by one.
 * Conditions on payloads, fields and lines that are not counted are answered from the rows, if these are few enough; `counted` says
 * whether the numbers of all events were, and `seconds` how long reading rows took.
 */
export function numbersRoute(options: ChartRouteOptions): Route {
  return options.api.readInTurn('/api/apps/:appId/numbers', 'read', async ({ app, exchange, ...place }) => {
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
  app: { readonly id: number; readonly appId: string },
  query: NumbersQuestion,
  { readsRows }: { readonly readsRows: boolean },
): Promise<NumberStats | Rejection> {
  const { now } = options;
  const { sql, events } = place;
  const { rows, filter } = conditionsOf(query);
  if (rows instanceof Rejection) return rows;
  const { typeId, exceptTypeId, hidden, by, byType, lines } = query;
  const kind = query.stat === 'distinct' ? 'distinct' : 'number';
  const withBins = query.stat === HISTOGRAM;
  // It is required.
  const { sent, path } = query.of ?? { sent: '', path: [] };
  const typeIds = await findTypesLeft(sql, app.id, { typeId, typeName: [], exceptTypeId, hidden });
  if (typeIds instanceof Rejection) return typeIds;
  const request = requestOf(app.id, typeIds, query, now());
  const stats = withBins && { stats: [...STATS, HISTOGRAM] };
  const question: SummaryQuestion = { kind, of: path, by: null, filter, ...stats };
  const isCountable = rows === null || filter !== null;
  const isAsked = byType || by !== null;
  const counted = isCountable ? await events.summarySeries({ ...request, question }) : 'not counted';
  if (counted === 'not counted yet') return COUNTED_LATER;
  if (typeof counted === 'string' && counted !== 'not counted') return TOO_LONG;
  const countedLines =
    counted === 'not counted' || !isAsked
      ? null
      : await countedLinesOf(place, { ...request, buckets: counted.bucket }, question, { by, lines });
  if (countedLines === 'not counted yet') return COUNTED_LATER;
  const isWhole = counted !== 'not counted' && (!isAsked || countedLines !== null);
  const why = isWhole
    ? null
    : (isCountable &&
        (await whyNotCounted(sql, {
          ...({ app, param: 'of', path, kind, typeIds, from: request.from } as const),
          by: by ?? filter?.path ?? null,
        }))) ||
      (rows === null ? NOT_COUNTED : refusal(NOT_BY_FILTER));
  const read =
    isWhole || !readsRows
      ? null
      : await statsOfRows(options, place, request, { kind, path, by, byType, lines, rows, withBins });
  if (counted === 'not counted' && read === null) return why ?? NOT_COUNTED;
  if (counted === 'not counted' && typeof read === 'string')
    return read === 'too many rows' ? tooManyRows(why) : TOO_LONG;
  const ofRows = typeof read === 'string' ? null : read;
  const whole = counted === 'not counted' ? ofRows : counted;
  if (whole === null) return NOT_COUNTED;
  const { bucket, timezone: zone, starts, end, interval, countsOnlyBefore } = whole;
  const [line] = whole.lines;
  // Nobody sends numbers there: the path may be misspelled.
  if (rows === null && counted === 'not counted' && (line?.overall.count ?? 0) === 0) return NOT_COUNTED;
  // Rows tell nothing of a time of which only counts are left.
  const hasRows = countsOnlyBefore === null || interval.from >= countsOnlyBefore;
  const readLines = hasRows && isAsked ? (ofRows?.apart ?? null) : null;
  const apart = countedLines ?? (readLines === 'too many' ? null : readLines);
  const isSummed = query.before && kind === 'number' && counted !== 'not counted';
  const before = isSummed
    ? await sumsBefore(
        place,
        { ...request, from: null, until: interval.from, buckets: 1 },
        { ...question, by },
        (apart?.lines ?? []).map(({ key }) => key),
      )
    : null;
  return {
    of: sent,
    format: kind === 'number' ? await readNumberFormat(sql, app.id, path) : null,
    counted: counted !== 'not counted',
    ...{ seconds: ofRows?.seconds ?? null, looked: ofRows?.looked ?? null },
    ...{ bucket, timezone: zone, starts, end, interval, countsOnlyBefore },
    ...columnsOf(line),
    histogram: withBins && line !== undefined ? histogramColumns(line) : null,
    lines: apart?.lines ?? null,
    rest: apart?.rest ?? null,
    notBy: why && {
      details: ofRows?.apart === 'too many' ? TOO_MANY_LINES : why.details,
      declare: declarationOf(why),
    },
    before,
    leftOut: whole.leftOut,
  };
}

function refusal(details: string): Rejection {
  return new Rejection('invalidParameters', details);
}

/** @param why says which declaration would answer, if one would */
function tooManyRows(why: Rejection | null): Rejection {
  const declare = why && declarationOf(why);
  return new Rejection('invalidParameters', TOO_MANY_ROWS, declare === null ? {} : { fields: { declare } });
}

function declarationOf(reason: Rejection): string | null {
  const declare = reason.field('declare');
  return typeof declare === 'string' ? declare : null;
}

const NO_STATS: Stats = { count: 0 };

function columnsOf(line: SummaryLine | undefined): StatColumns {
  return statColumns(line?.stats ?? [], line?.overall ?? NO_STATS);
}

/** Bins of a chart: it puts neighbors together, narrow ones on a linear axis. */
const CHART_BINS = 200;

function histogramColumns({ stats, overall }: SummaryLine): NumberStats['histogram'] {
  const histogram = histogramOfAll([overall], CHART_BINS);
  const { bins } = histogram;
  return { bins, counts: stats.map((own) => histogram.countsOf(binsOf(own))) };
}

interface Lines {
  readonly lines: readonly StatLine[];
  readonly rest: StatColumns | null;
}

type NoLines = null | 'not counted yet';

/** The lines that counts answer: those of values, else those of types. */
async function countedLinesOf(
  place: ReadPlace,
  request: SeriesRequest,
  question: SummaryQuestion,
  { by, lines }: { readonly by: readonly string[] | null; readonly lines: number },
): Promise<Lines | NoLines> {
  return by === null
    ? await linesOfTypes(place, { ...request, topTypes: Math.min(lines, MOST_TYPES) }, question)
    : await linesOfValues(place, { ...request, topTypes: lines }, { ...question, by });
}

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
  const ids = top.types.map(({ typeId }) => typeId);
  const series = await seriesOfTypes({ sql, events }, request, question, ids);
  if (series === null || typeof series === 'string') return series;
  const lines = top.types.flatMap(({ typeId, name }): StatLine[] => {
    const line = series.get(typeId);
    return line === undefined || line.overall.count === 0 ? [] : [{ key: typeId, name, ...columnsOf(line) }];
  });
  return { lines, rest: null };
}

/** What each of some types has, by their public ids, without those that have been deleted since. */
async function seriesOfTypes(
  { sql, events }: Pick<ReadPlace, 'sql' | 'events'>,
  request: SeriesRequest,
  question: SummaryQuestion,
  types: readonly string[],
): Promise<ReadonlyMap<string, SummaryLine> | NoLines> {
  const rows = await sql<{ id: number; typeId: string }[]>`
    SELECT id, public_id AS "typeId" FROM event_types
     WHERE app_id = ${request.appId} AND public_id = ANY(${[...types]}::text[])`;
  if (rows.length === 0) return new Map();
  const typeIds = rows.map(({ id }) => id);
  const series = await events.summarySeries({ ...request, typeIds, question: { ...question, byType: true } });
  if (typeof series === 'string') return series === 'not counted yet' ? series : null;
  const publicIds = new Map(rows.map(({ id, typeId }) => [String(id), typeId]));
  return new Map(series.lines.map((line) => [publicIds.get(line.value ?? '') ?? '', line]));
}

/** Sums of all events and of lines, by their keys; null where counts do not answer them. */
async function sumsBefore(
  { sql, events }: ReadPlace,
  request: SeriesRequest,
  { by, ...asked }: SummaryQuestion,
  keys: readonly string[],
): Promise<NumberStats['before']> {
  const question = { ...asked, stats: ['sum'] };
  const sumOfLine = (line: SummaryLine | undefined): number => columnsOf(line).overall.sum ?? 0;
  const all = await events.summarySeries({ ...request, question: { ...question, by: null } });
  if (typeof all === 'string') return null;
  const byKey: Record<string, number> = {};
  if (by !== null && keys.length > 0) {
    const series = await events.summarySeries({ ...request, values: keys, question: { ...question, by } });
    if (typeof series === 'string') return null;
    for (const line of series.lines) if (line.value !== null) byKey[line.value] = sumOfLine(line);
  }
  if (by === null && keys.length > 0) {
    const series = await seriesOfTypes({ sql, events }, request, { ...question, by }, keys);
    if (series === null || typeof series === 'string') return null;
    for (const key of keys) byKey[key] = sumOfLine(series.get(key));
  }
  return { all: sumOfLine(all.lines[0]), byKey };
}

interface RowsAsked {
  readonly withBins: boolean;
  readonly kind: 'number' | 'distinct';
  readonly path: readonly string[];
  readonly by: readonly string[] | null;
  readonly byType: boolean;
  readonly lines: number;
  /** What events have to pass; null: all do. */
  readonly rows: RowFilter | null;
}

interface StatsOfRows extends SeriesFrame, Pick<SummarySeries, 'lines' | 'leftOut'> {
  /** Null: no event has any. */
  readonly apart: Lines | null | 'too many';
  readonly seconds: number;
  readonly looked: number;
}

/** Statistics of the events themselves, with their lines. */
async function statsOfRows(
  { monotonic }: Pick<ChartRouteOptions, 'monotonic'>,
  { sql, events, pass }: ReadPlace,
  request: SeriesRequest,
  { kind, path, by, byType, lines: most, rows, withBins }: RowsAsked,
): Promise<StatsOfRows | BucketsProblem | 'too many rows'> {
  const begun = monotonic();
  const frame = await events.frame(request);
  if (typeof frame === 'string') return frame;
  const groups = new EventGroups({
    by: by === null ? [] : [by],
    measures: [{ path, kind }],
    ...{ starts: frame.starts, maxBytes: ROWS_BYTES, isOfMeasured: true },
  });
  const { appId, typeIds } = request;
  const { next, looked } = await searchThrough(
    events,
    { appId, typeIds, ...frame.interval, order: 'asc', after: null },
    rows ?? EVERY_ROW,
    { budget: ROWS, now: monotonic, pass },
    ({ createdAt, payload, typeId }) => {
      groups.add({ at: createdAt.getTime(), payload }, byType ? typeId : null);
      return false;
    },
  );
  if (next !== null) return 'too many rows';
  const top = await finished(groups.top(most), pass);
  const all = await finished(groups.others([]), pass);
  const rest = lineOf(await finished(groups.others(top), pass), frame, kind);
  const names = byType
    ? await typeNames(
        sql,
        top.map(({ values: [id] }) => id ?? ''),
      )
    : null;
  const lines = top.flatMap((group): StatLine[] => {
    const [key = null] = group.values;
    if (key === null) return [];
    return [
      {
        key,
        name: names === null ? nameOf(key) : (names.get(key) ?? key),
        ...columnsOf(lineOf(group, frame, kind)),
      },
    ];
  });
  const { several = 0, unrepresentable = 0 } = groups.leftOut([all])[0] ?? {};
  return {
    ...frame,
    lines: [lineOf(all, frame, kind, withBins)],
    leftOut: { several, unrepresentable },
    apart: groups.isTruncated
      ? 'too many'
      : lines.length === 0
        ? null
        : { lines, rest: rest.overall.count === 0 ? null : columnsOf(rest) },
    ...{ seconds: (monotonic() - begun) / 1_000, looked },
  };
}

/** A group as a line: what it has in each bucket, and in all. */
function lineOf(
  group: EventGroup,
  { starts }: SeriesFrame,
  kind: RowsAsked['kind'],
  withBins = false,
): SummaryLine {
  const none = noStats(kind);
  const ofTally = ({ summaries, count }: Pick<EventGroup, 'summaries' | 'count'>): Stats =>
    statsOf(summaries[0] ?? null, count, withBins);
  return {
    value: null,
    stats: starts.map((_, index) => {
      const tally = group.buckets.get(index);
      return tally === undefined ? none : ofTally(tally);
    }),
    overall: ofTally(group),
  };
}

/** Works in steps, between which others have their turns. */
async function finished<T>(steps: Generator<undefined, T>, pass: ReadPlace['pass']): Promise<T> {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    await pass();
  }
}
