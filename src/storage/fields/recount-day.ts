/** Rebuilds the counts of declared fields of a UTC day. */
import { setTimeout as sleep } from 'node:timers/promises';
import type postgres from 'postgres';
import { type Interval, startOfMonth } from '../counts/intervals.ts';
import { ALL_TYPES, DAY_MS, LEVELS } from '../counts/levels.ts';
import type { Transaction, Transactions } from '../database/connect.ts';
import { readBoundary } from '../retention.ts';
import { countFromRows, forgetUncounted, readFieldStates, stepsOf } from './compare.ts';
import { withFieldsLocked } from './fold.ts';
import { rebuildLevels as rebuildCoarser, rebuildMinutes } from './numbers/compare-numbers.ts';

type Fragment = postgres.PendingQuery<postgres.Row[]>;

/** Folds and comparisons of other processes take less than a second. */
const RETRY_MS = 50;
const READ = 'isolation level read committed';

/**
 * Makes coarser counts again what the finer ones say, then adds as deltas what the minutes lack of their rows. Writers and
 * readers go on, and counts that were exact stay so.
 * @param day its midnight (UTC), milliseconds since 1970; skipped if it is before the retention boundary
 */
export async function recountFieldDay(sql: Transactions, day: number): Promise<void> {
  const apps = await sql.begin(
    READ,
    (tx) => tx<{ id: number }[]>`
      SELECT DISTINCT app_id AS id FROM declared_fields
       WHERE removed_at IS NULL AND complete_from < ${new Date(day + DAY_MS)} ORDER BY 1`,
  );
  for (const { id } of apps) {
    await whenFree(sql, (tx) => rebuildLevels(tx, id, day));
    const steps = await sql.begin(READ, (tx) => stepsOf(tx, id, [{ from: day, until: day + DAY_MS }]));
    for (const step of steps) await whenFree(sql, (tx) => countStep(tx, id, step));
    await whenFree(sql, (tx) => rebuildNumberLevels(tx, id, day));
  }
}

/** Waits for other work on fields. */
async function whenFree(sql: Transactions, work: (tx: Transaction) => Promise<number>): Promise<void> {
  while ((await withFieldsLocked(sql, work)) === null) await sleep(RETRY_MS);
}

async function countStep(tx: Transaction, appId: number, interval: Interval): Promise<number> {
  if (interval.from < (await readBoundary(tx))) return 0;
  const fields = (await readFieldStates(tx, appId)).filter(
    ({ completeFrom }) => completeFrom !== null && completeFrom < interval.until,
  );
  if (fields.length === 0) return 0;
  const rows = await countFromRows(tx, appId, fields, interval);
  await forgetUncounted(tx, appId, interval);
  // A delta cannot take back a minimum or a maximum.
  for (const field of fields.filter(({ kind }) => kind === 'number')) {
    const from = Math.max(interval.from, field.completeFrom ?? 0);
    await rebuildMinutes(tx, field, { from, until: interval.until });
  }
  return rows;
}

async function rebuildNumberLevels(tx: Transaction, appId: number, day: number): Promise<number> {
  if (day < (await readBoundary(tx))) return 0;
  for (const field of await readFieldStates(tx, appId))
    if (field.kind === 'number') await rebuildCoarser(tx, field, day);
  return 1;
}

async function rebuildLevels(tx: Transaction, appId: number, day: number): Promise<number> {
  // Before the boundary minutes are gone, and coarser counts are all that is left.
  if (day < (await readBoundary(tx))) return 0;
  const ofDay = { from: day, until: day + DAY_MS };
  const within = tx`app_id = ${appId} AND bucket >= ${new Date(ofDay.from)} AND bucket < ${new Date(ofDay.until)}`;
  const totals = tx`
    SELECT total.id, typed.id AS typed_id
      FROM declared_fields AS field
      JOIN field_series AS total ON total.field_id = field.id AND total.type_id = ${ALL_TYPES}
      LEFT JOIN field_series AS typed
        ON typed.field_id = field.id AND typed.value = total.value AND typed.type_id <> ${ALL_TYPES}
     WHERE field.app_id = ${appId} AND field.type_id IS NULL AND removed_at IS NULL`;
  await replace(tx, 'field_minute_counts', {
    within: tx`${within} AND series_id IN (SELECT id FROM (${totals}) AS totals)`,
    wanted: tx`
      SELECT app_id, totals.id AS series_id, bucket, sum(count)::bigint AS count
        FROM field_minute_counts JOIN (${totals}) AS totals ON typed_id = series_id WHERE ${within} GROUP BY 1, 2, 3`,
  });
  for (const [index, { name, ms }] of LEVELS.entries()) {
    const finer = LEVELS[index - 1];
    if (finer === undefined) continue;
    await replace(tx, `field_${name}_counts`, {
      within,
      wanted: tx`
        SELECT app_id, series_id, date_bin(${`${ms} ms`}::interval, bucket, 'epoch') AS bucket, sum(count)::bigint AS count
          FROM ${tx(`field_${finer.name}_counts`)} WHERE ${within} GROUP BY 1, 2, 3`,
    });
  }
  const [month, next] = [new Date(startOfMonth(day)), new Date(startOfMonth(day, 1))];
  const ofMonth = tx`app_id = ${appId} AND bucket >= ${month} AND bucket < ${next}`;
  await replace(tx, 'field_month_counts', {
    within: ofMonth,
    wanted: tx`
      SELECT app_id, series_id, ${month}::timestamptz AS bucket, sum(count)::bigint AS count
        FROM field_day_counts WHERE ${ofMonth} GROUP BY 1, 2`,
  });
  return 1;
}

/** Makes a part of a table of counts what is wanted. What is right already stays untouched. */
async function replace(
  tx: Transaction,
  table: string,
  { within, wanted }: { readonly within: Fragment; readonly wanted: Fragment },
): Promise<void> {
  const same = tx`known.app_id = wanted.app_id AND known.series_id = wanted.series_id AND known.bucket = wanted.bucket`;
  await tx`CREATE TEMPORARY TABLE wanted ON COMMIT DROP AS ${wanted}`;
  await tx`
    DELETE FROM ${tx(table)} AS known
     WHERE ${within} AND NOT EXISTS (SELECT FROM wanted WHERE ${same} AND known.count = wanted.count)`;
  await tx`
    INSERT INTO ${tx(table)} (app_id, series_id, bucket, count)
    SELECT app_id, series_id, bucket, count FROM wanted
     WHERE NOT EXISTS (SELECT FROM ${tx(table)} AS known WHERE ${same}) ORDER BY 1, 2, 3`;
  await tx`DROP TABLE wanted`;
}
