/** GET /api/apps/:appId/boards/:boardId/data: the charts of a board, which agree with each other. */
import type { BoardChart, BoardData } from '../../api-types/answers.ts';
import { listAnnotations } from '../../apps/annotations.ts';
import { type BoardView, listBoards } from '../../apps/boards.ts';
import { NO_BOARD } from '../../apps/routes/boards.ts';
import { HISTOGRAM } from '../../base/measures.ts';
import { type Range, rangesOn, rangeText } from '../../base/ranges.ts';
import { asksForHidden, chosenTypes, listOf, OWN_RANGES, parsePart, rangeOf } from '../../base/view.ts';
import { WIDTHS } from '../../base/widths.ts';
import { Rejection } from '../../errors.ts';
import { done } from '../../http/data.ts';
import type { ReadPlace } from '../../http/read-slots.ts';
import type { Route } from '../../http/route.ts';
import { instantOf, localOf } from '../../storage/counts/timezone.ts';
import { findChartTypes, hasEvents } from '../scope-query.ts';
import { BOARD_PARAMETERS, BOARD_QUERY, CHART_QUERY, conditionsOf, NUMBERS_QUERY } from './chart-query.ts';
import { readNumbersOf } from './numbers-route.ts';
import { type ChartRouteOptions, readChartOf, readMarks } from './series-columns.ts';

const NOT_BY =
  'No counts by its field answer it: open the view, which reads the events for it, or have the field counted.';
const NO_RANGE = 'Its range is before 1970 or after 9998: save the view with another one.';
const NOT_COUNTED = 'Its conditions are not counted: open the view, which searches the events for them.';

const { resolveRange, comparedSpan } = rangesOn({
  toWall: (at, zone) => localOf(zone, at),
  fromWall: (at, zone) => instantOf(zone, at),
});

/** The interval of a range and the one before it, as all charts take them. */
export function intervalsOf(range: Range, now: number, timezone: string): Readonly<Record<string, string>> {
  const span = resolveRange(range, now, timezone);
  const compared = comparedSpan('previous', range, span, now, timezone);
  const iso = (instant: number): string => new Date(instant).toISOString();
  return {
    ...{ timezone, to: iso(span.to) },
    ...(span.from !== null && { from: iso(span.from) }),
    ...(compared?.from != null && { compareFrom: iso(compared.from), compareTo: iso(compared.to) }),
  };
}

/** One range and filter for all, or the range of each view; one snapshot, one request. */
export function boardRoute(options: ChartRouteOptions): Route {
  return options.api.readInTurn(
    '/api/apps/:appId/boards/:boardId/data',
    'read',
    async ({ app, exchange, parameters, sql, events, pass }) => {
      const query = BOARD_QUERY.parse(exchange.query);
      if (query instanceof Rejection) return query;
      const [board] = await listBoards(sql, app.id, parameters[1] ?? '');
      if (board === undefined) return NO_BOARD;
      const shared = sharedOf(exchange.query);
      const { boardId, name, views } = board;
      const data = await events.together(app.id, async (snapshot, reader) => {
        const place = { sql: snapshot, events: reader, pass };
        const [charts = []] = await readBoardCharts(options, place, app, { views, shared: [shared] });
        return { charts, ...(await readBoardMarks(place, app, charts)) };
      });
      return done<BoardData>({ boardId, name, ...data });
    },
  );
}

/**
 * The charts of saved views, all of one snapshot.
 * @param shared what they have in common, as {@link BOARD_QUERY} takes it; of several intervals, that of each
 * @returns the charts of each
 */
export async function readBoardCharts(
  options: Pick<ChartRouteOptions, 'now' | 'monotonic'>,
  { events, pass }: Pick<ReadPlace, 'events' | 'pass'>,
  app: { readonly id: number; readonly appId: string },
  { views, shared }: { readonly views: readonly BoardView[]; readonly shared: readonly URLSearchParams[] },
): Promise<readonly (readonly BoardChart[])[]> {
  // One instant for all: an open end is the same in each chart.
  const now = options.now();
  return await events.together(app.id, (snapshot, reader) =>
    Promise.all(
      shared.map((one) =>
        Promise.all(
          views.map((view) =>
            readBoardChart(
              { ...options, now: () => now },
              { sql: snapshot, events: reader, pass },
              app,
              view,
              one,
            ),
          ),
        ),
      ),
    ),
  );
}

/** What the charts of a board mark, once for all of them. */
async function readBoardMarks(place: ReadPlace, app: { readonly id: number }, charts: readonly BoardChart[]) {
  const intervals = charts.flatMap(({ series }) => series?.interval ?? []);
  const types = await findChartTypes(place.sql, app.id, []);
  if (intervals.length === 0 || types instanceof Rejection) return { annotations: [], marks: [] };
  const interval = {
    from: Math.min(...intervals.map(({ from }) => from)),
    until: Math.max(...intervals.map(({ until }) => until)),
  };
  const [{ annotations }, marks] = await Promise.all([
    listAnnotations(place.sql, app.id, interval),
    readMarks(place, app, types, interval),
  ]);
  return { annotations, marks };
}

/** What all charts have in common. */
function sharedOf(query: string): URLSearchParams {
  const given = new URLSearchParams(query);
  const names = Object.keys(BOARD_PARAMETERS);
  return new URLSearchParams([...given].filter(([name]) => names.includes(name)));
}

