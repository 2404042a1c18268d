/** Groups of an issuer as roles in apps: which group gives what, and what an account gets and loses by it. */

import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import type { Email } from '../accounts/people/email.ts';
import {
  checkAnotherOwner,
  endMembership,
  giveRole,
  internalAppId,
  lockMembers,
  roleOf,
} from '../accounts/people/members.ts';
import { sendAgain } from '../accounts/people/senders.ts';
import { requireVerifiedUser, type User } from '../accounts/people/users.ts';
import { ROLES, type Role } from '../base/roles.ts';
import { appNotFound, refused } from '../errors.ts';
import type { Sql, Transaction } from '../storage/database/connect.ts';
import { endMadeBy } from './member-removal.ts';
import { revokeShare } from './shares.ts';

export interface GroupMapping {
  readonly group: string;
  /** Public id; null: every app. */
  readonly appId: string | null;
  readonly role: Role;
}

/** What a group gives an account in one app. */
interface Grant {
  readonly role: Role;
  readonly group: string;
}

interface StoredGrant extends Grant {
  readonly appId: number;
  readonly ownRole: Role | null;
  readonly suspended: boolean;
}

const MAX_GROUP_CHARACTERS = 200;

function higher(a: Role | null, b: Role): Role {
  return a !== null && ROLES.indexOf(a) < ROLES.indexOf(b) ? a : b;
}

/**
 * Makes a group give a role, in one app or in every app. Applies at each user's next sign-in.
 * @param mapping.appId public id; null: every app
 * @throws Refused appNotFound, invalidBody
 */
export async function mapGroup(sql: Sql, { group, appId, role }: GroupMapping): Promise<void> {
  if (group === '' || group.length > MAX_GROUP_CHARACTERS || /\p{Cc}/u.test(group))
    throw refused(
      'invalidBody',
      `a group has 1 to ${MAX_GROUP_CHARACTERS} characters, without control characters`,
    );
  const app = appId === null ? null : await internalAppId(sql, appId);
  await (app === null
    ? sql`INSERT INTO group_mappings (group_name, role) VALUES (${group}, ${role})
          ON CONFLICT (group_name) WHERE app_id IS NULL DO UPDATE SET role = excluded.role`
    : sql`INSERT INTO group_mappings (group_name, app_id, role) VALUES (${group}, ${app}, ${role})
          ON CONFLICT (group_name, app_id) WHERE app_id IS NOT NULL DO UPDATE SET role = excluded.role`);
}

/**
 * Ends what a group gives. Its members lose the access at once.
 * @returns false if there is no such mapping
 * @throws Refused appNotFound
 */
export async function unmapGroup(sql: Sql, { group, appId }: Omit<GroupMapping, 'role'>): Promise<boolean> {
  const app = appId === null ? null : await internalAppId(sql, appId);
  return await sql.begin('isolation level read committed', async (tx) => {
    const ended = await tx`
      DELETE FROM group_mappings
       WHERE group_name = ${group} AND app_id IS NOT DISTINCT FROM ${app} RETURNING 1`;
    if (ended.length === 0) return false;
    const grants = await tx<(StoredGrant & { user: User })[]>`
      SELECT app_id AS "appId", role, own_role AS "ownRole", group_name AS "group", suspended,
             json_build_object('id', users.id, 'userId', public_id, 'email', email, 'emailKey', email_key,
                               'emailVerified', email_verified_at IS NOT NULL) AS "user"
        FROM group_grants JOIN users ON users.id = user_id
       WHERE group_name = ${group} AND (${app}::int IS NULL OR app_id = ${app})
       ORDER BY app_id, user_id`;
    // Another group may give the same: the next sign-in says so, as after every change of groups.
    for (const { user, ...grant } of grants) await endGrant(tx, user, grant, COMMAND_LINE);
    return true;
  });
}

export async function listGroupMappings(sql: Sql): Promise<GroupMapping[]> {
  return await sql<GroupMapping[]>`
    SELECT group_name AS "group", public_id AS "appId", role
      FROM group_mappings LEFT JOIN apps ON apps.id = app_id
     ORDER BY group_name, app_id NULLS FIRST`;
}

