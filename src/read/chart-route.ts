/** Columns of counts for the dashboard's chart: by event type or by the values of a field, with an earlier interval beside them. */
import { type Api, done } from '../accounts/routes/api.ts';
import { listHiddenTypes, numberTypes } from '../apps/event-types.ts';
import { Rejection } from '../errors.ts';
import type { Route } from '../http/route.ts';
import type { Sql } from '../storage/connect.ts';
import type {
  EventReader,
  FieldFilter,
  FieldLine,
  Series,
  SeriesRequest,
  TypeSeries,
} from '../storage/storage.ts';
import { spellPath } from './fields/payload-paths.ts';
import { findTypes } from './scope-query.ts';
import { parseSeriesQuery, type SeriesQuery } from './series-query.ts';
import { type Chart, type ComparedChart, type HiddenLine, readValueLines } from './value-chart.ts';

export interface ChartRouteOptions {
  readonly api: Api;
  /** For lookups of types. */
  readonly sql: Sql;
  readonly events: EventReader;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

export const TOO_LONG = new Rejection('invalidParameters', 'from and to must be at most 1,000 months apart.');

/** Lines that are easy to distinguish in a chart. */
const TOP_LINES = 5;

export function chartRoute(options: ChartRouteOptions): Route {
  const { api, sql, events, now } = options;
  return api.read('/api/apps/:appId/series', 'viewer', async ({ app, exchange }) => {
    const query = parseSeriesQuery(exchange.query);
    if (query instanceof Rejection) return query;
    const typeIds = await findTypes(sql, app.id, { typeId: query.typeIds, typeName: [] });
    if (typeIds instanceof Rejection) return typeIds;
    const { from, timezone, buckets, by } = query;
    // The current millisecond is part of the present.
    const until = query.until ?? Math.max(now(), from ?? 0) + 1;
    const counting = { appId: app.id, typeIds, timezone, exactEnds: 'both', topTypes: TOP_LINES } as const;
    const request = { ...counting, from, until, buckets };
    const byValue =
      by === null || query.hasConditions ? null : await readValueLines(events, request, query.compared, by);
    if (byValue !== null && by !== null) return done({ ...byValue, by: spellPath(by), isFiltered: false });
    const byType = await readTypeChart({ sql, events }, request, query);
    return byType === null ? TOO_LONG : done({ ...byType, by: null });
  });
}

type TypeChart = Chart & { readonly isFiltered: boolean; readonly hidden?: HiddenLine | null };

/**
 * The lines of the event types with the most events; without a choice of types, those that are hidden are one line apart.
 * @returns null where there would be too many buckets
 */
async function readTypeChart(
  reading: Reading,
  request: SeriesRequest,
  query: SeriesQuery,
): Promise<TypeChart | null> {
  const hidden = request.typeIds === null ? await listHiddenTypes(reading.sql, request.appId) : [];
  if (hidden.length === 0) return await readTypeLines(reading, request, query);
  const chart = await readTypeLines(reading, { ...request, topTypes: TOP_LINES + hidden.length }, query);
  if (chart === null) return null;
  const typeIds = hidden.map(({ id }) => id);
  const apart = await readTypeLines(reading, { ...request, typeIds, buckets: chart.bucket }, query);
  // Between the two reads a minute may have begun.
  if (apart?.starts.length !== chart.starts.length || apart.isFiltered !== chart.isFiltered) return chart;
  const keys = new Set(hidden.map(({ typeId }) => typeId));
  const lines = chart.lines.filter(({ key }) => !keys.has(key)).slice(0, TOP_LINES);
  const shown = [...lines, { counts: apart.all }];
  const other = chart.all.map((count, index) =>
    Math.max(0, count - sum(shown.map(({ counts }) => counts[index] ?? 0))),
  );
  return {
    ...chart,
    lines,
    other: other.some((count) => count > 0) ? other : null,
    hidden: {
      types: hidden.length,
      counts: apart.all,
      before: apart.before.all,
      compared: apart.compared?.all ?? null,
    },
  };
}

/** The lines of the event types with the most events. @returns null where there would be too many buckets */
async function readTypeLines(
  { sql, events }: Reading,
  request: SeriesRequest,
  query: SeriesQuery,
): Promise<TypeChart | null> {
  const counted = await events.series(request);
  if (typeof counted === 'string') return null;
  const filtered = query.filter && (await countPassing({ sql, events }, request, counted, query.filter));
  const series = filtered ?? counted;
  const shown = series.types.map(({ typeId }) => typeId);
  const filter = filtered === null ? null : query.filter;
  const [numbers, compared] = await Promise.all([
    numberTypes(sql, request.appId, shown),
    query.compared && readCompared({ sql, events }, { ...request, ...query.compared }, series, filter),
  ]);
  const { types, before, ...rest } = series;
  const lines = types.map(({ typeId, ...type }) => ({
    key: typeId,
    ...type,
    number: numbers.get(typeId) ?? 0,
  }));
  return {
    ...rest,
    lines,
    before: { all: before.all, byKey: before.byType },
    compared,
    isFiltered: filtered !== null,
  };
}

type Reading = Pick<ChartRouteOptions, 'sql' | 'events'>;

/**
 * The same series of the events that pass a filter: of the same types, in the same buckets. Where the counts do not reach
 * back to the first event, lines begin at 0.
 * @returns null where the counts of declared fields do not answer it: those events have to be searched for
 */
async function countPassing(
  { sql, events }: Reading,
  request: SeriesRequest,
  { bucket, types, ...series }: Series,
  filter: FieldFilter,
): Promise<Series | null> {
  const lineOf = async (typeIds: readonly number[] | null): Promise<FieldLine | null> => {
    const asked = { ...request, typeIds, buckets: bucket };
    const whole = await events.filteredSeries({ ...asked, withBefore: true }, filter);
    const passing =
      whole === 'not counted' ? await events.filteredSeries({ ...asked, withBefore: false }, filter) : whole;
    if (typeof passing === 'string' || passing.starts.length !== series.starts.length) return null;
    return passing.lines[0] ?? null;
  };
  const ofType = async (type: TypeSeries): Promise<(TypeSeries & FieldLine) | null> => {
    const found = await findTypes(sql, request.appId, { typeId: [type.typeId], typeName: [] });
    const line = found instanceof Rejection ? null : await lineOf(found);
    return line && { ...type, ...line, total: sum(line.counts) };
  };
  const [all, ...apart] = await Promise.all([lineOf(request.typeIds), ...types.map(ofType)]);
  const passing = apart.filter((type) => type !== null);
  if (!all || passing.length < apart.length) return null;
  // Read one after the other: an event that came meanwhile may be in the one and not in the other.
  const rest = all.counts.map((count, index) =>
    Math.max(0, count - sum(passing.map(({ counts }) => counts[index] ?? 0))),
  );
  return {
    ...series,
    bucket,
    types: passing.map(({ typeId, name, counts, total }) => ({ typeId, name, counts, total })),
    all: all.counts,
    other: series.other === null ? null : rest,
    before: {
      all: all.before,
      byType: Object.fromEntries(passing.map(({ typeId, before }) => [typeId, before])),
    },
  };
}

function sum(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}

/** An earlier interval in the same buckets and by the same types; null where such buckets are not kept. */
async function readCompared(
  { sql, events }: Reading,
  request: SeriesRequest,
  { bucket, types }: Series,
  filter: FieldFilter | null,
): Promise<ComparedChart | null> {
  const { appId } = request;
  const typeIds = await findTypes(sql, appId, { typeId: types.map(({ typeId }) => typeId), typeName: [] });
  // A type may have been deleted since.
  if (typeIds instanceof Rejection) return null;
  const counting = { ...request, buckets: bucket };
  const read = async (asked: SeriesRequest): Promise<Series | null> => {
    const series = await events.series(asked);
    if (typeof series === 'string') return null;
    return filter === null ? series : await countPassing({ sql, events }, asked, series, filter);
  };
  const [apart, all] = await Promise.all([
    typeIds === null ? undefined : read({ ...counting, typeIds }),
    request.typeIds === null ? read({ ...counting, topTypes: 0 }) : undefined,
  ]);
  // With a choice of types these are all there are.
  const whole = all === undefined ? apart : all;
  if (!whole || apart === null) return null;
  const byKey = Object.fromEntries((apart?.types ?? []).map(({ typeId, counts }) => [typeId, counts]));
  return { starts: whole.starts, all: whole.all, byKey };
}
