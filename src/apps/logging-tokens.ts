/** Logging tokens, with which producers write events. */

import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import { lockAppOf } from '../accounts/people/members.ts';
import { createTokenText, digestOf } from '../base/token-text.ts';
import { refused } from '../errors.ts';
import type { Sql, Transaction } from '../storage/database/connect.ts';
import { judgedTime } from '../storage/maintenance/time-judge.ts';
import { openSealed, type Secret, sealToken } from './secret.ts';

const LONGEST_GRACE_HOURS = 8_760;
/** Earlier tokens of an app that are in their grace period. A rotation ends the oldest ones beyond that. */
export const MAX_EARLIER_TOKENS = 5;

/**
 * Creates a new logging token for an app and ends the earlier ones after the grace period. No earlier token outlives it:
 * a rotation without grace also ends tokens in the grace period of an earlier rotation. Of the earlier tokens at most
 * {@link MAX_EARLIER_TOKENS} stay valid, the newest.
 * @param rotation.graceHours  default 24, may be 0 or a fraction
 * @throws Refused appNotFound, invalidBody
 */
export async function rotateLoggingToken(
  sql: Sql,
  secret: Secret,
  rotation: { appId: string; graceHours?: number; by?: Actor },
): Promise<{ appId: string; loggingToken: string; previousValidUntil: Date }> {
  const { appId, graceHours = 24, by = COMMAND_LINE } = rotation;
  if (!(graceHours >= 0 && graceHours <= LONGEST_GRACE_HOURS)) {
    throw refused('invalidBody', `the grace period must be 0 to ${LONGEST_GRACE_HOURS} hours`);
  }
  return await sql.begin('isolation level read committed', async (tx) => {
    // Lock: concurrent rotations must leave one current token.
    const id = await lockAppOf(tx, appId);
    const rotated = await replaceToken(tx, secret, { appId: id, producerId: null, graceHours });
    await writeAudit(tx, { appId: id, by, action: 'logging-token.rotate', details: { graceHours } });
    return { appId, ...rotated };
  });
}

/** A producer's new token, and the end of its earlier ones. @param of.producerId null: the app's first producer */
export async function replaceToken(
  tx: Transaction,
  secret: Secret,
  of: { readonly appId: number; readonly producerId: number | null; readonly graceHours: number },
): Promise<{ loggingToken: string; previousValidUntil: Date }> {
  const { appId, producerId, graceHours } = of;
  const own = tx`app_id = ${appId} AND producer_id IS NOT DISTINCT FROM ${producerId}::integer`;
  const until = tx`now() + make_interval(secs => ${graceHours * 3_600})`;
  await tx`DELETE FROM logging_tokens WHERE ${own} AND expires_at <= ${judgedTime(tx)}`;
  await tx`UPDATE logging_tokens SET expires_at = least(expires_at, ${until}) WHERE ${own}`;
  await tx`
    DELETE FROM logging_tokens
     WHERE digest IN (SELECT digest FROM logging_tokens WHERE ${own}
                       ORDER BY created_at DESC, expires_at DESC OFFSET ${MAX_EARLIER_TOKENS})`;
  const loggingToken = await issueLoggingToken(tx, secret, appId, producerId);
  const [row] = await tx<[{ at: Date }]>`SELECT ${until} AS at`;
  return { loggingToken, previousValidUntil: row.at };
}

/**
 * The current token of an app, for display.
 * @returns `loggingToken` is null if another SECRET sealed it; `previousValidUntil` is set while an earlier one is in its grace period
 */
export async function currentLoggingToken(
  sql: Sql,
  secret: Secret,
  appId: number,
): Promise<{ loggingToken: string | null; createdAt: Date | null; previousValidUntil: Date | null }> {
  const rows = await sql<{ digest: Buffer; sealed: Buffer; createdAt: Date; expiresAt: Date | null }[]>`
    SELECT digest, sealed, created_at AS "createdAt", expires_at AS "expiresAt"
      FROM logging_tokens
     WHERE app_id = ${appId} AND producer_id IS NULL AND (expires_at IS NULL OR expires_at > ${judgedTime(sql)})
     ORDER BY expires_at DESC NULLS FIRST`;
  const current = rows.find(({ expiresAt }) => expiresAt === null);
  return {
    loggingToken: current === undefined ? null : openSealed(secret, current.sealed, current.digest),
    createdAt: current?.createdAt ?? null,
    previousValidUntil: rows.find(({ expiresAt }) => expiresAt !== null)?.expiresAt ?? null,
  };
}

/**
 * Creates and stores a token without expiry.
 * @param producerId of whom it is; null: of the app's first producer
 */
export async function issueLoggingToken(
  tx: Transaction,
  secret: Secret,
  appId: number,
  producerId: number | null = null,
): Promise<string> {
  const token = createTokenText('tdl');
  await tx`
    INSERT INTO logging_tokens (digest, app_id, producer_id, sealed)
    VALUES (${digestOf(token)}, ${appId}, ${producerId}, ${sealToken(secret, token)})`;
  return token;
}
