/** One process at a time works on the counts of fields: it counts, compares, or removes. */
import { errorCode, SQLSTATE, type Transaction, type Transactions } from '../database/connect.ts';

/** Somebody else works on fields, or has just changed one. */
const LATER: ReadonlySet<string> = new Set([SQLSTATE.lockNotAvailable, SQLSTATE.serializationFailure]);

/**
 * Runs work on fields in one snapshot, beside no other such work. The lock, of a table without use otherwise, comes before the snapshot.
 * @returns null where another process does such work: it is to be tried again
 */
export async function withFieldsLocked<T extends object | number>(
  sql: Transactions,
  work: (tx: Transaction) => Promise<T>,
): Promise<T | null> {
  try {
    const outcome = await sql.begin('isolation level repeatable read', async (tx) => {
      await tx`LOCK TABLE field_folds IN EXCLUSIVE MODE NOWAIT`;
      return { value: await work(tx) };
    });
    return outcome.value;
  } catch (error) {
    if (LATER.has(errorCode(error) ?? '')) return null;
    throw error;
  }
}
