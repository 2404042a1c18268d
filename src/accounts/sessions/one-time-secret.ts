/** Secrets that grant access and are stored only by their holder: session cookies, and the tokens in links. */
import { randomBytes } from 'node:crypto';
import { digestOf } from '../../base/token-text.ts';

/** 256 bits. */
const BYTES = 32;
/** The form that {@link createSecretText} makes. */
export const SECRET_TEXT = /^[A-Za-z0-9_-]{43}$/;

/** A new secret: 43 characters that are safe in a cookie and in a path. */
export function createSecretText(): { text: string; digest: Buffer } {
  const text = randomBytes(BYTES).toString('base64url');
  return { text, digest: digestOf(text) };
}

/** The digest stored in the database; null for a text that cannot be a secret, without a query. */
export function secretDigest(text: string): Buffer | null {
  return SECRET_TEXT.test(text) ? digestOf(text) : null;
}
