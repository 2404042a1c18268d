/** GET /api/apps/:appId/usage and …/limits: what an app uses, beside what it may. */

import type { Api } from '../../accounts/routes/api.ts';
import type { AppLimits, Usage } from '../../api-types/answers.ts';
import type { Config } from '../../config.ts';
import { done } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { type LimitSettings, readAppLimits } from '../app-limits.ts';
import { readUsage } from '../usage-store.ts';

export interface UsageRouteOptions {
  readonly api: Api;
  /** For what is not of events. */
  readonly sql: Sql;
  /** Brings to the database what this process has counted. */
  readonly writeUsage: () => Promise<void>;
  readonly settings: LimitSettings & Pick<Config, 'READ_LIMIT_PER_MINUTE'>;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

export function usageRoutes({ api, sql: accounts, writeUsage, settings, now }: UsageRouteOptions): Route[] {
  const usage = api.readInTurn('/api/apps/:appId/usage', 'viewer', async ({ app, sql }) => {
    await writeUsage();
    const { createPerMinute, bytesPerDay, types } = await readAppLimits(sql, settings, app.appId);
    const limits = { create: createPerMinute ?? 0, read: settings.READ_LIMIT_PER_MINUTE, bytesPerDay, types };
    return done<Usage>({ limits, ...(await readUsage(sql, app.id, now())) });
  });
  const limits = api.read('/api/apps/:appId/limits', 'owner', async ({ app }) =>
    done<AppLimits>(await readAppLimits(accounts, settings, app.appId)),
  );
  return [usage, limits];
}
