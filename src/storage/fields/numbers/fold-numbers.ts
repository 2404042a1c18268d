/** Adds the pending deltas of numbers to the summaries of every level, or to one another. */

import { LEVELS } from '../../counts/levels.ts';
import { bytesArray } from '../../database/array-types.ts';
import type { Transaction } from '../../database/connect.ts';
import { FIELD_DELTAS } from '../copy-values.ts';
import { NUMBERS } from '../value-text.ts';
import { addToTable, NumberRows, type StoredRow } from './number-tables.ts';

/** Deltas that are in memory at once, as bytes. */
const DELTAS_AT_ONCE = 5_000;

/** What pending deltas add to minutes. */
export interface PendingNumbers {
  readonly minutes: NumberRows;
  /** Fields that have summaries of single types, too. */
  readonly byType: ReadonlySet<number>;
}

/**
 * Of fields that are there.
 * @param tx      that deletes these deltas afterwards, in the same snapshot; with the fields locked (fold.ts)
 * @param pending condition of the deltas
 */
export async function readPendingNumbers(tx: Transaction, pending: string): Promise<PendingNumbers> {
  const minutes = new NumberRows();
  const fields = new Set<number>();
  const deltas = tx<(StoredRow & { byType: boolean })[]>`
    SELECT delta.app_id AS "appId", field_id AS "fieldId", delta.type_id AS "typeId", numbers,
           (extract(epoch FROM bucket) * 1000)::float8 AS time, field.type_id IS NULL AS "byType"
      FROM field_deltas AS delta JOIN declared_fields AS field ON field.id = field_id AND removed_at IS NULL
     WHERE ${tx.unsafe(pending)} AND numbers IS NOT NULL`;
  for await (const some of deltas.cursor(DELTAS_AT_ONCE)) {
    for (const { time, byType, numbers, ...key } of some) {
      minutes.of({ ...key, bucket: time }).addBytes(numbers);
      if (byType) fields.add(key.fieldId);
    }
  }
  return { minutes, byType: fields };
}

/** @returns how many events are in no statistic */
export async function foldNumbers(tx: Transaction, { minutes, byType }: PendingNumbers): Promise<number> {
  const added = minutes.ofAllTypes();
  const leftOut = added
    .list()
    .reduce((sum, { numbers }) => sum + numbers.leftOut.several + numbers.leftOut.unrepresentable, 0);
  for (const { numbers, ...row } of minutes.list()) if (byType.has(row.fieldId)) added.of(row).add(numbers);
  for (const level of LEVELS) await addToTable(tx, level, added.coarser(level));
  return leftOut;
}

/** Makes one delta of those of each minute. */
export async function writePendingNumbers(tx: Transaction, { minutes }: PendingNumbers): Promise<void> {
  const rows = minutes.list().filter(({ numbers }) => !numbers.isEmpty);
  if (rows.length === 0) return;
  await tx`
    INSERT INTO ${tx.unsafe(FIELD_DELTAS)}
    SELECT app_id, field_id, type_id, bucket, 0, ${NUMBERS}, numbers
      FROM unnest(${rows.map(({ appId }) => appId)}::integer[], ${rows.map(({ fieldId }) => fieldId)}::integer[],
                  ${rows.map(({ typeId }) => typeId)}::integer[],
                  ${rows.map(({ bucket }) => new Date(bucket).toISOString())}::timestamptz[],
                  ${bytesArray(
                    tx,
                    rows.map(({ numbers }) => numbers.toBytes()),
                  )}::bytea[]) AS minute (app_id, field_id, type_id, bucket, numbers)`;
}
