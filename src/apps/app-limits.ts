/** Limits of single apps, above or below those of the settings: how they are set, and what the write path knows of them. */

import { LRUCache } from 'lru-cache';
import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import { internalAppId, lockAppOf } from '../accounts/people/members.ts';
import type { AppLimits, LimitValues } from '../api-types/answers.ts';
import { atMost } from '../cache/lookup-cache.ts';
import type { Config } from '../config.ts';
import { refused } from '../errors.ts';
import type { Sql, Transaction } from '../storage/database/connect.ts';

/** Null: the app has none of its own, so that the setting applies. */
export type OwnLimits = LimitValues;

/** What limits of apps are measured by; 0: none. */
export type LimitSettings = Pick<
  Config,
  | 'CREATE_LIMIT_PER_MINUTE'
  | 'MAX_APP_BYTES_PER_DAY'
  | 'MAX_APP_CREATE_PER_MINUTE'
  | 'MAX_EVENT_TYPES_PER_APP'
>;

const NO_LIMITS: OwnLimits = { createPerMinute: null, bytesPerDay: null, types: null };

/** Each limit with what it is called in refusals, and the setting that bounds it. */
const BOUNDS = {
  createPerMinute: ['requests per minute', 'MAX_APP_CREATE_PER_MINUTE'],
  bytesPerDay: ['bytes per day', 'MAX_APP_BYTES_PER_DAY'],
  types: ['event types', 'MAX_EVENT_TYPES_PER_APP'],
} as const;

/** PostgreSQL's integer; bytes are a bigint, of which JavaScript is exact up to 2^53. */
const LARGEST = {
  createPerMinute: 2_147_483_647,
  bytesPerDay: Number.MAX_SAFE_INTEGER,
  types: 2_147_483_647,
};

/**
 * Sets limits of an app; those that are not named stay. Every process keeps them from a moment after the commit on.
 * @param change.limits null: the default again
 * @throws Refused invalidBody for a limit that is not a whole number or beyond the operator's bound, appNotFound
 */
export async function setAppLimits(
  sql: Sql,
  settings: LimitSettings,
  change: { readonly appId: string; readonly limits: Partial<OwnLimits>; readonly by?: Actor },
): Promise<AppLimits> {
  const { appId, limits, by = COMMAND_LINE } = change;
  for (const name of LIMIT_NAMES) checkLimit(settings, name, limits[name] ?? null);
  const own = await sql.begin('isolation level read committed', async (tx) => {
    // As for a new type, so that no type is made by an older limit afterwards.
    const id = await lockAppOf(tx, appId);
    const [before = NO_LIMITS] = await tx<OwnLimits[]>`${selectOwn(tx, id)}`;
    const after = { ...before, ...limits };
    await tx`
      INSERT INTO app_limits (app_id, create_per_minute, bytes_per_day, types)
      VALUES (${id}, ${after.createPerMinute}, ${after.bytesPerDay}, ${after.types})
      ON CONFLICT (app_id) DO UPDATE
         SET create_per_minute = excluded.create_per_minute, bytes_per_day = excluded.bytes_per_day, types = excluded.types`;
    await writeAudit(tx, { appId: id, by, action: 'app.limit', details: { ...after } });
    return after;
  });
  return limitsOf(settings, appId, own);
}

/**
 * The limits of an app.
 * @throws Refused appNotFound
 */
export async function readAppLimits(sql: Sql, settings: LimitSettings, appId: string): Promise<AppLimits> {
  const id = await internalAppId(sql, appId);
  const [own = NO_LIMITS] = await sql<OwnLimits[]>`${selectOwn(sql, id)}`;
  return limitsOf(settings, appId, own);
}

export const LIMIT_NAMES = ['createPerMinute', 'bytesPerDay', 'types'] as const;

function selectOwn(sql: Sql | Transaction, appId: number) {
  return sql`SELECT ${ownColumns(sql)} FROM app_limits WHERE app_id = ${appId}`;
}

function ownColumns(sql: Sql | Transaction) {
  return sql`create_per_minute AS "createPerMinute", bytes_per_day::float8 AS "bytesPerDay", types`;
}

/** The limits that hold for an app with these of its own. */
export function limitsOf(settings: LimitSettings, appId: string, own: OwnLimits): AppLimits {
  const { createPerMinute, bytesPerDay, types } = own;
  return {
    appId,
    createPerMinute: createPerMinute ?? numberOrNone(settings.CREATE_LIMIT_PER_MINUTE),
    bytesPerDay,
    types: Math.min(types ?? settings.MAX_EVENT_TYPES_PER_APP, settings.MAX_EVENT_TYPES_PER_APP),
    own: { createPerMinute, bytesPerDay, types },
    highest: {
      createPerMinute: numberOrNone(settings.MAX_APP_CREATE_PER_MINUTE),
      bytesPerDay: numberOrNone(settings.MAX_APP_BYTES_PER_DAY),
      types: settings.MAX_EVENT_TYPES_PER_APP,
    },
  };
}

function numberOrNone(setting: number): number | null {
  return setting === 0 ? null : setting;
}

function checkLimit(settings: LimitSettings, name: (typeof LIMIT_NAMES)[number], limit: number | null): void {
  if (limit === null) return;
  const [what, setting] = BOUNDS[name];
  const bound = settings[setting];
  const highest = bound === 0 ? LARGEST[name] : bound;
  if (Number.isInteger(limit) && limit >= 1 && limit <= highest) return;
  const named = bound === 0 ? '' : ` (${setting})`;
  throw refused(
    'invalidBody',
    `the limit of ${what} must be a whole number from 1 to ${highest}${named}, not ${limit}`,
  );
}

interface UsedBytes {
  /** Number since 1970 (UTC). */
  readonly day: number;
  readonly bytes: number;
}

/** More than the tokens that are cached. */
const MAX_APPS = 100_000;

/**
 * Limits of apps as the last lookup of a token has found them, so that a request costs no lookup of its own. A change of limits
 * drops all cached tokens, in every process: the next request of the app finds the new ones.
 */
export class KnownLimits {
  readonly #limits = new LRUCache<number, OwnLimits & { readonly used: UsedBytes }>(atMost(MAX_APPS));

  /** @param limits null: the app has none of its own @param used what the database had counted at the lookup */
  note(appId: number, limits: OwnLimits | null, used: UsedBytes): void {
    if (limits !== null) this.#limits.set(appId, { ...limits, used });
    else if (this.#limits.size > 0) this.#limits.delete(appId);
  }

  /** The app's own limit; null: it has none. */
  of(appId: number, name: keyof OwnLimits): number | null {
    return this.#limits.size === 0 ? null : (this.#limits.get(appId)?.[name] ?? null);
  }

  /** Bytes of payloads that the database had counted on a day (its number since 1970) at the last lookup. */
  usedBytes(appId: number, day: number): number {
    const used = this.#limits.get(appId)?.used;
    return used?.day === day ? used.bytes : 0;
  }
}
