/** What lookups of tokens have found of apps: their account, which is the outer holder of their turns, and their limits. */
import { LRUCache } from 'lru-cache';
import { DAY_MS } from '../base/time-units.ts';
import type { Path } from '../base/turns.ts';
import { atMost } from '../cache/lookup-cache.ts';
import type { Sql } from '../storage/database/connect.ts';
import { KnownLimits, type OwnLimits } from './app-limits.ts';

/** More than the tokens that are cached; an app that is forgotten is an account of its own until its token is looked up again. */
const MAX_APPS = 100_000;

/**
 * Owners of apps as the last lookup of a token has found them, so that turns cost no lookup. They may be out of date by as much as
 * a cached token: that changes whose turn it is, never what is allowed.
 */
export class AppAccounts {
  readonly limits = new KnownLimits();
  readonly #paths = new LRUCache<number, Path>(atMost(MAX_APPS));

  /** @param accountId internal id of the app's owner; null if it has none: then it is an account of its own */
  note(appId: number, accountId: number | null): void {
    const path = holderOf(appId, accountId);
    if (this.#paths.get(appId)?.[0] !== path[0]) this.#paths.set(appId, path);
  }

  /** The holder of an app's work: its account, then the app. */
  holderOf(appId: number): Path {
    return this.#paths.get(appId) ?? holderOf(appId, null);
  }
}

function holderOf(appId: number, accountId: number | null): Path {
  return [accountId ?? `app ${appId}`, appId];
}

/** What a lookup of tokens finds of the app of each. */
export interface FoundApp {
  readonly appId: number;
  /** Null: it has no owner. */
  readonly accountId: number | null;
  /** Null: it has none of its own. */
  readonly limits: OwnLimits | null;
}

/** The columns of {@link FoundApp} but for its id. @param appId the column of that */
export function foundApp(sql: Sql, appId: string) {
  return sql`
    (SELECT min(user_id) FROM app_members WHERE app_members.app_id = ${sql(appId)} AND role = 'owner') AS "accountId",
    (SELECT json_build_object('createPerMinute', create_per_minute, 'bytesPerDay', bytes_per_day, 'types', types)
       FROM app_limits WHERE app_limits.app_id = ${sql(appId)}) AS limits`;
}

/** Has the write path know what a lookup of tokens has found. */
export async function noteApps(
  sql: Sql,
  accounts: AppAccounts,
  found: readonly FoundApp[],
  now: number,
): Promise<void> {
  for (const { appId, accountId } of found) accounts.note(appId, accountId);
  const day = Math.floor(now / DAY_MS);
  const limited = found.filter(({ limits }) => limits !== null && limits.bytesPerDay !== null);
  // Apps without a limit do not depend on what was counted.
  const used =
    limited.length === 0
      ? []
      : await sql<{ appId: number; bytes: number }[]>`
          SELECT app_id AS "appId", bytes::float8 AS bytes FROM usage_days
           WHERE app_id = ANY(${limited.map(({ appId }) => appId)}::integer[])
             AND day = (${new Date(now)}::timestamptz AT TIME ZONE 'UTC')::date`;
  const bytes = new Map(used.map((row) => [row.appId, row.bytes]));
  for (const { appId, limits } of found)
    accounts.limits.note(appId, limits, { day, bytes: bytes.get(appId) ?? 0 });
}
