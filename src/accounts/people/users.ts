/** User accounts. */

import { createPublicId } from '../../base/token-text.ts';
import { refused } from '../../errors.ts';
import { errorCode, type Fragment, type Sql, type Transaction } from '../../storage/database/connect.ts';
import { judgedTime } from '../../storage/maintenance/time-judge.ts';
import type { Email } from './email.ts';

/** An account without its password hash. */
export interface User {
  readonly id: number;
  readonly userId: string;
  readonly email: string;
  readonly emailKey: string;
  readonly emailVerified: boolean;
}

/** An account whose password was verified, and the hash at that time. */
export interface AuthenticatedUser {
  readonly user: User;
  readonly passwordHash: string;
  /** Whether the password is a way in where OIDC_ONLY is set. */
  readonly breakGlass: boolean;
  /** Whether the operator has suspended the account, which then cannot sign in. */
  readonly isSuspended: boolean;
}

export interface UserInList {
  readonly userId: string;
  readonly email: string;
  readonly emailVerified: boolean;
  /** Whether sign-ins need a code. */
  readonly secondFactor: boolean;
  readonly createdAt: Date;
  readonly suspendedAt: Date | null;
}

const UNIQUE_VIOLATION = '23505';

/**
 * Creates an account.
 * @param account.verified   whether ownership of the email is verified
 * @param account.breakGlass whether its password is a way in where OIDC_ONLY is set; no by default
 * @throws Refused emailTaken
 */
export async function createUser(
  sql: Sql | Transaction,
  account: { email: Email; passwordHash: string; verified: boolean; breakGlass?: boolean },
): Promise<User> {
  const { email, passwordHash, verified, breakGlass = false } = account;
  const userId = createPublicId('usr');
  try {
    const [made] = await sql<{ id: number }[]>`
      INSERT INTO users (public_id, email, email_key, password_hash, email_verified_at, break_glass)
      VALUES (${userId}, ${email.text}, ${email.key}, ${passwordHash}, CASE WHEN ${verified} THEN now() END, ${breakGlass})
      RETURNING id`;
    if (made === undefined) throw new Error('INSERT INTO users returned no row');
    return { id: made.id, userId, email: email.text, emailKey: email.key, emailVerified: verified };
  } catch (error) {
    if (errorCode(error) === UNIQUE_VIOLATION)
      throw refused('emailTaken', `there is already an account with the email ${email.text}`);
    throw error;
  }
}

/** The account with this email, and its password hash. */
export async function findUser(sql: Sql | Transaction, email: Email): Promise<AuthenticatedUser | null> {
  return await findUserWhere(sql, sql`email_key = ${email.key}`);
}

/** The account with this public id, and its password hash. */
export async function findUserById(
  sql: Sql | Transaction,
  userId: string,
): Promise<AuthenticatedUser | null> {
  return await findUserWhere(sql, sql`public_id = ${userId}`);
}

async function findUserWhere(sql: Sql | Transaction, condition: Fragment): Promise<AuthenticatedUser | null> {
  const [row] = await sql<(User & Omit<AuthenticatedUser, 'user'>)[]>`
    SELECT ${userColumns(sql)}, password_hash AS "passwordHash", break_glass AS "breakGlass",
           suspended_at IS NOT NULL AS "isSuspended"
      FROM users WHERE ${condition}`;
  if (row === undefined) return null;
  const { passwordHash, breakGlass, isSuspended, ...user } = row;
  return { user, passwordHash, breakGlass, isSuspended };
}

/** The columns of a {@link User} in a statement on users. */
export function userColumns(sql: Sql | Transaction): Fragment {
  return sql`users.id, public_id AS "userId", email, email_key AS "emailKey", email_verified_at IS NOT NULL AS "emailVerified"`;
}

/** @throws Refused memberNotFound */
export async function requireUser(sql: Sql | Transaction, email: Email): Promise<User> {
  const found = await findUser(sql, email);
  if (found !== null) return found.user;
  throw refused('memberNotFound', `there is no account with the email ${email.text}`);
}

/**
 * The account with this email, for commands that grant it access because of the address.
 * @param allowUnverified true if the operator knows the owner of the account
 * @throws Refused memberNotFound, accessDenied
 */
export async function requireVerifiedUser(
  sql: Sql | Transaction,
  email: Email,
  allowUnverified: boolean,
): Promise<User> {
  const user = await requireUser(sql, email);
  if (user.emailVerified || allowUnverified) return user;
  throw refused(
    'accessDenied',
    `the email of the account ${user.email} is not verified, so anyone may have registered it: have its ` +
      `owner verify the address, or, if you know that the account is theirs, run "tidemark user verify --email ` +
      `${user.email}" or repeat this command with --allow-unverified`,
  );
}

export async function listUsers(sql: Sql): Promise<UserInList[]> {
  return await sql<UserInList[]>`
    SELECT public_id AS "userId", email, email_verified_at IS NOT NULL AS "emailVerified",
           EXISTS (SELECT FROM second_factors WHERE user_id = users.id AND enabled_at IS NOT NULL) AS "secondFactor",
           created_at AS "createdAt", suspended_at AS "suspendedAt"
      FROM users ORDER BY users.id`;
}

