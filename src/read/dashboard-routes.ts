/** The reads of an app for its members' sessions, under /api: those of /v1, and the dashboard's charts. */
import type { Api } from '../accounts/routes/api.ts';
import type { Route } from '../http/route.ts';
import type { AppRead } from './app-read.ts';
import { type ChartRouteOptions, chartRoute } from './chart-route.ts';
import { numbersRoute } from './numbers-route.ts';

export type DashboardReadOptions = ChartRouteOptions;

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
