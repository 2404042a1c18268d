/** GET /api/apps/:appId/usage: what an app uses, beside what it may. */

import type { Api } from '../../accounts/routes/api.ts';
import type { Usage } from '../../api-types/answers.ts';
import { done } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import { readUsage } from '../usage-store.ts';

export interface UsageRouteOptions {
  readonly api: Api;
  /** Brings to the database what this process has counted. */
  readonly writeUsage: () => Promise<void>;
  /** Requests per minute of an app and of a resource token; 0: no limit. */
  readonly limits: { readonly create: number; readonly read: number };
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

export function usageRoute({ api, writeUsage, limits, now }: UsageRouteOptions): Route {
  return api.readInTurn('/api/apps/:appId/usage', 'viewer', async ({ app, sql }) => {
    await writeUsage();
    return done<Usage>({ limits, ...(await readUsage(sql, app.id, now())) });
  });
}
