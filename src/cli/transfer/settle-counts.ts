/** Brings what was just stored into the counts, so that the first reads of it are as cheap as all others. */
import type { Sql } from '../../storage/connect.ts';
import type { Engine } from '../../storage/engine.ts';
import { foldCounts } from '../../storage/postgres/maintenance.ts';
import { mergeMarks, refreshStale } from '../../storage/timescale/maintenance.ts';

/**
 * Totals are exact before, during and after: this only makes them cheap. A service that runs on the database does the
 * same; the two take turns.
 * @param sql a pool of one connection
 * @param now milliseconds since 1970
 */
export async function settleCounts(sql: Sql, engine: Engine, now: number): Promise<void> {
  if (engine === 'postgres') {
    await foldCounts(sql);
    return;
  }
  await sql`SELECT pg_advisory_lock(hashtext('tidemark upkeep'))`;
  try {
    await mergeMarks(sql);
    await refreshStale(sql, now);
  } finally {
    await sql`SELECT pg_advisory_unlock(hashtext('tidemark upkeep'))`;
  }
}
