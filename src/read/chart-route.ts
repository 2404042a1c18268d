/** Columns of counts for the dashboard's chart: by event type or by the values of a field, with an earlier interval beside them. */

import { isDeepStrictEqual } from 'node:util';
import type { Api } from '../accounts/routes/api.ts';
import type { Series } from '../api-types/answers.ts';
import { listHiddenTypes, numberTypes } from '../apps/event-types.ts';
import { Rejection } from '../errors.ts';
import { done } from '../http/data.ts';
import type { ReadPlace } from '../http/read-slots.ts';
import type { Route } from '../http/route.ts';
import type { EventReader, FieldFilter, SeriesFrame, SeriesRequest, TypeSeries } from '../storage/storage.ts';
import { spellPath } from './fields/payload-paths.ts';
import { findTypes } from './scope-query.ts';
import { parseSeriesQuery, type SeriesQuery } from './series-query.ts';
import {
  type Chart,
  type ComparedChart,
  type HiddenLine,
  readValueLines,
  sum,
  totals,
} from './value-chart.ts';

export interface ChartRouteOptions {
  readonly api: Api;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** Milliseconds of a monotonic clock. */
  readonly monotonic: () => number;
}

export const TOO_LONG = new Rejection('invalidParameters', 'from and to must be at most 1,000 months apart.');

/**
 * The lines of values where a field is asked for and its counts answer it, otherwise those of types; `by` and `isFiltered` say
 * which. Without a choice of types, those that are hidden are one line apart, and in none of the other numbers.
 */
export function chartRoute(options: ChartRouteOptions): Route {
  const { api, now } = options;
  return api.readInTurn('/api/apps/:appId/series', 'viewer', async ({ app, exchange, sql, events }) => {
    const query = parseSeriesQuery(exchange.query);
    if (query instanceof Rejection) return query;
    const typeIds = await findTypes(sql, app.id, { typeId: query.typeIds, typeName: [] });
    if (typeIds instanceof Rejection) return typeIds;
    const { from, timezone, buckets, lines, by, compared, filter, hasConditions } = query;
    // The current millisecond is part of the present.
    const until = query.until ?? Math.max(now(), from ?? 0) + 1;
    const exceptTypes = typeIds === null ? (await listHiddenTypes(sql, app.id)).map(({ id }) => id) : [];
    const counting = { appId: app.id, typeIds, exceptTypes, timezone, exactEnds: 'both' } as const;
    const request = { ...counting, from, until, buckets, topTypes: lines };
    // What is counted of a field are its values alone: a filter on another field is not in them.
    const hasCounts = !hasConditions || (filter !== null && isDeepStrictEqual(filter.path, by));
    const byValue = by && hasCounts ? await readValueLines(events, request, { compared, by, filter }) : null;
    if (byValue !== null && by !== null) {
      const hidden = await readHidden(events, { ...request, buckets: byValue.bucket }, { compared, filter });
      return done<Series>({ ...byValue, hidden, by: spellPath(by), isFiltered: filter !== null });
    }
    const byType =
      (filter && (await readTypeChart({ sql, events }, request, { compared, filter }))) ??
      (await readTypeChart({ sql, events }, request, { compared, filter: null }));
    return byType === null ? TOO_LONG : done<Series>({ ...byType, by: null });
  });
}

type TypeChart = Chart & { readonly hidden: HiddenLine | null; readonly isFiltered: boolean };

/** @returns null where counts do not answer it, or there would be too many buckets */
async function readTypeChart(
  reading: Reading,
  request: SeriesRequest,
  asked: Asked,
): Promise<TypeChart | null> {
  const chart = await readTypeLines(reading, request, asked);
  if (chart === null) return null;
  const hidden = await readHidden(reading.events, { ...request, buckets: chart.bucket }, asked);
  return { ...chart, hidden, isFiltered: asked.filter !== null };
}

type Reading = Pick<ReadPlace, 'sql' | 'events'>;
type Asked = Pick<SeriesQuery, 'compared' | 'filter'>;

interface CountedTypes extends SeriesFrame {
  /** Those with the most events first. */
  readonly types: readonly (TypeSeries & { readonly before: number })[];
  /** All types that are asked for. */
  readonly all: readonly number[];
  readonly before: number;
}

