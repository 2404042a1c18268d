/** Which account an identity of an issuer is, and the sessions that began there. */
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import { writeAccountAudit } from '../log/audit.ts';
import { type User, userColumns } from '../people/users.ts';
import type { IssuerNames, LogoutOrder } from './issuer.ts';

/** An identity: the subject is unique at its issuer, and never given to another person. */
export interface Identity {
  /** As the issuer's document has it. */
  readonly issuer: string;
  /** What else the issuer may be called in rows that are there. */
  readonly spellings?: readonly string[];
  readonly subject: string;
}

/** The names under which an issuer is looked for. */
const namesOf = ({ issuer, spellings = [] }: Pick<Identity, 'issuer' | 'spellings'>): string[] => [
  issuer,
  ...spellings,
];

/**
 * The account of an identity; null if it is none's yet. Rows of `user join` may have another spelling of the issuer than its
 * document; where both are there, that of the document counts.
 */
export async function findIdentity(sql: Sql | Transaction, identity: Identity): Promise<User | null> {
  const [user] = await sql<User[]>`
    SELECT ${userColumns(sql)}
      FROM user_identities JOIN users ON users.id = user_id
     WHERE issuer = ANY(${namesOf(identity)}) AND subject = ${identity.subject}
     ORDER BY issuer = ${identity.issuer} DESC LIMIT 1`;
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
  const { issuer, subject } = identity;
  const joined = await tx`
    INSERT INTO user_identities (issuer, subject, user_id)
    SELECT ${issuer}, ${subject}, ${user.id}
     WHERE NOT EXISTS (SELECT FROM user_identities
                        WHERE issuer = ANY(${namesOf(identity)}) AND (subject = ${subject} OR user_id = ${user.id}))
    ON CONFLICT DO NOTHING RETURNING 1`;
  if (joined.length === 0) return (await findIdentity(tx, identity))?.id === user.id;
  await writeAccountAudit(tx, { user, by, action: 'identity.join', details: { issuer } });
  return true;
}

/** Whether the account has an identity of the issuer. */
export async function hasIdentity(sql: Sql, user: User, { all }: IssuerNames): Promise<boolean> {
  const found = await sql`
    SELECT FROM user_identities WHERE user_id = ${user.id} AND issuer = ANY(${[...all]})`;
  return found.length > 0;
}

/** Ends an identity as a way into an account. @returns false if the account has none of the issuer */
export async function leaveIdentity(
  tx: Transaction,
  user: User,
  { name, all }: IssuerNames,
  by: Parameters<typeof writeAccountAudit>[1]['by'],
): Promise<boolean> {
  const left = await tx`
    DELETE FROM user_identities WHERE user_id = ${user.id} AND issuer = ANY(${[...all]}) RETURNING 1`;
  if (left.length === 0) return false;
  await writeAccountAudit(tx, { user, by, action: 'identity.leave', details: { issuer: name } });
  return true;
}

/** Ends every identity as a way into an account, of whatever issuer. Call after lockUser. */
export async function leaveIdentities(tx: Transaction, userId: number): Promise<void> {
  await tx`DELETE FROM user_identities WHERE user_id = ${userId}`;
}

/** Notes a sign-in, and that the issuer may end the session of this digest. */
export async function noteOidcSession(
  tx: Transaction,
  identity: Identity & { readonly sid: string | null },
  digest: Buffer,
): Promise<void> {
  const { issuer, subject, sid } = identity;
  await tx`
    UPDATE user_identities SET last_sign_in_at = now() WHERE issuer = ANY(${namesOf(identity)}) AND subject = ${subject}`;
  await tx`
    INSERT INTO oidc_sessions (digest, issuer, subject, sid) VALUES (${digest}, ${issuer}, ${subject}, ${sid})`;
}

/**
 * Remembers a logout token for as long as it is valid. The issuer signs each, so the table has no more rows than it sends in
 * minutes.
 * @param now in milliseconds since the Unix epoch
 * @returns false if its order was carried out before, in this process or in another one
 */
export async function useLogoutToken(
  tx: Transaction,
  { digest, expiresAt }: LogoutOrder,
  now: number,
): Promise<boolean> {
  await tx`DELETE FROM used_logout_tokens WHERE expires_at <= ${now}`;
  const first = await tx`
    INSERT INTO used_logout_tokens (digest, expires_at) VALUES (${digest}, ${expiresAt})
    ON CONFLICT DO NOTHING RETURNING 1`;
  return first.length > 0;
}

/**
 * Ends the sessions that a logout token names.
 * @returns the accounts that they were of, and how many there were
 */
export async function endOidcSessions(
  tx: Transaction,
  { subject, sid, ...issuer }: LogoutOrder,
): Promise<{ readonly users: readonly User[]; readonly sessions: number }> {
  const names = namesOf(issuer);
  const users = await tx<User[]>`
    SELECT ${userColumns(tx)}
      FROM users
     WHERE id IN (SELECT user_id FROM user_identities
                   WHERE issuer = ANY(${names})
                     AND (subject = ${subject}
                          OR subject IN (SELECT subject FROM oidc_sessions WHERE issuer = ANY(${names}) AND sid = ${sid})))
     ORDER BY id FOR NO KEY UPDATE`;
  const ended = await tx`
    DELETE FROM sessions
     WHERE digest IN (SELECT digest FROM oidc_sessions
                       WHERE issuer = ANY(${names}) AND (${subject}::text IS NULL OR subject = ${subject})
                         AND (${sid}::text IS NULL OR sid = ${sid}))
    RETURNING 1`;
  return { users, sessions: ended.length };
}
