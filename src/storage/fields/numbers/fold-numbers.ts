/** Adds the pending deltas of numbers to the summaries of every level. */
import type { Transaction } from '../../connect.ts';
import { ALL_TYPES, LEVELS } from '../../counts/levels.ts';
import { addToTable, NumberRows, type StoredRow } from './number-tables.ts';

/** Deltas that are in memory at once, as bytes. */
const DELTAS_AT_ONCE = 5_000;

/**
 * @param tx      that deletes the deltas, too, in the same snapshot; with the fields locked (fold.ts)
 * @param pending condition of the deltas that are to be folded
 * @returns how many of their events are in no statistic
 */
export async function foldNumbers(tx: Transaction, pending: string): Promise<number> {
  const minutes = new NumberRows();
  const deltas = tx<(StoredRow & { byType: boolean })[]>`
    SELECT delta.app_id AS "appId", field_id AS "fieldId", delta.type_id AS "typeId", numbers,
           (extract(epoch FROM bucket) * 1000)::float8 AS time, field.type_id IS NULL AS "byType"
      FROM field_deltas AS delta JOIN declared_fields AS field ON field.id = field_id AND removed_at IS NULL
     WHERE ${tx.unsafe(pending)} AND numbers IS NOT NULL`;
  for await (const some of deltas.cursor(DELTAS_AT_ONCE)) {
    for (const { appId, fieldId, typeId, time, byType, numbers } of some) {
      const types = byType ? [ALL_TYPES, typeId] : [ALL_TYPES];
      for (const type of types) minutes.of({ appId, fieldId, typeId: type, bucket: time }).addBytes(numbers);
    }
  }
  for (const level of LEVELS) await addToTable(tx, level, minutes.coarser(level));
  return minutes
    .list()
    .filter(({ typeId }) => typeId === ALL_TYPES)
    .reduce((sum, { numbers: { leftOut } }) => sum + leftOut.several + leftOut.unrepresentable, 0);
}
