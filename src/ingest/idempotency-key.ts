/** The header Idempotency-Key, and the digests that identify an idempotent request. */
import { createHash, hash } from 'node:crypto';
import { yieldToEventLoop } from '../base/time-slice.ts';
import { Rejection } from '../errors.ts';
import type { RequestIdentity } from '../storage/write/idempotent-writer.ts';

/** The request header, in lower case. */
export const IDEMPOTENCY_KEY = 'idempotency-key';

/** Visible ASCII characters (RFC 9110, VCHAR). */
const FORM = /^[\x21-\x7e]{1,200}$/;

const MALFORMED = new Rejection(
  'invalidParameters',
  'The header "Idempotency-Key" must have 1 to 200 visible ASCII characters, and be sent once.',
);

/**
 * Validates the header.
 * @param header its value; empty if absent
 * @returns the refusal of a malformed key, else null
 */
export function idempotencyKeyProblem(header: string): Rejection | null {
  return header === '' || FORM.test(header) ? null : MALFORMED;
}

/** Characters of a body that are hashed per turn of the event loop: half a millisecond. */
const SLICE = 262_144;

/**
 * The digests that identify an idempotent request. A long body is hashed in slices, so that it does not block the event loop.
 * @param key  the header's value, valid by {@link idempotencyKeyProblem}
 * @param path of the route: the same body on another route is another request
 * @param body the text of the whole body
 */
export async function requestIdentity(key: string, path: string, body: string): Promise<RequestIdentity> {
  return { keyDigest: sha256(key), bodyDigest: await digestOf(`${path}\n`, body) };
}

async function digestOf(head: string, body: string): Promise<Buffer> {
  if (body.length <= SLICE) return sha256(head + body);
  const digest = createHash('sha256').update(head);
  for (let from = 0; from < body.length; ) {
    let end = from + SLICE;
    // Do not split a surrogate pair: its UTF-8 would differ.
    if (isHighSurrogate(body.charCodeAt(end - 1))) end += 1;
    digest.update(body.slice(from, end));
    from = end;
    await yieldToEventLoop();
  }
  return digest.digest();
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff;
}

function sha256(text: string): Buffer {
  return hash('sha256', text, 'buffer');
}
