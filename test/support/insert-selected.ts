/** Events that are made inside of the database. */
import type postgres from 'postgres';
import type { Sql, Transaction } from '../../src/storage/database/connect.ts';
import type { Engine } from '../../src/storage/database/engine.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { REFUSES_DAYS_AWAY } from '../../src/storage/write/days-away.ts';
import { insertMissing } from '../../src/storage/write/inserts.ts';

/**
 * Stores the missing rows of a query, with their counts. Those of days that are away are as new as any.
 * @param rows SELECT of `EVENT_COLUMNS`
 * @returns how many were stored
 */
export async function insertSelected(
  sql: Sql | Transaction,
  engine: Engine,
  rows: postgres.PendingQuery<postgres.Row[]>,
): Promise<number> {
  const { before, after } = insertMissing(ENGINES[engine].writes);
  const [result] = await sql<{ stored: number }[]>`
    WITH ${sql.unsafe(before)} ${rows} ${sql.unsafe(after.replace(REFUSES_DAYS_AWAY, 'NULL AS away'))}`;
  return result?.stored ?? 0;
}
