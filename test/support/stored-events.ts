/** Events straight into a database, without the service, and with the counts that belong to them. */
import type { Sql, Transaction } from '../../src/storage/database/connect.ts';
import type { Engine } from '../../src/storage/database/engine.ts';
import { insertSelected } from './insert-selected.ts';

export interface EventRow {
  readonly id: string;
  /** Internal ids. */
  readonly appId: number;
  readonly typeId: number;
  /** Milliseconds since 1970. There must be room for it. */
  readonly at: number;
  /** JSON text. */
  readonly payload: string;
}

export async function storeRows(
  sql: Sql | Transaction,
  engine: Engine,
  rows: readonly EventRow[],
): Promise<void> {
  const values = sql`
    SELECT id, app_id, type_id, created_at, payload::json FROM unnest(
      ${rows.map(({ id }) => id)}::uuid[], ${rows.map(({ appId }) => appId)}::integer[],
      ${rows.map(({ typeId }) => typeId)}::integer[],
      ${rows.map(({ at }) => new Date(at).toISOString())}::timestamptz[],
      ${rows.map(({ payload }) => payload)}::text[]) AS given (id, app_id, type_id, created_at, payload)`;
  await insertSelected(sql, engine, values);
}
