/** Resource tokens, with which clients read the events of one or more apps. */

import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import { holdMaintained } from '../accounts/people/members.ts';
import { lockUser } from '../accounts/people/users.ts';
import type { MemberRemoval, ResourceToken as ShownToken } from '../api-types/answers.ts';
import { rolesThat } from '../base/roles.ts';
import { createPublicId, createTokenText, digestOf } from '../base/token-text.ts';
import { appNotFound, refused, tokenNotFound } from '../errors.ts';
import { countRows, type Sql, type Transaction } from '../storage/database/connect.ts';
import { judgedTime } from '../storage/maintenance/time-judge.ts';
import { checkName } from './name.ts';
import { restorableUntil, withoutNull } from './revocation.ts';

/** A resource token in a list. Only a digest of its text is stored. */
export type ResourceToken = ShownToken<Date>;

/** Revoked and expired tokens of an account that stay in lists; the earliest ended are removed. */
const MAX_ENDED = 100;

/** Who revoked a token, where that is not one account. */
const SEVERAL = 0;

/** 100 years: dates keep four-digit years. */
const LONGEST_SECONDS = 100 * 366 * 86_400;

/**
 * Creates a resource token. Its text is returned only here.
 * @param token.appIds            public ids, at least one; duplicates count once; a signed-in creator must be a member of each
 * @param token.expiresInSeconds  null: it does not expire
 * @param token.maxTokens         how many valid tokens a signed-in creator may have; 0 for no limit
 * @throws Refused invalidBody, appNotFound, tooManyTokens
 */
export async function createResourceToken(
  sql: Sql,
  token: {
    name: string;
    appIds: readonly string[];
    expiresInSeconds: number | null;
    maxTokens?: number;
    by?: Actor;
  },
): Promise<{
  tokenId: string;
  name: string;
  resourceToken: string;
  expiresAt: Date | null;
  appIds: string[];
}> {
  const { name, expiresInSeconds, maxTokens = 0, by = COMMAND_LINE } = token;
  checkName(name);
  checkExpiry(expiresInSeconds);
  const appIds = [...new Set(token.appIds)];
  if (appIds.length === 0) throw refused('invalidBody', 'a resource token needs at least one app to read');
  const tokenId = createPublicId('tok');
  const resourceToken = createTokenText('tdr');
  const userId = by === 'command line' ? null : by.userId;
  return await sql.begin('isolation level read committed', async (tx) => {
    if (userId !== null) {
      await lockUser(tx, userId);
      await checkRoom(tx, userId, maxTokens);
      await removeEnded(tx, userId);
    }
    const apps = await tx<{ id: number; publicId: string }[]>`
      SELECT id, public_id AS "publicId" FROM apps WHERE public_id = ANY(${appIds}) FOR KEY SHARE`;
    const missing = appIds.find((appId) => !apps.some(({ publicId }) => publicId === appId));
    if (missing !== undefined) throw appNotFound(missing);
    if (userId !== null) await checkMember(tx, userId, apps);
    const [made] = await tx<[{ id: number; expiresAt: Date | null }]>`
      INSERT INTO resource_tokens (public_id, digest, name, expires_at, created_by)
      VALUES (${tokenId}, ${digestOf(resourceToken)}, ${name}, now() + make_interval(secs => ${expiresInSeconds}), ${userId})
      RETURNING id, expires_at AS "expiresAt"`;
    await tx`
      INSERT INTO resource_token_apps (token_id, app_id)
      SELECT ${made.id}, unnest(${apps.map(({ id }) => id)}::int[])`;
    for (const { id: appId } of apps)
      await writeAudit(tx, { appId, by, action: 'resource-token.create', details: { tokenId, name } });
    return { tokenId, name, resourceToken, expiresAt: made.expiresAt, appIds };
  });
}

/**
 * Checks the number of valid tokens of an account, exactly after lockUser.
 * @throws Refused tooManyTokens
 */
