/** What is left of deleted apps: events and counts that nothing refers to any more, removed in the background. */
import type { Sql, Transaction } from './connect.ts';

/** An event that was accepted before the deletion may still be committed for a while after it. */
const SETTLE = '1 hour';

/** What is computed from the counts by day, on every engine. */
const FROM_DAYS = ['month_counts', 'profiled_days', 'day_profiles'] as const;

/** How an engine removes what it keeps of an app. Both may be called again and again. */
export interface AppRemoval {
  /**
   * Removes events, a bounded number at a time, and begins no further removal once the time is over.
   * @returns false where the time did not suffice
   */
  readonly removeEvents: (sql: Sql, appId: number, isOver: () => boolean) => Promise<boolean>;
  readonly removeCounts: (sql: Sql, appId: number) => Promise<void>;
}

/** Has the events and counts of an app removed. @param appId internal id of an app that this transaction deletes */
export async function markAppDeleted(tx: Transaction, appId: number): Promise<void> {
  await tx`INSERT INTO deleted_apps (app_id) VALUES (${appId})`;
}

/**
 * Removes some rows of deleted apps.
 * @param until a moment of `now`'s clock: no removal of events begins after it, except the first
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

/** Removes what is computed from an app's counts by day. */
export async function removeFromDays(tx: Transaction, appId: number): Promise<void> {
  for (const table of FROM_DAYS) await tx`DELETE FROM ${tx(table)} WHERE app_id = ${appId}`;
}
