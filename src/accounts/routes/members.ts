/** Routes of an app's members and of invitations. */

import type {
  AppReference,
  InvitationDetails,
  Member,
  MemberList,
  NewMember,
} from '../../api-types/answers.ts';
import { GIVEN_ROLES, type GivenRole, may } from '../../base/roles.ts';
import { Rejection, refused } from '../../errors.ts';
import { done, type Nothing } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import { MAILS, type Mailer } from '../mail/mail.ts';
import { type Email, requireEmail } from '../people/email.ts';
import {
  acceptInvitation,
  findInvitation,
  holdInvitation,
  invite,
  listInvitations,
  withdrawInvitation,
} from '../people/invitations.ts';
import { changeRole, isMember, listMembers, lockMembers, roleOf } from '../people/members.ts';
import { Backoff, throttled } from '../sign-in/backoff.ts';
import { type Api, type MemberCall, NOT_ALLOWED } from './api.ts';
import { bodyOf, NO_FIELDS } from './body.ts';

export interface MemberRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly mailer: Mailer | null;
  readonly wall: () => number;
  readonly monotonic: () => number;
}

const ROLE = { type: 'string', enum: GIVEN_ROLES } as const;
const NEW_MEMBER = bodyOf({ email: { type: 'string', maxLength: 1_000 }, role: ROLE }, ['email']);
const NEW_ROLE = bodyOf({ role: ROLE }, ['role']);

const NO_LINK = new Rejection(
  'linkNotValid',
  'The invitation was used already, was withdrawn, or has expired.',
);
const NO_INVITATION = new Rejection('invitationNotFound', 'The app has no such invitation.');
const ALREADY_MEMBER = new Rejection(
  'alreadyMember',
  'You are already a member of the app. The link stays valid for its addressee.',
);

export function memberRoutes({ api, sql, mailer, wall, monotonic }: MemberRoutesOptions): readonly Route[] {
  // An account must not be a way to flood the mailboxes of strangers.
  const ofInviter = new Backoff({ free: 30, longestMs: 60_000, now: monotonic });
  return [
    api.read('/api/apps/:appId/members', 'read', async ({ app }) => {
      const [members, invitations] = await Promise.all([
        listMembers(sql, app.id),
        listInvitations(sql, app.id, wall()),
      ]);
      return done<MemberList>({ members, invitations });
    }),
    api.change('POST', '/api/apps/:appId/members', 'own', NEW_MEMBER, async (call, body) => {
      const { app, user, baseUrl, note } = call;
      const email = requireEmail(body.email);
      const wait = ofInviter.wait(user.userId);
      if (wait > 0) return throttled(wait);
      ofInviter.begin(user.userId);
      const role = givenRole(body.role);
      const token = await sql.begin('isolation level read committed', (tx) =>
        inviteBy(tx, call, { email, role, now: wall() }),
      );
      if (token instanceof Rejection) return token;
      note('invitation.create', { appId: app.appId, targetEmail: email.text });
      const link = `${baseUrl}/invitations/${token}`;
      mailer?.send(MAILS.invitation(email.text, app.name, role, user.email, link));
      return done<NewMember>({ invited: true, link, mailed: mailer !== null }, { status: 201 });
    }),
    api.change('PATCH', '/api/apps/:appId/members/:userId', 'own', NEW_ROLE, async (call, body) => {
      const { app, by, note } = call;
      const [, userId = ''] = call.parameters;
      const role = givenRole(body.role);
      const changed = await sql.begin('isolation level read committed', async (tx) => {
        await lockMembers(tx, app.id);
        if (!may(await roleOf(tx, app.id, call.user.id), 'own')) return NOT_ALLOWED.own;
        return await changeRole(tx, { appId: app.id, userId, role, by });
      });
      if (changed instanceof Rejection) return changed;
      note('member.role', { appId: app.appId, targetUserId: userId, targetEmail: changed });
      return done<Pick<Member, 'userId' | 'role'>>({ userId, role });
    }),
    api.change('DELETE', '/api/apps/:appId/invitations/:invitationId', 'own', NO_FIELDS, async (call) => {
      const invitationId = call.parameters[1] ?? '';
      const withdrawal = { appId: call.app.id, invitationId, by: call.by };
      if (!(await withdrawInvitation(sql, withdrawal))) return NO_INVITATION;
      call.note('invitation.withdraw', { appId: call.app.appId, invitationId });
      return done<Nothing>({});
    }),
    api.read('/api/invitations/:token', 'public', async ({ parameters }) => {
      const invitation = await findInvitation(sql, parameters[0] ?? '', wall());
      if (invitation === null) return NO_LINK;
      const { appName, email, role } = invitation;
      return done<InvitationDetails>({ appName, email, role });
    }),
    api.change('POST', '/api/invitations/:token/accept', 'signed-in', NO_FIELDS, async (call) => {
      const { user, note } = call;
      const accepted = await sql.begin('isolation level read committed', async (tx) => {
        const invitation = await holdInvitation(tx, call.parameters[0] ?? '', wall());
        if (invitation === null) return NO_LINK;
        return (await acceptInvitation(tx, invitation, user)) ? invitation : ALREADY_MEMBER;
      });
      if (accepted instanceof Rejection) return accepted;
      note('invitation.accept', { appId: accepted.appId, targetEmail: accepted.email });
      return done<AppReference>({ appId: accepted.appId });
    }),
  ];
}

/** One of the two that the body's schema lets through. */
const givenRole = (role: string | undefined): GivenRole =>
  GIVEN_ROLES.find((one) => one === role) ?? 'maintainer';

/**
 * Invites an address. The same work, and the same answer, whether an account has it: an owner may be a stranger who asks for
 * addresses one by one.
 * @returns the token of the link
 */
async function inviteBy(
  tx: Transaction,
  { app, user, by }: MemberCall,
  { email, role, now }: { readonly email: Email; readonly role: GivenRole; readonly now: number },
): Promise<string | Rejection> {
  // Only reads after the lock are safe: an invitation may be accepted, or this owner demoted, concurrently.
  await lockMembers(tx, app.id);
  if (!may(await roleOf(tx, app.id, user.id), 'own')) return NOT_ALLOWED.own;
  if (await isMember(tx, app.id, email)) throw refused('alreadyMember', `${email.text} is already a member`);
  return await invite(tx, { appId: app.id, email, role, by, now });
}
