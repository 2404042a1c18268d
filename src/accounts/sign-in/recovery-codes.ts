/** Recovery codes: each stands in once for a code of a lost authenticator. Only their digests are stored. */
import { randomInt } from 'node:crypto';
import { digestOf } from '../../base/token-text.ts';
import { countRows, type Sql, type Transaction } from '../../storage/database/connect.ts';

const CODES = 10;
/** 16 characters of 32 are 80 bits: a digest without salt and stretching cannot be reversed. */
const CHARACTERS = 16;
/** Digits and letters that are not mistaken for each other. */
const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';
const FORM = /^[0-9a-hjkmnp-tv-z]{16}$/;

/** Replaces the codes of an account. @param userId internal id @returns the new codes, in groups of four characters */
export async function createRecoveryCodes(tx: Transaction, userId: number): Promise<string[]> {
  const codes = Array.from({ length: CODES }, newCode);
  const digests = codes.map((code) => digestOf(code).toString('hex'));
  await tx`DELETE FROM recovery_codes WHERE user_id = ${userId}`;
  await tx`
    INSERT INTO recovery_codes (user_id, digest)
    SELECT ${userId}, decode(hex, 'hex') FROM unnest(${digests}::text[]) AS hex`;
  return codes.map((code) => code.replace(/.{4}(?=.)/g, '$&-'));
}

/** Uses up a code. Of several requests with the same code one finds it. @returns whether it was one of the account's */
export async function useRecoveryCode(tx: Transaction, userId: number, entered: string): Promise<boolean> {
  if (!FORM.test(entered)) return false;
  const used = await tx`
    DELETE FROM recovery_codes WHERE user_id = ${userId} AND digest = ${digestOf(entered)} RETURNING 1`;
  return used.length > 0;
}

/** Codes of an account that can still be used. */
export async function countRecoveryCodes(sql: Sql | Transaction, userId: number): Promise<number> {
  return await countRows(sql, sql`recovery_codes WHERE user_id = ${userId}`);
}

function newCode(): string {
  return Array.from({ length: CHARACTERS }, () => ALPHABET.charAt(randomInt(ALPHABET.length))).join('');
}
