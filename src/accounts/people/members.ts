/** Members: the roles of accounts in apps. */
import type { Member as ShownMember } from '../../api-types/answers.ts';
import { type GivenRole, type Role, rolesThat } from '../../base/roles.ts';
import { appNotFound, refused } from '../../errors.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import { type Actor, COMMAND_LINE, writeAudit } from '../log/audit.ts';
import type { Email } from './email.ts';
import { requireVerifiedUser, type User } from './users.ts';

/** An app and the role of one of its members. */
export interface Membership {
  readonly id: number;
  readonly appId: string;
  readonly name: string;
  readonly createdAt: Date;
  readonly role: Role;
  /** Since when the operator has suspended the app; null: it is not suspended. */
  readonly suspendedAt: Date | null;
}

export type Member = ShownMember<Date>;

/** The membership of an account that opens an app; null if it has none or there is no such app. */
export async function findMembership(sql: Sql, user: User, appId: string): Promise<Membership | null> {
  // PostgreSQL's text type cannot store NUL, so no public id contains it.
  if (appId.includes('\0')) return null;
  const [row] = await sql<(Membership & { isOpened: boolean })[]>`
    SELECT apps.id, public_id AS "appId", name, created_at AS "createdAt", role, apps.suspended_at AS "suspendedAt",
           opened_at IS NOT NULL AS "isOpened"
      FROM apps JOIN app_members ON app_id = apps.id
     WHERE public_id = ${appId} AND user_id = ${user.id}`;
  if (row === undefined) return null;
  const { isOpened, ...membership } = row;
  if (!isOpened)
    await sql`UPDATE app_members SET opened_at = now() WHERE app_id = ${row.id} AND user_id = ${user.id}`;
  return membership;
}

/** The apps of an account, in order of creation. */
export async function listMemberships(sql: Sql, user: User): Promise<Membership[]> {
  return await sql<Membership[]>`
    SELECT apps.id, public_id AS "appId", name, created_at AS "createdAt", role, apps.suspended_at AS "suspendedAt"
      FROM apps JOIN app_members ON app_id = apps.id
     WHERE user_id = ${user.id}
     ORDER BY apps.id`;
}

/**
 * Makes an account the owner of every app that has none: apps of the command line and of `demo` are made without one. For the
 * first account, and others that the operator vouches for.
 * @param by who made the account, for the audit log
 */
export async function adoptApps(tx: Transaction, user: User, by: Actor): Promise<void> {
  const apps = await tx<{ id: number }[]>`
    SELECT id FROM apps
     WHERE removed_at IS NULL
       AND NOT EXISTS (SELECT FROM app_members WHERE app_id = apps.id AND role = 'owner')
     ORDER BY id FOR NO KEY UPDATE`;
  for (const { id } of apps) {
    await tx`
      INSERT INTO app_members (app_id, user_id, role) VALUES (${id}, ${user.id}, 'owner')
      ON CONFLICT (app_id, user_id) DO UPDATE SET role = 'owner'`;
    const details = { email: user.email, role: 'owner' };
    await writeAudit(tx, { appId: id, by, action: 'member.add', details });
  }
}

/** The members of an app, owners first. */
export async function listMembers(sql: Sql, appId: number): Promise<Member[]> {
  return await sql<Member[]>`
    SELECT public_id AS "userId", email, email_verified_at IS NOT NULL AS "emailVerified", member.role,
           by_group.group_name AS "byGroup", added_at AS "addedAt"
      FROM app_members AS member JOIN users ON users.id = user_id
           LEFT JOIN group_grants AS by_group
             ON by_group.app_id = member.app_id AND by_group.user_id = member.user_id
                AND by_group.role = member.role AND by_group.own_role IS DISTINCT FROM member.role
     WHERE member.app_id = ${appId}
     ORDER BY member.role = 'owner' DESC, added_at, users.id`;
}

/**
 * Serializes changes of an app's members and invitations until the end of the transaction. The transaction must be
 * "read committed", to see what the previous holder of the lock committed.
 * @returns false if the app no longer exists
 */
export async function lockMembers(tx: Transaction, appId: number): Promise<boolean> {
  const rows = await tx`SELECT FROM apps WHERE id = ${appId} FOR NO KEY UPDATE`;
  return rows.length > 0;
}

