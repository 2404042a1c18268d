/** Removes what is left of deleted apps: events and counts, which nothing leads to any more. */
import type { Sql } from './connect.ts';

/** An event that was accepted before the deletion may still be committed for a while after it. */
const SETTLE = '1 hour';
const BATCH = 10_000;
const COUNTS = ['minute_counts', 'quarter_hour_counts', 'hour_counts', 'day_counts', 'month_counts'] as const;

/**
 * Removes some rows of the apps that were deleted.
 * @param until a moment of `now`'s clock: no batch begins behind it
 * @returns true where nothing is left to do now
 */
export async function removeDeletedApps(sql: Sql, now: () => number, until: number): Promise<boolean> {
  const apps = await sql<{ id: number; settled: boolean }[]>`
    SELECT app_id AS id, deleted_at < now() - ${SETTLE}::interval AS settled FROM deleted_apps ORDER BY deleted_at`;
  for (const { id, settled } of apps) {
    if (!(await removeEvents(sql, id, now, until))) return false;
    await removeCounts(sql, id);
    if (settled) await sql`DELETE FROM deleted_apps WHERE app_id = ${id}`;
  }
  return true;
}

/** @returns false where there was not time enough */
async function removeEvents(sql: Sql, appId: number, now: () => number, until: number): Promise<boolean> {
  for (;;) {
    const [gone] = await sql<{ rows: number }[]>`
      WITH oldest AS (SELECT created_at, id FROM events WHERE app_id = ${appId} ORDER BY created_at, id LIMIT ${BATCH}),
           gone AS (DELETE FROM events USING oldest
                     WHERE events.app_id = ${appId} AND events.created_at = oldest.created_at AND events.id = oldest.id
                    RETURNING 1)
      SELECT count(*)::integer AS rows FROM gone`;
    if ((gone?.rows ?? 0) < BATCH) return true;
    if (now() >= until) return false;
  }
}

/** Has those of these apps removed that are no longer there: events of theirs were stored long after they were accepted. */
export async function noteDeletedApps(sql: Sql, appIds: Iterable<number>): Promise<void> {
  await sql`
    INSERT INTO deleted_apps (app_id)
    SELECT id FROM unnest(${[...appIds]}::integer[]) AS app (id)
     WHERE NOT EXISTS (SELECT FROM apps WHERE apps.id = app.id)
    ON CONFLICT (app_id) DO UPDATE SET deleted_at = now()`;
}

async function removeCounts(sql: Sql, appId: number): Promise<void> {
  await sql.begin('isolation level read committed', async (tx) => {
    // Not while a fold adds to the same counts.
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
    await tx`DELETE FROM count_deltas WHERE app_id = ${appId}`;
    for (const table of COUNTS) await tx`DELETE FROM ${tx(table)} WHERE app_id = ${appId}`;
    await tx`DELETE FROM profiled_days WHERE app_id = ${appId}`;
    await tx`DELETE FROM day_profiles WHERE app_id = ${appId}`;
  });
}