/**
 * Gives an account the roles of its groups, and takes away those of groups that are gone with the tokens that it made there.
 * A role that a person gave stays where it is the higher one. Call after lockUser.
 */
export async function applyGroups(tx: Transaction, user: User, groups: readonly string[]): Promise<void> {
  const wanted = await grantsOf(tx, groups);
  const stored = new Map((await storedGrants(tx, user)).map((grant) => [grant.appId, grant]));
  const by = { userId: user.id, email: user.email };
  for (const appId of [...new Set([...wanted.keys(), ...stored.keys()])].sort((a, b) => a - b)) {
    const [want, have] = [wanted.get(appId), stored.get(appId)];
    if (want !== undefined) await grant(tx, user, { appId, want, have });
    else if (have !== undefined) await endGrant(tx, user, have, by);
  }
}

/**
 * Takes the access away that an account has by groups, until the next sign-in says which are left. Its tokens are refused
 * for these apps meanwhile, and not revoked. Call after the account's row is locked.
 */
export async function suspendGroups(tx: Transaction, user: User): Promise<void> {
  for (const grant of await storedGrants(tx, user)) {
    if (grant.suspended || !(await lockMembers(tx, grant.appId))) continue;
    const ownRole = await ownRoleOf(tx, user, grant);
    await setRole(tx, user, grant.appId, ownRole);
    await tx`
      UPDATE group_grants SET suspended = true, own_role = ${ownRole} WHERE app_id = ${grant.appId} AND user_id = ${user.id}`;
  }
}

/**
 * Gives an account a role of its own in an app, beside what its groups give, or takes it away with the tokens that the account
 * made there. A role by a group stays.
 * @param change.role  null: none
 * @throws Refused appNotFound, memberNotFound, accessDenied, lastOwner
 */
export async function setOwnRole(
  sql: Sql,
  { appId, email, role, by }: { appId: number; email: Email; role: Role | null; by: Actor },
): Promise<void> {
  await sql.begin('isolation level read committed', async (tx) => {
    if (!(await lockMembers(tx, appId))) throw appNotFound(String(appId));
    const user = await requireVerifiedUser(tx, email, role === null);
    const given = (await storedGrants(tx, user)).find((one) => one.appId === appId);
    const ofGroup = given === undefined || given.suspended ? null : await roleOfGroup(tx, appId, given.group);
    if (ofGroup === null) {
      if (role !== null) return await giveRole(tx, { appId, user, role, by });
      if (given !== undefined)
        await tx`UPDATE group_grants SET own_role = NULL WHERE app_id = ${appId} AND user_id = ${user.id}`;
      await endMembership(tx, { appId, userId: user.userId, by });
      await endMadeBy(tx, { appId, member: user, by });
      return;
    }
    const effective = higher(role, ofGroup);
    const before = await roleOf(tx, appId, user.id);
    if (before === 'owner' && effective !== 'owner') await checkAnotherOwner(tx, appId, user.id);
    await setRole(tx, user, appId, effective);
    await tx`
      UPDATE group_grants SET role = ${effective}, own_role = ${role} WHERE app_id = ${appId} AND user_id = ${user.id}`;
    const details = { email: user.email, role: role ?? `${ofGroup}, by group` };
    await writeAudit(tx, { appId, by, action: 'member.role', details });
  });
}

/** What a group gives in an app now; null: nothing. */
async function roleOfGroup(tx: Transaction, appId: number, group: string): Promise<Role | null> {
  return (await grantsOf(tx, [group])).get(appId)?.role ?? null;
}

/** The highest role that the groups give in each app, by internal id. */
async function grantsOf(tx: Transaction, groups: readonly string[]): Promise<Map<number, Grant>> {
  const rows = await tx<(Grant & { appId: number })[]>`
    SELECT apps.id AS "appId", role, group_name AS "group"
      FROM group_mappings JOIN apps ON (app_id IS NULL OR apps.id = app_id) AND removed_at IS NULL
     WHERE group_name = ANY(${[...groups]}::text[])
     ORDER BY apps.id, group_name`;
  const grants = new Map<number, Grant>();
  for (const { appId, role, group } of rows) {
    const before = grants.get(appId);
    if (before === undefined || higher(before.role, role) !== before.role) grants.set(appId, { role, group });
  }
  return grants;
}

