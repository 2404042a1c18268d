/** GET /api/apps/:appId/boards/:boardId/data: the charts of a board, which agree with each other. */
import type { BoardChart, BoardData, BoardView } from '../../api-types/answers.ts';
import { listAnnotations } from '../../apps/annotations.ts';
import { listBoards } from '../../apps/boards.ts';
import { NO_BOARD } from '../../apps/routes/boards.ts';
import { HISTOGRAM } from '../../base/measures.ts';
import { type Range, rangesOn, rangeText } from '../../base/ranges.ts';
import {
  asksForHidden,
  type ChartView,
  chosenTypes,
  isDistribution,
  OWN_RANGES,
  parseChartView,
  rangeOf,
} from '../../base/view.ts';
import { Rejection } from '../../errors.ts';
import { done } from '../../http/data.ts';
import type { ReadPlace } from '../../http/read-slots.ts';
import type { Route } from '../../http/route.ts';
import { instantOf, localOf } from '../../storage/counts/timezone.ts';
import { findChartTypes, hasEvents, withinYears } from '../scope-query.ts';
import {
  BOARD_QUERY,
  type BoardQuestion,
  type ChartQuestion,
  checkChart,
  checkTypes,
  conditionsOf,
  NO_PATH,
  type NumbersQuestion,
  PLAIN_CHART,
  pathIn,
} from './chart-query.ts';
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

type Intervals = Pick<ChartQuestion, 'from' | 'to' | 'compareFrom' | 'compareTo'>;

/** The interval of a range and the one before it, as all charts take them. */
export function intervalsOf(range: Range, now: number, timezone: string): Intervals {
  const { from, to } = resolveRange(range, now, timezone);
  const compared = comparedSpan('previous', range, { from, to }, now, timezone);
  return {
    ...{ from: from && withinYears(from), to: withinYears(to) },
    ...(compared?.from == null
      ? { compareFrom: null, compareTo: null }
      : { compareFrom: withinYears(compared.from), compareTo: withinYears(compared.to) }),
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
      const { boardId, name, views } = board;
      const data = await events.together(app.id, async (snapshot, reader) => {
        const place = { sql: snapshot, events: reader, pass };
        const [charts = []] = await readBoardCharts(options, place, app, { views, shared: [query] });
        return { charts, ...(await readBoardMarks(place, app, charts)) };
      });
      return done<BoardData>({ boardId, name, ...data });
    },
  );
}

/**
 * The charts of saved views, all of one snapshot.
 * @param shared what they have in common; of several intervals, that of each
 * @returns the charts of each
 */
