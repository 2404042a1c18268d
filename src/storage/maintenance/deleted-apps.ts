/** Removes the events and counts of deleted apps in the background, and deletes the apps whose time in the bin is over. */
import type { Sql, Transaction } from '../database/connect.ts';
import { saysNodeUnreachable } from '../database/nodes.ts';

/** An event that was accepted before the deletion may still be committed for a while after it. */
const SETTLE = '1 hour';

/** Days for which a removed app waits in the bin. */
export const BIN_DAYS = 7;
/** Apps that one step deletes. */
const APPS_AT_ONCE = 100;

/** Tables that have days or months of an app, or its consumers, on every engine. */
export const FROM_DAYS = [
  ...['month_counts', 'profiled_days', 'daily_prefix_sums', 'usage_days'],
  ...['consumers', 'feed_ticks', 'changed_minutes', 'erased_events'],
] as const;

/**
 * Removes an engine's data of an app, in steps that hold no lock for long, and begins no further step when the time is over. Both
 * functions are idempotent.
 * @returns false if some may be left
 */
export interface AppRemoval {
  readonly removeEvents: (sql: Sql, appId: number, isOver: () => boolean) => Promise<boolean>;
  readonly removeCounts: (sql: Sql, appId: number, isOver: () => boolean) => Promise<boolean>;
}

/** Schedules the removal of an app's events and counts. @param appId internal id of an app that this transaction deletes */
export async function markAppDeleted(tx: Transaction, appId: number): Promise<void> {
  await tx`INSERT INTO deleted_apps (app_id) VALUES (${appId})`;
}

/** Deletes an app with its types, tokens and members; its events and counts follow. */
export async function eraseApp(tx: Transaction, appId: number): Promise<void> {
  // A resource token for this app alone would be left without an app.
  await tx`
    DELETE FROM resource_tokens
     WHERE id IN (SELECT token_id FROM resource_token_apps WHERE app_id = ${appId})
       AND NOT EXISTS (SELECT FROM resource_token_apps WHERE token_id = resource_tokens.id AND app_id <> ${appId})`;
  await tx`DELETE FROM apps WHERE id = ${appId}`;
  await markAppDeleted(tx, appId);
}

/** Deletes the apps whose time in the bin is over. */
async function eraseDueApps(sql: Sql, judged: Date | null): Promise<void> {
  await sql.begin('isolation level read committed', async (tx) => {
    const due = await tx<{ id: number }[]>`
      SELECT id FROM apps WHERE removed_at <= least(now(), ${judged}::timestamptz) - make_interval(days => ${BIN_DAYS})
       ORDER BY id LIMIT ${APPS_AT_ONCE} FOR UPDATE`;
    for (const { id } of due) await eraseApp(tx, id);
  });
}

/**
 * Removes some rows of deleted apps. Those of an app whose node is away are removed when it is back.
 * @param until  time of the clock `now`: no further step begins after it
 * @param judged milliseconds since 1970, by which the time in the bin is over; null: by the database's clock
 * @returns true if nothing is left to remove now
 */
export async function removeDeletedApps(
  sql: Sql,
  removal: AppRemoval,
  now: () => number,
  until: number,
  judged: number | null = null,
): Promise<boolean> {
  await eraseDueApps(sql, judged === null ? null : new Date(judged));
  const apps = await sql<{ id: number; settled: boolean }[]>`
    SELECT app_id AS id, deleted_at < now() - ${SETTLE}::interval AS settled FROM deleted_apps ORDER BY deleted_at`;
  const isOver = (): boolean => now() >= until;
  let isAllGone = true;
  for (const { id, settled } of apps) {
    try {
      if (!(await removal.removeEvents(sql, id, isOver))) return false;
      if (!(await removal.removeCounts(sql, id, isOver))) return false;
    } catch (error) {
      if (!saysNodeUnreachable(error)) throw error;
      isAllGone = false;
      continue;
    }
    if (settled) await sql`DELETE FROM deleted_apps WHERE app_id = ${id}`;
  }
  return isAllGone;
}
