/** Removes what is left of deleted apps: events and counts, which nothing leads to any more. */
import type { Sql } from './connect.ts';

/** An event that was accepted before the deletion may still be committed for a while after it. */
const SETTLE = '1 hour';

/** How an engine removes what it keeps of an app, which may be called again and again. */
export interface AppRemoval {
  /**
   * Removes events in bounded pieces, none of which begins once the time is over.
   * @returns false where that was not time enough
   */
  readonly removeEvents: (sql: Sql, appId: number, isOver: () => boolean) => Promise<boolean>;
  readonly removeCounts: (sql: Sql, appId: number) => Promise<void>;
}

/**
 * Removes some rows of the apps that were deleted.
 * @param until a moment of `now`'s clock: no piece of events begins behind it, but the first
 * @returns true where nothing is left to do now
 */
export async function removeDeletedApps(
  sql: Sql,
  removal: AppRemoval,
  now: () => number,
  until: number,
): Promise<boolean> {
  const apps = await sql<{ id: number; settled: boolean }[]>`
    SELECT app_id AS id, deleted_at < now() - ${SETTLE}::interval AS settled FROM deleted_apps ORDER BY deleted_at`;
  for (const { id, settled } of apps) {
    if (!(await removal.removeEvents(sql, id, () => now() >= until))) return false;
    await removal.removeCounts(sql, id);
    if (settled) await sql`DELETE FROM deleted_apps WHERE app_id = ${id}`;
  }
  return true;
}
/** Has those of these apps removed that are no longer there: events of theirs were stored long after they were accepted. */
export async function noteDeletedApps(sql: Sql, appIds: Iterable<number>): Promise<void> {
  await sql`
    INSERT INTO deleted_apps (app_id)
    SELECT id FROM unnest(${[...appIds]}::integer[]) AS app (id)
     WHERE NOT EXISTS (SELECT FROM apps WHERE apps.id = app.id)
    ON CONFLICT (app_id) DO UPDATE SET deleted_at = now()`;
}