async function checkRoom(tx: Transaction, userId: number, maxTokens: number): Promise<void> {
  const valid = tx`
    resource_tokens
     WHERE created_by = ${userId} AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ${judgedTime(tx)})`;
  if (maxTokens > 0 && (await countRows(tx, valid)) >= maxTokens)
    throw refused(
      'tooManyTokens',
      `an account may have ${maxTokens} valid resource tokens (MAX_TOKENS_PER_ACCOUNT): revoke one that is not needed`,
    );
}

/** Removes the earliest of the ended tokens of an account. */
async function removeEnded(tx: Transaction, userId: number): Promise<void> {
  await tx`
    DELETE FROM resource_tokens
     WHERE id IN (SELECT id FROM resource_tokens
                   WHERE created_by = ${userId} AND (revoked_at IS NOT NULL OR expires_at <= ${judgedTime(tx)})
                   ORDER BY least(revoked_at, expires_at) DESC, id DESC OFFSET ${MAX_ENDED}
                     FOR UPDATE SKIP LOCKED)`;
}

/**
 * All resource tokens, revoked and expired ones included, in order of creation.
 * @param appId internal id of an app: only tokens that may read it; null: all
 * @param by    who sees whether they can be restored
 */
export async function listResourceTokens(
  sql: Sql,
  appId: number | null = null,
  by: Actor = COMMAND_LINE,
): Promise<ResourceToken[]> {
  const rows = await sql<(Omit<ResourceToken, 'restorableUntil'> & { restorableUntil: Date | null })[]>`
      SELECT token.public_id    AS "tokenId",
             token.name,
             ARRAY(SELECT app.public_id
                     FROM resource_token_apps AS link JOIN apps AS app ON app.id = link.app_id AND app.removed_at IS NULL
                    WHERE link.token_id = token.id
                    ORDER BY app.id) AS "appIds",
             CASE WHEN maker.id IS NOT NULL
                  THEN json_build_object('userId', maker.public_id, 'email', maker.email) END AS "createdBy",
             token.created_at   AS "createdAt",
             token.expires_at   AS "expiresAt",
             token.revoked_at   AS "revokedAt",
             CASE WHEN token.revoked_by IS NOT NULL AND ${mayRestore(sql, by)}
                  THEN ${restorableUntil(sql, sql`token.revoked_at`)} END AS "restorableUntil",
             token.last_used_at AS "lastUsedAt"
        FROM resource_tokens AS token LEFT JOIN users AS maker ON maker.id = token.created_by
       WHERE ${appId}::integer IS NULL
          OR EXISTS (SELECT FROM resource_token_apps AS link WHERE link.token_id = token.id AND link.app_id = ${appId})
       ORDER BY token.id`;
  return rows.map(withoutNull);
}

/**
 * Whether somebody may restore a revoked `token`: who may create it, which takes a maintainer of all its apps, and who revoked
 * it. A maintainer of one of its apps does not give access to the others back that somebody else has ended.
 */
function mayRestore(sql: Sql | Transaction, by: Actor) {
  if (by === 'command line') return sql`true`;
  return sql`(token.revoked_by = ${by.userId} OR NOT EXISTS (
    SELECT FROM resource_token_apps AS link
     WHERE link.token_id = token.id
       AND NOT EXISTS (SELECT FROM app_members AS member
                        WHERE member.app_id = link.app_id AND member.user_id = ${by.userId} AND role = ANY(${rolesThat('change')}))))`;
}

const accountOf = (by: Actor): number => (by === 'command line' ? SEVERAL : (by.userId ?? SEVERAL));

/**
 * Revokes a resource token. Revoking it again keeps the first time; if another account does so, the first one alone cannot undo
 * it any more.
 * @param revocation.appId internal id of an app that the token must be for; null: any token
 * @throws Refused tokenNotFound
 */