/** Like {@link lockMembers}. @throws Refused appNotFound */
export async function lockApp(tx: Transaction, appId: number): Promise<void> {
  if (!(await lockMembers(tx, appId))) throw appNotFound(String(appId));
}

/** The internal id of an app, which is locked as by {@link lockMembers}. @throws Refused appNotFound */
export async function lockAppOf(tx: Transaction, appId: string): Promise<number> {
  const id = await internalAppId(tx, appId);
  await lockApp(tx, id);
  return id;
}

/** @throws Refused appNotFound */
export async function internalAppId(sql: Sql | Transaction, appId: string): Promise<number> {
  const [app] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
  if (app === undefined) throw appNotFound(appId);
  return app.id;
}

/** Whether the account with this address is a member; exact after {@link lockMembers}. */
export async function isMember(tx: Transaction, appId: number, email: Email): Promise<boolean> {
  const rows = await tx`
    SELECT FROM app_members JOIN users ON users.id = user_id WHERE app_id = ${appId} AND email_key = ${email.key}`;
  return rows.length > 0;
}

/** The role of an account in an app, null if it has none; exact after {@link lockMembers}. */
export async function roleOf(tx: Transaction, appId: number, userId: number): Promise<Role | null> {
  const [row] = await tx<{ role: Role }[]>`
    SELECT role FROM app_members WHERE app_id = ${appId} AND user_id = ${userId}`;
  return row?.role ?? null;
}

/**
 * The given apps that an account may change as a maintainer or an owner. A removal or a change of the role waits until the end of the transaction.
 */
export async function holdMaintained(
  tx: Transaction,
  userId: number,
  appIds: readonly number[],
): Promise<ReadonlySet<number>> {
  const rows = await tx<{ appId: number }[]>`
    SELECT app_id AS "appId" FROM app_members
     WHERE user_id = ${userId} AND app_id = ANY(${[...appIds]}::int[]) AND role = ANY(${rolesThat('change')})
     ORDER BY app_id FOR SHARE`;
  return new Set(rows.map(({ appId }) => appId));
}

/**
 * Makes an account a member, after {@link lockMembers}.
 * @param addition.invited the address of the accepted invitation
 * @returns false if it is already a member
 */
export async function addMember(
  tx: Transaction,
  addition: { appId: number; user: User; role: GivenRole; by: Actor; invited: Email },
): Promise<boolean> {
  const { appId, user, role, by, invited } = addition;
  const added = await tx`
    INSERT INTO app_members (app_id, user_id, role, invited_key, opened_at)
    VALUES (${appId}, ${user.id}, ${role}, ${invited.key}, now())
    ON CONFLICT DO NOTHING RETURNING 1`;
  if (added.length === 0) return false;
  // A pending invitation of the new member would be a second way in.
  await endInvitations(tx, appId, [user.emailKey, invited.key]);
  const details = {
    email: user.email,
    role,
    ...(invited.key !== user.emailKey && { invited: invited.text }),
  };
  await writeAudit(tx, { appId, by, action: 'invitation.accept', details });
  return true;
}

/**
 * Removes a member, and every invitation by which the same person could return. A member may remove themselves (leave).
 * The last owner cannot. Call after {@link lockMembers}.
 * @returns the former member, by internal id
 * @throws Refused memberNotFound, lastOwner
 */
export async function endMembership(
  tx: Transaction,
  removal: { appId: number; userId: string; by: Actor },
): Promise<{ id: number; email: string }> {
  const { appId, userId, by } = removal;
  // The row lock waits for tokens that the member is creating (holdMaintained).
  const [member] = await tx<
    { id: number; email: string; emailKey: string; invitedKey: string | null; role: Role }[]
  >`
    SELECT users.id, email, email_key AS "emailKey", invited_key AS "invitedKey", role
      FROM app_members JOIN users ON users.id = user_id
     WHERE app_id = ${appId} AND public_id = ${userId} FOR UPDATE OF app_members`;
  if (member === undefined) throw refused('memberNotFound', 'the app has no such member');
  if (member.role === 'owner') await checkAnotherOwner(tx, appId, member.id);
  await tx`DELETE FROM app_members WHERE app_id = ${appId} AND user_id = ${member.id}`;
  const isOwnWish = by !== 'command line' && member.id === by.userId;
  const action = isOwnWish ? 'member.leave' : 'member.remove';
  await writeAudit(tx, { appId, by, action, details: { email: member.email, role: member.role } });
  const ended = await endInvitations(tx, appId, [member.emailKey, member.invitedKey ?? member.emailKey]);
  for (const email of ended)
    await writeAudit(tx, { appId, by, action: 'invitation.withdraw', details: { email } });
  return { id: member.id, email: member.email };
}

