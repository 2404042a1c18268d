/** Resolves a logging token to its app, from memory for all but the first request of a token. */

import { ownText } from '../base/own-text.ts';
import { digestOf, formProblem, isWellFormed } from '../base/token-text.ts';
import { type BatchedCache, cacheOfKeys, type LookupQueue } from '../cache/batched-lookup.ts';
import type { CacheStats, LookupOptions } from '../cache/lookup-cache.ts';
import { Rejection } from '../errors.ts';
import { type AppAccounts, type FoundApp, foundApp, noteApps } from './app-accounts.ts';

export interface LoggingToken {
  readonly appId: number;
  /** The internal id of its producer; 0: the app's first one. */
  readonly producerId: number;
  /** Milliseconds since the Unix epoch: the end of a rotated token's grace period. */
  readonly expiresAt: number | null;
  /** Whether its app is in the bin. */
  readonly isRemoved: boolean;
  /** Whether the operator has suspended its app. */
  readonly isSuspended: boolean;
  /** Whether it ended because its producer was revoked. */
  readonly isRevoked: boolean;
}

export interface LoggingTokensOptions extends LookupOptions {
  /** Gets the account of each app whose token is looked up. */
  readonly accounts: AppAccounts;
  /** Milliseconds since 1970, by which tokens expire. */
  readonly judged?: () => number;
}

/** The refusal of a well-formed token that no app has. */
export const UNKNOWN_TOKEN = new Rejection(
  'invalidLoggingToken',
  'No app here has this logging token: it may be from another server, or have been replaced.',
);

/** Built once each: requests without a valid token must cost little. */
const MALFORMED = new Map<string, Rejection>();

/** The refusal of a text that is no well-formed token. @param token its beginning is enough */
export function malformedToken(token: string): Rejection {
  if (isWellFormed(token, 'tdl')) return UNKNOWN_TOKEN;
  // There are as many as lengths of tokens that are cut off, and four more.
  const details = formProblem(token, 'tdl');
  const known = MALFORMED.get(details);
  if (known !== undefined) return known;
  const refusal = new Rejection('invalidLoggingToken', details);
  MALFORMED.set(details, refusal);
  return refusal;
}

const ROTATED = new Rejection(
  'invalidLoggingToken',
  'The logging token was rotated and its grace period is over.',
);

const REVOKED = new Rejection(
  'invalidLoggingToken',
  "The logging token was revoked: its producer needs a new one, from the app's settings.",
);

const REMOVED = new Rejection('invalidLoggingToken', 'The app of this logging token was deleted.');

const SUSPENDED = new Rejection(
  'invalidLoggingToken',
  'The operator of this service has suspended the app of this logging token.',
);

const MAX_TOKENS = 50_000;

export class LoggingTokens {
  readonly #cache: BatchedCache<LoggingToken>;
  readonly #now: () => number;

  constructor(options: LoggingTokensOptions) {
    this.#now = options.judged ?? options.now;
    // The check characters are public: clients can make up valid-looking tokens, which only the database can reject.
    this.#cache = cacheOfKeys((tokens) => loadTokens(options, tokens), MAX_TOKENS, options);
  }

  /** The internal id of the token's app. */
  async appOf(token: string): Promise<number | Rejection> {
    const writer = await this.writerOf(token);
    return writer instanceof Rejection ? writer : writer.appId;
  }

  /**
   * The app and the producer of a token, synchronously if they are cached. Malformed tokens fail the check characters, without
   * a query.
   */
  writerOf(token: string): LoggingToken | Rejection | Promise<LoggingToken | Rejection> {
    const known = this.#cache.peek(token);
    if (known !== undefined) return this.#judge(known);
    if (!isWellFormed(token, 'tdl')) return malformedToken(token);
    // Copy the key: a slice would keep the whole request body in memory.
    const found = this.#cache.get(ownText(token));
    return found instanceof Promise ? found.then((token) => this.#judge(token)) : this.#judge(found);
  }

  #judge(found: LoggingToken | null): LoggingToken | Rejection {
    if (found === null) return UNKNOWN_TOKEN;
    if (found.isRemoved) return REMOVED;
    if (found.isSuspended) return SUSPENDED;
    if (found.expiresAt === null || found.expiresAt > this.#now()) return found;
    return found.isRevoked ? REVOKED : ROTATED;
  }

  get caches(): readonly CacheStats[] {
    return [this.#cache];
  }

  get queues(): Readonly<Record<'logging_tokens', readonly LookupQueue[]>> {
    return { logging_tokens: [this.#cache.queue] };
  }

  /** Drops all cached tokens after a change. */
  dropAll(): void {
    this.#cache.dropAll();
  }

  /** Invalidates all cached tokens: change notifications may have been missed. */
  invalidateAll(): void {
    this.#cache.invalidateAll();
  }
}

async function loadTokens(
  { accounts, sql, now }: LoggingTokensOptions,
  tokens: readonly string[],
): Promise<ReadonlyMap<string, LoggingToken>> {
  const tokensByDigest = new Map(tokens.map((token) => [digestOf(token).toString('hex'), token]));
  const askedAt = now();
  const rows = await sql<
    (Omit<LoggingToken, 'expiresAt'> & FoundApp & { digest: string; expiresAt: Date | null })[]
  >`
    SELECT encode(digest, 'hex') AS digest, app_id AS "appId", expires_at AS "expiresAt",
           coalesce(producer_id, 0) AS "producerId", revoked_from IS NOT NULL AS "isRevoked",
           EXISTS (SELECT FROM apps WHERE apps.id = app_id AND removed_at IS NOT NULL) AS "isRemoved",
           EXISTS (SELECT FROM apps WHERE apps.id = app_id AND suspended_at IS NOT NULL) AS "isSuspended",
           ${foundApp(sql, 'logging_tokens.app_id')}
      FROM logging_tokens
     WHERE digest IN (SELECT decode(hex, 'hex') FROM unnest(${[...tokensByDigest.keys()]}::text[]) AS hex)`;
  await noteApps(sql, accounts, rows, askedAt);
  return new Map(
    rows.map(({ digest, appId, producerId, isRevoked, isRemoved, isSuspended, expiresAt }) => [
      tokensByDigest.get(digest) ?? '',
      { appId, producerId, isRevoked, isRemoved, isSuspended, expiresAt: expiresAt?.getTime() ?? null },
    ]),
  );
}
