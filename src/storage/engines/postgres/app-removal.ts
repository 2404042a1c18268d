/** Removes the events and counts of a deleted app. */
import { countTable, LEVELS, MINUTES } from '../../counts/levels.ts';
import type { Sql, Transaction } from '../../database/connect.ts';
import { TABLES_OF_APP } from '../../fields/removal.ts';
import { type AppRemoval, FROM_DAYS } from '../../maintenance/deleted-apps.ts';
import { inSlices, isOfSlice, type RemoveExpired, sliceEnd } from '../../maintenance/expired-rows.ts';
import { bucketSlices, removeRowsOfApp } from '../../maintenance/slices.ts';

/** Events that one statement removes. */
const REMOVED_EVENTS = 10_000;

/**
 * Tables that folds change. Deltas come first: without them no fold adds to the counts again. Those that share rows with other apps'
 * (sql/0002) are folded within a minute, and a later call removes what they were added to: there are calls for an hour.
 */
export const FOLDED_TABLES: readonly string[] = [
  'count_deltas',
  ...LEVELS.map(({ name }) => countTable(name)),
  ...FROM_DAYS,
];

export const removal: AppRemoval = {
  removeEvents: async (sql, appId, isOver) => {
    for (;;) {
      const [gone] = await sql<{ rows: number }[]>`
        WITH oldest AS (SELECT created_at, id FROM events WHERE app_id = ${appId} ORDER BY created_at, id LIMIT ${REMOVED_EVENTS}),
             gone AS (DELETE FROM events USING oldest
                       WHERE events.app_id = ${appId} AND events.created_at = oldest.created_at AND events.id = oldest.id
                      RETURNING 1)
        SELECT count(*)::integer AS rows FROM gone`;
      if ((gone?.rows ?? 0) < REMOVED_EVENTS) return true;
      if (isOver()) return false;
    }
  },
  removeCounts: async (sql, appId, isOver) =>
    (await removeRowsOfApp(withCountsLock(sql), FOLDED_TABLES, appId, isOver)) &&
    (await removeRowsOfApp((work) => sql.begin(work), TABLES_OF_APP, appId, isOver)),
};

/**
 * Counts by the minute go where no type of the app can be read: those of all types together would not be right without those of some.
 * Coarser counts stay.
 */
export const removeExpired: RemoveExpired = (sql, part, isOver) =>
  inSlices(part, isOver, async (slice) => {
    const { appId, from, until, typeIds, exceptTypes = [] } = slice;
    const next = await sql.begin('isolation level read committed', async (tx) => {
      const end = await sliceEnd(tx, slice, REMOVED_EVENTS);
      await tx`DELETE FROM events WHERE ${isOfSlice(tx, { ...slice, until: end ?? until })}`;
      return end;
    });
    if (typeIds !== null || exceptTypes.length > 0) return next;
    const minutes = countTable(MINUTES.name);
    const slices = await bucketSlices(sql, minutes, { from, until: next ?? until }, appId);
    for (const { from: first, to } of slices)
      await withCountsLock(sql)(async (tx) => {
        const { count } = await tx`
          DELETE FROM ${tx(minutes)}
           WHERE app_id = ${appId} AND bucket BETWEEN ${first}::text::timestamptz AND ${to}::text::timestamptz`;
        return count;
      });
    return next;
  });

/** Not while a fold adds to the same counts. */
export function withCountsLock(sql: Sql): <T>(work: (tx: Transaction) => Promise<T>) => Promise<T> {
  return (work) =>
    sql.begin('isolation level read committed', async (tx) => {
      await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
      return await work(tx);
    });
}
