/** Removes idempotency keys whose time is over. */
import type { Sql } from './connect.ts';

/** How long a repeat of a request gets the first answer, in milliseconds. */
export const KEY_LIFE_MS = 24 * 3_600_000;

/** Rows of one call: some 50 ms of the upkeep's second. */
const PIECE = 10_000;

/**
 * Removes the oldest of the keys that are over, if there are any. Any number of processes may do so at once.
 * @param now milliseconds since 1970
 * @returns how many
 */
export async function removeExpiredKeys(sql: Sql, now: number): Promise<number> {
  const { count } = await sql`
    WITH expired AS (
      SELECT app_id, key_digest FROM idempotency_keys
       WHERE created_at <= ${new Date(now - KEY_LIFE_MS)}
       ORDER BY created_at LIMIT ${PIECE} FOR UPDATE SKIP LOCKED
    )
    DELETE FROM idempotency_keys AS known USING expired
     WHERE known.app_id = expired.app_id AND known.key_digest = expired.key_digest`;
  return count;
}
