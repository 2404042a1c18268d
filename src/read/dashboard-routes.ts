/** The reads of an app for its members' sessions, under /api: those of /v1, and the dashboard's charts. */
import { type Api, done } from '../accounts/routes/api.ts';
import { numberTypes } from '../apps/event-types.ts';
import { Rejection } from '../errors.ts';
import type { Route } from '../http/route.ts';
import type { Sql } from '../storage/connect.ts';
import type { EventReader, Series, SeriesRequest } from '../storage/storage.ts';
import type { AppRead } from './app-read.ts';
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
  return [...reads.map((read) => sessionRoute(options.api, read)), chartRoute(options)];
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
    const series = await events.series({ ...counting, from, until, buckets });
    if (typeof series === 'string') return TOO_LONG;
    const shown = series.types.map(({ typeId }) => typeId);
    const [numbers, compared] = await Promise.all([
      numberTypes(sql, app.id, shown),
      query.compared && readCompared({ sql, events }, { ...counting, ...query.compared }, series),
    ]);
    const types = series.types.map((type) => ({ ...type, number: numbers.get(type.typeId) ?? 0 }));
    return done({ ...series, types, compared });
  });
}

/** An earlier interval in the same buckets and by the same types; null where such buckets are not kept. */
async function readCompared(
  { sql, events }: Pick<DashboardReadOptions, 'sql' | 'events'>,
  request: Omit<SeriesRequest, 'buckets'>,
  { bucket, types }: Series,
) {
  const { appId } = request;
  const typeIds = await findTypes(sql, appId, { typeId: types.map(({ typeId }) => typeId), typeName: [] });
  // A type may have been deleted since.
  if (typeIds instanceof Rejection) return null;
  const counting = { ...request, buckets: bucket };
  const [apart, all] = await Promise.all([
    typeIds === null ? null : events.series({ ...counting, typeIds }),
    request.typeIds === null ? events.series({ ...counting, topTypes: 0 }) : null,
  ]);
  // With a choice of types these are all there are.
  const whole = all ?? apart;
  if (whole === null || typeof whole === 'string' || typeof apart === 'string') return null;
  const byType = Object.fromEntries((apart?.types ?? []).map(({ typeId, counts }) => [typeId, counts]));
  return { starts: whole.starts, all: whole.all, byType };
}
