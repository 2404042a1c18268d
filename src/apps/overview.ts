/** What the operator sees of all apps at once: owners, events, bytes, limits and refusals. */
import type { AppLimits } from '../api-types/answers.ts';
import { DAY_MS, HOUR_MS } from '../base/time-units.ts';
import type { Sql } from '../storage/database/connect.ts';
import type { EventReader } from '../storage/read/event-reader.ts';
import { type LimitSettings, limitsOf, type OwnLimits } from './app-limits.ts';
import { listApps, type OwnedApp } from './apps.ts';
import { EVENT_PREFIX } from './usage-store.ts';

export interface AppOverview extends OwnedApp {
  readonly suspendedAt: Date | null;
  /** All events ever counted; null while the database node that holds the app does not answer. */
  readonly events: number | null;
  readonly lastEventAt: Date | null;
  /** Bytes of payloads that arrived over HTTP: ever, and today (UTC). Counted some seconds late. */
  readonly bytes: number;
  readonly bytesToday: number;
  readonly limits: Omit<AppLimits, 'appId'>;
  /** Requests that were refused in the last hour, by code, and events that were refused inside of accepted requests. */
  readonly refused: Readonly<Record<string, number>>;
  readonly refusedEvents: Readonly<Record<string, number>>;
}

/** All apps, in order of creation: five statements, whatever their number. */
export async function listAppOverviews(
  sql: Sql,
  reader: EventReader,
  settings: LimitSettings,
  now: number,
): Promise<readonly AppOverview[]> {
  const today = new Date(Math.floor(now / DAY_MS) * DAY_MS);
  const apps = await listApps(sql);
  const used = await sql<
    (OwnLimits & { appId: string; id: number; suspendedAt: Date | null; bytes: number; bytesToday: number })[]
  >`
    SELECT public_id AS "appId", apps.id, suspended_at AS "suspendedAt", create_per_minute AS "createPerMinute", bytes_per_day::float8 AS "bytesPerDay", types,
           coalesce(sum(bytes), 0)::float8 AS bytes,
           coalesce(sum(bytes) FILTER (WHERE day = (${today}::timestamptz AT TIME ZONE 'UTC')::date), 0)::float8 AS "bytesToday"
      FROM apps LEFT JOIN app_limits ON app_limits.app_id = apps.id LEFT JOIN usage_days ON usage_days.app_id = apps.id
     WHERE removed_at IS NULL
     GROUP BY apps.id, app_limits.app_id`;
  const refusals = await sql<{ id: number; code: string; requests: number }[]>`
    SELECT app_id AS id, code, sum(requests)::float8 AS requests FROM app_requests
     WHERE code <> '' AND minute > ${new Date(now - HOUR_MS)}
     GROUP BY 1, 2 ORDER BY requests DESC, code`;
  const stats = await reader.appStats(
    used.map(({ id }) => id),
    { timezone: 'UTC', now },
  );
  const known = new Map(used.map((row) => [row.appId, row]));
  return apps.flatMap((app) => {
    const row = known.get(app.appId);
    if (row === undefined) return []; // It was removed since the list was read.
    const { id, suspendedAt, bytes, bytesToday, createPerMinute, bytesPerDay, types } = row;
    const { appId: _, ...limits } = limitsOf(settings, app.appId, { createPerMinute, bytesPerDay, types });
    const codes = refusals.filter((one) => one.id === id);
    const ofEvents = codes.filter(({ code }) => code.startsWith(EVENT_PREFIX));
    return {
      ...app,
      suspendedAt,
      events: stats.get(id)?.total ?? null,
      lastEventAt: stats.get(id)?.lastEventAt ?? null,
      ...{ bytes, bytesToday, limits },
      refused: Object.fromEntries(
        codes.filter((one) => !ofEvents.includes(one)).map(({ code, requests }) => [code, requests]),
      ),
      refusedEvents: Object.fromEntries(
        ofEvents.map(({ code, requests }) => [code.slice(EVENT_PREFIX.length), requests]),
      ),
    };
  });
}
