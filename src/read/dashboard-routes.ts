/** The reads of an app for its members' sessions, under /api: those of /v1, and the dashboard's charts. */
import { type Api, done } from '../accounts/routes/api.ts';
import { Rejection } from '../errors.ts';
import type { Route } from '../http/route.ts';
import type { Sql } from '../storage/connect.ts';
import type { EventReader } from '../storage/storage.ts';
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

/** Columns of counts, in whole buckets. */
function chartRoute({ api, sql, events, now }: DashboardReadOptions): Route {
  return api.read('/api/apps/:appId/series', 'viewer', async ({ app, exchange }) => {
    const query = parseSeriesQuery(exchange.query);
    if (query instanceof Rejection) return query;
    const typeIds = await findTypes(sql, app.id, { typeId: query.typeIds, typeName: [] });
    if (typeIds instanceof Rejection) return typeIds;
    const { from, timezone, buckets } = query;
    // The current millisecond is part of the present.
    const until = query.until ?? Math.max(now(), from ?? 0) + 1;
    const series = await events.series({ appId: app.id, typeIds, from, until, timezone, buckets });
    return typeof series === 'string' ? TOO_LONG : done(series);
  });
}
