/** Columns of counts for the dashboard's chart: by event type or by the values of a field, with an earlier interval beside them. */

import { isDeepStrictEqual } from 'node:util';
import type { Api } from '../../accounts/routes/api.ts';
import type { Compared, EventMark, Series } from '../../api-types/answers.ts';
import { listOtherTypes, numberTypes } from '../../apps/event-types.ts';
import { sum } from '../../base/sum.ts';
import { Rejection } from '../../errors.ts';
import { done } from '../../http/data.ts';
import type { ReadPlace } from '../../http/read-slots.ts';
import type { Route } from '../../http/route.ts';
import type { FieldLine } from '../../storage/counts/field-series.ts';
import type { SeriesRequest } from '../../storage/counts/series.ts';
import { MAX_CURSOR_AGE_MS } from '../../storage/read/arrivals.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import { spellPath } from '../fields/payload-paths.ts';
import { nameOf } from '../fields/shown-value.ts';
import { type ChartTypes, findChartTypes, findExceptTypes, findTypes } from '../scope-query.ts';
import { CHART_QUERY, type ChartQuestion, conditionsOf, requestOf } from './chart-query.ts';
import { type LinesQuery, readLines, type SeriesLines } from './series-lines.ts';

export interface ChartRouteOptions {
  readonly api: Api;
  readonly now: () => number;
  readonly monotonic: () => number;
}

/** Marks of a chart, what of a payload one says, and the payloads that are read for them. */
const MOST_MARKS = 100;
const MOST_CHARACTERS = 120;
const MARKS_BYTES = 1_048_576;

export const TOO_LONG = new Rejection('invalidParameters', 'from and to must be at most 1,000 months apart.');

/**
 * The lines of values where a field is asked for and its counts answer it, otherwise those of types; `by` and `isFiltered` say
 * which. Without a choice of types, those that are hidden are one line apart, and in none of the other numbers.
 */
export function chartRoute(options: ChartRouteOptions): Route {
  return options.api.readInTurn('/api/apps/:appId/series', 'read', async ({ app, exchange, ...reading }) => {
    const query = CHART_QUERY.parse(exchange.query);
    if (query instanceof Rejection) return query;
    const at = options.now();
    const isOpen = query.to === null || query.to > at - MAX_CURSOR_AGE_MS;
    const [types, feed] = await Promise.all([
      findChartTypes(reading.sql, app.id, query.typeId),
      isOpen ? reading.events.feedCursor(app.id, at) : undefined,
    ]);
    if (types instanceof Rejection) return types;
    // Its counts and its marks are of one snapshot, which is asked once for what the parts of the chart have in common.
    const chart = await reading.events.together(app.id, (sql, events) =>
      readMarkedChart(options, { sql, events }, app, query, types),
    );
    return chart instanceof Rejection ? chart : done<Series>(feed === undefined ? chart : { ...chart, feed });
  });
}

/** The chart of a query. @returns also a refusal of its types, or of too long a range */
export async function readChartOf(
  options: Pick<ChartRouteOptions, 'now'>,
  reading: Reading,
  app: ChartApp,
  query: ChartQuestion,
): Promise<Series | Rejection> {
  const types = await findChartTypes(reading.sql, app.id, query.typeId);
  return types instanceof Rejection ? types : await readChartOfTypes(options, reading, app, query, types);
}

interface ChartApp {
  readonly id: number;
}

/** The chart with the newest events of the types that are shown as annotations. */
async function readMarkedChart(
  options: Pick<ChartRouteOptions, 'now'>,
  reading: Reading,
  app: ChartApp,
  query: ChartQuestion,
  types: ChartTypes,
): Promise<Series | Rejection> {
  const chart = await readChartOfTypes(options, reading, app, query, types);
  if (chart instanceof Rejection || types.annotating.length === 0) return chart;
  return { ...chart, marks: await readMarks(reading, app, types, chart.interval) };
}

/** The newest events of the types that are shown as annotations, as charts of an interval mark them. */
export async function readMarks(
  { events: reader }: Pick<Reading, 'events'>,
  app: ChartApp,
  { annotating }: Pick<ChartTypes, 'annotating'>,
  interval: Series['interval'],
): Promise<readonly EventMark[]> {
  if (annotating.length === 0) return [];
  const { events } = await reader.list({
    ...{ appId: app.id, typeIds: annotating.map(({ id }) => id) },
    ...{ ...interval, order: 'desc', after: null, limit: MOST_MARKS, maxBytes: MARKS_BYTES },
  });
  const names = new Map(annotating.map(({ typeId, name }) => [typeId, name]));
  return events.map(({ id, typeId, createdAt, payload }) => ({
    eventId: id,
    at: createdAt.toISOString(),
    text: markText(names.get(typeId) ?? '', payload),
  }));
}

/** Fields of a payload that say what happened, the best first. */
const SAYING = ['text', 'message', 'title', 'name', 'version'] as const;

