/** Idempotency keys that were used before: what their requests were answered. */

import { Rejection } from '../errors.ts';
import type { Answer } from '../http/exchange.ts';
import type { Sql } from '../storage/connect.ts';
import { KEY_LIFE_MS } from '../storage/expired-keys.ts';
import type { KeyedRequest } from './idempotency-key.ts';

export interface KnownKey {
  readonly bodyDigest: Buffer;
  readonly status: number;
  readonly answer: string;
}

/** Of several keys those that are known; `index` is the key's in the two arrays of apps and of digests. */
export const FIND_KEYS = `
  SELECT request.number::int - 1 AS index, body_digest AS "bodyDigest", status, answer
    FROM unnest($1::int[], $2::bytea[]) WITH ORDINALITY AS request (app_id, key_digest, number)
    JOIN idempotency_keys USING (app_id, key_digest)`;

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
  const [known] = await sql<KnownKey[]>`
    SELECT body_digest AS "bodyDigest", status, answer FROM idempotency_keys
     WHERE app_id = ${appId} AND key_digest = ${request.keyDigest}
       AND created_at > ${new Date(now - KEY_LIFE_MS)}`;
  return known === undefined ? null : repeated(known, request);
}
