/** Apps: the owners of events, event types and tokens. */

import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import { sendAgain } from '../accounts/people/senders.ts';
import { lockUser } from '../accounts/people/users.ts';
import { createPublicId } from '../base/token-text.ts';
import { appNotFound, refused } from '../errors.ts';
import { countRows, type Sql, type Transaction } from '../storage/database/connect.ts';
import { eraseApp } from '../storage/maintenance/deleted-apps.ts';
import { issueLoggingToken } from './logging-tokens.ts';
import { checkName } from './name.ts';
import type { Secret } from './secret.ts';

export interface App {
  readonly appId: string;
  readonly name: string;
  readonly createdAt: Date;
}

/**
 * Creates an app with its first logging token.
 * @param app.ownerId internal id of the owner; null: no owner until an account is granted the role
 * @param app.maxApps how many apps the owner may own; 0 for no limit
 * @throws Refused invalidBody, tooManyApps
 */
export async function createApp(
  sql: Sql,
  secret: Secret,
  app: { name: string; ownerId?: number | null; maxApps?: number; by?: Actor },
): Promise<{ appId: string; name: string; loggingToken: string }> {
  const { name, ownerId = null, maxApps = 0, by = COMMAND_LINE } = app;
  checkName(name);
  const appId = createPublicId('app');
  return await sql.begin('isolation level read committed', async (tx) => {
    if (ownerId !== null && maxApps > 0) await checkRoom(tx, ownerId, maxApps);
    const [made] = await tx<[{ id: number }]>`
      INSERT INTO apps (public_id, name) VALUES (${appId}, ${name}) RETURNING id`;
    const loggingToken = await issueLoggingToken(tx, secret, made.id);
    if (ownerId !== null)
      await tx`INSERT INTO app_members (app_id, user_id, role, opened_at) VALUES (${made.id}, ${ownerId}, 'owner', now())`;
    await writeAudit(tx, { appId: made.id, by, action: 'app.create', details: { appId, name } });
    return { appId, name, loggingToken };
  });
}

/** The limit also holds for concurrent creations: the owner's row is locked. */
async function checkRoom(tx: Transaction, ownerId: number, maxApps: number): Promise<void> {
  await lockUser(tx, ownerId);
  if ((await countRows(tx, tx`app_members WHERE user_id = ${ownerId} AND role = 'owner'`)) >= maxApps)
    throw refused(
      'tooManyApps',
      `an account may own ${maxApps} apps here (MAX_APPS_PER_ACCOUNT): delete one that is not needed, or ask the operator`,
    );
}

/** The apps of these internal ids, in order of creation. */
export async function listAppsOf(sql: Sql, ids: readonly number[]): Promise<App[]> {
  return await sql<App[]>`
    SELECT public_id AS "appId", name, created_at AS "createdAt"
      FROM apps WHERE id = ANY(${[...ids]}) ORDER BY apps.id`;
}

export interface OwnedApp extends App {
  /** Emails, the first account first. */
  readonly owners: string[];
}

/** All apps, in order of creation. */
export async function listApps(sql: Sql): Promise<OwnedApp[]> {
  return await sql<OwnedApp[]>`
    SELECT public_id AS "appId", name, created_at AS "createdAt",
           ARRAY(SELECT email FROM app_members JOIN users ON users.id = user_id
                  WHERE app_id = apps.id AND role = 'owner' ORDER BY users.id) AS owners
      FROM apps WHERE removed_at IS NULL ORDER BY apps.id`;
}

/**
 * Renames an app.
 * @throws Refused invalidBody, appNotFound
 */
export async function renameApp(sql: Sql, change: { appId: number; name: string; by: Actor }): Promise<void> {
  const { appId, name, by } = change;
  checkName(name);
  await sql.begin(async (tx) => {
    const [before] = await tx<{ name: string; publicId: string }[]>`
      SELECT name, public_id AS "publicId" FROM apps WHERE id = ${appId} FOR NO KEY UPDATE`;
    if (before === undefined) throw appNotFound(String(appId));
    if (before.name === name) return;
    await tx`UPDATE apps SET name = ${name} WHERE id = ${appId}`;
    await writeAudit(tx, { appId, by, action: 'app.rename', details: { from: before.name, to: name } });
  });
}

/**
 * Suspends an app, or resumes it. While it is suspended, its logging tokens and browser keys are refused, nobody reads it, and its
 * webhooks and alerts rest. Events that were accepted before are kept.
 * @returns since when it is suspended; null: it is not
 * @throws Refused appNotFound, notFound for a resumption of an app that is not suspended
 */
export async function suspendApp(
  sql: Sql,
  change: { readonly appId: string; readonly isSuspended: boolean; readonly by?: Actor },
): Promise<{ appId: string; name: string; suspendedAt: Date | null }> {
  const { appId, isSuspended, by = COMMAND_LINE } = change;
  return await sql.begin('isolation level read committed', async (tx) => {
    const [app] = await tx<{ id: number; name: string; suspendedAt: Date | null }[]>`
      SELECT id, name, suspended_at AS "suspendedAt" FROM apps
       WHERE public_id = ${appId} AND removed_at IS NULL FOR NO KEY UPDATE`;
    if (app === undefined) throw appNotFound(appId);
    const { id, name } = app;
    if (isSuspended === (app.suspendedAt !== null)) {
      if (!isSuspended) throw refused('notFound', `the app ${appId} is not suspended`);
      return { appId, name, suspendedAt: app.suspendedAt };
    }
    const [changed] = await tx<{ suspendedAt: Date | null }[]>`
      UPDATE apps SET suspended_at = CASE WHEN ${isSuspended} THEN now() END WHERE id = ${id}
      RETURNING suspended_at AS "suspendedAt"`;
    if (!isSuspended) await sendAgain(tx, { appId: id });
    const action = isSuspended ? 'app.suspend' : 'app.resume';
    await writeAudit(tx, { appId: id, by, action, details: { appId, name } });
    return { appId, name, suspendedAt: changed?.suspendedAt ?? null };
  });
}

/**
 * Deletes an app with its types, tokens and members, without the bin. Its events become unreadable at once; their rows are deleted in
 * the background.
 * @param deletion.confirm the app's name, as entered by the owner
 * @throws Refused confirmationMismatch, appNotFound
 */
export async function deleteApp(
  sql: Sql,
  deletion: { appId: number; confirm: string; by: Actor },
): Promise<void> {
  const { appId, confirm, by } = deletion;
  await sql.begin(async (tx) => {
    const [app] = await tx<{ name: string; publicId: string }[]>`
      SELECT name, public_id AS "publicId" FROM apps WHERE id = ${appId} FOR UPDATE`;
    if (app === undefined) throw appNotFound(String(appId));
    checkConfirmation(confirm, app.name);
    await writeAudit(tx, {
      appId,
      by,
      action: 'app.delete',
      details: { appId: app.publicId, name: app.name },
    });
    await eraseApp(tx, appId);
  });
}

/** Irreversible operations require the app's name. @throws Refused confirmationMismatch */
export function checkConfirmation(confirm: string, name: string): void {
  if (confirm !== name) throw refused('confirmationMismatch', `the field "confirm" must be the app's name`);
}