/** The counts of one view, from counts alone: a board never reads through events. */
async function readBoardChart(
  options: Pick<ChartRouteOptions, 'now' | 'monotonic'>,
  place: ReadPlace,
  app: { readonly id: number; readonly appId: string },
  view: BoardView,
  shared: URLSearchParams,
): Promise<BoardChart> {
  const own = shared.get('ranges') === OWN_RANGES ? rangeOf(new URLSearchParams(view.search)) : null;
  const range = own && rangeText(own);
  const without = (problem: string): BoardChart => ({ ...view, ...NOTHING, range, problem });
  if (own !== null && !hasEvents(own)) return without(NO_RANGE);
  const asked = queriesOf(view.search, withRange(shared, own, options.now()));
  const ofChart = async (query: string): Promise<BoardChart['series'] | Rejection> => {
    const parsed = CHART_QUERY.parse(query);
    if (parsed instanceof Rejection) return parsed;
    const chart = await readChartOf(options, place, app, parsed);
    const isWhole = chart instanceof Rejection || chart.isFiltered || !conditionsOf(parsed).hasConditions;
    return isWhole ? chart : new Rejection('invalidParameters', NOT_COUNTED);
  };
  const ofNumbers = async (query: string): Promise<BoardChart['numbers'] | Rejection> => {
    const parsed = NUMBERS_QUERY.parse(query);
    return parsed instanceof Rejection
      ? parsed
      : await readNumbersOf(options, place, app, parsed, { readsRows: false });
  };
  const [series, part, numbers] = await Promise.all([
    ofChart(asked.chart),
    asked.part === null ? null : ofChart(asked.part),
    asked.numbers === null ? null : ofNumbers(asked.numbers),
  ]);
  const by = new URLSearchParams(asked.numbers ?? asked.chart).get('by');
  const isOfEvents = asked.part === null && asked.numbers === null;
  // A chart never answers another question than that of its view.
  if (series instanceof Rejection) return without(series.details);
  if (part instanceof Rejection) return without(part.details);
  if (numbers instanceof Rejection) return without(numbers.details);
  if (by !== null && isOfEvents && series?.by === null) return without(NOT_BY);
  const problem = by !== null && numbers?.lines === null ? (numbers.notBy?.details ?? NOT_BY) : null;
  return {
    ...view,
    series,
    part,
    partType: await partTypeOf(place.sql, app.id, view.search),
    numbers,
    range,
    problem,
  };
}

/** What all charts have in common, with a range of the view's own. @param range null: that of all */
function withRange(shared: URLSearchParams, range: Range | null, now: number): URLSearchParams {
  const query = new URLSearchParams(shared);
  query.delete('ranges');
  if (range === null) return query;
  for (const name of ['from', 'to', 'compareFrom', 'compareTo']) query.delete(name);
  const intervals = intervalsOf(range, now, shared.get('timezone') ?? 'UTC');
  for (const [name, value] of Object.entries(intervals)) query.set(name, value);
  return query;
}

const NOTHING = { series: null, part: null, partType: null, numbers: null };

/** The name of the type that a ratio is of, which may have no event in the interval; null: it is of none. */
async function partTypeOf(sql: ReadPlace['sql'], appId: number, search: string): Promise<string | null> {
  const part = parsePart(new URLSearchParams(search));
  if (part === null || !('type' in part)) return null;
  const [type] = await sql<
    { name: string }[]
  >`SELECT name FROM event_types WHERE app_id = ${appId} AND public_id = ${part.type}`;
  return type?.name ?? null;
}

interface ViewQueries {
  readonly chart: string;
  /** The events that are a part of the others, for a ratio. */
  readonly part: string | null;
  /** The numbers of a field, for a statistic. */
  readonly numbers: string | null;
  /** The list of its events. */
  readonly events: string;
}

/** A view's address (dashboard/url.ts) as queries of its charts: its conditions and lines, and what all have in common. */
export function queriesOf(search: string, shared: URLSearchParams): ViewQueries {
  const view = new URLSearchParams(search);
  const valuesOf = (name: string): readonly string[] => listOf(view, name);
  const types = valuesOf('type');
  const chosen = chosenTypes({ types });
  const scoped = (ids: readonly string[], further: readonly string[]): URLSearchParams => {
    const query = new URLSearchParams(shared);
    for (const id of ids) query.append('typeId', id);
    for (const type of ids.length > 0 ? [] : types) query.append('exceptTypeId', type.slice(1));
    for (const condition of [...valuesOf('filter'), ...further]) query.append('filter', condition);
    for (const name of ['q', 'word']) for (const text of valuesOf(name).slice(0, 1)) query.set(name, text);
    const width = WIDTHS.find((one) => one === view.get('width'));
    if (width !== undefined && !query.has('width')) query.set('width', width);
    return query;
  };
  const [by] = valuesOf('by');
  const chart = scoped(chosen, []);
  const excludesHidden = !asksForHidden({ types, hidden: valuesOf('hide') });
  const events = `${chart}${excludesHidden ? '&hidden=exclude' : ''}`;
  if (by !== undefined) chart.set('by', by);
  const measured = parsePart(view);
  const part =
    measured && ('type' in measured ? scoped([measured.type], []) : scoped(chosen, [measured.filter]));
  const [of] = valuesOf('of');
  const [stat] = valuesOf('stat');
  if (part !== null || of === undefined || stat === undefined)
    return { chart: chart.toString(), part: part?.toString() ?? null, numbers: null, events };
  const numbers = new URLSearchParams(chart);
  numbers.set('of', of);
  if (stat === 'distinct' || stat === HISTOGRAM) numbers.set('stat', stat);
  if (stat === 'sum' && view.get('mode') === 'running') numbers.set('before', 'true');
  if (by === undefined && chosen.length !== 1 && stat !== HISTOGRAM) numbers.set('byType', 'true');
  if (stat === HISTOGRAM) numbers.delete('by');
  if (excludesHidden) numbers.set('hidden', 'exclude');
  return { chart: chart.toString(), part: null, numbers: numbers.toString(), events };
}