export async function revokeResourceToken(
  sql: Sql,
  tokenId: string,
  revocation: { appId?: number | null; by?: Actor } = {},
): Promise<{ tokenId: string; revokedAt: Date }> {
  const { appId = null, by = COMMAND_LINE } = revocation;
  return await sql.begin('isolation level read committed', async (tx) => {
    const [token] = await tx<
      { id: number; name: string; revokedAt: Date | null; revokedBy: number | null; appIds: number[] }[]
    >`
      SELECT id, name, revoked_at AS "revokedAt", revoked_by AS "revokedBy",
             ARRAY(SELECT app_id FROM resource_token_apps WHERE token_id = token.id) AS "appIds"
        FROM resource_tokens AS token
       WHERE public_id = ${tokenId} FOR UPDATE`;
    if (token === undefined || (appId !== null && !token.appIds.includes(appId)))
      throw tokenNotFound(tokenId);
    if (token.revokedAt !== null) {
      if (token.revokedBy !== null && token.revokedBy !== accountOf(by))
        await tx`UPDATE resource_tokens SET revoked_by = ${SEVERAL} WHERE id = ${token.id}`;
      return { tokenId, revokedAt: token.revokedAt };
    }
    const [revoked] = await tx<[{ revokedAt: Date }]>`
      UPDATE resource_tokens SET revoked_at = now(), revoked_by = ${accountOf(by)} WHERE id = ${token.id} RETURNING revoked_at AS "revokedAt"`;
    for (const one of token.appIds) {
      const details = { tokenId, name: token.name };
      await writeAudit(tx, { appId: one, by, action: 'resource-token.revoke', details });
    }
    return { tokenId, revokedAt: revoked.revokedAt };
  });
}

/**
 * Undoes a revocation: the token is accepted again, for as long as it would have been. It counts again among those of its creator.
 * @param restoration.appId     internal id of an app that the token must be for; null: any token
 * @param restoration.maxTokens how many valid tokens its creator may have; 0 for no limit
 * @returns null if there is no such token that was revoked within a day, other than with its creator's membership
 * @throws Refused accessDenied, tooManyTokens
 */
export async function restoreResourceToken(
  sql: Sql,
  tokenId: string,
  restoration: { appId?: number | null; maxTokens?: number; by?: Actor } = {},
): Promise<{ tokenId: string; expiresAt: Date | null } | null> {
  const { appId = null, maxTokens = 0, by = COMMAND_LINE } = restoration;
  return await sql.begin('isolation level read committed', async (tx) => {
    const [found] = await tx<{ id: number; createdBy: number | null; appIds: number[] }[]>`
      SELECT id, created_by AS "createdBy",
             ARRAY(SELECT app_id FROM resource_token_apps WHERE token_id = token.id) AS "appIds"
        FROM resource_tokens AS token WHERE public_id = ${tokenId}`;
    if (found === undefined || (appId !== null && !found.appIds.includes(appId))) return null;
    // The order of these locks is that of a creation and of the end of a membership.
    if (found.createdBy !== null) await lockUser(tx, found.createdBy);
    if (by !== 'command line' && by.userId !== null) await holdMaintained(tx, by.userId, found.appIds);
    await tx`SELECT FROM resource_tokens WHERE id = ${found.id} FOR UPDATE`;
    // What was committed while this waited is seen by a statement of its own.
    const [token] = await tx<RestorableToken[]>`
      SELECT name, expires_at AS "expiresAt", coalesce(expires_at <= ${judgedTime(tx)}, false) AS "isExpired",
             ${mayRestore(tx, by)} AS "isAllowed",
             ARRAY(SELECT app_id FROM resource_token_apps WHERE token_id = token.id) AS "appIds"
        FROM resource_tokens AS token
       WHERE id = ${found.id} AND revoked_by IS NOT NULL AND ${restorableUntil(tx, tx`revoked_at`)} IS NOT NULL`;
    if (token === undefined || (appId !== null && !token.appIds.includes(appId))) return null;
    if (!token.isAllowed) throw refused('accessDenied', NOT_RESTORER);
    if (found.createdBy !== null && !token.isExpired) await checkRoom(tx, found.createdBy, maxTokens);
    await tx`UPDATE resource_tokens SET revoked_at = NULL, revoked_by = NULL WHERE id = ${found.id}`;
    const details = { tokenId, name: token.name };
    for (const one of token.appIds)
      await writeAudit(tx, { appId: one, by, action: 'resource-token.restore', details });
    return { tokenId, expiresAt: token.expiresAt };
  });
}

