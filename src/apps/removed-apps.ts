/**
 * The bin: an app that its owner has removed waits there for seven days. It has another public id and no members meanwhile, so that
 * nothing finds it, and its tokens are refused. Restored, it is what it was.
 */

import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import { sendAgain } from '../accounts/people/senders.ts';
import type { User } from '../accounts/people/users.ts';
import type { RemovedAppList } from '../api-types/answers.ts';
import { appNotFound } from '../errors.ts';
import type { Sql, Transaction } from '../storage/database/connect.ts';
import { BIN_DAYS, eraseApp } from '../storage/maintenance/deleted-apps.ts';
import { judgedTime } from '../storage/maintenance/time-judge.ts';
import { checkConfirmation } from './apps.ts';

type RemovedApp = RemovedAppList<Date>['apps'][number];

/**
 * Moves an app to the bin. Its events become unreadable and its tokens are refused at once.
 * @param removal.confirm the app's name, as entered by the owner
 * @throws Refused confirmationMismatch, appNotFound
 */
export async function removeApp(
  sql: Sql,
  removal: { readonly appId: number; readonly confirm: string; readonly by: Actor },
): Promise<void> {
  const { appId, confirm, by } = removal;
  await sql.begin('isolation level read committed', async (tx) => {
    const [app] = await tx<{ name: string; publicId: string }[]>`
      SELECT name, public_id AS "publicId" FROM apps
       WHERE id = ${appId} AND removed_at IS NULL FOR NO KEY UPDATE`;
    if (app === undefined) throw appNotFound(String(appId));
    checkConfirmation(confirm, app.name);
    const details = { appId: app.publicId, name: app.name };
    await writeAudit(tx, { appId, by, action: 'app.delete', details });
    await tx`
      UPDATE apps
         SET removed_at = now(), removed_id = public_id, public_id = 'bin_' || public_id,
             removed_members = (SELECT coalesce(json_agg(row_to_json(member)), '[]') FROM app_members AS member
                                 WHERE member.app_id = apps.id)
       WHERE id = ${appId}`;
    await tx`DELETE FROM app_members WHERE app_id = ${appId}`;
  });
}

/**
 * Takes an app out of the bin, with its members, tokens, events and counts.
 * @param restoring.appId   its public id
 * @param restoring.ownerId internal id of an account that must have owned it; null: the operator
 * @throws Refused appNotFound
 */
export async function restoreApp(
  sql: Sql,
  restoring: { readonly appId: string; readonly ownerId?: number | null; readonly by?: Actor },
): Promise<{ appId: string; name: string }> {
  const { appId: publicId, ownerId = null, by = COMMAND_LINE } = restoring;
  return await sql.begin('isolation level read committed', async (tx) => {
    const app = await holdRemoved(tx, publicId, ownerId);
    // Nothing is brought back of accounts that are gone, nor of columns that a later release has added.
    await tx`
      INSERT INTO app_members
      SELECT member.* FROM apps, json_populate_recordset(NULL::app_members, removed_members) AS member
       WHERE apps.id = ${app.id} AND EXISTS (SELECT FROM users WHERE users.id = member.user_id)
      ON CONFLICT (app_id, user_id) DO NOTHING`;
    await tx`
      UPDATE apps SET public_id = removed_id, removed_id = NULL, removed_at = NULL, removed_members = NULL
       WHERE id = ${app.id}`;
    await sendAgain(tx, { appId: app.id });
    const details = { appId: publicId, name: app.name };
    await writeAudit(tx, { appId: app.id, by, action: 'app.restore', details });
    return details;
  });
}

/**
 * Deletes an app that is in the bin before its time.
 * @throws Refused appNotFound, confirmationMismatch
 */
export async function eraseRemovedApp(
  sql: Sql,
  erasing: { readonly appId: string; readonly ownerId: number; readonly confirm: string; readonly by: Actor },
): Promise<void> {
  await sql.begin('isolation level read committed', async (tx) => {
    const app = await holdRemoved(tx, erasing.appId, erasing.ownerId);
    checkConfirmation(erasing.confirm, app.name);
    const details = { appId: erasing.appId, name: app.name };
    await writeAudit(tx, { appId: app.id, by: erasing.by, action: 'app.erase', details });
    await eraseApp(tx, app.id);
  });
}

async function holdRemoved(
  tx: Transaction,
  publicId: string,
  ownerId: number | null,
): Promise<{ readonly id: number; readonly name: string }> {
  const [app] = await tx<{ id: number; name: string }[]>`
    SELECT id, name FROM apps
     WHERE removed_id = ${publicId} AND removed_at > ${judgedTime(tx)} - make_interval(days => ${BIN_DAYS})
       AND (${ownerId}::integer IS NULL OR ${ownedBy(tx, ownerId)}) FOR UPDATE`;
  if (app === undefined) throw appNotFound(publicId);
  return app;
}

function ownedBy(sql: Sql | Transaction, userId: number | null) {
  return sql`EXISTS (SELECT FROM json_to_recordset(removed_members) AS member (user_id integer, role text)
                      WHERE member.user_id = ${userId} AND member.role = 'owner')`;
}

/** The apps in the bin, those that were removed last first. @param user only those that this account owned; null: all */
export async function listRemovedApps(sql: Sql, user: Pick<User, 'id'> | null): Promise<RemovedApp[]> {
  return await sql<RemovedApp[]>`
    SELECT removed_id AS "appId", name, removed_at AS "removedAt",
           removed_at + make_interval(days => ${BIN_DAYS}) AS "erasedAt"
      FROM apps
     WHERE removed_at > ${judgedTime(sql)} - make_interval(days => ${BIN_DAYS})
       AND (${user?.id ?? null}::integer IS NULL OR ${ownedBy(sql, user?.id ?? null)})
     ORDER BY removed_at DESC, id`;
}
