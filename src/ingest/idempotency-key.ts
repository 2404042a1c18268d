/** The Idempotency-Key of a request, and what is remembered under it. */
import { hash } from 'node:crypto';
import { Rejection } from '../http/rejection.ts';

/** The request header, in lower case. */
export const IDEMPOTENCY_KEY = 'idempotency-key';

/** RFC 9110's visible characters: no spaces, no controls, ASCII alone. */
const FORM = /^[\x21-\x7e]{1,200}$/;

const MALFORMED = new Rejection(
  'invalidParameters',
  'The header "Idempotency-Key" must have 1 to 200 visible ASCII characters, and be sent once.',
);

/** What tells one keyed request from another. */
export interface KeyedRequest {
  /** SHA-256 of the key. */
  readonly keyDigest: Buffer;
  /** SHA-256 of the path and of the body's bytes. */
  readonly bodyDigest: Buffer;
}

/**
 * Reads the header.
 * @param header its value, empty where the request has none
 * @param path   of the route: the same body means something else on another
 * @param body   the whole body's text, which was UTF-8
 * @returns null where the request has no key
 */
export function keyedRequest(header: string, path: string, body: string): KeyedRequest | Rejection | null {
  if (header === '') return null;
  if (!FORM.test(header)) return MALFORMED;
  return { keyDigest: sha256(header), bodyDigest: sha256(`${path}\n${body}`) };
}

function sha256(text: string): Buffer {
  return hash('sha256', text, 'buffer');
}
