/** Responses to requests whose Idempotency-Key was used before. */

import { answerInTime, LookupBusy, type LookupOutage, LookupUnavailable } from '../cache/lookup-cache.ts';
import { Rejection } from '../errors.ts';
import type { Answer } from '../http/exchange.ts';
import type { Sql } from '../storage/database/connect.ts';
import { findKnownKey, type KnownKey, type RequestIdentity } from '../storage/write/idempotent-writer.ts';
import type { KeyTable } from './queue/key-table.ts';

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

/**
 * Looks up a key before its request is parsed.
 * @returns null if the key is unknown or has expired
 * @throws LookupUnavailable, LookupBusy
 */
export type FindRepeated = (appId: number, request: RequestIdentity) => Promise<Answer | Rejection | null>;

export interface RepeatedFinderOptions {
  /** Connections to where the events of an app are. */
  readonly reach: (appId: number) => Promise<Sql>;
  readonly outage: LookupOutage;
  readonly keyTable: Pick<KeyTable, 'refusal' | 'suspect'>;
  readonly now: () => number;
}

export function repeatedFinder({ reach, outage, keyTable, now }: RepeatedFinderOptions): FindRepeated {
  const find = async (appId: number, request: RequestIdentity): Promise<Answer | Rejection | null> => {
    const known = await findKnownKey(await reach(appId), appId, request, now());
    return known === null ? null : repeated(known, request);
  };
  return async (appId, request) => {
    if (outage.isUnreachable()) throw new LookupUnavailable('The database is unreachable');
    if (keyTable.refusal !== null) return keyTable.refusal;
    try {
      return await answerInTime(find(appId, request), outage);
    } catch (error) {
      if (error instanceof LookupUnavailable || error instanceof LookupBusy) void keyTable.suspect();
      throw error;
    }
  };
}