/** Deletes the invitations for these addresses. @returns the addresses */
async function endInvitations(tx: Transaction, appId: number, keys: readonly string[]): Promise<string[]> {
  const rows = await tx<{ email: string }[]>`
    DELETE FROM invitations WHERE app_id = ${appId} AND email_key = ANY(${[...keys]}) RETURNING email`;
  return rows.map(({ email }) => email);
}

/**
 * Changes what a member may do. Call after {@link lockMembers}.
 * @returns the member's address
 * @throws Refused memberNotFound, lastOwner
 */
export async function changeRole(
  tx: Transaction,
  change: { appId: number; userId: string; role: GivenRole; by: Actor },
): Promise<string> {
  const { appId, userId, role, by } = change;
  // The row lock waits for tokens that the member is creating (holdMaintained).
  const [member] = await tx<{ id: number; email: string; role: Role }[]>`
    SELECT users.id, email, role FROM app_members JOIN users ON users.id = user_id
     WHERE app_id = ${appId} AND public_id = ${userId} FOR UPDATE OF app_members`;
  if (member === undefined) throw refused('memberNotFound', 'the app has no such member');
  if (member.role === role) return member.email;
  if (member.role === 'owner') await checkAnotherOwner(tx, appId, member.id);
  await tx`UPDATE app_members SET role = ${role} WHERE app_id = ${appId} AND user_id = ${member.id}`;
  await writeAudit(tx, { appId, by, action: 'member.role', details: { email: member.email, role } });
  return member.email;
}

/**
 * Gives an account a role in an app, for the command line. The last owner of an app cannot be demoted.
 * @param grant.allowUnverified also grant to an account with an unverified address
 * @throws Refused appNotFound, memberNotFound, accessDenied, lastOwner
 */
export async function grantRole(
  sql: Sql,
  grant: { appId: string; email: Email; role: Role; allowUnverified?: boolean; by?: Actor },
): Promise<void> {
  const { appId, email, role, allowUnverified = false, by = COMMAND_LINE } = grant;
  await sql.begin('isolation level read committed', async (tx) => {
    const id = await lockAppOf(tx, appId);
    const user = await requireVerifiedUser(tx, email, allowUnverified);
    await giveRole(tx, { appId: id, user, role, by });
  });
}

/**
 * Gives an account a role in an app. Call after {@link lockMembers}.
 * @throws Refused lastOwner
 */
export async function giveRole(
  tx: Transaction,
  { appId, user, role, by }: { appId: number; user: User; role: Role; by: Actor },
): Promise<void> {
  const before = await roleOf(tx, appId, user.id);
  if (before === role) return;
  if (before === 'owner') await checkAnotherOwner(tx, appId, user.id);
  await tx`
    INSERT INTO app_members (app_id, user_id, role) VALUES (${appId}, ${user.id}, ${role})
    ON CONFLICT (app_id, user_id) DO UPDATE SET role = excluded.role`;
  await endInvitations(tx, appId, [user.emailKey]);
  const action = before === null ? 'member.add' : 'member.role';
  await writeAudit(tx, { appId, by, action, details: { email: user.email, role } });
}

/** Refuses to take the role of the last owner. Call after {@link lockMembers}. @throws Refused lastOwner */
export async function checkAnotherOwner(tx: Transaction, appId: number, userId: number): Promise<void> {
  const others = await tx`
    SELECT FROM app_members WHERE app_id = ${appId} AND role = 'owner' AND user_id <> ${userId} LIMIT 1`;
  if (others.length > 0) return;
  throw refused(
    'lastOwner',
    'make another account an owner first ("tidemark app grant --role owner"), or delete the app',
  );
}
