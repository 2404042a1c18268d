/** Responses to requests whose Idempotency-Key was used before. */

import { Rejection } from '../errors.ts';
import type { Answer } from '../http/exchange.ts';
import type { Sql } from '../storage/database/connect.ts';
import { findKnownKey, type KnownKey, type RequestIdentity } from '../storage/write/idempotent-writer.ts';

const REPLAYED = { 'Idempotent-Replayed': 'true' } as const;
const REUSED = new Rejection(
  'idempotencyKeyReused',
  'The Idempotency-Key was used within the last 24 hours for another request; nothing of this one is stored.',
);

/** The response to a request with a known key: the stored response, or a refusal if the request differs. */
export function repeated(known: KnownKey, request: RequestIdentity): Answer | Rejection {
  if (!known.bodyDigest.equals(request.bodyDigest)) return REUSED;
  return { status: known.status, body: known.answer, headers: REPLAYED };
}

/** {@link findRepeated} for one database and clock. */
export type FindRepeated = (appId: number, request: RequestIdentity) => Promise<Answer | Rejection | null>;

/**
 * Looks up a key before its request is parsed.
 * @param now milliseconds since the epoch
 * @returns null if the key is unknown or has expired
 */
export async function findRepeated(
  sql: Sql,
  appId: number,
  request: RequestIdentity,
  now: number,
): Promise<Answer | Rejection | null> {
  const known = await findKnownKey(sql, appId, request, now);
  return known === null ? null : repeated(known, request);
}
