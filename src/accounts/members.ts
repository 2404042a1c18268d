/** Members: which account may do what in which app. */
import type { Sql, Transaction } from '../storage/connect.ts';
import { AccountError, appNotFound } from './account-error.ts';
import { type Actor, COMMAND_LINE, writeAudit } from './audit.ts';
import type { Email } from './email.ts';
import { requireUser, type User } from './users.ts';

/** `owner`: everything. `maintainer`: sees and makes tokens and types, reads charts and events. */
export type Role = 'owner' | 'maintainer';

export const ROLES: readonly Role[] = ['owner', 'maintainer'];

/** An app as one of its members sees it. */
export interface Membership {
  /** Internal id of the app. */
  readonly id: number;
  readonly appId: string;
  readonly name: string;
  readonly createdAt: Date;
  readonly role: Role;
}

export interface Member {
  readonly userId: string;
  readonly email: string;
  readonly role: Role;
  readonly addedAt: Date;
}

/** What somebody is in an app; null where he is nothing there, or there is no such app. */
export async function findMembership(sql: Sql, user: User, appId: string): Promise<Membership | null> {
  // PostgreSQL's text holds no NUL, so no app is called so.
  if (appId.includes('\0')) return null;
  const [row] = await sql<Membership[]>`
    SELECT apps.id, public_id AS "appId", name, created_at AS "createdAt", role
      FROM apps JOIN app_members ON app_id = apps.id
     WHERE public_id = ${appId} AND user_id = ${user.id}`;
  return row ?? null;
}

/** The apps of an account, in the order in which they were made. */
export async function listMemberships(sql: Sql, user: User): Promise<Membership[]> {
  return [
    ...(await sql<Membership[]>`
      SELECT apps.id, public_id AS "appId", name, created_at AS "createdAt", role
        FROM apps JOIN app_members ON app_id = apps.id
       WHERE user_id = ${user.id}
       ORDER BY apps.id`),
  ];
}

/** The members of an app, owners first. @param appId internal id */
export async function listMembers(sql: Sql, appId: number): Promise<Member[]> {
  return [
    ...(await sql<Member[]>`
      SELECT public_id AS "userId", email, role, added_at AS "addedAt"
        FROM app_members JOIN users ON users.id = user_id
       WHERE app_id = ${appId}
       ORDER BY role = 'owner' DESC, added_at, users.id`),
  ];
}

/**
 * Makes an account a maintainer.
 * @param addition.appId internal id
 * @returns false where it is a member already
 */
export async function addMaintainer(
  tx: Transaction,
  addition: { appId: number; user: User; by: Actor; action: 'member.add' | 'invitation.accept' },
): Promise<boolean> {
  const { appId, user, by, action } = addition;
  const added = await tx`
    INSERT INTO app_members (app_id, user_id, role) VALUES (${appId}, ${user.id}, 'maintainer')
    ON CONFLICT DO NOTHING RETURNING 1`;
  if (added.length === 0) return false;
  // Who was invited and is now in needs no second way in.
  await tx`DELETE FROM invitations WHERE app_id = ${appId} AND email_key = ${user.emailKey}`;
  await writeAudit(tx, { appId, by, action, details: { email: user.email, role: 'maintainer' } });
  return true;
}

/**
 * Removes a member; one who removes himself leaves. An owner stays.
 * @param removal.appId  internal id
 * @param removal.userId public id
 * @throws AccountError MEMBER_NOT_FOUND, LAST_OWNER
 */
export async function removeMember(
  sql: Sql,
  removal: { appId: number; userId: string; by: { userId: number; email: string } },
): Promise<void> {
  const { appId, userId, by } = removal;
  await sql.begin('isolation level read committed', async (tx) => {
    const [member] = await tx<{ id: number; email: string; role: Role }[]>`
      SELECT users.id, email, role
        FROM app_members JOIN users ON users.id = user_id
       WHERE app_id = ${appId} AND public_id = ${userId} FOR UPDATE OF app_members`;
    if (member === undefined) throw new AccountError('MEMBER_NOT_FOUND', 'the app has no such member');
    if (member.role === 'owner')
      throw new AccountError(
        'LAST_OWNER',
        'an owner can not be removed and can not leave: delete the app instead',
      );
    await tx`DELETE FROM app_members WHERE app_id = ${appId} AND user_id = ${member.id}`;
    const action = member.id === by.userId ? 'member.leave' : 'member.remove';
    await writeAudit(tx, { appId, by, action, details: { email: member.email, role: member.role } });
  });
}

/**
 * Gives an account a role in an app, for the command line. Several accounts may be owners; one always is, once one was.
 * @param grant.appId public id
 * @throws AccountError APP_NOT_FOUND, USER_NOT_FOUND, LAST_OWNER
 */
export async function grantRole(
  sql: Sql,
  grant: { appId: string; email: Email; role: Role; by?: Actor },
): Promise<void> {
  const { appId, email, role, by = COMMAND_LINE } = grant;
  await sql.begin('isolation level read committed', async (tx) => {
    const [app] = await tx<
      { id: number }[]
    >`SELECT id FROM apps WHERE public_id = ${appId} FOR NO KEY UPDATE`;
    if (app === undefined) throw appNotFound(appId);
    const user = await requireUser(tx, email);
    const [before] = await tx<{ role: Role }[]>`
      SELECT role FROM app_members WHERE app_id = ${app.id} AND user_id = ${user.id}`;
    if (before?.role === role) return;
    if (before?.role === 'owner') await checkAnotherOwner(tx, app.id, user);
    await tx`
      INSERT INTO app_members (app_id, user_id, role) VALUES (${app.id}, ${user.id}, ${role})
      ON CONFLICT (app_id, user_id) DO UPDATE SET role = excluded.role`;
    await tx`DELETE FROM invitations WHERE app_id = ${app.id} AND email_key = ${user.emailKey}`;
    const action = before === undefined ? 'member.add' : 'member.role';
    await writeAudit(tx, { appId: app.id, by, action, details: { email: user.email, role } });
  });
}

async function checkAnotherOwner(tx: Transaction, appId: number, user: User): Promise<void> {
  const others = await tx`
    SELECT FROM app_members WHERE app_id = ${appId} AND role = 'owner' AND user_id <> ${user.id} LIMIT 1`;
  if (others.length === 0)
    throw new AccountError('LAST_OWNER', `${user.email} is the app's only owner: make another one first`);
}
