/** Saved views: queries of an app's page under a name, for all of its members. */

import { type Actor, writeAudit } from '../accounts/log/audit.ts';
import { lockApp } from '../accounts/people/members.ts';
import type { SavedView as ShownView } from '../api-types/answers.ts';
import { createPublicId } from '../base/token-text.ts';
import { refused } from '../errors.ts';
import { countRows, type Sql } from '../storage/database/connect.ts';
import { putOnBoard } from './boards.ts';
import { checkName } from './name.ts';

export type SavedView = ShownView<Date>;

/** Views that an app may have. */
const MAX_VIEWS = 100;

/** An app's views by name. */
export async function listSavedViews(sql: Sql, appId: number): Promise<SavedView[]> {
  return await sql<SavedView[]>`
    SELECT view.public_id AS "viewId", view.name, view.search, users.email AS "savedBy", view.saved_at AS "savedAt"
      FROM saved_views AS view LEFT JOIN users ON users.id = view.saved_by
     WHERE view.app_id = ${appId} ORDER BY lower(view.name), view.id`;
}

/**
 * Saves a view. One of the same name is replaced.
 * @param view.boardId the board that shows it from now on; absent: none beside those that have it
 * @throws Refused invalidBody, appNotFound, tooManyViews, boardNotFound
 */
export async function saveView(
  sql: Sql,
  view: { appId: number; name: string; search: string; boardId?: string | undefined; by: Actor },
): Promise<{ readonly viewId: string; readonly isNew: boolean }> {
  const { appId, name, search, boardId, by } = view;
  checkName(name);
  const userId = by === 'command line' ? null : by.userId;
  return await sql.begin('isolation level read committed', async (tx) => {
    // The lock makes the limit exact.
    await lockApp(tx, appId);
    if ((await countRows(tx, tx`saved_views WHERE app_id = ${appId} AND name <> ${name}`)) >= MAX_VIEWS)
      throw refused('tooManyViews', `an app may have ${MAX_VIEWS} saved views: remove one`);
    const [saved] = await tx<{ viewId: string; isNew: boolean }[]>`
      INSERT INTO saved_views (public_id, app_id, name, search, saved_by)
      VALUES (${createPublicId('vie')}, ${appId}, ${name}, ${search}, ${userId})
          ON CONFLICT (app_id, name) DO UPDATE SET search = excluded.search, saved_by = excluded.saved_by, saved_at = now()
      RETURNING public_id AS "viewId", xmax = 0 AS "isNew"`;
    if (saved === undefined) throw new Error('A view was saved and is not there.');
    await writeAudit(tx, { appId, by, action: 'view.save', details: { viewId: saved.viewId, name } });
    if (boardId !== undefined) await putOnBoard(tx, { appId, boardId, viewId: saved.viewId, by });
    return saved;
  });
}

/** @returns false if the app has no such view */
export async function removeView(
  sql: Sql,
  { appId, viewId, by }: { appId: number; viewId: string; by: Actor },
): Promise<boolean> {
  return await sql.begin(async (tx) => {
    const [removed] = await tx<{ name: string }[]>`
      DELETE FROM saved_views WHERE app_id = ${appId} AND public_id = ${viewId} RETURNING name`;
    if (removed === undefined) return false;
    await writeAudit(tx, { appId, by, action: 'view.remove', details: { viewId, name: removed.name } });
    return true;
  });
}
