/** Encryption of short secrets at rest: AES-256-GCM, bound to the row that the text belongs to. */
import { createCipheriv, createDecipheriv, type KeyObject, randomBytes } from 'node:crypto';

const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * Encrypts a text: nonce (12 bytes), ciphertext, tag (16 bytes).
 * @param boundTo what identifies the row: texts that are swapped between rows do not open
 */
export function seal(key: KeyObject, text: string, boundTo: Uint8Array): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(boundTo);
  return Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]);
}

/** The text that was sealed for this row; null if it was sealed under another key or for another row, or modified. */
export function unseal(key: KeyObject, sealed: Uint8Array, boundTo: Uint8Array): string | null {
  if (sealed.length < NONCE_BYTES + TAG_BYTES) return null;
  const decipher = createDecipheriv(CIPHER, key, sealed.subarray(0, NONCE_BYTES), {
    authTagLength: TAG_BYTES,
  });
  decipher.setAAD(boundTo);
  decipher.setAuthTag(sealed.subarray(-TAG_BYTES));
  try {
    const text = decipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES));
    return Buffer.concat([text, decipher.final()]).toString('utf8');
  } catch {
    // GCM reports only that key, nonce, text and row do not match.
    return null;
  }
}
