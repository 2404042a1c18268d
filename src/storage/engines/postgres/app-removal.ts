/** Removes the events and counts of a deleted app. */

import { countsOf, LEVELS } from '../../counts/levels.ts';
import type { Sql, Transaction } from '../../database/connect.ts';
import { removeFieldsOfApp } from '../../fields/removal.ts';
import { type AppRemoval, removeFromDays } from '../../maintenance/deleted-apps.ts';

/** Events that one statement removes, and counts. */
const REMOVED_EVENTS = 10_000;
const REMOVED_COUNTS = 50_000;

/** Not while a fold adds to the same counts. */
async function takeCountsLock(tx: Transaction): Promise<void> {
  await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
}

/** @returns how many were removed */
async function removeSomeCounts(sql: Sql, table: string, appId: number): Promise<number> {
  return await sql.begin('isolation level read committed', async (tx) => {
    await takeCountsLock(tx);
    const { count } = await tx`
      DELETE FROM ${tx(table)}
       WHERE ctid = ANY (ARRAY(SELECT ctid FROM ${tx(table)} WHERE app_id = ${appId} LIMIT ${REMOVED_COUNTS}))`;
    return count;
  });
}

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
  removeCounts: async (sql, appId) => {
    // Some rows at a time: a fold waits for each transaction.
    for (const { name } of LEVELS)
      while ((await removeSomeCounts(sql, countsOf(name), appId)) === REMOVED_COUNTS);
    await sql.begin('isolation level read committed', async (tx) => {
      await takeCountsLock(tx);
      await tx`DELETE FROM count_deltas WHERE app_id = ${appId}`;
      // A fold may have added some meanwhile.
      for (const level of LEVELS) await tx`DELETE FROM ${tx(countsOf(level.name))} WHERE app_id = ${appId}`;
      await removeFromDays(tx, appId);
    });
    await removeFieldsOfApp(sql, appId);
  },
};
