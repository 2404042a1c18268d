/** The numbers of a week and of the one before, of an app or of the views of a board: all of a mail from one snapshot. */
import type { BoardChart, Series as ChartSeries, MovedLine } from '../../api-types/answers.ts';
import { listBoards } from '../../apps/boards.ts';
import { listHiddenTypes } from '../../apps/event-types.ts';
import type { NumberFormat } from '../../apps/fields.ts';
import { measureLabel, singleStat } from '../../base/measures.ts';
import { sum } from '../../base/sum.ts';
import { DAY_MS } from '../../base/time-units.ts';
import { asksForHidden, type ChartView, parseChartView } from '../../base/view.ts';
import { readBoardCharts } from '../../read/charts/board-route.ts';
import { type BoardQuestion, PLAIN_CHART } from '../../read/charts/chart-query.ts';
import type { Series } from '../../storage/counts/series.ts';
import { instantOf, localOf } from '../../storage/counts/timezone.ts';
import type { Sql } from '../../storage/database/connect.ts';
import type { Storage } from '../../storage/storage.ts';
import type { Values } from '../picture.ts';
import type { DueDigest } from './digests.ts';

/** The week of a line of a chart: an event type or a value of a field. */
export interface LineOfWeek extends Pick<MovedLine, 'key' | 'name' | 'total' | 'before'> {}

/** What a number counts or measures: events, a field, or which part of the events they are. */
export type Unit = 'events' | 'measure' | 'ratio';

export interface ChartOfWeek {
  readonly name: string;
  /** The query of its address, without times; null: it is of the app itself. */
  readonly search: string | null;
  readonly unit: Unit;
  /** What is measured, such as `average of total`; of a ratio, what is so of that part, such as `are refund`; empty for events. */
  readonly of: string;
  /** How the numbers of a measure are shown; null: no declaration says so. */
  readonly format: NumberFormat | null;
  /** The number of the whole week: not an average of its days. */
  readonly total: number | null;
  readonly before: number | null;
  readonly days: Values;
  readonly daysBefore: Values;
  readonly lines: readonly LineOfWeek[];
  /** Why its numbers are not what is asked for; null: they are. */
  readonly problem: string | null;
}

/** A week that begins and ends at midnight of a zone's clock, and where the one before began. Milliseconds since 1970. */
export interface Week {
  readonly before: number;
  readonly from: number;
  readonly until: number;
  /** When its days begin. */
  readonly starts: readonly number[];
}

const DAYS = 7;

export interface WeekNumbers extends Week {
  /** Name of the board; null: they are of the app. */
  readonly boardName: string | null;
  readonly charts: readonly ChartOfWeek[];
}

/** The week that ended with the day that an instant is on. */
export function weekBefore(timezone: string, at: number): Week {
  const today = Math.floor(localOf(timezone, at) / DAY_MS);
  const start = (days: number): number => instantOf(timezone, (today - days) * DAY_MS);
  const starts = Array.from({ length: DAYS }, (_, day) => start(DAYS - day));
  return { before: start(2 * DAYS), from: start(DAYS), until: start(0), starts };
}

export interface WeekSources {
  /** A pool of upkeep. */
  readonly sql: Sql;
  readonly storage: Pick<Storage, 'reader'>;
  readonly now: () => number;
}

/** What a digest says. @returns null where its board is gone */
export async function readWeek(sources: WeekSources, digest: DueDigest): Promise<WeekNumbers | null> {
  const week = weekBefore(digest.timezone, digest.nextAt.getTime());
  return digest.boardId === null
    ? await weekOfApp(sources, digest, week)
    : await weekOfBoard(sources, { ...digest, boardId: digest.boardId }, week);
}

/** Types whose numbers are compared. */
const MOST_TYPES = 1_000;

async function weekOfApp(
  { sql, storage }: WeekSources,
  { app, appName, timezone }: DueDigest,
  week: Week,
): Promise<WeekNumbers> {
  const hidden = await listHiddenTypes(sql, app);
  const asked = {
    ...({ appId: app, typeIds: null, exceptTypes: hidden.map(({ id }) => id), timezone } as const),
    ...({ buckets: '1d', exactEnds: 'both', topTypes: MOST_TYPES } as const),
  };
  const [now, earlier] = await storage
    .reader(sql)
    .together(app, (_, events) =>
      Promise.all([
        events.series({ ...asked, from: week.from, until: week.until }),
        events.series({ ...asked, from: week.before, until: week.from }),
      ]),
    );
  if (typeof now === 'string' || typeof earlier === 'string')
    throw new Error('Two weeks by the day are too many buckets.');
  const chart = {
    ...({ name: appName, search: null, unit: 'events', of: '', format: null, problem: null } as const),
    ...{ total: sum(now.all), before: sum(earlier.all), days: now.all, daysBefore: earlier.all },
    lines: linesOfTypes(now, earlier),
  };
  return { ...week, boardName: null, charts: [chart] };
}

