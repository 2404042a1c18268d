/** Removes expired idempotency keys. */
import type { Sql } from './connect.ts';

/** How long the response to a keyed request is kept, in milliseconds. */
export const KEY_LIFE_MS = 24 * 3_600_000;

/** Limit of rows per call: a call takes about 50 ms. */
const MAX_ROWS = 10_000;

/**
 * Removes the oldest expired keys. May run in several processes at once.
 * @param now milliseconds since 1970
 * @returns number of removed keys
 */
export async function removeExpiredKeys(sql: Sql, now: number): Promise<number> {
  const { count } = await sql`
    WITH expired AS (
      SELECT app_id, key_digest FROM idempotency_keys
       WHERE created_at <= ${new Date(now - KEY_LIFE_MS)}
       ORDER BY created_at LIMIT ${MAX_ROWS} FOR UPDATE SKIP LOCKED
    )
    DELETE FROM idempotency_keys AS known USING expired
     WHERE known.app_id = expired.app_id AND known.key_digest = expired.key_digest`;
  return count;
}