/** @returns null where counts do not answer it, or there would be too many buckets */
async function countTypes(
  events: EventReader,
  request: SeriesRequest,
  filter: FieldFilter | null,
): Promise<CountedTypes | null> {
  if (filter !== null) return await countPassing(events, request, filter);
  const series = await events.series(request);
  if (typeof series === 'string') return null;
  const { types, before, ...rest } = series;
  const withBefore = types.map((type) => ({ ...type, before: before.byType[type.typeId] ?? 0 }));
  return { ...rest, types: withBefore, before: before.all };
}

/** Where the counts of a field do not reach back to the first event, lines begin at 0. */
async function countPassing(
  events: EventReader,
  request: SeriesRequest,
  filter: FieldFilter,
): Promise<CountedTypes | null> {
  const whole = await events.filteredTypes({ ...request, withBefore: true }, filter);
  const series =
    whole === 'not counted' ? await events.filteredTypes({ ...request, withBefore: false }, filter) : whole;
  if (typeof series === 'string') return null;
  const { lines, ...rest } = series;
  const types = lines.flatMap(({ type, counts, before }) =>
    type === undefined ? [] : [{ ...type, counts, before, total: sum(counts) }],
  );
  types.sort((a, b) => b.total - a.total);
  return { ...rest, types, all: totals(series), before: sum(lines.map(({ before }) => before)) };
}

/** The lines of the event types with the most events. @returns null as above */
async function readTypeLines(
  { sql, events }: Reading,
  request: SeriesRequest,
  { compared, filter }: Asked,
): Promise<Chart | null> {
  const counted = await countTypes(events, request, filter);
  if (counted === null) return null;
  const { types, all, before, ...rest } = counted;
  const shown = types.map(({ typeId }) => typeId);
  const [numbers, earlier] = await Promise.all([
    numberTypes(sql, request.appId, shown),
    compared &&
      readCompared({ sql, events }, { ...request, ...compared, buckets: rest.bucket }, { shown, filter }),
  ]);
  const other = all.map((count, index) => count - sum(types.map(({ counts }) => counts[index] ?? 0)));
  return {
    ...rest,
    lines: types.map(({ typeId, name, counts, total }) => {
      return { key: typeId, name, counts, total, number: numbers.get(typeId)?.number ?? 0 };
    }),
    all,
    other: other.some((count) => count > 0) ? other : null,
    before: { all: before, byKey: Object.fromEntries(types.map((type) => [type.typeId, type.before])) },
    compared: earlier,
  };
}

/** The types that charts leave out, in the buckets of the chart that does. */
async function readHidden(
  events: EventReader,
  { exceptTypes = [], ...request }: SeriesRequest,
  { compared, filter }: Asked,
): Promise<HiddenLine | null> {
  if (exceptTypes.length === 0) return null;
  const ofHidden = { ...request, typeIds: exceptTypes };
  const [now, earlier] = await Promise.all([
    countTypes(events, ofHidden, filter),
    compared && countTypes(events, { ...ofHidden, ...compared }, filter),
  ]);
  if (now === null) return null;
  return { types: exceptTypes.length, counts: now.all, before: now.before, compared: earlier?.all ?? null };
}

/** An earlier interval in the same buckets and by the same types; null where such buckets are not kept. */
async function readCompared(
  { sql, events }: Reading,
  request: SeriesRequest,
  { shown, filter }: { readonly shown: readonly string[]; readonly filter: FieldFilter | null },
): Promise<ComparedChart | null> {
  const typeIds = await findTypes(sql, request.appId, { typeId: shown, typeName: [] });
  // A type may have been deleted since.
  if (typeIds instanceof Rejection) return null;
  const [apart, all] = await Promise.all([
    typeIds === null ? undefined : countTypes(events, { ...request, typeIds, exceptTypes: [] }, filter),
    request.typeIds === null ? countTypes(events, { ...request, topTypes: 0 }, filter) : undefined,
  ]);
  // With a choice of types these are all there are.
  const whole = all === undefined ? apart : all;
  if (!whole || apart === null) return null;
  const byKey = Object.fromEntries((apart?.types ?? []).map(({ typeId, counts }) => [typeId, counts]));
  return { starts: whole.starts, all: whole.all, byKey };
}