/** What the mark of an event says: the type's name, and the first of its texts that says something. */
export function markText(typeName: string, payload: string): string {
  // Payloads are objects, or any other JSON.
  const parsed = JSON.parse(payload) as Readonly<Record<string, unknown>> | null;
  const said = SAYING.map((name) => parsed?.[name]).find(
    (text) => typeof text === 'string' && text.trim() !== '',
  );
  const text = typeof said === 'string' ? said : payload === '{}' ? '' : payload;
  const short = text.length > MOST_CHARACTERS ? `${text.slice(0, MOST_CHARACTERS)}…` : text;
  return short === '' ? typeName : `${typeName}: ${short}`;
}

async function readChartOfTypes(
  { now }: Pick<ChartRouteOptions, 'now'>,
  reading: Reading,
  app: ChartApp,
  query: ChartQuestion,
  types: ChartTypes,
): Promise<Series | Rejection> {
  const { sql } = reading;
  const { typeIds } = types;
  const { lines, by, compareFrom, compareTo } = query;
  const { filter, hasConditions } = conditionsOf(query);
  const left = await typesLeft(sql, app.id, query, types);
  if (left instanceof Rejection) return left;
  const { exceptTypes: leftOut, apart } = left;
  const exceptTypes = [...leftOut, ...apart.map(({ id }) => id)];
  const request = { ...requestOf(app.id, typeIds, query, now()), exceptTypes, topTypes: lines };
  const compared =
    compareFrom === null || compareTo === null ? null : { from: compareFrom, until: compareTo };
  const common = { compared, hidden: apart };
  // A field with a filter on another one has the counts of a pair: types cannot be subtracted from them.
  const isPair = filter !== null && !isDeepStrictEqual(filter.path, by);
  const pairTypes =
    isPair && exceptTypes.length > 0 ? await listOtherTypes(sql, app.id, exceptTypes) : typeIds;
  const ofLines = isPair ? { ...request, typeIds: pairTypes, exceptTypes: [] } : request;
  const chart =
    (by &&
      (!hasConditions || filter !== null) &&
      (await readChart(reading, ofLines, { by, filter, ...common }))) ||
    (filter && (await readChart(reading, request, { by: 'type', filter, ...common }))) ||
    (await readChart(reading, request, { by: 'type', filter: null, ...common }));
  return chart ?? TOO_LONG;
}

/** The types that a chart leaves out, and the hidden ones that are a line apart. */
export async function typesLeft(
  sql: ReadPlace['sql'],
  appId: number,
  query: Pick<ChartQuestion, 'exceptTypeId'>,
  { typeIds, hidden }: ChartTypes,
): Promise<{ readonly exceptTypes: readonly number[]; readonly apart: ChartTypes['hidden'] } | Rejection> {
  const exceptTypes = await findExceptTypes(sql, appId, typeIds, query.exceptTypeId);
  if (exceptTypes instanceof Rejection) return exceptTypes;
  const apart = typeIds === null ? hidden.filter(({ id }) => !exceptTypes.includes(id)) : [];
  return { exceptTypes, apart };
}

type Reading = Pick<ReadPlace, 'sql' | 'events'>;

interface ChartOf extends LinesQuery {
  /** What is counted apart: event types or the values of a field. */
  readonly by: Exclude<LinesQuery['by'], 'none'>;
  /** An earlier interval to count as well; null: none. */
  readonly compared: { readonly from: number; readonly until: number } | null;
  /** Types that are one line apart. */
  readonly hidden: ChartTypes['hidden'];
}

/** @returns null where counts do not answer it, or there would be too many buckets */
async function readChart(reading: Reading, request: SeriesRequest, asked: ChartOf): Promise<Series | null> {
  const { by, filter } = asked;
  const counted = await readWithBefore(reading.events, request, asked);
  if (counted === null) return null;
  const { rest, all, lines, ...frame } = counted;
  const same = { ...request, buckets: frame.bucket };
  const shown = lines.map((line) => ({ ...line, key: keyOf(line), total: sum(line.counts) }));
  shown.sort((a, b) => b.total - a.total);
  const [hidden, compared] = await Promise.all([
    readHidden(reading.events, same, asked),
    asked.compared && readCompared(reading, { ...same, ...asked.compared }, { ...asked, lines: shown }),
  ]);
  if (compared !== null)
    shown.push(...(await readSilent(reading, same, { ...asked, compared, lines: shown })));
  const numbers =
    by === 'type'
      ? await numberTypes(
          reading.sql,
          request.appId,
          shown.map(({ key }) => key),
        )
      : null;
  return {
    ...frame,
    lines: shown.map(({ key, type, counts, total, number = 0 }) => ({
      key,
      name: type?.name ?? nameOf(key),
      counts,
      total,
      number: numbers === null ? number : (numbers.get(key)?.number ?? 0),
    })),
    all: all.counts,
    other: rest?.counts.some((count) => count > 0) ? rest.counts : null,
    before: { all: all.before, byKey: Object.fromEntries(shown.map(({ key, before }) => [key, before])) },
    compared,
    hidden,
    by: by === 'type' ? null : spellPath(by),
    isFiltered: filter !== null,
  };
}

