/**
 * Compresses large answers in JSON, for clients that take it. In zlib's threads, and only while few are at work: a read is never
 * queued for it, and the event loop does nothing of it.
 *
 * Only for reads that return an app's data. An answer with a secret stays as it is: the length of a compressed answer says how much a
 * text that an attacker has chosen and a secret beside it have in common (BREACH).
 */
import { promisify } from 'node:util';
import { brotliCompress, gzip, constants as zlib } from 'node:zlib';
import { Rejection } from '../errors.ts';
import { acceptedEncodings } from './assets.ts';
import type { Answer, Exchange, Outcome } from './exchange.ts';

/** The request header that {@link compressedAnswer} reads. */
export const ACCEPT_ENCODING = 'accept-encoding';

/** Smaller answers fit into a packet or two. */
const LEAST_BYTES = 2_048;
/** A larger answer would take a thread for too long. */
const MOST_BYTES = 8_388_608;
/** Compressions at once: the threads also serve files, names and passwords. */
const MOST_AT_ONCE = 2;
/** The fastest of gzip; Brotli at this quality takes as long, for less bytes. */
const GZIP = { level: 1 } as const;
const BROTLI = { params: { [zlib.BROTLI_PARAM_QUALITY]: 3 } } as const;

let running = 0;

/** Whether a client takes a content coding (RFC 9110, 12.5.3). */
export function takesCoding(exchange: Pick<Exchange, 'header'>, coding: 'br' | 'gzip'): boolean {
  const accepted = acceptedEncodings(exchange.header(ACCEPT_ENCODING));
  return accepted.has(coding) || accepted.has('*');
}

/** The outcome of a read, compressed if that is worth it. */
export async function compressedAnswer(
  exchange: Pick<Exchange, 'header' | 'settled'>,
  outcome: Outcome,
): Promise<Outcome> {
  if (!isLargeJson(outcome) || exchange.settled) return outcome;
  const answer = { ...outcome, headers: { ...outcome.headers, Vary: 'Accept-Encoding' } };
  const coding = (['br', 'gzip'] as const).find((one) => takesCoding(exchange, one));
  if (coding === undefined || running >= MOST_AT_ONCE) return answer;
  running += 1;
  try {
    const body = await (coding === 'br'
      ? promisify(brotliCompress)(outcome.body, BROTLI)
      : promisify(gzip)(outcome.body, GZIP));
    return {
      ...answer,
      body,
      bytes: body.length,
      headers: { ...answer.headers, 'Content-Encoding': coding },
    };
  } finally {
    running -= 1;
  }
}

function isLargeJson(outcome: Outcome): outcome is Answer {
  if (outcome instanceof Rejection || 'open' in outcome || outcome.status !== 200) return false;
  const { body, bytes = typeof body === 'string' ? Buffer.byteLength(body) : body.length } = outcome;
  return outcome.contentType === undefined && bytes >= LEAST_BYTES && bytes <= MOST_BYTES;
}
