/** Resolves `Authorization: Bearer tdr_…` to the apps that the token may read. */
import { LRUCache } from 'lru-cache';
import { digestOf, formProblem, isWellFormed } from '../base/token-text.ts';
import type { Path } from '../base/turns.ts';
import { type BatchedCache, cacheOfKeys, type LookupQueue } from '../cache/batched-lookup.ts';
import { atMost, type CacheStats, type LookupOptions } from '../cache/lookup-cache.ts';
import { Rejection } from '../errors.ts';
import { ASK_FOR_BEARER, bearerToken } from '../http/bearer.ts';
import type { Sql } from '../storage/database/connect.ts';

/** A token as stored, valid or not. */
export interface ResourceToken {
  readonly tokenId: number;
  /** Whose turns its reads take: its creator's account, else the owner's of its first app; then its own. */
  readonly holder: Path;
  /** The apps that it may read: public id → internal id. */
  readonly apps: ReadonlyMap<string, number>;
  /** Public ids of apps that it may read again when the operator resumes them. */
  readonly suspendedApps: ReadonlySet<string>;
  /** Whether the account that made it is suspended. */
  readonly isSuspended: boolean;
  /** Milliseconds since the Unix epoch; null: does not expire. */
  readonly expiresAt: number | null;
  readonly revoked: boolean;
}

export interface ResourceTokensOptions extends LookupOptions {
  /** Milliseconds since 1970, by which tokens expire. */
  readonly judged?: () => number;
  /** Receives failures to write a token's last use. They fail no request. */
  readonly onError: (error: unknown) => void;
}

const MAX_TOKENS = 10_000;

/** Shortest interval between writes of a token's last use. */
const LAST_USED_EVERY_MS = 60_000;

const MISSING = 'Send the resource token as "Authorization: Bearer <RESOURCE_TOKEN>".';
const UNKNOWN = 'There is no such resource token here: it may be from another server.';
const REVOKED = 'The resource token was revoked.';
const EXPIRED = 'The resource token has expired.';
const SUSPENDED = 'The operator of this service has suspended the account that made the resource token.';

export class ResourceTokens {
  readonly #options: ResourceTokensOptions;
  /** By hexadecimal digest: the token's text is not kept in memory. */
  readonly #tokens: BatchedCache<ResourceToken>;
  /** Token id → time of the last write of its last use by this process. */
  readonly #lastWrites = new LRUCache<number, number>(atMost(MAX_TOKENS));
  readonly #writing = new Set<Promise<void>>();

  constructor(options: ResourceTokensOptions) {
    this.#options = options;
    this.#tokens = cacheOfKeys((digests) => findTokens(options.sql, digests), MAX_TOKENS, options);
  }

  /**
   * @param authorization the request's Authorization header; empty if absent
   * @returns a valid token, or the 401
   */
  async authenticate(authorization: string): Promise<ResourceToken | Rejection> {
    const text = bearerToken(authorization);
    if (text === null) return refuse(MISSING);
    if (!isWellFormed(text, 'tdr')) return refuse(formProblem(text, 'tdr'));
    const token = await this.#tokens.get(digestOf(text).toString('hex'));
    if (token === null) return refuse(UNKNOWN);
    if (token.revoked) return refuse(REVOKED);
    if (token.isSuspended) return refuse(SUSPENDED);
    const { now, judged = now } = this.#options;
    if (token.expiresAt !== null && token.expiresAt <= judged()) return refuse(EXPIRED);
    this.#noteUse(token.tokenId, now());
    return token;
  }

  get caches(): readonly CacheStats[] {
    return [this.#tokens];
  }

  get queues(): Readonly<Record<'resource_tokens', readonly LookupQueue[]>> {
    return { resource_tokens: [this.#tokens.queue] };
  }

  /** Drops all cached tokens after a change of a token or of an app. */
  dropAll(): void {
    this.#tokens.dropAll();
  }

  /** Resolves when no write of a last use is pending. */
  async idle(): Promise<void> {
    while (this.#writing.size > 0) await Promise.all(this.#writing);
  }

  /** Starts to write the token's last use if it is due. No request waits for it. */
  #noteUse(tokenId: number, now: number): void {
    const last = this.#lastWrites.get(tokenId);
    if (last !== undefined && Math.abs(now - last) < LAST_USED_EVERY_MS) return;
    // Also after a failure: requests must not add load to a database in trouble.
    this.#lastWrites.set(tokenId, now);
    const writing = writeLastUse(this.#options.sql, tokenId, now)
      .catch(this.#options.onError)
      .finally(() => this.#writing.delete(writing));
    this.#writing.add(writing);
  }
}

function refuse(details: string): Rejection {
  return new Rejection('invalidResourceToken', details, { headers: ASK_FOR_BEARER });
}

/** @param digests hexadecimal */
async function findTokens(sql: Sql, digests: readonly string[]): Promise<ReadonlyMap<string, ResourceToken>> {
  const rows = await sql<
    {
      digest: string;
      tokenId: number;
      accountId: number | null;
      expiresAt: number | null;
      revoked: boolean;
      isSuspended: boolean;
      apps: [string, number, boolean][];
    }[]
  >`
    SELECT encode(digest, 'hex') AS digest, id AS "tokenId",
           coalesce(created_by, (SELECT min(user_id)
                                   FROM resource_token_apps JOIN app_members USING (app_id)
                                  WHERE token_id = resource_tokens.id AND role = 'owner')) AS "accountId",
           (extract(epoch FROM expires_at) * 1000)::float8 AS "expiresAt", revoked_at IS NOT NULL AS revoked,
           EXISTS (SELECT FROM users WHERE users.id = created_by AND suspended_at IS NOT NULL) AS "isSuspended",
           (SELECT coalesce(json_agg(json_build_array(apps.public_id, apps.id, apps.suspended_at IS NOT NULL)), '[]')
              FROM resource_token_apps JOIN apps ON apps.id = app_id
             WHERE token_id = resource_tokens.id
               -- What its creator may read by a group alone, while the issuer has ended the sessions of that account.
               AND NOT EXISTS (SELECT FROM group_grants AS suspended
                                WHERE suspended.app_id = apps.id AND suspended.user_id = resource_tokens.created_by
                                  AND suspended.suspended AND suspended.own_role IS NULL)) AS apps
      FROM resource_tokens
     WHERE digest IN (SELECT decode(hex, 'hex') FROM unnest(${[...digests]}::text[]) AS hex)`;
  return new Map(
    rows.map(({ digest, accountId, apps, ...token }) => [
      digest,
      {
        ...token,
        holder: [accountId ?? `token ${token.tokenId}`, token.tokenId],
        apps: new Map(apps.flatMap(([appId, id, isSuspended]) => (isSuspended ? [] : [[appId, id]]))),
        suspendedApps: new Set(apps.flatMap(([appId, , isSuspended]) => (isSuspended ? [appId] : []))),
      },
    ]),
  );
}

/** Other processes write it too: the condition limits all of them to one write a minute. */
async function writeLastUse(sql: Sql, tokenId: number, now: number): Promise<void> {
  await sql`
    UPDATE resource_tokens SET last_used_at = ${now}
     WHERE id = ${tokenId} AND (last_used_at IS NULL OR last_used_at <= ${now - LAST_USED_EVERY_MS})`;
}
