/** Idempotency keys that were used before: what their requests are answered. */

import { Rejection } from '../errors.ts';
import type { Answer } from '../http/exchange.ts';
import type { Sql } from '../storage/connect.ts';
import { findKnownKey, type KeyedRequest, type KnownKey } from '../storage/write/keyed-writer.ts';

const REPLAYED = { 'Idempotent-Replayed': 'true' } as const;
const REUSED = new Rejection(
  'idempotencyKeyReused',
  'The Idempotency-Key was used within the last 24 hours for another request; nothing of this one is stored.',
);

/** The answer to a request whose key is known: the first one's again, or that it is another request. */
export function repeated(known: KnownKey, request: KeyedRequest): Answer | Rejection {
  if (!known.bodyDigest.equals(request.bodyDigest)) return REUSED;
  return { status: known.status, body: known.answer, headers: REPLAYED };
}

/**
 * Looks a key up before anything is done for its request: a repeated batch is not read again.
 * @param now milliseconds since the epoch
 * @returns null where the key is not known, or its time is over
 */
export async function findRepeated(
  sql: Sql,
  appId: number,
  request: KeyedRequest,
  now: number,
): Promise<Answer | Rejection | null> {
  const known = await findKnownKey(sql, appId, request, now);
  return known === null ? null : repeated(known, request);
}