/** A type's public id, or a value as JSON. */
function keyOf({ type, value }: FieldLine): string {
  return type?.typeId ?? value ?? '';
}

/** Where the counts of a field do not reach back to the first event, lines begin at 0. */
async function readWithBefore(
  events: EventReader,
  request: SeriesRequest,
  asked: LinesQuery,
): Promise<SeriesLines | null> {
  const counting = { ...request, withNumbers: true };
  const whole = await readLines(events, { ...counting, withBefore: true }, asked);
  const lines =
    whole === 'not counted' ? await readLines(events, { ...counting, withBefore: false }, asked) : whole;
  return typeof lines === 'string' ? null : lines;
}

/** The types that charts leave out, in the buckets of the chart that does. */
async function readHidden(
  events: EventReader,
  { exceptTypes: _, ...request }: SeriesRequest,
  { compared, filter, hidden }: Pick<ChartOf, 'compared' | 'filter' | 'hidden'>,
): Promise<NonNullable<Series['hidden']> | null> {
  if (hidden.length === 0) return null;
  const ofHidden = { ...request, typeIds: hidden.map(({ id }) => id) };
  const asked = { by: 'type', filter } as const;
  const [now, earlier] = await Promise.all([
    readWithBefore(events, ofHidden, asked),
    compared && readWithBefore(events, { ...ofHidden, ...compared }, asked),
  ]);
  if (now === null) return null;
  const { counts, before } = now.all;
  return {
    typeIds: hidden.map(({ typeId }) => typeId),
    counts,
    before,
    compared: earlier?.all.counts ?? null,
  };
}

/** Lines without any event that are shown beside as many with events as were asked for. */
const MOST_SILENT = 5;

type Shown = FieldLine & { readonly key: string; readonly total: number };

/** An earlier interval in the same buckets, by the same lines and by its own; null where such buckets are not kept. */
async function readCompared(
  reading: Reading,
  request: SeriesRequest,
  asked: LinesQuery & { readonly lines: readonly Shown[] },
): Promise<Compared | null> {
  const isChosen = asked.by === 'type' && request.typeIds !== null;
  const [apart, own] = await Promise.all([
    readApart(
      reading,
      request,
      asked,
      asked.lines.map(({ key }) => key),
    ),
    isChosen ? null : readOwn(reading.events, request, asked),
  ]);
  // With a choice of types these are all there are.
  const whole = isChosen ? apart : own;
  if (apart === null || whole === null) return null;
  const lines = [...whole.lines, ...apart.lines];
  const byKey = Object.fromEntries(lines.map((line) => [keyOf(line), line.counts]));
  return { interval: whole.interval, starts: whole.starts, all: whole.all.counts, byKey };
}

/** The lines with the most events, and some more, which may be silent now. */
async function readOwn(
  events: EventReader,
  request: SeriesRequest,
  asked: LinesQuery,
): Promise<SeriesLines | null> {
  const topTypes = (request.topTypes ?? 0) + MOST_SILENT;
  const lines = await readLines(events, { ...request, topTypes, withBefore: false }, asked);
  return typeof lines === 'string' ? null : lines;
}

/** Lines by their keys; null where they are not counted, or a type has been deleted since. */
async function readApart(
  { sql, events }: Reading,
  request: SeriesRequest,
  { by, filter }: LinesQuery,
  keys: readonly string[],
): Promise<SeriesLines | null> {
  if (by !== 'type') {
    const values = { values: keys, topTypes: keys.length };
    return await readWithBefore(events, { ...request, ...values }, { by, filter });
  }
  const typeIds = await findTypes(sql, request.appId, { typeId: keys, typeName: [] });
  if (typeIds instanceof Rejection) return null;
  return await readWithBefore(
    events,
    { ...request, typeIds: typeIds ?? [], exceptTypes: [] },
    { by, filter },
  );
}

/** What had events in the interval that is compared with, and has none now: the most first. */
async function readSilent(
  reading: Reading,
  request: SeriesRequest,
  asked: LinesQuery & { readonly compared: Compared; readonly lines: readonly Shown[] },
): Promise<readonly Shown[]> {
  const { byKey } = asked.compared;
  const earlier = new Map(Object.entries(byKey).map(([key, counts]) => [key, sum(counts)]));
  const known = new Set(asked.lines.map(({ key }) => key));
  const missing = [...earlier].filter(([key, total]) => total > 0 && !known.has(key));
  if (missing.length === 0) return [];
  // Some may be among the others.
  const now = await readApart(
    reading,
    request,
    asked,
    missing.map(([key]) => key),
  );
  return (now?.lines ?? [])
    .map((line) => ({ ...line, key: keyOf(line), total: sum(line.counts) }))
    .filter(({ total }) => total === 0)
    .sort((a, b) => (earlier.get(b.key) ?? 0) - (earlier.get(a.key) ?? 0))
    .slice(0, Math.max(MOST_SILENT, (request.topTypes ?? 0) - known.size));
}
