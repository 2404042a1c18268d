/**
 * Inserts of rows with their changes of the counts, step by step in one transaction, for a cluster: a statement that inserts
 * twice would need every node of it, where each of these needs the node of its rows alone.
 */
import { MINUTE_MS } from '../counts/levels.ts';
import { ConnectionLost, type WriteConnection } from '../database/copy-connection.ts';
import { timestamp } from './accepted-event.ts';
import { EVENT_COLUMNS, type KeyedInsert } from './insert-events.ts';

type Columns = readonly (readonly unknown[])[];

/** The columns of a parameter each: ids, apps, types, times and payloads. */
const ROWS = `
  INSERT INTO events (${EVENT_COLUMNS})
  SELECT id, app_id, type_id, created_at, payload::json
    FROM unnest($1::uuid[], $2::int[], $3::int[], $4::timestamptz[], $5::text[]) WITH ORDINALITY
      AS batch (id, app_id, type_id, created_at, payload, place)
   ORDER BY app_id, created_at, id, place`;
const STORED = `
  RETURNING id, app_id AS "appId", type_id AS "typeId", (extract(epoch FROM created_at) * 1000)::float8 AS at`;

/** Inserts the rows that are missing. It counts nothing. */
export const INSERT_MISSING_ROWS = `${ROWS} ON CONFLICT DO NOTHING${STORED}`;
const INSERT_NEW_ROWS = `${ROWS}${STORED}`;

const INSERT_DELTAS = `
  INSERT INTO count_deltas (app_id, type_id, bucket, count)
  SELECT app_id, type_id, bucket, count
    FROM unnest($1::int[], $2::int[], $3::timestamptz[], $4::bigint[]) AS delta (app_id, type_id, bucket, count)`;

interface StoredRow {
  readonly id: string;
  readonly appId: number;
  readonly typeId: number;
  readonly at: number;
}

/** Runs steps in a transaction. What fails in it is thrown, and nothing of it is stored. */
export async function inTransaction<T>(connection: WriteConnection, steps: () => Promise<T>): Promise<T> {
  await connection.query('BEGIN ISOLATION LEVEL READ COMMITTED', []);
  try {
    const outcome = await steps();
    await connection.query('COMMIT', []);
    return outcome;
  } catch (error) {
    if (!(error instanceof ConnectionLost)) await connection.query('ROLLBACK', []).catch(() => undefined); // It is over anyway.
    throw error;
  }
}

/**
 * Inserts the rows that are missing and counts exactly those, in an open transaction.
 * @param columns ids, apps, types, times and payloads
 * @param bytes   approximate size of the values
 * @param isNew   whether none of them can be stored already: then all are stored, or it fails
 */
export async function insertRows(
  connection: WriteConnection,
  columns: Columns,
  { bytes, epoch, isNew = false }: { bytes: number; epoch?: number | undefined; isNew?: boolean },
): Promise<KeyedInsert> {
  const statement = isNew ? INSERT_NEW_ROWS : INSERT_MISSING_ROWS;
  const { rows } = await connection.query<StoredRow>(statement, columns, bytes, epoch);
  const deltas = deltasOf(rows);
  if (deltas.length > 0)
    await connection.query(INSERT_DELTAS, [
      deltas.map(({ appId }) => appId),
      deltas.map(({ typeId }) => typeId),
      deltas.map(({ bucket }) => timestamp(bucket)),
      deltas.map(({ count }) => count),
    ]);
  const stored = new Set(rows.map(({ id }) => id));
  const sent = columns[0] ?? [];
  return { stored: rows.length, repeated: sent.map(String).filter((id) => !stored.has(id)) };
}

interface Delta {
  readonly appId: number;
  readonly typeId: number;
  readonly bucket: number;
  count: number;
}

function deltasOf(rows: readonly StoredRow[]): readonly Delta[] {
  const deltas = new Map<string, Delta>();
  for (const { appId, typeId, at } of rows) {
    const bucket = Math.floor(at / MINUTE_MS) * MINUTE_MS;
    const key = `${appId} ${typeId} ${bucket}`;
    const delta = deltas.get(key);
    if (delta === undefined) deltas.set(key, { appId, typeId, bucket, count: 1 });
    else delta.count += 1;
  }
  return [...deltas.values()];
}
