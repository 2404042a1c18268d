/**
 * Archived days of TimescaleDB. Counts of rows that leave move to the tables of counts of removed rows, as retention has it, and back when
 * the rows come back: their minutes are marked then, and counted from the rows until they are refreshed.
 */
import type { Sql } from '../../database/connect.ts';
import { EVERY_FIELD } from '../../fields/uncounted-minutes.ts';
import {
  areParts,
  type BroughtBack,
  type DayMoves,
  type DayToBring,
  type DayToTake,
  deleteParts,
  insertParts,
  insertRows,
  leavingRows,
  requireSame,
  type Stayed,
  unlessRowsStay,
  WHICH_ROWS,
  type WhichRows,
} from '../../maintenance/days-away.ts';
import { isOfSlice } from '../../maintenance/expired-rows.ts';
import { openColumnstore, removeWithCounts, takeFromOutlived, unlessStale } from './app-removal.ts';
import { besideNoRefresh, settleMarks } from './maintenance.ts';

const STALE: Stayed = { reason: 'its counts are being refreshed: its rows leave later', isChanged: false };

async function takeAway(sql: Sql, day: DayToTake): Promise<Stayed | null> {
  const attempt = (): Promise<Stayed | null | 'stale'> =>
    unlessStale(() =>
      unlessRowsStay(() =>
        sql.begin('isolation level repeatable read', async (tx) => {
          await openColumnstore(tx);
          const slice = await leavingRows(tx, day);
          const [rows] = await tx<WhichRows[]>`
            SELECT ${tx.unsafe(WHICH_ROWS)} FROM events WHERE ${isOfSlice(tx, slice)}`;
          requireSame(rows, day.parts);
          await removeWithCounts(tx, slice);
          await insertParts(tx, day);
        }),
      ),
    );
  return await besideNoRefresh(sql, async () => {
    const first = await attempt();
    if (first !== 'stale') return first;
    await settleMarks(sql, Date.now());
    const second = await attempt();
    return second === 'stale' ? STALE : second;
  });
}

async function bringBack(sql: Sql, day: DayToBring): Promise<BroughtBack | null> {
  return await besideNoRefresh(sql, () =>
    sql.begin('isolation level read committed', async (tx) => {
      await openColumnstore(tx);
      if (!(await areParts(tx, day))) return null;
      await tx`CREATE TEMPORARY TABLE back (type_id integer, bucket timestamptz, count bigint) ON COMMIT DROP`;
      const outcome = await insertRows(tx, day, async (rows) => {
        await tx`
          INSERT INTO back
          SELECT type_id, date_bin('1 minute', created_at, 'epoch'), count(*)
            FROM unnest(${rows.map(({ typeId }) => typeId)}::integer[],
                        ${rows.map(({ createdAt }) => new Date(createdAt).toISOString())}::text[]::timestamptz[]) AS row (type_id, created_at)
           GROUP BY 1, 2`;
      });
      await takeFromOutlived(tx, day.appId, 'back');
      await tx`INSERT INTO stale_buckets (level, bucket, fields) SELECT DISTINCT 0, bucket, ${EVERY_FIELD}::integer FROM back`;
      await deleteParts(tx, day);
      return outcome;
    }),
  );
}

export const days: DayMoves = { takeAway, bringBack };
