/** Accounts of people. */
import { errorCode, type Sql, type Transaction } from '../storage/connect.ts';
import { createPublicId } from '../token-text.ts';
import { AccountError } from './account-error.ts';
import type { Email } from './email.ts';

/** An account as the rest of the service sees it: never with its password's hash. */
export interface User {
  /** Internal id. */
  readonly id: number;
  readonly userId: string;
  readonly email: string;
  readonly emailKey: string;
  readonly emailProved: boolean;
}

/** An account whose password was verified, and the hash that it had then. */
export interface VerifiedUser {
  readonly user: User;
  readonly passwordHash: string;
}

export interface UserInList {
  readonly userId: string;
  readonly email: string;
  readonly emailProved: boolean;
  readonly createdAt: Date;
}

const UNIQUE_VIOLATION = '23505';

/**
 * Makes an account.
 * @param account.proved the e-mail is known to be its owner's
 * @throws AccountError EMAIL_TAKEN
 */
export async function createUser(
  sql: Sql | Transaction,
  account: { email: Email; passwordHash: string; proved: boolean },
): Promise<User> {
  const { email, passwordHash, proved } = account;
  const userId = createPublicId('usr');
  try {
    const [made] = await sql<{ id: number }[]>`
      INSERT INTO users (public_id, email, email_key, password_hash, email_proved_at)
      VALUES (${userId}, ${email.text}, ${email.key}, ${passwordHash}, CASE WHEN ${proved} THEN now() END)
      RETURNING id`;
    if (made === undefined) throw new Error('An insert gave no row back.');
    return { id: made.id, userId, email: email.text, emailKey: email.key, emailProved: proved };
  } catch (error) {
    if (errorCode(error) === UNIQUE_VIOLATION)
      throw new AccountError('EMAIL_TAKEN', `there is an account with the e-mail ${email.text}`);
    throw error;
  }
}

/** The account with this e-mail, and its password's hash. */
export async function findUser(sql: Sql | Transaction, email: Email): Promise<VerifiedUser | null> {
  const [row] = await sql<(User & { passwordHash: string })[]>`
    SELECT id, public_id AS "userId", email, email_key AS "emailKey",
           email_proved_at IS NOT NULL AS "emailProved", password_hash AS "passwordHash"
      FROM users WHERE email_key = ${email.key}`;
  if (row === undefined) return null;
  const { passwordHash, ...user } = row;
  return { user, passwordHash };
}

/** @throws AccountError USER_NOT_FOUND */
export async function requireUser(sql: Sql | Transaction, email: Email): Promise<User> {
  const found = await findUser(sql, email);
  if (found !== null) return found.user;
  throw new AccountError('USER_NOT_FOUND', `there is no account with the e-mail ${email.text}`);
}

/**
 * The account with this e-mail, for commands that give it something because of the address.
 * @param allowUnproved true where the operator knows whose account it is
 * @throws AccountError USER_NOT_FOUND, EMAIL_NOT_PROVED
 */
export async function requireProvedUser(
  sql: Sql | Transaction,
  email: Email,
  allowUnproved: boolean,
): Promise<User> {
  const user = await requireUser(sql, email);
  if (user.emailProved || allowUnproved) return user;
  throw new AccountError(
    'EMAIL_NOT_PROVED',
    `the account ${user.email} has not proved that the address is its own, so anyone may have registered it: have its ` +
      `owner confirm the address, or, if you know that the account is theirs, run "tidemark user prove --email ` +
      `${user.email}" or repeat this command with --allow-unproved`,
  );
}

export async function listUsers(sql: Sql): Promise<UserInList[]> {
  return [
    ...(await sql<UserInList[]>`
      SELECT public_id AS "userId", email, email_proved_at IS NOT NULL AS "emailProved", created_at AS "createdAt"
        FROM users ORDER BY users.id`),
  ];
}

export async function hasUsers(sql: Sql | Transaction): Promise<boolean> {
  const [row] = await sql<{ any: boolean }[]>`SELECT EXISTS (SELECT FROM users) AS any`;
  return row?.any ?? false;
}

/**
 * Whether an account's password is still the one that was verified; it then stays so until the end of the transaction. The
 * transaction must be "read committed": with a snapshot the answer would be of its beginning.
 */
export async function holdPassword(tx: Transaction, { user, passwordHash }: VerifiedUser): Promise<boolean> {
  const rows = await tx`
    SELECT FROM users WHERE id = ${user.id} AND password_hash = ${passwordHash} FOR SHARE`;
  return rows.length > 0;
}

/**
 * Sets a new password in place of the one that was verified, and ends every session of the account. Links for a reset stay:
 * they lead to the mailbox, which decides about an account whose password a thief knows as well.
 * @returns false where the password is another one by now; nothing was changed
 */
export async function changePassword(
  tx: Transaction,
  { user, passwordHash }: VerifiedUser,
  newHash: string,
): Promise<boolean> {
  const changed = await tx`
    UPDATE users SET password_hash = ${newHash} WHERE id = ${user.id} AND password_hash = ${passwordHash} RETURNING 1`;
  if (changed.length === 0) return false;
  await tx`DELETE FROM sessions WHERE user_id = ${user.id}`;
  return true;
}

/**
 * Sets the password whatever it is now, and ends every session and every other link for a reset, after {@link lockUser}.
 * @param id internal id
 */
export async function resetPassword(tx: Transaction, id: number, newHash: string): Promise<void> {
  await tx`UPDATE users SET password_hash = ${newHash} WHERE id = ${id}`;
  await tx`DELETE FROM sessions WHERE user_id = ${id}`;
  await tx`DELETE FROM account_links WHERE user_id = ${id} AND purpose = 'reset-password'`;
}

/** Has changes of an account take turns, until the end of the transaction. @param id internal id */
export async function lockUser(tx: Transaction, id: number): Promise<void> {
  await tx`SELECT FROM users WHERE id = ${id} FOR NO KEY UPDATE`;
}

/**
 * Notes that the account's address is its owner's; the first time stands. Only for a link that was mailed to the address
 * and shown to nobody else, and for the operator's command line.
 * @param id internal id
 */
export async function proveEmail(sql: Sql | Transaction, id: number): Promise<void> {
  await sql`UPDATE users SET email_proved_at = coalesce(email_proved_at, now()) WHERE id = ${id}`;
}
