/** The tables of the numbers of fields: a summary for each field, type and bucket of a level. */

import type { Interval } from '../../counts/intervals.ts';
import { ALL_TYPES, floorTo, type Level } from '../../counts/levels.ts';
import { bytesArray } from '../../database/array-types.ts';
import type { Transaction } from '../../database/connect.ts';
import { NumberSummary } from './number-summary.ts';

/** Rows of one statement. */
const ROWS_AT_ONCE = 2_000;

/** The numbers of a field in a bucket. */
export interface NumberRow {
  /** Internal ids. */
  readonly appId: number;
  readonly fieldId: number;
  /** {@link ALL_TYPES}: events of all types, or of the only one that the field has. */
  readonly typeId: number;
  /** Milliseconds since 1970. */
  readonly bucket: number;
  readonly numbers: NumberSummary;
}

export function numbersTable({ name }: Pick<Level, 'name'>): string {
  return `field_${name}_numbers`;
}

export function numbersView({ name }: Pick<Level, 'name'>): string {
  return `numbers_per_${name}`;
}

/** Summaries by field, type and bucket. */
export class NumberRows {
  readonly #rows = new Map<string, NumberRow>();

  /** The summary of a key, made where there is none. */
  of({ appId, fieldId, typeId, bucket }: Omit<NumberRow, 'numbers'>): NumberSummary {
    const key = `${fieldId} ${typeId} ${bucket}`;
    const known = this.#rows.get(key);
    if (known !== undefined) return known.numbers;
    const numbers = new NumberSummary();
    this.#rows.set(key, { appId, fieldId, typeId, bucket, numbers });
    return numbers;
  }

  get(key: Omit<NumberRow, 'numbers'>): NumberSummary | undefined {
    return this.#rows.get(`${key.fieldId} ${key.typeId} ${key.bucket}`)?.numbers;
  }

  list(): readonly NumberRow[] {
    return [...this.#rows.values()];
  }

  /** The same by the buckets of a coarser level. */
  coarser({ ms }: Pick<Level, 'ms'>): NumberRows {
    const sums = new NumberRows();
    for (const { numbers, ...row } of this.#rows.values())
      sums.of({ ...row, bucket: floorTo(row.bucket, ms) }).add(numbers);
    return sums;
  }

  /** The same of all types together. */
  ofAllTypes(): NumberRows {
    const sums = new NumberRows();
    for (const { numbers, ...row } of this.#rows.values())
      sums.of({ ...row, typeId: ALL_TYPES }).add(numbers);
    return sums;
  }
}

/** Summaries of buckets of an interval. @param relation a table, or a view with what is pending */
export async function readRows(
  tx: Transaction,
  relation: string,
  { appId, id, typeId }: { readonly appId: number; readonly id: number; readonly typeId: number | null },
  { from, until }: Interval,
): Promise<NumberRows> {
  const found = new NumberRows();
  const rows = tx<StoredRow[]>`
    SELECT app_id AS "appId", field_id AS "fieldId", type_id AS "typeId", numbers,
           (extract(epoch FROM bucket) * 1000)::float8 AS time
      FROM ${tx(relation)}
     WHERE app_id = ${appId} AND field_id = ${id} AND bucket >= ${new Date(from)} AND bucket < ${new Date(until)}
       ${typeId === null ? tx`` : tx`AND type_id = ${ALL_TYPES}`}`;
  for await (const some of rows.cursor(ROWS_AT_ONCE))
    for (const { time, numbers, ...row } of some) found.of({ ...row, bucket: time }).addBytes(numbers);
  return found;
}

/** Adds summaries to those of a table. */
export async function addToTable(
  tx: Transaction,
  level: Pick<Level, 'name'>,
  added: NumberRows,
): Promise<void> {
  const rows = added.list();
  for (let from = 0; from < rows.length; from += ROWS_AT_ONCE) {
    const some = rows.slice(from, from + ROWS_AT_ONCE);
    const sums = new NumberRows();
    for (const { appId, fieldId, typeId, time, numbers } of await tx<StoredRow[]>`
      SELECT app_id AS "appId", field_id AS "fieldId", type_id AS "typeId", numbers,
             (extract(epoch FROM bucket) * 1000)::float8 AS time
        FROM ${keysOf(tx, some)} JOIN ${tx(numbersTable(level))} USING (app_id, field_id, type_id, bucket)`)
      sums.of({ appId, fieldId, typeId, bucket: time }).addBytes(numbers);
    for (const { numbers, ...row } of some) sums.of(row).add(numbers);
    await writeSome(tx, level, sums.list());
  }
}

export interface StoredRow extends Omit<NumberRow, 'numbers' | 'bucket'> {
  readonly time: number;
  readonly numbers: Uint8Array;
}

/** Makes summaries those of a table; empty ones have no row there. */
export async function writeToTable(
  tx: Transaction,
  level: Pick<Level, 'name'>,
  rows: readonly NumberRow[],
): Promise<void> {
  for (let from = 0; from < rows.length; from += ROWS_AT_ONCE)
    await writeSome(tx, level, rows.slice(from, from + ROWS_AT_ONCE));
}

async function writeSome(
  tx: Transaction,
  level: Pick<Level, 'name'>,
  rows: readonly NumberRow[],
): Promise<void> {
  const table = tx(numbersTable(level));
  const gone = rows.filter(({ numbers }) => numbers.isEmpty);
  const kept = rows.filter(({ numbers }) => !numbers.isEmpty);
  if (gone.length > 0)
    await tx`
      DELETE FROM ${table} AS known USING ${keysOf(tx, gone)}
       WHERE known.app_id = key.app_id AND known.field_id = key.field_id AND known.type_id = key.type_id
         AND known.bucket = key.bucket`;
  if (kept.length > 0)
    await tx`
      INSERT INTO ${table} (app_id, field_id, type_id, bucket, numbers)
      SELECT * FROM unnest(${kept.map(({ appId }) => appId)}::integer[], ${kept.map(({ fieldId }) => fieldId)}::integer[],
                           ${kept.map(({ typeId }) => typeId)}::integer[], ${timesOf(kept)}::timestamptz[],
                           ${bytesArray(
                             tx,
                             kept.map(({ numbers }) => numbers.toBytes()),
                           )}::bytea[])
      ON CONFLICT (app_id, field_id, type_id, bucket) DO UPDATE SET numbers = excluded.numbers`;
}

function keysOf(tx: Transaction, rows: readonly NumberRow[]) {
  return tx`
    unnest(${rows.map(({ appId }) => appId)}::integer[], ${rows.map(({ fieldId }) => fieldId)}::integer[],
           ${rows.map(({ typeId }) => typeId)}::integer[], ${timesOf(rows)}::timestamptz[])
      AS key (app_id, field_id, type_id, bucket)`;
}

function timesOf(rows: readonly NumberRow[]): string[] {
  return rows.map(({ bucket }) => new Date(bucket).toISOString());
}
