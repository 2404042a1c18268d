/**
 * Invitations of addresses. An account that has verified the address has the app at once, and becomes a member when it opens
 * it: until then the inviter, who may be a stranger, sees the same as for an address without an account. Any other account
 * needs the link. The inviter sees the link too, so accepting it verifies nothing about the address: any account that opens it
 * joins the one app.
 */

import type { Invitation } from '../../api-types/answers.ts';
import type { GivenRole } from '../../base/roles.ts';
import { DAY_MS } from '../../base/time-units.ts';
import { createPublicId } from '../../base/token-text.ts';
import { refused } from '../../errors.ts';
import { countRows, type Sql, type Transaction } from '../../storage/database/connect.ts';
import { type Actor, writeAudit } from '../log/audit.ts';
import { createSecretText, secretDigest } from '../sessions/one-time-secret.ts';
import type { Email } from './email.ts';
import { addMember, lockMembers, type Membership } from './members.ts';
import type { User } from './users.ts';

/** An invitation that can be accepted now. */
export interface OpenInvitation {
  /** The app's internal and public id. */
  readonly appKey: number;
  readonly appId: string;
  readonly appName: string;
  readonly email: string;
  readonly emailKey: string;
  readonly role: GivenRole;
}

const VALID_FOR_MS = 7 * DAY_MS;
/** Open invitations of an app. */
const MAX_INVITATIONS = 100;

/**
 * Invites an email, after {@link lockMembers}. Replaces an earlier invitation of the same email.
 * @param invitation.now   milliseconds since the Unix epoch
 * @returns the token of the link
 * @throws Refused tooManyInvitations
 */
export async function invite(
  tx: Transaction,
  invitation: { appId: number; email: Email; role: GivenRole; by: Actor; now: number },
): Promise<string> {
  const { appId, email, role, by, now } = invitation;
  await tx`DELETE FROM invitations WHERE app_id = ${appId} AND expires_at <= least(${new Date(now)}, now())`;
  const others = tx`
    invitations WHERE app_id = ${appId} AND email_key <> ${email.key} AND expires_at > ${new Date(now)}`;
  if ((await countRows(tx, others)) >= MAX_INVITATIONS)
    throw refused(
      'tooManyInvitations',
      `an app may have ${MAX_INVITATIONS} open invitations: withdraw one that is not needed`,
    );
  const { text, digest } = createSecretText();
  await tx`
    INSERT INTO invitations (public_id, digest, app_id, email, email_key, role, created_at, expires_at)
    VALUES (${createPublicId('inv')}, ${digest}, ${appId}, ${email.text}, ${email.key}, ${role}, ${now}, ${now + VALID_FOR_MS})
    ON CONFLICT (app_id, email_key) DO UPDATE
       SET digest = excluded.digest, email = excluded.email, role = excluded.role, created_at = excluded.created_at, expires_at = excluded.expires_at`;
  await writeAudit(tx, {
    appId,
    by,
    action: 'invitation.create',
    details: { email: email.text, role },
  });
  return text;
}

/** The apps that an account's verified address is invited to, in order of creation: it can open them. */
export async function listInvitedTo(sql: Sql, user: User, now: number): Promise<Membership[]> {
  if (!user.emailVerified) return [];
  return await sql<Membership[]>`
    SELECT apps.id, apps.public_id AS "appId", name, apps.created_at AS "createdAt", role, suspended_at AS "suspendedAt"
      FROM invitations JOIN apps ON apps.id = app_id
     WHERE email_key = ${user.emailKey} AND expires_at > ${now} AND removed_at IS NULL
       AND NOT EXISTS (SELECT FROM app_members WHERE app_members.app_id = apps.id AND user_id = ${user.id})
     ORDER BY apps.id`;
}

/**
 * Makes an account a member of the app that its verified address is invited to.
 * @returns null where it is not invited
 */
export async function acceptByAddress(
  sql: Sql,
  user: User,
  appId: string,
  now: number,
): Promise<OpenInvitation | null> {
  if (!user.emailVerified || appId.includes('\0')) return null;
  const ofAddress = (tx: Sql | Transaction) => tx<OpenInvitation[]>`
    SELECT apps.id AS "appKey", apps.public_id AS "appId", name AS "appName", email, email_key AS "emailKey", role
      FROM invitations JOIN apps ON apps.id = app_id
     WHERE apps.public_id = ${appId} AND email_key = ${user.emailKey} AND expires_at > ${now}`;
  const [found] = await ofAddress(sql);
  if (found === undefined) return null;
  return await sql.begin('isolation level read committed', async (tx) => {
    if (!(await lockMembers(tx, found.appKey))) return null;
    // The previous holder of the lock may have withdrawn it.
    const [invitation] = await ofAddress(tx);
    if (invitation === undefined) return null;
    await acceptInvitation(tx, invitation, user);
    return invitation;
  });
}

/** The pending invitations of an app. */
export async function listInvitations(sql: Sql, appId: number, now: number): Promise<Invitation<Date>[]> {
  return await sql<Invitation<Date>[]>`
    SELECT public_id AS "invitationId", email, role, created_at AS "createdAt", expires_at AS "expiresAt"
      FROM invitations
     WHERE app_id = ${appId} AND expires_at > ${now}
     ORDER BY invitations.id`;
}

/** Withdraws an invitation. @returns false if the app has no such invitation */
export async function withdrawInvitation(
  sql: Sql,
  withdrawal: { appId: number; invitationId: string; by: Actor },
): Promise<boolean> {
  const { appId, invitationId, by } = withdrawal;
  return await sql.begin('isolation level read committed', async (tx) => {
    await lockMembers(tx, appId);
    const [gone] = await tx<{ email: string }[]>`
      DELETE FROM invitations WHERE app_id = ${appId} AND public_id = ${invitationId} RETURNING email`;
    if (gone === undefined) return false;
    await writeAudit(tx, { appId, by, action: 'invitation.withdraw', details: { email: gone.email } });
    return true;
  });
}

/** The invitation of a link; null if it was used, withdrawn or has expired. */
export async function findInvitation(
  sql: Sql | Transaction,
  token: string,
  now: number,
): Promise<OpenInvitation | null> {
  const digest = secretDigest(token);
  if (digest === null) return null;
  const [row] = await sql<OpenInvitation[]>`
    SELECT apps.id AS "appKey", apps.public_id AS "appId", name AS "appName", email,
           email_key AS "emailKey", role
      FROM invitations JOIN apps ON apps.id = app_id
     WHERE digest = ${digest} AND expires_at > ${now}`;
  return row ?? null;
}

/**
 * The invitation of a link. The app's members stay locked ({@link lockMembers}) until the end of the transaction, so the
 * invitation cannot be replaced or withdrawn before it is accepted.
 */
export async function holdInvitation(
  tx: Transaction,
  token: string,
  now: number,
): Promise<OpenInvitation | null> {
  const found = await findInvitation(tx, token, now);
  if (found === null || !(await lockMembers(tx, found.appKey))) return null;
  // Check again: the previous holder of the lock may have deleted it.
  return await findInvitation(tx, token, now);
}

/**
 * Makes the account that opened the link a member. This does not verify its email.
 * @param invitation from {@link holdInvitation}
 * @returns false if the account is already a member; the invitation then stays valid for its addressee
 */
export async function acceptInvitation(
  tx: Transaction,
  invitation: OpenInvitation,
  user: User,
): Promise<boolean> {
  const by = { userId: user.id, email: user.email };
  const invited = { text: invitation.email, key: invitation.emailKey };
  return await addMember(tx, { appId: invitation.appKey, user, role: invitation.role, by, invited });
}
