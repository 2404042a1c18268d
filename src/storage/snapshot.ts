/** Reads in one snapshot, so that totals and rows match whatever is committed concurrently. */
import type postgres from 'postgres';
import type { Sql, Transaction } from './connect.ts';

/** The table that readers lock in ACCESS SHARE mode while their snapshot is in use. */
export const SNAPSHOT_LOCK = 'snapshot_lock';

/** Pools where nothing is locked out of snapshots and no delta can be skipped. */
const PLAIN = new WeakSet<Sql>();

/**
 * Has reads of a pool begin with the snapshot alone. In a cluster every statement before it costs: a lock of a table would be
 * taken on all nodes.
 */
export function readPlainly(sql: Sql): Sql {
  PLAIN.add(sql);
  return sql;
}

/**
 * Runs reads of events and counts in one snapshot. The lock precedes the snapshot, which the first query takes: a statement
 * that would remove rows from older snapshots either commits before it or waits until the reads have ended.
 */
export async function readSnapshot<T>(sql: Sql, read: (tx: Transaction) => Promise<T>): Promise<T> {
  const outcome = await sql.begin('isolation level repeatable read read only', async (tx) => {
    if (PLAIN.has(sql)) return { value: await read(tx) };
    // Not awaited, so that it is sent together with the first query.
    const locked = tx`LOCK TABLE ${tx(SNAPSHOT_LOCK)} IN ACCESS SHARE MODE`.execute();
    const bounded = skipFolded(tx).execute();
    const [value] = await Promise.all([read(tx), locked, bounded]);
    // Wrapped in an object, because the client awaits each element of an array.
    return { value };
  });
  return outcome.value;
}

/** Tells the views of counts which deltas are folded in this snapshot (sql/0016, sql/0030), so that they need not be looked at. */
function skipFolded(tx: Transaction): postgres.PendingQuery<postgres.Row[]> {
  return tx`
    SELECT set_config('tidemark.pending_from', last_fold.pending_from::text, true),
           set_config('tidemark.pending_fields_from', last_field_fold.pending_from::text, true)
      FROM last_fold CROSS JOIN last_field_fold`;
}
