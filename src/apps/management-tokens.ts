/** Management tokens, with which programs of the operator read and apply the configuration of the installation. */
import { COMMAND_LINE, writeInstallationAudit } from '../accounts/log/audit.ts';
import type { ResourceToken } from '../api-types/answers.ts';
import { createPublicId, createTokenText, digestOf, formProblem, isWellFormed } from '../base/token-text.ts';
import { BatchedLookup, type LookupQueue, UNKNOWN_KEYS_DELAY_MS } from '../cache/batched-lookup.ts';
import { Rejection, refused, tokenNotFound } from '../errors.ts';
import { ASK_FOR_BEARER, bearerToken } from '../http/bearer.ts';
import type { Sql } from '../storage/database/connect.ts';
import { checkName } from './name.ts';

/** `read`: shows the configuration. `apply`: changes it, too. */
export const MANAGEMENT_SCOPES = ['read', 'apply'] as const;
export type ManagementScope = (typeof MANAGEMENT_SCOPES)[number];

export interface ListedManagementToken
  extends Pick<ResourceToken<Date>, 'tokenId' | 'name' | 'createdAt' | 'revokedAt' | 'lastUsedAt'> {
  readonly scope: ManagementScope;
  readonly expiresAt: Date;
}

/** A valid token of a request. */
export interface ManagementToken {
  readonly id: number;
  readonly name: string;
  readonly scope: ManagementScope;
}

interface StoredToken extends ManagementToken {
  readonly expiresAt: Date;
  readonly revokedAt: Date | null;
}

/** Ten years: a token with such access must end. */
const LONGEST_SECONDS = 10 * 366 * 86_400;

/**
 * Creates a management token. Its text is returned only here.
 * @throws Refused invalidBody
 */
export async function createManagementToken(
  sql: Sql,
  token: { name: string; scope: ManagementScope; expiresInSeconds: number },
): Promise<{
  tokenId: string;
  managementToken: string;
  name: string;
  scope: ManagementScope;
  expiresAt: Date;
}> {
  const { name, scope, expiresInSeconds } = token;
  checkName(name);
  if (expiresInSeconds <= 0 || expiresInSeconds > LONGEST_SECONDS)
    throw refused(
      'invalidBody',
      'a management token must expire after at least a second and at most 10 years',
    );
  const tokenId = createPublicId('tok');
  const managementToken = createTokenText('tdm');
  return await sql.begin('isolation level read committed', async (tx) => {
    const [made] = await tx<[{ expiresAt: Date }]>`
      INSERT INTO management_tokens (public_id, digest, name, scope, expires_at)
      VALUES (${tokenId}, ${digestOf(managementToken)}, ${name}, ${scope}, now() + make_interval(secs => ${expiresInSeconds}))
      RETURNING expires_at AS "expiresAt"`;
    const details = { tokenId, name, scope };
    await writeInstallationAudit(tx, { by: COMMAND_LINE, action: 'management-token.create', details });
    return { tokenId, managementToken, name, scope, expiresAt: made.expiresAt };
  });
}

/** All management tokens, ended ones included, in order of creation. */
export async function listManagementTokens(sql: Sql): Promise<ListedManagementToken[]> {
  return await sql<ListedManagementToken[]>`
    SELECT public_id AS "tokenId", name, scope, created_at AS "createdAt", expires_at AS "expiresAt",
           revoked_at AS "revokedAt", last_used_at AS "lastUsedAt"
      FROM management_tokens ORDER BY id`;
}

/** Revokes a management token; the first time is kept. @returns null if there is none with this id */
export async function revokeManagementToken(
  sql: Sql,
  tokenId: string,
): Promise<{ tokenId: string; revokedAt: Date } | null> {
  return await sql.begin('isolation level read committed', async (tx) => {
    const [token] = await tx<{ id: number; name: string; revokedAt: Date | null }[]>`
      SELECT id, name, revoked_at AS "revokedAt" FROM management_tokens WHERE public_id = ${tokenId} FOR UPDATE`;
    if (token === undefined) return null;
    if (token.revokedAt !== null) return { tokenId, revokedAt: token.revokedAt };
    const [revoked] = await tx<{ revokedAt: Date }[]>`
      UPDATE management_tokens SET revoked_at = now() WHERE id = ${token.id} RETURNING revoked_at AS "revokedAt"`;
    if (revoked === undefined) throw tokenNotFound(tokenId, 'management token');
    const details = { tokenId, name: token.name };
    await writeInstallationAudit(tx, { by: COMMAND_LINE, action: 'management-token.revoke', details });
    return { tokenId, revokedAt: revoked.revokedAt };
  });
}

export interface ManagementTokensOptions {
  readonly sql: Sql;
  readonly now: () => number;
}

/** Finds the token of a request: in the database each time, so that a revocation holds at once in every process. */
export class ManagementTokens {
  readonly #options: ManagementTokensOptions;
  readonly #lookup: BatchedLookup<StoredToken>;

  constructor(options: ManagementTokensOptions) {
    this.#options = options;
    this.#lookup = new BatchedLookup((digests) => findTokens(options.sql, digests), {
      pauseMs: UNKNOWN_KEYS_DELAY_MS,
    });
  }

  /** @param authorization the request's Authorization header @returns the valid token, or the 401 */
  async authenticate(authorization: string): Promise<ManagementToken | Rejection> {
    const text = bearerToken(authorization);
    if (text === null)
      return refuse('Send the management token as "Authorization: Bearer <MANAGEMENT_TOKEN>".');
    if (!isWellFormed(text, 'tdm')) return refuse(formProblem(text, 'tdm'));
    const token = await this.#lookup.get(digestOf(text).toString('hex'));
    if (token === null)
      return refuse('There is no such management token here: it may be from another server.');
    if (token.revokedAt !== null) return refuse('The management token was revoked.');
    const now = this.#options.now();
    if (token.expiresAt.getTime() <= now) return refuse('The management token has expired.');
    await this.#options.sql`
      UPDATE management_tokens SET last_used_at = ${now}
       WHERE id = ${token.id} AND (last_used_at IS NULL OR last_used_at <= ${now - 60_000})`;
    return token;
  }

  get queue(): LookupQueue {
    return this.#lookup.queue;
  }
}

function refuse(details: string): Rejection {
  return new Rejection('invalidManagementToken', details, { headers: ASK_FOR_BEARER });
}

/** @param digests hexadecimal */
async function findTokens(sql: Sql, digests: readonly string[]): Promise<ReadonlyMap<string, StoredToken>> {
  const rows = await sql<(StoredToken & { digest: string })[]>`
    SELECT encode(digest, 'hex') AS digest, id, name, scope, expires_at AS "expiresAt", revoked_at AS "revokedAt"
      FROM management_tokens
     WHERE digest IN (SELECT decode(hex, 'hex') FROM unnest(${[...digests]}::text[]) AS hex)`;
  return new Map(rows.map(({ digest, ...token }) => [digest, token]));
}
