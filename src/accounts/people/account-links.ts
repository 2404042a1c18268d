/** One-time links: initial setup, pending sign-ups, email verification, password resets. */

import { DAY_MS, HOUR_MS } from '../../base/time-units.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import { createSecretText, secretDigest } from '../sessions/one-time-secret.ts';
import type { Email } from './email.ts';

/** Lifetime of each kind of link. */
const VALID_FOR_MS = {
  setup: 7 * DAY_MS,
  'sign-up': DAY_MS,
  'verify-email': DAY_MS,
  'reset-password': HOUR_MS,
} as const;

export type LinkPurpose = keyof typeof VALID_FOR_MS;

export interface AccountLink {
  readonly digest: Buffer;
  readonly purpose: LinkPurpose;
  /** Internal id of the account; null where there is none yet. */
  readonly userId: number | null;
  /** Set for a pending sign-up only. */
  readonly email: string | null;
  readonly passwordHash: string | null;
  /** Whether following the link verifies ownership of the email address. */
  readonly verifiesEmail: boolean;
}

export type NewLink =
  | { readonly purpose: 'setup' }
  | { readonly purpose: 'sign-up'; readonly email: Email; readonly passwordHash: string }
  | { readonly purpose: 'verify-email' | 'reset-password'; readonly userId: number };

/** Creates a link and deletes those that have expired by both clocks. @returns its token; the database stores only a digest */
export async function createLink(sql: Sql | Transaction, link: NewLink, now: number): Promise<string> {
  const { text, digest } = createSecretText();
  const userId = 'userId' in link ? link.userId : null;
  const email = link.purpose === 'sign-up' ? link.email.text : null;
  const passwordHash = link.purpose === 'sign-up' ? link.passwordHash : null;
  await sql`DELETE FROM account_links WHERE expires_at <= least(${new Date(now)}, now())`;
  await sql`
    INSERT INTO account_links (digest, purpose, user_id, email, password_hash, verifies_email, expires_at)
    VALUES (${digest}, ${link.purpose}, ${userId}, ${email}, ${passwordHash}, ${link.purpose !== 'setup'}, ${now + VALID_FOR_MS[link.purpose]})`;
  return text;
}

/** The valid link of a token, locked until the end of the transaction; null if there is none. */
export async function findLink(
  sql: Sql | Transaction,
  token: string,
  purposes: readonly LinkPurpose[],
  now: number,
): Promise<AccountLink | null> {
  const digest = secretDigest(token);
  if (digest === null) return null;
  const [row] = await sql<AccountLink[]>`
    SELECT digest, purpose, user_id AS "userId", email, password_hash AS "passwordHash", verifies_email AS "verifiesEmail"
      FROM account_links
     WHERE digest = ${digest} AND purpose = ANY(${[...purposes]}) AND expires_at > ${now}
       FOR UPDATE`;
  return row ?? null;
}

/** Deletes a link after its use. */
export async function useUp(tx: Transaction, link: AccountLink): Promise<void> {
  await tx`DELETE FROM account_links WHERE digest = ${link.digest}`;
}