export async function readBoardCharts(
  options: Pick<ChartRouteOptions, 'now' | 'monotonic'>,
  { events, pass }: Pick<ReadPlace, 'events' | 'pass'>,
  app: { readonly id: number; readonly appId: string },
  { views, shared }: { readonly views: readonly BoardView[]; readonly shared: readonly BoardQuestion[] },
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

/** The counts of one view, from counts alone: a board never reads through events. */
async function readBoardChart(
  options: Pick<ChartRouteOptions, 'now' | 'monotonic'>,
  place: ReadPlace,
  app: { readonly id: number; readonly appId: string },
  saved: BoardView,
  shared: BoardQuestion,
): Promise<BoardChart> {
  const query = new URLSearchParams(saved.search);
  const own = shared.ranges === OWN_RANGES ? rangeOf(query) : null;
  const range = own && rangeText(own);
  const without = (problem: string): BoardChart => ({ ...saved, ...NOTHING, range, problem });
  if (own !== null && !hasEvents(own)) return without(NO_RANGE);
  const intervals = own && intervalsOf(own, options.now(), shared.timezone ?? 'UTC');
  const view = parseChartView(query);
  const asked = questionsOf(view, { ...shared, ...intervals });
  if (asked instanceof Rejection) return without(asked.details);
  const ofChart = async (question: ChartQuestion): Promise<BoardChart['series'] | Rejection> => {
    const chart = await readChartOf(options, place, app, question);
    const isWhole = chart instanceof Rejection || chart.isFiltered || !conditionsOf(question).hasConditions;
    return isWhole ? chart : new Rejection('invalidParameters', NOT_COUNTED);
  };
  const [series, part, numbers] = await Promise.all([
    ofChart(asked.chart),
    asked.part && ofChart(asked.part),
    asked.numbers && readNumbersOf(options, place, app, asked.numbers, { readsRows: false }),
  ]);
  const isBy = view.by !== null && !isDistribution(view.measure);
  // A chart never answers another question than that of its view.
  if (series instanceof Rejection) return without(series.details);
  if (part instanceof Rejection) return without(part.details);
  if (numbers instanceof Rejection) return without(numbers.details);
  if (isBy && view.measure === null && series?.by === null) return without(NOT_BY);
  const problem = isBy && numbers?.lines === null ? (numbers.notBy?.details ?? NOT_BY) : null;
  const partType = await partTypeOf(place.sql, app.id, view.measure);
  return { ...saved, series, part, partType, numbers, range, problem };
}

const NOTHING = { series: null, part: null, partType: null, numbers: null };

/** The name of the type that a ratio is of, which may have no event in the interval; null: it is of none. */
async function partTypeOf(
  sql: ReadPlace['sql'],
  appId: number,
  measure: ChartView['measure'],
): Promise<string | null> {
  if (measure?.kind !== 'ratio' || !('type' in measure.part)) return null;
  const [type] = await sql<{ name: string }[]>`
    SELECT name FROM event_types WHERE app_id = ${appId} AND public_id = ${measure.part.type}`;
  return type?.name ?? null;
}

interface ViewQuestions {
  readonly chart: ChartQuestion;
  /** The events that are a part of the others, for a ratio. */
  readonly part: ChartQuestion | null;
  /** The numbers of a field, for a statistic. */
  readonly numbers: NumbersQuestion | null;
}

/** What the charts of a view ask: its conditions and lines, and what all have in common. @returns also what is wrong with them */
export function questionsOf(
  view: ChartView,
  { ranges: _, ...shared }: BoardQuestion,
): ViewQuestions | Rejection {
  const { types, text, measure, mode } = view;
  const typeId = chosenTypes(view);
  const exceptTypeId = typeId.length > 0 ? [] : types.map((type) => type.slice(1));
  const filter = [...new Set([...shared.filter, ...view.filters])];
  const all: ChartQuestion = {
    ...{ ...PLAIN_CHART, ...shared, typeId, exceptTypeId, filter },
    ...(text !== null && { [text[0]]: text[1] }),
    width: shared.width ?? view.width ?? 'auto',
  };
  const problem = checkTypes(all) ?? checkChart(all);
  if (problem !== null) return new Rejection('invalidParameters', problem);
  const by = view.by === null ? null : pathIn(view.by);
  const chart = { ...all, by };
  if (measure === null) return { chart, part: null, numbers: null };
  if (measure.kind === 'ratio') {
    const { part } = measure;
    const scope =
      'type' in part
        ? { typeId: [part.type], exceptTypeId: [] }
        : { filter: [...new Set([...filter, part.filter])] };
    return { chart, part: { ...all, ...scope }, numbers: null };
  }
  const { of, stat } = measure;
  const path = pathIn(of);
  if (path === null) return new Rejection('invalidParameters', `of ${NO_PATH.problem}.`);
  const numbers: NumbersQuestion = {
    ...(stat === HISTOGRAM ? all : chart),
    of: { sent: of, path },
    stat: stat === 'distinct' || stat === HISTOGRAM ? stat : 'number',
    before: stat === 'sum' && mode === 'running',
    byType: view.by === null && typeId.length !== 1 && stat !== HISTOGRAM,
    hidden: asksForHidden(view) ? 'include' : 'exclude',
  };
  return { chart, part: null, numbers };
}
