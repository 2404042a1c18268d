/** Reads in one snapshot: totals and rows that belong together, whatever is committed meanwhile. */
import type postgres from 'postgres';
import type { Sql, Transaction } from './connect.ts';

/** The table that readers hold in ACCESS SHARE mode while their snapshot is in use (sql/0015). */
export const SNAPSHOT_LOCK = 'snapshot_lock';

/**
 * Runs reads of events and counts in one snapshot. The lock comes before the snapshot, which the first query takes: a
 * statement that would lose rows of older snapshots is committed before it or waits until the reads have ended.
 */
export async function readSnapshot<T>(sql: Sql, read: (tx: Transaction) => Promise<T>): Promise<T> {
  const outcome = await sql.begin('isolation level repeatable read read only', async (tx) => {
    // Sent together with the first query, not before it.
    const locked = tx`LOCK TABLE ${tx(SNAPSHOT_LOCK)} IN ACCESS SHARE MODE`.execute();
    const bounded = skipFolded(tx).execute();
    const [value] = await Promise.all([read(tx), locked, bounded]);
    // Wrapped: the pool would wait for each element of an array.
    return { value };
  });
  return outcome.value;
}

/** Tells the views of counts which deltas are folded in this snapshot (sql/0016), so that they need not be looked at. */
function skipFolded(tx: Transaction): postgres.PendingQuery<postgres.Row[]> {
  return tx`SELECT set_config('tidemark.pending_from', pending_from::text, true) FROM last_fold`;
}
