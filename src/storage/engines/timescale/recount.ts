/** Rebuilds the counts of a day: aggregates, months and profiles. */

import { DAY_MS, LEVELS } from '../../counts/levels.ts';
import type { Sql } from '../../database/connect.ts';
import { readBoundary } from '../../retention.ts';
import { renewDays } from './maintenance.ts';
import { aggregatesOf } from './policies.ts';
import { REFRESH_TIMEOUT_MS, refresh, refreshesInBatches, refreshInTurn } from './refresh.ts';

/**
 * Refreshes every aggregate of the day, whatever the log of invalidations says. What is committed meanwhile brings a mark
 * of its own; marks that are there stay, for the next refresh.
 * @param sql a pool of one connection, so that the lock is held by the session that works
 * @param day its midnight (UTC), milliseconds since 1970; skipped if it is before the retention boundary
 */
export async function recountDay(sql: Sql, day: number): Promise<void> {
  await sql`SELECT pg_advisory_lock(hashtext('tidemark upkeep'))`;
  try {
    // A refresh of what has lost its rows would remove the counts that outlive them.
    if (day < (await readBoundary(sql))) return;
    const inBatches = await refreshesInBatches(sql);
    const interval = { from: new Date(day), until: new Date(day + DAY_MS) };
    for (const level of LEVELS)
      for (const aggregate of aggregatesOf(level))
        await refreshInTurn(
          sql,
          () => refresh(sql, aggregate, interval, { isForced: true, inBatches }),
          REFRESH_TIMEOUT_MS,
        );
    await sql.begin('isolation level read committed', async (tx) => {
      await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
      await renewDays(tx, [day]);
      await tx`DELETE FROM daily_prefix_sums WHERE day = ${new Date(day)}`;
    });
  } finally {
    await sql`SELECT pg_advisory_unlock(hashtext('tidemark upkeep'))`;
  }
}
