/** The Idempotency-Key of a request, and what is remembered under it. */
import { createHash, hash } from 'node:crypto';
import { Rejection } from '../errors.ts';
import type { KeyedRequest } from '../storage/write/keyed-writer.ts';
import { nextTurn } from './turns.ts';

/** The request header, in lower case. */
export const IDEMPOTENCY_KEY = 'idempotency-key';

/** RFC 9110's visible characters: no spaces, no controls, ASCII alone. */
const FORM = /^[\x21-\x7e]{1,200}$/;

const MALFORMED = new Rejection(
  'invalidParameters',
  'The header "Idempotency-Key" must have 1 to 200 visible ASCII characters, and be sent once.',
);

/**
 * What is wrong with the header.
 * @param header its value; empty is as none
 */
export function idempotencyKeyProblem(header: string): Rejection | null {
  return header === '' || FORM.test(header) ? null : MALFORMED;
}

/** Characters of a body that are hashed at a time, before others have their turn: a millisecond or two. */
const SLICE = 1_048_576;

/**
 * What a keyed request is known by. A long body does not keep other requests waiting.
 * @param key  the header, in which {@link idempotencyKeyProblem} finds nothing wrong
 * @param path of the route: the same body means something else on another
 * @param body the whole body's text, which was UTF-8
 */
export async function keyedRequest(key: string, path: string, body: string): Promise<KeyedRequest> {
  return { keyDigest: sha256(key), bodyDigest: await digestOf(`${path}\n`, body) };
}

async function digestOf(head: string, body: string): Promise<Buffer> {
  if (body.length <= SLICE) return sha256(head + body);
  const digest = createHash('sha256').update(head);
  for (let from = 0; from < body.length; ) {
    let end = from + SLICE;
    // Both halves of a surrogate pair are one character of UTF-8.
    if (isHighSurrogate(body.charCodeAt(end - 1))) end += 1;
    digest.update(body.slice(from, end));
    from = end;
    await nextTurn();
  }
  return digest.digest();
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff;
}

function sha256(text: string): Buffer {
  return hash('sha256', text, 'buffer');
}
