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

/** Pools, and the transactions of their snapshots, where counts are tables without partitions. */
const WITH_PLAIN_COUNTS = new WeakSet<Sql | Transaction>();

/** Has reads of a pool keep the plans of {@link findInCounts}: for an engine whose counts have no partitions. */
export function keepPlansOfCounts(sql: Sql): Sql {
  WITH_PLAIN_COUNTS.add(sql);
  return sql;
}

/** Whether the plans of {@link findInCounts} are kept, so that a longer statement costs no longer planning. */
export const keepsPlansOfCounts = (tx: Transaction): boolean => WITH_PLAIN_COUNTS.has(tx);

/**
 * Runs a statement on counts alone. To plan it takes several times as long as to run it, so a connection keeps its plan, whatever the
 * times are, where these decide about no partitions (SESSION_PARAMETERS has all others planned each time).
 */
export async function findInCounts<T extends postgres.Row[]>(
  tx: Transaction,
  statement: postgres.PendingQuery<T>,
): Promise<T> {
  if (!keepsPlansOfCounts(tx)) return await statement;
  // All three are sent together.
  const [, found] = await Promise.all([
    tx`SET LOCAL plan_cache_mode = force_generic_plan`,
    statement,
    tx`SET LOCAL plan_cache_mode = force_custom_plan`,
  ]);
  return found;
}

/**
 * Runs reads of events and counts in one snapshot. The lock precedes the snapshot, which the first query takes: a statement
 * that would remove rows from older snapshots either commits before it or waits until the reads have ended.
 */
export async function readSnapshot<T>(sql: Sql, read: (tx: Transaction) => Promise<T>): Promise<T> {
  const outcome = await sql.begin('isolation level repeatable read read only', async (tx) => {
    if (PLAIN.has(sql)) return { value: await read(tx) };
    if (WITH_PLAIN_COUNTS.has(sql)) WITH_PLAIN_COUNTS.add(tx);
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
