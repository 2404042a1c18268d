/** One process at a time works on the counts of fields: it counts, compares, or removes. */
import { errorCode, SQLSTATE, type Transaction, type Transactions } from '../database/connect.ts';
import { SNAPSHOT_LOCK } from '../read/snapshot.ts';

/** Somebody else works on fields, or has just changed one. */
const LATER: ReadonlySet<string> = new Set([SQLSTATE.lockNotAvailable, SQLSTATE.serializationFailure]);

/**
 * Runs work on fields in one snapshot, beside no other such work, and beside nothing that removes rows from older snapshots. The locks, of
 * tables without use otherwise, come before the snapshot.
 * @returns null where another process does such work: it is to be tried again
 */
export async function withFieldsLocked<T extends object | number>(
  sql: Transactions,
  work: (tx: Transaction) => Promise<T>,
): Promise<T | null> {
  try {
    return await sql.begin('isolation level repeatable read', async (tx) => {
      await tx`LOCK TABLE field_folds IN EXCLUSIVE MODE NOWAIT`;
      if (sql.pool.database.engine.snapshots.locks)
        await tx`LOCK TABLE ${tx(SNAPSHOT_LOCK)} IN ACCESS SHARE MODE`;
      return await work(tx);
    });
  } catch (error) {
    if (LATER.has(errorCode(error) ?? '')) return null;
    throw error;
  }
}
