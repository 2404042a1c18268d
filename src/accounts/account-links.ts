/** One-time links to accounts: the first set-up, sign-ups that wait for their proof, proofs of an e-mail, resets. */
import type { Sql, Transaction } from '../storage/connect.ts';
import type { Email } from './email.ts';
import { createSecretText, secretDigest } from './one-time-secret.ts';

const HOUR_MS = 3_600_000;

/** How long each kind of link is good for. */
const VALID_FOR_MS = {
  setup: 7 * 24 * HOUR_MS,
  'sign-up': 24 * HOUR_MS,
  'prove-email': 24 * HOUR_MS,
  'reset-password': HOUR_MS,
} as const;

export type LinkPurpose = keyof typeof VALID_FOR_MS;

export interface AccountLink {
  readonly digest: Buffer;
  readonly purpose: LinkPurpose;
  /** Internal id of the account; null where there is none yet. */
  readonly userId: number | null;
  /** Of a sign-up that waits for its proof. */
  readonly email: string | null;
  readonly passwordHash: string | null;
  /** Who follows it has shown that the e-mail is theirs. */
  readonly provesEmail: boolean;
}

export type NewLink =
  | { readonly purpose: 'setup' }
  | { readonly purpose: 'sign-up'; readonly email: Email; readonly passwordHash: string }
  | { readonly purpose: 'prove-email'; readonly userId: number }
  | { readonly purpose: 'reset-password'; readonly userId: number; readonly provesEmail: boolean };

/** Makes a link. Those that have expired go. @returns its token, of which the database keeps a digest */
export async function createLink(sql: Sql | Transaction, link: NewLink, now: number): Promise<string> {
  const { text, digest } = createSecretText();
  const userId = 'userId' in link ? link.userId : null;
  const email = link.purpose === 'sign-up' ? link.email.text : null;
  const passwordHash = link.purpose === 'sign-up' ? link.passwordHash : null;
  const provesEmail = link.purpose === 'reset-password' ? link.provesEmail : link.purpose !== 'setup';
  await sql`DELETE FROM account_links WHERE expires_at <= ${now}`;
  await sql`
    INSERT INTO account_links (digest, purpose, user_id, email, password_hash, proves_email, expires_at)
    VALUES (${digest}, ${link.purpose}, ${userId}, ${email}, ${passwordHash}, ${provesEmail}, ${now + VALID_FOR_MS[link.purpose]})`;
  return text;
}

/** The link of a token, locked inside a transaction; null where there is none that is good now. */
export async function findLink(
  sql: Sql | Transaction,
  token: string,
  purposes: readonly LinkPurpose[],
  now: number,
): Promise<AccountLink | null> {
  const digest = secretDigest(token);
  if (digest === null) return null;
  const [row] = await sql<AccountLink[]>`
    SELECT digest, purpose, user_id AS "userId", email, password_hash AS "passwordHash", proves_email AS "provesEmail"
      FROM account_links
     WHERE digest = ${digest} AND purpose = ANY(${[...purposes]}) AND expires_at > ${now}
       FOR UPDATE`;
  return row ?? null;
}

/** Ends a link. */
export async function useUp(tx: Transaction, link: AccountLink): Promise<void> {
  await tx`DELETE FROM account_links WHERE digest = ${link.digest}`;
}