interface RestorableToken {
  readonly name: string;
  readonly expiresAt: Date | null;
  readonly isExpired: boolean;
  readonly isAllowed: boolean;
  readonly appIds: readonly number[];
}

const NOT_RESTORER =
  'The token reads further apps: who revoked it can restore it, or a maintainer of all its apps.';

/** A resource token that a former member created. */
type MadeToken = MemberRemoval['keptTokens'][number];

/**
 * Ends access of a former member's tokens to an app: a token for this app alone is revoked, a token for several apps
 * loses this one. Those that are revoked already stay so: their revocation cannot be undone any more.
 * @param ending.userId internal id of the creator
 * @param ending.keep   public ids of tokens that stay valid
 * @throws Refused tokenNotFound if one of `keep` is not among them
 */
export async function endTokensOf(
  tx: Transaction,
  ending: { appId: number; userId: number; keep: readonly string[]; by: Actor },
): Promise<{ ended: MadeToken[]; kept: MadeToken[] }> {
  const { appId, userId, keep, by } = ending;
  // A fixed lock order avoids deadlocks: a token of two apps may be ended in both at once.
  const tokens = await tx<(MadeToken & { id: number; isRevoked: boolean })[]>`
    SELECT id, public_id AS "tokenId", name, revoked_at IS NOT NULL AS "isRevoked"
      FROM resource_tokens AS token
     WHERE created_by = ${userId}
       AND EXISTS (SELECT FROM resource_token_apps WHERE token_id = token.id AND app_id = ${appId})
       AND (revoked_by IS NOT NULL OR revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ${judgedTime(tx)}))
     ORDER BY id FOR UPDATE`;
  const missing = keep.find((id) => !tokens.some(({ tokenId, isRevoked }) => tokenId === id && !isRevoked));
  if (missing !== undefined) throw tokenNotFound(missing);
  const [ended, kept] = [[] as MadeToken[], [] as MadeToken[]];
  for (const { id, tokenId, name, isRevoked } of tokens) {
    if (isRevoked) {
      await endTokenIn(tx, id, appId);
      continue;
    }
    const isKept = keep.includes(tokenId);
    if (!isKept) await endTokenIn(tx, id, appId);
    (isKept ? kept : ended).push({ tokenId, name });
    const action = isKept ? 'resource-token.keep' : 'resource-token.revoke';
    await writeAudit(tx, { appId, by, action, details: { tokenId, name } });
  }
  return { ended, kept };
}

/** A revoked token stays in the app's list; a token for other apps disappears from it. */
async function endTokenIn(tx: Transaction, id: number, appId: number): Promise<void> {
  const others = await tx`
    SELECT FROM resource_token_apps WHERE token_id = ${id} AND app_id <> ${appId} LIMIT 1`;
  if (others.length === 0)
    await tx`UPDATE resource_tokens SET revoked_at = coalesce(revoked_at, now()), revoked_by = NULL WHERE id = ${id}`;
  else await tx`DELETE FROM resource_token_apps WHERE token_id = ${id} AND app_id = ${appId}`;
}

/** @throws Refused appNotFound, as for an app that does not exist */
async function checkMember(
  tx: Transaction,
  userId: number,
  apps: readonly { id: number; publicId: string }[],
): Promise<void> {
  const own = await holdMaintained(
    tx,
    userId,
    apps.map(({ id }) => id),
  );
  const foreign = apps.find(({ id }) => !own.has(id));
  if (foreign !== undefined) throw appNotFound(foreign.publicId);
}

function checkExpiry(seconds: number | null): void {
  if (seconds === null || (seconds > 0 && seconds <= LONGEST_SECONDS)) return;
  throw refused('invalidBody', 'a resource token must expire after at least a second and at most 100 years');
}
