/** Removes a member: the membership, invitations of the same person, and what the member made that reads the app or sends from it. */

import type { Actor } from '../accounts/log/audit.ts';
import { endMembership, lockMembers, roleOf } from '../accounts/people/members.ts';
import { endSendersOf } from '../accounts/people/senders.ts';
import type { User } from '../accounts/people/users.ts';
import type { MemberRemoval } from '../api-types/answers.ts';
import { may } from '../base/roles.ts';
import { Rejection } from '../errors.ts';
import type { Sql, Transaction } from '../storage/database/connect.ts';
import { endTokensOf } from './resource-tokens.ts';

/** Outcome for what a former member created for the app. */
export interface Removal extends MemberRemoval {
  /** The former member's email address. */
  readonly email: string;
}

/** What stays at an owner's request: public ids. */
export interface Kept {
  readonly tokens: readonly string[];
  /** Webhooks and alerts: they are the owner's from then on. */
  readonly senders: readonly string[];
}

const NOTHING_KEPT: Kept = { tokens: [], senders: [] };

const NOT_OWNER = new Rejection('accessDenied', 'Only an owner may remove others.');
const NOT_KEEPER = new Rejection('accessDenied', 'Only an owner may keep what a former member made.');

/**
 * Removes a member, or lets one leave, in one transaction. Concurrent operations of the member are either included or
 * refused.
 * @param removal.userId public id of the member
 * @param removal.user   the requesting account
 * @throws Refused memberNotFound, lastOwner, tokenNotFound, webhookNotFound
 */
export async function removeMember(
  sql: Sql,
  removal: { appId: number; userId: string; keep: Kept; user: User },
): Promise<Removal | Rejection> {
  const { appId, userId, keep, user } = removal;
  const by = { userId: user.id, email: user.email };
  return await sql.begin('isolation level read committed', async (tx) => {
    await lockMembers(tx, appId);
    const mayRemove = may(await roleOf(tx, appId, user.id), 'own');
    if (!mayRemove && userId !== user.userId) return NOT_OWNER;
    if (!mayRemove && keep.tokens.length + keep.senders.length > 0) return NOT_KEEPER;
    const member = await endMembership(tx, { appId, userId, by });
    return { email: member.email, ...(await endMadeBy(tx, { appId, member, keep, heir: user.id, by })) };
  });
}

/**
 * Ends access to an app by what a former member made, and what it sends.
 * @param ending.heir  whose the kept webhooks and alerts are, by its internal id
 * @throws Refused tokenNotFound, webhookNotFound if one of `keep` is not among them
 */
export async function endMadeBy(
  tx: Transaction,
  ending: {
    readonly appId: number;
    readonly member: { readonly id: number; readonly email: string };
    readonly keep?: Kept;
    readonly heir?: number | null;
    readonly by: Actor;
  },
): Promise<MemberRemoval> {
  const { keep = NOTHING_KEPT, heir = null, ...of } = ending;
  const tokens = await endTokensOf(tx, { ...of, userId: of.member.id, keep: keep.tokens });
  const senders = await endSendersOf(tx, { ...of, keep: keep.senders, heir });
  return {
    ...{ revokedTokens: tokens.ended, keptTokens: tokens.kept },
    ...{ endedWebhooks: senders.ended.webhooks, keptWebhooks: senders.kept.webhooks },
    ...{ endedAlerts: senders.ended.alerts, keptAlerts: senders.kept.alerts },
  };
}
