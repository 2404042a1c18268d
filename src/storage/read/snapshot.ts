/** Reads in one snapshot, so that totals and rows match whatever is committed concurrently. */
import type postgres from 'postgres';
import { type Snapshot, StaleBuckets } from '../counts/stale.ts';
import { poolOf, type Sql, type Transaction } from '../database/connect.ts';

/** The table that readers lock in ACCESS SHARE mode while their snapshot is in use. */
export const SNAPSHOT_LOCK = 'snapshot_lock';

/** Pools where nothing is locked out of snapshots and no delta can be skipped. */
const PLAIN = new WeakSet<Sql>();

/**
 * Has reads of a pool begin with the snapshot alone. In a cluster every statement before it costs: a lock of a table would be
 * taken on all nodes.
 */
export function readWithoutSnapshotLock(sql: Sql): Sql {
  PLAIN.add(poolOf(sql));
  return sql;
}

/** Pools, and the transactions of {@link readCounts}, of an engine whose counts are tables without partitions. */
const WITH_PLAIN_COUNTS = new WeakSet<Sql | Transaction>();

/** Has {@link readCounts} keep plans: for an engine whose counts have no partitions. */
export function useGenericPlans(sql: Sql): Sql {
  WITH_PLAIN_COUNTS.add(poolOf(sql));
  return sql;
}

/** Whether plans are kept in a transaction, so that a longer statement costs no longer planning. */
export const keepsPlans = (tx: Transaction): boolean => WITH_PLAIN_COUNTS.has(tx);

/**
 * Runs reads of events and counts in one snapshot. The lock precedes the snapshot, which the first query takes: a statement
 * that would remove rows from older snapshots either commits before it or waits until the reads have ended.
 */
export async function readSnapshot<T>(sql: Sql, read: (tx: Snapshot) => Promise<T>): Promise<T> {
  return await beginSnapshot(sql, read, skipFolded);
}

/**
 * The same for reads that find what they need in the counts, each statement of which costs more to plan than to run. Counts without
 * partitions can do with a plan that is made for any times, which a connection keeps until statistics change. Such a plan always goes by
 * an index: for all that it knows, a table may have grown, or be full of dead rows, since its statistics were made.
 * {@link withCustomPlan} is for statements on events, and for those whose best plan depends on the times.
 */
export async function readCounts<T>(sql: Sql, read: (tx: Snapshot) => Promise<T>): Promise<T> {
  if (!WITH_PLAIN_COUNTS.has(poolOf(sql))) return await readSnapshot(sql, read);
  const marked = async (tx: Snapshot): Promise<T> => {
    WITH_PLAIN_COUNTS.add(tx);
    return await read(tx);
  };
  return await beginSnapshot(sql, marked, (tx) => skipFolded(tx, tx`, ${keptPlans(tx)}`));
}

/** Runs a statement with a plan for its own times, of which only the partitions that it needs are a part. */
export async function withCustomPlan<T extends readonly postgres.MaybeRow[]>(
  tx: Transaction,
  statement: postgres.PendingQuery<T>,
): Promise<T> {
  if (!keepsPlans(tx)) return await statement;
  // All three are sent together.
  const [, rows] = await Promise.all([tx`SELECT ${ownPlans(tx)}`, statement, tx`SELECT ${keptPlans(tx)}`]);
  return rows;
}

const keptPlans = (tx: Transaction): postgres.PendingQuery<postgres.Row[]> =>
  tx`set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true)`;
/** As sessions begin. */
const ownPlans = (tx: Transaction): postgres.PendingQuery<postgres.Row[]> =>
  tx`set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'on', true)`;

async function beginSnapshot<T>(
  sql: Sql,
  read: (tx: Snapshot) => Promise<T>,
  prepare: (tx: Transaction) => postgres.PendingQuery<postgres.Row[]>,
): Promise<T> {
  const pool = poolOf(sql);
  const isExact = PLAIN.has(pool) || WITH_PLAIN_COUNTS.has(pool);
  const outcome = await sql.begin('isolation level repeatable read read only', async (began) => {
    const tx = Object.assign(began, { stale: new StaleBuckets(began, isExact) });
    if (PLAIN.has(pool)) return { value: await read(tx) };
    // Not awaited, so that it is sent together with the first query.
    const locked = tx`LOCK TABLE ${tx(SNAPSHOT_LOCK)} IN ACCESS SHARE MODE`.execute();
    const prepared = prepare(tx).execute();
    const [value] = await Promise.all([read(tx), locked, prepared]);
    // Wrapped in an object, because the client awaits each element of an array.
    return { value };
  });
  return outcome.value;
}

/** Tells the views of counts which deltas are folded in this snapshot (sql/0002), so that they need not be looked at. */
function skipFolded(tx: Transaction, more = tx``): postgres.PendingQuery<postgres.Row[]> {
  return tx`
    SELECT set_config('tidemark.pending_from', last_fold.pending_from::text, true) ${more}
      FROM last_fold`;
}
