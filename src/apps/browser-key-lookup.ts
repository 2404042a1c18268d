/** Resolves a browser key to its app, types and origins, from memory for all but the first request of a key. */

import { ownText } from '../base/own-text.ts';
import { digestOf, formProblem, isWellFormed } from '../base/token-text.ts';
import { type BatchedCache, cacheOfKeys, type LookupQueue } from '../cache/batched-lookup.ts';
import type { CacheStats } from '../cache/lookup-cache.ts';
import { Rejection } from '../errors.ts';
import type { Sql } from '../storage/database/connect.ts';
import { type FoundApp, foundApp, noteApps } from './app-accounts.ts';
import { LONGEST_ORIGIN } from './browser-keys.ts';
import type { LoggingTokensOptions } from './logging-token-lookup.ts';

/** What a valid key allows. */
export interface KnownKey {
  readonly id: number;
  readonly appId: number;
  readonly types: ReadonlySet<string>;
  /** As browsers send them. */
  readonly origins: ReadonlySet<string>;
  /** Whether the operator has suspended its app. */
  readonly isSuspended: boolean;
}

/** One refusal for a key that never was and for one that is revoked: its holder learns nothing else. */
const UNKNOWN_KEY = new Rejection(
  'invalidBrowserKey',
  'There is no such browser key: it may be from another server, or have been revoked.',
);

const SUSPENDED = new Rejection(
  'invalidBrowserKey',
  'The operator of this service has suspended the app of this browser key.',
);

const MAX_KEYS = 10_000;

export class BrowserKeys {
  readonly #cache: BatchedCache<KnownKey>;
  readonly #origins: BatchedCache<true>;

  constructor(options: LoggingTokensOptions) {
    // The check characters are public: clients can make up valid-looking keys, which only the database can reject.
    this.#cache = cacheOfKeys((keys) => loadKeys(options, keys), MAX_KEYS, options);
    this.#origins = cacheOfKeys((origins) => loadOrigins(options.sql, origins), MAX_KEYS, options);
  }

  /** Whether some key takes events from pages of an origin: what others send need not be read. A promise where that is not in memory. */
  takesFrom(origin: string): boolean | Promise<boolean> {
    if (origin === '' || origin.length > LONGEST_ORIGIN) return false;
    const found = this.#origins.peek(origin) ?? this.#origins.get(ownText(origin));
    return found instanceof Promise ? found.then((known) => known !== null) : found !== null;
  }

  /** A valid key. Malformed ones fail the check characters, without a query. */
  async find(text: string): Promise<KnownKey | Rejection> {
    const known = this.#cache.peek(text);
    if (known !== undefined) return judge(known);
    if (!isWellFormed(text, 'tdb')) return new Rejection('invalidBrowserKey', formProblem(text, 'tdb'));
    // Copy the key: a slice would keep the whole request body in memory.
    return judge(await this.#cache.get(ownText(text)));
  }

  get caches(): readonly CacheStats[] {
    return [this.#cache, this.#origins];
  }

  get queues(): Readonly<Record<'browser_keys', readonly LookupQueue[]>> {
    return { browser_keys: [this.#cache.queue, this.#origins.queue] };
  }

  /** Drops all cached keys after a change. */
  dropAll(): void {
    this.#cache.dropAll();
    this.#origins.dropAll();
  }

  /** Invalidates all cached keys: change notifications may have been missed. */
  invalidateAll(): void {
    this.#cache.invalidateAll();
    this.#origins.invalidateAll();
  }
}

function judge(found: KnownKey | null): KnownKey | Rejection {
  if (found === null) return UNKNOWN_KEY;
  return found.isSuspended ? SUSPENDED : found;
}

async function loadOrigins(sql: Sql, origins: readonly string[]): Promise<ReadonlyMap<string, true>> {
  const rows = await sql<{ origin: string }[]>`
    SELECT origin FROM unnest(${[...origins]}::text[]) AS origin
     WHERE EXISTS (SELECT FROM browser_keys WHERE revoked_at IS NULL AND origin = ANY(origins))`;
  return new Map(rows.map(({ origin }) => [origin, true]));
}

async function loadKeys(
  { accounts, sql, now }: LoggingTokensOptions,
  keys: readonly string[],
): Promise<ReadonlyMap<string, KnownKey>> {
  const byDigest = new Map(keys.map((key) => [digestOf(key).toString('hex'), key]));
  const askedAt = now();
  const rows = await sql<
    (Pick<KnownKey, 'id' | 'isSuspended'> &
      FoundApp & { digest: string; types: string[]; origins: string[] })[]
  >`
    SELECT encode(digest, 'hex') AS digest, id, app_id AS "appId", types, origins,
           EXISTS (SELECT FROM apps WHERE apps.id = app_id AND suspended_at IS NOT NULL) AS "isSuspended",
           ${foundApp(sql, 'browser_keys.app_id')}
      FROM browser_keys
     WHERE revoked_at IS NULL
       AND NOT EXISTS (SELECT FROM apps WHERE apps.id = app_id AND removed_at IS NOT NULL)
       AND digest IN (SELECT decode(hex, 'hex') FROM unnest(${[...byDigest.keys()]}::text[]) AS hex)`;
  await noteApps(sql, accounts, rows, askedAt);
  return new Map(
    rows.map(({ digest, id, appId, types, origins, isSuspended }) => [
      byDigest.get(digest) ?? '',
      { id, appId, types: new Set(types), origins: new Set(origins), isSuspended },
    ]),
  );
}
