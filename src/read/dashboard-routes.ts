/** The reads of an app for its members' sessions, under /api: those of /v1, and the dashboard's charts. */
import { turnsOfSession } from '../accounts/routes/api.ts';
import type { ReadSlots } from '../http/read-slots.ts';
import type { Route } from '../http/route.ts';
import { type AppRead, headersOfRead } from './app-read.ts';
import { type ChartRouteOptions, chartRoute } from './chart-route.ts';
import { numbersRoute } from './numbers-route.ts';
import { scanRoute } from './scan-route.ts';

export interface DashboardReadOptions extends ChartRouteOptions {
  readonly slots: ReadSlots;
}

export function dashboardReadRoutes(
  options: DashboardReadOptions,
  reads: readonly AppRead[],
): readonly Route[] {
  return [
    ...reads.map((read) => sessionRoute(options, read)),
    chartRoute(options),
    numbersRoute(options),
    scanRoute(options),
  ];
}

function sessionRoute({ api, slots }: DashboardReadOptions, { declaration, run }: AppRead): Route {
  return api.read(
    `/api/apps/:appId${declaration.path}`,
    'viewer',
    async ({ app, user, session, exchange, parameters }) => {
      const holder = { kind: 'session', session: session.digest, userId: user.id } as const;
      const turns = turnsOfSession(user);
      return await run({ exchange, app, holder, turns, parameters: parameters.slice(1) }, slots);
    },
    headersOfRead(declaration),
  );
}
