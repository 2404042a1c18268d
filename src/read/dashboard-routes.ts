/** The reads of an app for its members' sessions, under /api: those of /v1, and the dashboard's charts. */
import { type MemberCall, turnsOfSession } from '../accounts/routes/api.ts';
import type { Outcome } from '../http/exchange.ts';
import type { ReadSlots } from '../http/read-slots.ts';
import type { Route } from '../http/route.ts';
import { type AppRead, headersOfRead, respond } from './app-read.ts';
import { boardRoute } from './charts/board-route.ts';
import { explainRoute } from './charts/explain-route.ts';
import { numbersRoute } from './charts/numbers-route.ts';
import { overviewRoute } from './charts/overview-route.ts';
import { scanRoute } from './charts/scan-route.ts';
import { type ChartRouteOptions, chartRoute } from './charts/series-columns.ts';

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
    boardRoute(options),
    explainRoute(options),
    overviewRoute(options),
  ];
}

function sessionRoute({ api, slots }: DashboardReadOptions, read: AppRead): Route {
  const { declaration } = read;
  const path = `/api/apps/:appId${declaration.path}`;
  const { maxBodyBytes } = declaration;
  const answer = async (call: MemberCall, text: string): Promise<Outcome> => {
    const { app, user, session, exchange, parameters } = call;
    const holder = { kind: 'session', session: session.digest, userId: user.id } as const;
    const turns = turnsOfSession(user);
    const asked = { exchange, app, holder, turns, parameters: parameters.slice(1), text };
    return await respond(read, asked, slots);
  };
  if (maxBodyBytes === undefined)
    return api.read(path, 'read', (call) => answer(call, ''), headersOfRead(declaration));
  return api.ask(path, 'read', { maxBodyBytes, headers: headersOfRead(declaration) }, answer);
}
