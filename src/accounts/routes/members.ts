/** Routes of an app's members and of invitations. */

import { Rejection } from '../../errors.ts';
import type { Route } from '../../http/route.ts';
import type { Sql, Transaction } from '../../storage/connect.ts';
import { AccountError } from '../account-error.ts';
import { requireEmail } from '../email.ts';
import {
  acceptInvitation,
  findInvitation,
  invite,
  listInvitations,
  withdrawInvitation,
} from '../invitations.ts';
import { MAILS, type Mailer } from '../mail.ts';
import { addMaintainer, listMembers, removeMember } from '../members.ts';
import { slowedDown } from '../sign-in.ts';
import { SlowDown } from '../slow-down.ts';
import { findUser } from '../users.ts';
import { type Api, done } from './api.ts';
import { bodyOf, NO_FIELDS } from './body.ts';

export interface MemberRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly mailer: Mailer | null;
  /** Milliseconds since 1970. */
  readonly wall: () => number;
  /** Milliseconds of a monotonic clock. */
  readonly monotonic: () => number;
}

const EMAIL = bodyOf({ email: { type: 'string', maxLength: 1_000 } }, ['email']);

const NO_LINK = new Rejection(
  'linkNotValid',
  'The invitation was used already, was withdrawn, or has expired.',
);
const NO_INVITATION = new Rejection('invitationNotFound', 'The app has no such invitation.');
const NOT_INVITED = new Rejection('wrongAccount', 'The invitation is for the e-mail of another account.');
const NOT_OWNER = new Rejection('accessDenied', 'Only an owner may remove others.');

export function memberRoutes({ api, sql, mailer, wall, monotonic }: MemberRoutesOptions): readonly Route[] {
  // An account of ours must not be a way to fill strangers' mailboxes.
  const ofInviter = new SlowDown({ free: 30, longestMs: 60_000, now: monotonic });
  return [
    api.read('/api/apps/:appId/members', 'member', async ({ app }) => {
      const [members, invitations] = await Promise.all([
        listMembers(sql, app.id),
        listInvitations(sql, app.id, wall()),
      ]);
      return done({ members, invitations });
    }),
    api.change(
      'POST',
      '/api/apps/:appId/members',
      'owner',
      EMAIL,
      async ({ app, by, user, baseUrl }, body) => {
        const email = requireEmail(body.email);
        const wait = ofInviter.wait(user.userId);
        if (wait > 0) return slowedDown(wait);
        ofInviter.begin(user.userId);
        const token = await sql.begin('isolation level read committed', async (tx) => {
          const found = await findUser(tx, email);
          if (found !== null && (await isMember(tx, app.id, found.user.id)))
            throw new AccountError('ALREADY_MEMBER', `${found.user.email} is a member already`);
          // An account that never proved its e-mail may be a stranger's who typed this address first.
          if (found === null || !found.user.emailProved)
            return await invite(tx, { appId: app.id, email, by, now: wall() });
          await addMaintainer(tx, { appId: app.id, user: found.user, by, action: 'member.add' });
          return null;
        });
        if (token === null) return done({ added: true }, { status: 201 });
        const link = `${baseUrl}/invitations/${token}`;
        mailer?.send(MAILS.invitation(email.text, app.name, by.email, link));
        return done({ invited: true, link, mailed: mailer !== null }, { status: 201 });
      },
    ),
    api.change('DELETE', '/api/apps/:appId/members/:userId', 'member', NO_FIELDS, async (call) => {
      const userId = call.parameters[1] ?? '';
      if (userId !== call.user.userId && call.app.role !== 'owner') return NOT_OWNER;
      await removeMember(sql, { appId: call.app.id, userId, by: call.by });
      return done({});
    }),
    api.change('DELETE', '/api/apps/:appId/invitations/:invitationId', 'owner', NO_FIELDS, async (call) => {
      const withdrawal = { appId: call.app.id, invitationId: call.parameters[1] ?? '', by: call.by };
      return (await withdrawInvitation(sql, withdrawal)) ? done({}) : NO_INVITATION;
    }),
    api.read('/api/invitations/:token', 'anybody', async ({ parameters }) => {
      const invitation = await findInvitation(sql, parameters[0] ?? '', wall());
      if (invitation === null) return NO_LINK;
      const { appName, email, role } = invitation;
      const needsAccount = (await findUser(sql, requireEmail(email))) === null;
      return done({ appName, email, role, needsAccount });
    }),
    api.change('POST', '/api/invitations/:token/accept', 'signed-in', NO_FIELDS, ({ parameters, user }) =>
      sql.begin('isolation level read committed', async (tx) => {
        const invitation = await findInvitation(tx, parameters[0] ?? '', wall());
        if (invitation === null) return NO_LINK;
        if (invitation.emailKey !== user.emailKey) return NOT_INVITED;
        await acceptInvitation(tx, invitation, user);
        return done({ appId: invitation.appId });
      }),
    ),
  ];
}

async function isMember(tx: Transaction, appId: number, userId: number): Promise<boolean> {
  const rows = await tx`SELECT FROM app_members WHERE app_id = ${appId} AND user_id = ${userId}`;
  return rows.length > 0;
}
