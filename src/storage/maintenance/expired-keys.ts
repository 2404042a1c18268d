/** The table of idempotency keys beside what the writer does: expired keys are removed, and a lock on it is noticed. */
import { type Sql, unlessLocked } from '../database/connect.ts';
import { KEY_LIFE_MS } from '../write/inserts.ts';
import type { Step } from './steps.ts';

/** Limit of rows per call: a call takes about 50 ms. */
const MAX_ROWS = 10_000;

/** How long a lock on the table is waited for. */
const LOCK_TIMEOUT_MS = 100;

/**
 * Removes the oldest expired keys. May run in several processes at once.
 * @param from the same; older keys are not looked for
 * @returns number of removed keys
 */
export async function removeExpiredKeys(sql: Sql, now: number, from = 0): Promise<number> {
  return await sql.begin('isolation level read committed', async (tx) => {
    // Other maintenance comes after it. The planner underestimates dead rows here: the index is forced.
    const bounded = tx
      .unsafe(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}; SET LOCAL enable_seqscan = off`)
      .execute();
    const removed = tx`
      WITH expired AS (
        SELECT app_id, key_digest FROM idempotency_keys
         WHERE created_at >= ${new Date(from)} AND created_at <= ${new Date(now - KEY_LIFE_MS)}
         ORDER BY created_at LIMIT ${MAX_ROWS} FOR UPDATE SKIP LOCKED
      )
      DELETE FROM idempotency_keys AS known USING expired
       WHERE known.app_id = expired.app_id AND known.key_digest = expired.key_digest`.execute();
    const [{ count }] = await Promise.all([removed, bounded]);
    return count;
  });
}

/** After so long all expired keys are looked for again: another process may have failed to remove some, or a clock was set. */
const LOOK_AGAIN_MS = 600_000;

/**
 * Removes expired keys again and again. While a snapshot stays in use, removed keys stay in the table as dead rows, at the very
 * beginning of what is looked through; so each run begins after what an earlier one has removed.
 */
export class ExpiredKeys {
  readonly #sql: Sql;
  #from = 0;
  #lookAgainAt = 0;

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  /** Does nothing while another session has the table locked. */
  async remove(now: number): Promise<number> {
    const isDue = now >= this.#lookAgainAt || now < this.#lookAgainAt - LOOK_AGAIN_MS;
    if (isDue) [this.#from, this.#lookAgainAt] = [0, now + LOOK_AGAIN_MS];
    const removed = await unlessLocked(() => removeExpiredKeys(this.#sql, now, this.#from));
    if (removed !== null && removed < MAX_ROWS) this.#from = now - KEY_LIFE_MS;
    return removed ?? 0;
  }
}

/** The step that removes them on one server. */
export function expiredKeysStep(sql: Sql, now: () => number): Step {
  const keys = new ExpiredKeys(sql);
  return { name: 'expired keys', every: 'second', run: () => keys.remove(now()) };
}

/** Whether another session has a lock on the table of keys, or asks for one, that keeps rows out. It does not wait. */
export async function areKeysLocked(sql: Sql): Promise<boolean> {
  const locking = () => sql`DO $$ BEGIN LOCK TABLE idempotency_keys IN ROW EXCLUSIVE MODE NOWAIT; END $$`;
  return (await unlessLocked(locking)) === null;
}
