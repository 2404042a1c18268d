/** The reads of an app for its members' sessions, under /api: those of /v1, and the dashboard's charts. */
import { type Api, done } from '../accounts/routes/api.ts';
import { numberTypes } from '../apps/event-types.ts';
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
import type { AppRead } from './app-read.ts';
import { parsePath } from './filter/parse-filter.ts';
import { doublesOf, statColumns } from './number-stats.ts';
import { findTypes } from './scope-query.ts';
import { parseSeriesQuery } from './series-query.ts';

export interface DashboardReadOptions {
  readonly api: Api;
  /** For lookups of types. */
  readonly sql: Sql;
  readonly events: EventReader;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

const TOO_LONG = new Rejection('invalidParameters', 'from and to must be at most 1,000 months apart.');

export function dashboardReadRoutes(
  options: DashboardReadOptions,
  reads: readonly AppRead[],
): readonly Route[] {
  return [
    ...reads.map((read) => sessionRoute(options.api, read)),
    chartRoute(options),
    numbersRoute(options),
  ];
}

function sessionRoute(api: Api, { declaration: { path, headers = [] }, run }: AppRead): Route {
  return api.read(
    `/api/apps/:appId${path}`,
    'viewer',
    async ({ app, user, session, exchange, parameters }) => {
      const holder = { kind: 'session', session: session.digest, userId: user.id } as const;
      return await run({ exchange, app, holder, parameters: parameters.slice(1) });
    },
    headers,
  );
}

/** Lines that a chart tells apart at a glance. */
const TOP_TYPES = 5;

/** Columns of counts, with those of an earlier interval beside them. */
function chartRoute({ api, sql, events, now }: DashboardReadOptions): Route {
  return api.read('/api/apps/:appId/series', 'viewer', async ({ app, exchange }) => {
    const query = parseSeriesQuery(exchange.query);
    if (query instanceof Rejection) return query;
    const typeIds = await findTypes(sql, app.id, { typeId: query.typeIds, typeName: [] });
    if (typeIds instanceof Rejection) return typeIds;
    const { from, timezone, buckets } = query;
    // The current millisecond is part of the present.
    const until = query.until ?? Math.max(now(), from ?? 0) + 1;
    const counting = { appId: app.id, typeIds, timezone, exactEnds: 'both', topTypes: TOP_TYPES } as const;
    const request = { ...counting, from, until, buckets };
    const counted = await events.series(request);
    if (typeof counted === 'string') return TOO_LONG;
    const filtered = query.filter && (await countPassing({ sql, events }, request, counted, query.filter));
    const series = filtered ?? counted;
    const shown = series.types.map(({ typeId }) => typeId);
    const filter = filtered === null ? null : query.filter;
    const [numbers, compared] = await Promise.all([
      numberTypes(sql, app.id, shown),
      query.compared && readCompared({ sql, events }, { ...counting, ...query.compared }, series, filter),
    ]);
    const types = series.types.map((type) => ({ ...type, number: numbers.get(type.typeId) ?? 0 }));
    return done({ ...series, types, compared, isFiltered: filtered !== null });
  });
}

const NO_PATH = new Rejection('invalidParameters', 'of must be the path of a declared field.');
const NOT_COUNTED = new Rejection(
  'invalidParameters',
  'of must be a declared field of the kind number that is counted for the whole interval.',
);

/** Columns of statistics of a field's numbers, as doubles, in the buckets of the chart of the same parameters. */
function numbersRoute({ api, sql, events, now }: DashboardReadOptions): Route {
  return api.read('/api/apps/:appId/numbers', 'viewer', async ({ app, exchange }) => {
    const query = parseSeriesQuery(exchange.query);
    if (query instanceof Rejection) return query;
    const of = new URLSearchParams(exchange.query).get('of') ?? '';
    const path = parsePath(of);
    if ('problem' in path) return NO_PATH;
    const typeIds = await findTypes(sql, app.id, { typeId: query.typeIds, typeName: [] });
    if (typeIds instanceof Rejection) return typeIds;
    const { from, timezone, buckets } = query;
    const until = query.until ?? Math.max(now(), from ?? 0) + 1;
    const request = { appId: app.id, typeIds, timezone, exactEnds: 'both', from, until, buckets } as const;
    const series = await events.numberSeries(request, path);
    if (series === 'not counted') return NOT_COUNTED;
    if (typeof series === 'string') return TOO_LONG;
    const { stats, overall, ...rest } = series;
    return done({ of, ...rest, stats: statColumns(stats), overall: doublesOf(overall) });
  });
}

/**
 * The same series of the events that pass a filter: of the same types, in the same buckets. Where the counts do not reach
 * back to the first event, lines begin at 0.
 * @returns null where the counts of declared fields do not answer it: those events have to be searched for
 */
async function countPassing(
  { sql, events }: Pick<DashboardReadOptions, 'sql' | 'events'>,
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
  { sql, events }: Pick<DashboardReadOptions, 'sql' | 'events'>,
  request: Omit<SeriesRequest, 'buckets'>,
  { bucket, types }: Series,
  filter: FieldFilter | null,
) {
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
  const byType = Object.fromEntries((apart?.types ?? []).map(({ typeId, counts }) => [typeId, counts]));
  return { starts: whole.starts, all: whole.all, byType };
}