export async function hasUsers(sql: Sql | Transaction): Promise<boolean> {
  const [row] = await sql<{ any: boolean }[]>`SELECT EXISTS (SELECT FROM users) AS any`;
  return row?.any ?? false;
}

/**
 * Whether an account's password is still the verified one; if so, it does not change until the end of the transaction. The
 * transaction must be "read committed": a snapshot would show the state at its beginning.
 */
export async function holdPassword(
  tx: Transaction,
  { user, passwordHash }: AuthenticatedUser,
): Promise<boolean> {
  const rows = await tx`
    SELECT FROM users WHERE id = ${user.id} AND password_hash = ${passwordHash} FOR SHARE`;
  return rows.length > 0;
}

/**
 * Replaces the verified password and ends every session of the account. Reset links stay valid:
 * they need access to the mailbox, which takes precedence when a thief knows the password too.
 * @returns false if the password was changed meanwhile; nothing is changed then
 */
export async function changePassword(
  tx: Transaction,
  { user, passwordHash }: AuthenticatedUser,
  newHash: string,
): Promise<boolean> {
  const changed = await tx`
    UPDATE users SET password_hash = ${newHash} WHERE id = ${user.id} AND password_hash = ${passwordHash} RETURNING 1`;
  if (changed.length === 0) return false;
  await endAccess(tx, user.id);
  return true;
}

/**
 * Ends what an earlier password gave: sessions, devices that are known, and a second factor whose enrollment was not confirmed.
 * @returns how many sessions
 */
async function endAccess(tx: Transaction, id: number): Promise<number> {
  const sessions = await tx`DELETE FROM sessions WHERE user_id = ${id} RETURNING 1`;
  await tx`DELETE FROM second_factors WHERE user_id = ${id} AND enabled_at IS NULL`;
  await tx`DELETE FROM known_devices WHERE user_id = ${id}`;
  return sessions.length;
}

/**
 * Sets the password regardless of the current one, and deletes every session and every link of the account. A second factor
 * stays: who has the mailbox alone does not get in. Call after {@link lockUser}.
 * @returns how many sessions have ended
 */
export async function resetPassword(tx: Transaction, id: number, newHash: string): Promise<number> {
  await tx`UPDATE users SET password_hash = ${newHash} WHERE id = ${id}`;
  await tx`DELETE FROM account_links WHERE user_id = ${id}`;
  return await endAccess(tx, id);
}

/** Serializes changes of an account until the end of the transaction. */
export async function lockUser(tx: Transaction, id: number): Promise<void> {
  await tx`SELECT FROM users WHERE id = ${id} FOR NO KEY UPDATE`;
}

/**
 * Marks the account's email as verified; the first time is kept. Only for a link that was mailed to the address
 * and shown to no other person, and for the operator's command line.
 * @returns whether it was not verified before
 */
export async function verifyEmail(sql: Sql | Transaction, id: number): Promise<boolean> {
  const verified = await sql`
    UPDATE users SET email_verified_at = now() WHERE id = ${id} AND email_verified_at IS NULL RETURNING 1`;
  return verified.length > 0;
}

/** What an account has beside its password: other ways in, and what reads in its name. */
export interface AccountAccess {
  readonly sessions: number;
  /** Issuers of identities that sign in to it. */
  readonly issuers: readonly string[];
  readonly secondFactor: boolean;
  /** Resource tokens and shares that it made. */
  readonly tokens: number;
  readonly shares: number;
  /** Apps that it is a member of. */
  readonly apps: number;
}

export async function accessOf(sql: Sql | Transaction, id: number): Promise<AccountAccess> {
  const [access] = await sql<AccountAccess[]>`
    SELECT (SELECT count(*)::integer FROM sessions WHERE user_id = ${id}) AS sessions,
           ARRAY(SELECT issuer FROM user_identities WHERE user_id = ${id} ORDER BY issuer) AS issuers,
           EXISTS (SELECT FROM second_factors WHERE user_id = ${id} AND enabled_at IS NOT NULL) AS "secondFactor",
           (SELECT count(*)::integer FROM resource_tokens
             WHERE created_by = ${id} AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ${judgedTime(sql)})) AS tokens,
           (SELECT count(*)::integer FROM shares WHERE created_by = ${id}) AS shares,
           (SELECT count(*)::integer FROM app_members WHERE user_id = ${id}) AS apps`;
  if (access === undefined) throw new Error('a SELECT without FROM returned no row');
  return access;
}

/** Access in words; empty where there is none. Apps are left out: a membership is no way in. */
export function accessText({ sessions, issuers, secondFactor, tokens, shares }: AccountAccess): string {
  const counted = (count: number, one: string): string[] =>
    count === 0 ? [] : [`${count} ${one}${count === 1 ? '' : 's'}`];
  return [
    ...counted(sessions, 'session'),
    ...issuers.map((issuer) => `the sign-in at ${issuer}`),
    ...(secondFactor ? ['the second factor'] : []),
    ...counted(tokens, 'resource token'),
    ...counted(shares, 'share'),
  ].join(', ');
}
