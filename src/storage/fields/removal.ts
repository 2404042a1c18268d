/** Removes counts of fields: those of removed fields and apps, and those by the minute that retention has passed. */

import { HOUR_MS, LEVELS } from '../counts/levels.ts';
import type { Transaction, Transactions } from '../database/connect.ts';
import { withFieldsLocked } from './fields-lock.ts';

/** The tables of the counts of fields: by level and by month. */
const TABLES = [...LEVELS.map(({ name }) => `field_${name}_counts`), 'field_month_counts'];

/** Series whose counts one transaction looks for. */
const SERIES_AT_ONCE = 500;
/** Rows that one transaction removes from a table, and transactions of one call: folds come after it in the same round. */
const ROWS_AT_ONCE = 20_000;
const REMOVALS = 100;

/** Removes fields that were marked as removed, with their counts. The next call goes on where there are many. */
export async function removeFields(sql: Transactions): Promise<void> {
  const fields = await sql.begin(
    'isolation level read committed',
    (tx) => tx<{ id: number; appId: number }[]>`
      SELECT id, app_id AS "appId" FROM declared_fields WHERE removed_at IS NOT NULL ORDER BY id`,
  );
  let removals = 0;
  for (const { id, appId } of fields) {
    let left: number | null = SERIES_AT_ONCE;
    while (left !== null && left > 0) {
      if (removals === REMOVALS) return;
      removals += 1;
      left = await withFieldsLocked(sql, (tx) => removeSeries(tx, appId, id));
    }
    if (left !== null)
      await sql.begin(
        'isolation level read committed',
        (tx) => tx`DELETE FROM declared_fields WHERE id = ${id}`,
      );
  }
}

/** Removes some series of a field once their counts are gone. @returns how many of the field may be left, at most */
async function removeSeries(tx: Transaction, appId: number, fieldId: number): Promise<number> {
  const series = await tx<{ id: number }[]>`
    SELECT id FROM field_series WHERE field_id = ${fieldId} LIMIT ${SERIES_AT_ONCE}`;
  const ids = series.map(({ id }) => id);
  for (const table of TABLES) {
    const { count } = await tx`
      DELETE FROM ${tx(table)} WHERE (app_id, series_id, bucket) IN (
        SELECT app_id, series_id, bucket FROM ${tx(table)}
         WHERE app_id = ${appId} AND series_id = ANY(${ids}) LIMIT ${ROWS_AT_ONCE})`;
    if (count === ROWS_AT_ONCE) return series.length;
  }
  await tx`DELETE FROM field_series WHERE id = ANY(${ids})`;
  return series.length < SERIES_AT_ONCE ? 0 : series.length;
}

/** What is kept of the fields of an app, beside the declarations. */
export const TABLES_OF_APP = ['uncounted_minutes', ...TABLES, 'app_boundaries', 'archived_parts'] as const;

/** What is kept by the minute, each with the columns that name a row of it. */
const BY_MINUTE = {
  field_minute_counts: ['app_id', 'series_id', 'bucket'],
  uncounted_minutes: ['app_id', 'bucket'],
} as const;

/**
 * Removes counts by the minute, and notes of minutes, before the retention boundary. Coarser counts stay. The next call goes on
 * where there are many, and where others work on fields.
 */
export async function removeFieldMinutes(sql: Transactions): Promise<void> {
  for (const [table, key] of Object.entries(BY_MINUTE)) {
    // By the hour, so that none looks for rows where the ones before it have left none.
    const hours = await sql.begin(
      'isolation level read committed',
      (tx) => tx<{ at: number }[]>`
        SELECT DISTINCT (extract(epoch FROM date_bin('1 hour', bucket, 'epoch')) * 1000)::float8 AS at FROM ${tx(table)}
         WHERE bucket < (SELECT readable_from FROM retention) ORDER BY at LIMIT ${REMOVALS}`,
    );
    let removals = 0;
    for (const { at } of hours) {
      let removed: number | null = ROWS_AT_ONCE;
      while (removed >= ROWS_AT_ONCE && removals < REMOVALS) {
        removals += 1;
        removed = await withFieldsLocked(sql, (tx) => removeMinutes(tx, table, key, at));
        if (removed === null) return;
      }
    }
  }
}

async function removeMinutes(
  tx: Transaction,
  table: string,
  key: readonly string[],
  hour: number,
): Promise<number> {
  const { count } = await tx`
    DELETE FROM ${tx(table)} WHERE (${tx(key)}) IN (
      SELECT ${tx(key)} FROM ${tx(table)}
       WHERE bucket >= ${new Date(hour)} AND bucket < ${new Date(hour + HOUR_MS)}
         AND bucket < (SELECT readable_from FROM retention) LIMIT ${ROWS_AT_ONCE})`;
  return count;
}