async function storedGrants(tx: Transaction, user: User): Promise<StoredGrant[]> {
  return await tx<StoredGrant[]>`
    SELECT app_id AS "appId", role, own_role AS "ownRole", group_name AS "group", suspended
      FROM group_grants WHERE user_id = ${user.id} ORDER BY app_id FOR UPDATE`;
}

async function grant(
  tx: Transaction,
  user: User,
  { appId, want, have }: { appId: number; want: Grant; have: StoredGrant | undefined },
): Promise<void> {
  if (!(await lockMembers(tx, appId))) return;
  const now = await roleOf(tx, appId, user.id);
  const ownRole = have === undefined ? now : await ownRoleOf(tx, user, have);
  const role = higher(ownRole, want.role);
  await setRole(tx, user, appId, role);
  await tx`
    INSERT INTO group_grants (app_id, user_id, role, own_role, group_name)
    VALUES (${appId}, ${user.id}, ${role}, ${ownRole}, ${want.group})
    ON CONFLICT (app_id, user_id)
    DO UPDATE SET role = excluded.role, own_role = excluded.own_role, group_name = excluded.group_name, suspended = false`;
  // What the account made sends again.
  if (have?.suspended === true) await sendAgain(tx, { makerId: user.id });
  if (now === role) return;
  const by = { userId: user.id, email: user.email };
  await writeAudit(tx, {
    appId,
    by,
    action: 'member.group',
    details: { email: user.email, role, group: want.group },
  });
}

async function endGrant(tx: Transaction, user: User, grant: StoredGrant, by: Actor): Promise<void> {
  const { appId, group } = grant;
  if (!(await lockMembers(tx, appId))) return;
  const before = await roleOf(tx, appId, user.id);
  const ownRole = await ownRoleOf(tx, user, grant);
  await setRole(tx, user, appId, ownRole);
  await tx`DELETE FROM group_grants WHERE app_id = ${appId} AND user_id = ${user.id}`;
  if (ownRole === null) await endMadeBy(tx, { appId, member: user, by });
  if (before !== ownRole || grant.suspended)
    await writeAudit(tx, { appId, by, action: 'member.group-end', details: { email: user.email, group } });
}

/** The role that the account has without the group: another one than the group's was given by a person since. */
async function ownRoleOf(tx: Transaction, user: User, grant: StoredGrant): Promise<Role | null> {
  const now = await roleOf(tx, grant.appId, user.id);
  if (grant.suspended) return now;
  return now === null || now === grant.role ? grant.ownRole : now;
}

async function setRole(tx: Transaction, user: User, appId: number, role: Role | null): Promise<void> {
  if (role === null) await tx`DELETE FROM app_members WHERE app_id = ${appId} AND user_id = ${user.id}`;
  else
    await tx`
      INSERT INTO app_members (app_id, user_id, role) VALUES (${appId}, ${user.id}, ${role})
      ON CONFLICT (app_id, user_id) DO UPDATE SET role = excluded.role WHERE app_members.role <> excluded.role`;
}

/**
 * Ends what reads apps in the name of an account, and what it sends: the roles that groups of an issuer gave it, its resource
 * tokens, webhooks and alerts, and its shares. The roles that a person gave it stay. Call after lockUser.
 */
export async function endReading(tx: Transaction, user: User): Promise<void> {
  const by = { userId: user.id, email: user.email };
  await applyGroups(tx, user, []);
  const apps = await tx<{ appId: number }[]>`
    SELECT app_id AS "appId" FROM app_members WHERE user_id = ${user.id} ORDER BY app_id`;
  for (const { appId } of apps) await endMadeBy(tx, { appId, member: user, by });
  const shares = await tx<{ appId: number; shareId: string }[]>`
    SELECT app_id AS "appId", public_id AS "shareId" FROM shares WHERE created_by = ${user.id} ORDER BY id`;
  for (const share of shares) await revokeShare(tx, { ...share, by });
}
