/** GET /api/apps/:appId/usage and …/limits: what an app uses, beside what it may. */

import type { Api } from '../../accounts/routes/api.ts';
import type { AppLimits, Usage } from '../../api-types/answers.ts';
import type { Config } from '../../config.ts';
import { done } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { type LimitSettings, readAppLimits } from '../app-limits.ts';
import { readRefusals } from '../refused-requests.ts';
import { type AppUsage, readUsage } from '../usage-store.ts';

export interface UsageRouteOptions {
  readonly api: Api;
  /** For what is not of events. */
  readonly sql: Sql;
  /** Brings to the database what this process has counted. */
  readonly writeUsage: () => Promise<void>;
  readonly settings: LimitSettings & Pick<Config, 'READ_LIMIT_PER_MINUTE'>;
  readonly now: () => number;
}

/** What the codes mean to the owner of an app; others are in the documentation of the API. */
const MEANINGS: Readonly<Record<string, string>> = {
  RATE_LIMIT_EXCEEDED: 'beyond the limit of requests',
  EVENT_TYPE_NOT_FOUND: 'a typeId that this app does not have',
  TOO_MANY_EVENT_TYPES: 'a new type name, but the app has as many as it may',
  INVALID_REQUEST: 'a body or a header that is not valid',
  PAYLOAD_TOO_LARGE: 'a body that is too large',
  SCHEMA_VIOLATION: 'a payload that violates the schema of its type',
  EVENT_IN_FUTURE: 'a createdAt in the future',
  IDEMPOTENCY_KEY_REUSED: 'an idempotency key with another body',
  UNAVAILABLE: 'the service could not store it then',
  OUTCOME_UNKNOWN: 'the commit took too long',
};

export function usageRoutes({ api, sql: accounts, writeUsage, settings, now }: UsageRouteOptions): Route[] {
  const usage = api.readInTurn('/api/apps/:appId/usage', 'read', async ({ app, sql }) => {
    await writeUsage();
    const { createPerMinute, bytesPerDay, types } = await readAppLimits(sql, settings, app.appId);
    const limits = { create: createPerMinute ?? 0, read: settings.READ_LIMIT_PER_MINUTE, bytesPerDay, types };
    const used = await readUsage(sql, app.id, now());
    const lastRefused = await readRefusals(sql, app.id);
    const codes = [...used.refused, ...used.refusedEvents].map(({ code }) => code);
    const meanings = Object.fromEntries(Object.entries(MEANINGS).filter(([code]) => codes.includes(code)));
    return done<Usage>({ limits, ...used, lastRefused, meanings, warning: warningOf(limits, used) });
  });
  const limits = api.read('/api/apps/:appId/limits', 'own', async ({ app }) =>
    done<AppLimits>(await readAppLimits(accounts, settings, app.appId)),
  );
  return [usage, limits];
}

/** The share of a limit from which on a page warns of it. */
const NEAR = 0.8;
const number = new Intl.NumberFormat('en');
const size = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 });

/** What comes near a limit of the app, or went beyond it. */
function warningOf(limits: Usage['limits'], { types, days, minutes, refused }: AppUsage): Usage['warning'] {
  const bytes = days.at(-1)?.bytes ?? 0;
  const raise = { advice: 'The operator of this server can raise the limit:' };
  if (limits.types !== null && types >= NEAR * limits.types)
    return {
      problem: `The app has ${number.format(types)} of ${number.format(limits.types)} event types.`,
      ...raise,
    };
  if (limits.bytesPerDay !== null && bytes >= NEAR * limits.bytesPerDay)
    return {
      problem: `Producers have sent ${size.format(bytes)} of ${size.format(limits.bytesPerDay)} bytes today (UTC).`,
      ...raise,
    };
  const beyond = refused.find(({ code }) => code === 'RATE_LIMIT_EXCEEDED')?.requests ?? 0;
  const busiest = Math.max(...minutes.map(({ accepted }) => accepted));
  if (limits.create === 0 || (beyond === 0 && busiest < NEAR * limits.create)) return null;
  const [of, requests] = [number.format(limits.create), number.format(beyond)];
  return {
    problem:
      beyond > 0
        ? `${requests} ${beyond === 1 ? 'request' : 'requests'} of the last hour came beyond the limit.`
        : `The busiest minute of the last hour had ${number.format(busiest)} of ${of} requests.`,
    advice:
      'A batch of up to 10,000 events counts as one request: see the snippets in the settings. The operator of this server can raise it:',
  };
}