function linesOfTypes(week: Series, earlier: Series): readonly LineOfWeek[] {
  const totals = new Map(earlier.types.map(({ typeId, total }) => [typeId, total]));
  const now = new Set(week.types.map(({ typeId }) => typeId));
  return [
    ...week.types.map(({ typeId, name, total }) => ({
      ...{ key: typeId, name, total },
      before: totals.get(typeId) ?? 0,
    })),
    ...earlier.types
      .filter(({ typeId }) => !now.has(typeId))
      .map(({ typeId, name, total }) => ({ key: typeId, name, total: 0, before: total })),
  ];
}

/** As many as the board itself shows apart. */
const LINES = 12;

async function weekOfBoard(
  { sql, storage, now }: WeekSources,
  { app, appId, boardId, timezone }: DueDigest & { readonly boardId: string },
  week: Week,
): Promise<WeekNumbers | null> {
  const [board] = await listBoards(sql, app, boardId);
  if (board === undefined) return null;
  const place = { events: storage.reader(sql), pass: async () => true };
  const options = { now, monotonic: () => performance.now() };
  const shared = (['now', 'before'] as const).map((which) => questionOf(week, which, timezone));
  const asked = { views: board.views, shared };
  const [charts = [], earlier = []] = await readBoardCharts(options, place, { id: app, appId }, asked);
  return {
    ...week,
    boardName: board.name,
    charts: charts.map((chart, index) => chartOf(chart, earlier[index] ?? chart)),
  };
}

/** What all charts have in common. */
function questionOf({ before, from, until }: Week, which: 'now' | 'before', timezone: string): BoardQuestion {
  const [now, earlier] = [
    { from, to: until },
    { from: before, to: from },
  ];
  const [of, compared] = which === 'now' ? [now, earlier] : [earlier, now];
  const intervals = { ...of, compareFrom: compared.from, compareTo: compared.to };
  const { buckets, filter } = PLAIN_CHART;
  return { ranges: 'board', ...intervals, timezone, buckets, filter, width: '1d', lines: LINES };
}

/** The numbers that the tile of the board shows for this week. */
function chartOf(chart: BoardChart, earlier: BoardChart): ChartOfWeek {
  const address = new URLSearchParams(chart.search);
  const view = parseChartView(address);
  const [now, then] = [numbersOf(chart, view), numbersOf(earlier, view)];
  for (const name of ['range', 'from', 'to', 'tz', 'back', 'at', 'event']) address.delete(name);
  return {
    ...{ name: chart.name, search: address.toString(), problem: chart.problem },
    ...{ unit: now.unit, of: now.of, format: now.format, total: now.total, before: then.total },
    ...{ days: now.values, daysBefore: then.values },
    lines: now.unit === 'events' ? linesOfChart(chart.series, earlier.series) : [],
  };
}

interface Measured extends Pick<ChartOfWeek, 'unit' | 'of' | 'total' | 'format'> {
  readonly values: Values;
}

function numbersOf({ series, part, numbers }: BoardChart, view: ChartView): Measured {
  if (series === null) return { unit: 'events', of: '', format: null, total: null, values: [] };
  const { measure } = view;
  const withHidden = asksForHidden(view);
  const counts = countsOf(series, withHidden);
  if (part !== null && measure?.kind === 'ratio') {
    const parts = countsOf(part, withHidden);
    const { part: asked } = measure;
    const of = 'type' in asked ? `are ${part.lines[0]?.name ?? asked.type}` : `have ${asked.filter}`;
    return {
      ...{ unit: 'ratio', of, format: null },
      total: ratio(sum(parts), sum(counts)),
      values: counts.map((count, day) => ratio(parts[day] ?? 0, count)),
    };
  }
  if (numbers !== null && measure?.kind === 'stat') {
    const stat = singleStat(measure.stat);
    return {
      ...{ unit: 'measure', of: `${measureLabel(stat).toLowerCase()} of ${numbers.of}` },
      format: stat === 'distinct' ? null : numbers.format,
      total: numbers.overall[stat] ?? null,
      values: numbers.stats[stat] ?? series.starts.map(() => null),
    };
  }
  return { unit: 'events', of: '', format: null, total: sum(counts), values: counts };
}

function countsOf({ all, hidden }: ChartSeries, withHidden: boolean): readonly number[] {
  return withHidden && hidden ? all.map((count, day) => count + (hidden.counts[day] ?? 0)) : all;
}

/** Each week names its own lines, and counts those in the other week. */
function linesOfChart(week: ChartSeries | null, earlier: ChartSeries | null): readonly LineOfWeek[] {
  if (week === null || earlier === null) return [];
  const { compared: before } = week;
  const { compared: after } = earlier;
  if (before === null || after === null) return [];
  const named = new Set(week.lines.map(({ key }) => key));
  return [
    ...week.lines.map(({ key, name, total }) => ({ key, name, total, before: sum(before.byKey[key] ?? []) })),
    ...earlier.lines
      .filter(({ key }) => !named.has(key))
      .map(({ key, name, total }) => ({ key, name, total: sum(after.byKey[key] ?? []), before: total })),
  ];
}

function ratio(part: number, whole: number): number | null {
  return whole === 0 ? null : part / whole;
}
