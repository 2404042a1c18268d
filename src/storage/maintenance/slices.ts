/**
 * Removes many rows a slice at a time, each in a transaction of its own: folds, imports and writers that wait for the same locks come
 * between two of them.
 */
import type { Sql, Transaction } from '../database/connect.ts';

/** Rows of a slice: some 50 ms. */
export const SLICE_ROWS = 20_000;

/** Runs a transaction, with the locks that a removal needs. */
type InTransaction = (work: (tx: Transaction) => Promise<number>) => Promise<number>;

/**
 * Removes all rows of an app from tables of one server, or of the node of the app.
 * @param isOver asked after each full slice: whether to stop
 * @returns false if rows may be left
 */
export async function removeRowsOfApp(
  inTransaction: InTransaction,
  tables: readonly string[],
  appId: number,
  isOver: () => boolean,
): Promise<boolean> {
  for (const table of tables) {
    const removeSome = async (tx: Transaction): Promise<number> => {
      const { count } = await tx`
        DELETE FROM ${tx(table)}
         WHERE app_id = ${appId}
           AND ctid = ANY (ARRAY(SELECT ctid FROM ${tx(table)} WHERE app_id = ${appId} LIMIT ${SLICE_ROWS}))`;
      return count;
    };
    while ((await inTransaction(removeSome)) === SLICE_ROWS) if (isOver()) return false;
  }
  return true;
}

/** Buckets of a table of counts from `from` to `to` (inclusive), as PostgreSQL writes them. */
export interface BucketSlice {
  readonly from: string;
  readonly to: string;
}

/**
 * The buckets of an interval in slices: each has about {@link SLICE_ROWS} rows, or is one bucket.
 * @param interval bounds as PostgreSQL reads them; `until` is not included
 * @param appId    absent: those of all apps
 */
export async function bucketSlices(
  sql: Sql,
  table: string,
  interval: { readonly from: string; readonly until: string },
  appId?: number,
): Promise<readonly BucketSlice[]> {
  return await sql<BucketSlice[]>`
    WITH buckets AS (
      SELECT bucket, count(*) AS rows FROM ${sql(table)}
       WHERE bucket >= ${interval.from}::text::timestamptz AND bucket < ${interval.until}::text::timestamptz
         ${appId === undefined ? sql`` : sql`AND app_id = ${appId}`}
       GROUP BY bucket
    ),
    numbered AS (
      SELECT bucket, (sum(rows) OVER (ORDER BY bucket) - 1)::bigint / ${SLICE_ROWS}::bigint AS slice FROM buckets
    )
    SELECT min(bucket)::text AS from, max(bucket)::text AS to FROM numbered GROUP BY slice ORDER BY slice`;
}
