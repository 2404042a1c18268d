/** Rebuilds the counts of a day: folded counts, months and profiles. */

import { startOfMonth } from '../../counts/intervals.ts';
import { ALL_TYPES, countsOf, DAY_MS, LEVELS } from '../../counts/levels.ts';
import type { Sql, Transaction } from '../../database/connect.ts';
import { noteUncounted } from '../../fields/uncounted.ts';

/**
 * In one snapshot every row is there with its delta, or with its count where that was folded. So what that snapshot counts
 * of rows replaces both: no fold runs meanwhile, and later commits bring deltas of their own.
 * @param day its midnight (UTC), milliseconds since 1970; skipped if it is before the retention boundary
 */
export async function recountDay(sql: Sql, day: number): Promise<void> {
  await sql.begin('isolation level read committed', async (tx) => {
    await tx`SET LOCAL statement_timeout = 0`;
    await recountIn(tx, day, (table) => table);
  });
}

/** The name of a table, where it has another one. */
type NameOf = (table: string) => string;

/** {@link recountDay} in a transaction. */
export async function recountIn(tx: Transaction, day: number, nameOf: NameOf): Promise<void> {
  const name = (table: string) => tx(nameOf(table));
  await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
  // Retention must not take rows away while they are counted.
  const kept = await tx`SELECT FROM ${name('retention')} WHERE readable_from <= ${new Date(day)} FOR SHARE`;
  if (kept.length === 0) return;
  await countRows(tx, day, nameOf);
  for (const level of LEVELS) {
    await tx`
      CREATE TEMPORARY TABLE wanted ON COMMIT DROP AS
      SELECT app_id, type_id, date_bin(${`${level.ms} ms`}::interval, bucket, 'epoch') AS bucket, sum(count)::bigint AS count
        FROM recounted GROUP BY 1, 2, 3`;
    await replace(tx, nameOf(countsOf(level.name)), day, day + DAY_MS);
  }
  const [month, next] = [startOfMonth(day), startOfMonth(day, 1)];
  await tx`
    CREATE TEMPORARY TABLE wanted ON COMMIT DROP AS
    SELECT app_id, type_id, ${new Date(month)}::timestamptz AS bucket, sum(count)::bigint AS count
      FROM ${name('day_counts')} WHERE bucket >= ${new Date(month)} AND bucket < ${new Date(next)} GROUP BY 1, 2`;
  await replace(tx, nameOf('month_counts'), month, next);
  // Maintenance makes them again.
  await tx`DELETE FROM ${name('profiled_days')} WHERE day = ${new Date(day)}`;
  await tx`DELETE FROM ${name('daily_prefix_sums')} WHERE day = ${new Date(day)}`;
  // There may be another one in the same transaction.
  await tx`DROP TABLE recounted`;
}

/** Counts the rows of a day by minute, and removes the deltas of the same snapshot. */
async function countRows(tx: Transaction, day: number, nameOf: NameOf): Promise<void> {
  const [from, until] = [new Date(day), new Date(day + DAY_MS)];
  await tx`
    CREATE TEMPORARY TABLE recounted (app_id integer, type_id integer, bucket timestamptz, count bigint) ON COMMIT DROP`;
  await tx`
    WITH settled AS (
      DELETE FROM ${tx(nameOf('count_deltas'))} WHERE bucket >= ${from} AND bucket < ${until} RETURNING app_id, bucket, fields
    ), ${tx.unsafe(noteUncounted('settled', { apps: true, nameOf }))}
    INSERT INTO recounted
    SELECT app_id, type_id, date_bin('1 minute', created_at, 'epoch'), count(*)
      FROM ${tx(nameOf('events'))} WHERE created_at >= ${from} AND created_at < ${until} GROUP BY 1, 2, 3`;
  await tx`
    INSERT INTO recounted SELECT app_id, ${ALL_TYPES}::integer, bucket, sum(count) FROM recounted GROUP BY 1, 3`;
}

/** Makes an interval of a table of counts the same as `wanted`, which it drops. What is right already stays untouched. */
async function replace(tx: Transaction, table: string, from: number, until: number): Promise<void> {
  const within = tx`known.bucket >= ${new Date(from)} AND known.bucket < ${new Date(until)}`;
  const same = tx`known.app_id = wanted.app_id AND known.type_id = wanted.type_id AND known.bucket = wanted.bucket`;
  await tx`
    DELETE FROM ${tx(table)} AS known
     WHERE ${within} AND NOT EXISTS (SELECT FROM wanted WHERE ${same} AND known.count = wanted.count)`;
  await tx`
    INSERT INTO ${tx(table)} (app_id, type_id, bucket, count)
    SELECT app_id, type_id, bucket, count FROM wanted
     WHERE NOT EXISTS (SELECT FROM ${tx(table)} AS known WHERE ${within} AND ${same})
     ORDER BY 1, 2, 3`;
  await tx`DROP TABLE wanted`;
}
