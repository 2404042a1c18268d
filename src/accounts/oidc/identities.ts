/** Which account an identity of an issuer is, and the sessions that began there. */
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import { writeAccountAudit } from '../log/audit.ts';
import type { User } from '../people/users.ts';
import type { LogoutOrder } from './issuer.ts';

/** An identity: the subject is unique at its issuer, and never given to another person. */
export interface Identity {
  readonly issuer: string;
  readonly subject: string;
}

/** The account of an identity; null if it is none's yet. */
export async function findIdentity(
  sql: Sql | Transaction,
  { issuer, subject }: Identity,
): Promise<User | null> {
  const [user] = await sql<User[]>`
    SELECT users.id, public_id AS "userId", email, email_key AS "emailKey", email_verified_at IS NOT NULL AS "emailVerified"
      FROM user_identities JOIN users ON users.id = user_id
     WHERE issuer = ${issuer} AND subject = ${subject}`;
  return user ?? null;
}

/**
 * Makes an identity a way into an account.
 * @param by who joins it: the signed-in user of the account, the sign-in that made it, or the command line
 * @returns false if the identity is another account's, or the account has another one of this issuer
 */
export async function joinIdentity(
  tx: Transaction,
  user: User,
  identity: Identity,
  by: Parameters<typeof writeAccountAudit>[1]['by'],
): Promise<boolean> {
  const joined = await tx`
    INSERT INTO user_identities (issuer, subject, user_id)
    VALUES (${identity.issuer}, ${identity.subject}, ${user.id})
    ON CONFLICT DO NOTHING RETURNING 1`;
  if (joined.length === 0) return (await findIdentity(tx, identity))?.id === user.id;
  await writeAccountAudit(tx, { user, by, action: 'identity.join', details: { issuer: identity.issuer } });
  return true;
}

/** Whether the account has an identity of the issuer. */
export async function hasIdentity(sql: Sql, user: User, issuer: string): Promise<boolean> {
  const found = await sql`SELECT FROM user_identities WHERE user_id = ${user.id} AND issuer = ${issuer}`;
  return found.length > 0;
}

/** Ends an identity as a way into an account. @returns false if the account has none of the issuer */
export async function leaveIdentity(
  tx: Transaction,
  user: User,
  issuer: string,
  by: Parameters<typeof writeAccountAudit>[1]['by'],
): Promise<boolean> {
  const left = await tx`
    DELETE FROM user_identities WHERE user_id = ${user.id} AND issuer = ${issuer} RETURNING 1`;
  if (left.length === 0) return false;
  await writeAccountAudit(tx, { user, by, action: 'identity.leave', details: { issuer } });
  return true;
}

/** Notes a sign-in, and that the issuer may end the session of this digest. */
export async function noteOidcSession(
  tx: Transaction,
  identity: Identity & { readonly sid: string | null },
  digest: Buffer,
): Promise<void> {
  const { issuer, subject, sid } = identity;
  await tx`
    UPDATE user_identities SET last_sign_in_at = now() WHERE issuer = ${issuer} AND subject = ${subject}`;
  await tx`
    INSERT INTO oidc_sessions (digest, issuer, subject, sid) VALUES (${digest}, ${issuer}, ${subject}, ${sid})`;
}

/**
 * Ends the sessions that a logout token names.
 * @returns the accounts that they were of, and how many there were
 */
export async function endOidcSessions(
  tx: Transaction,
  { issuer, subject, sid }: LogoutOrder,
): Promise<{ readonly users: readonly User[]; readonly sessions: number }> {
  const users = await tx<User[]>`
    SELECT users.id, public_id AS "userId", email, email_key AS "emailKey", email_verified_at IS NOT NULL AS "emailVerified"
      FROM users
     WHERE id IN (SELECT user_id FROM user_identities
                   WHERE issuer = ${issuer}
                     AND (subject = ${subject}
                          OR subject IN (SELECT subject FROM oidc_sessions WHERE issuer = ${issuer} AND sid = ${sid})))
     ORDER BY id FOR NO KEY UPDATE`;
  const ended = await tx`
    DELETE FROM sessions
     WHERE digest IN (SELECT digest FROM oidc_sessions
                       WHERE issuer = ${issuer} AND (${subject}::text IS NULL OR subject = ${subject})
                         AND (${sid}::text IS NULL OR sid = ${sid}))
    RETURNING 1`;
  return { users, sessions: ended.length };
}
