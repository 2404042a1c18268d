/** Removes a member: the membership, invitations of the same person, and the tokens that the member created. */
import { endMembership, lockMembers, roleOf } from '../accounts/people/members.ts';
import type { User } from '../accounts/people/users.ts';
import { Rejection } from '../errors.ts';
import type { Sql } from '../storage/database/connect.ts';
import { endTokensOf, type MadeToken } from './resource-tokens.ts';

/** Outcome for the tokens that a former member created for the app. */
export interface Removal {
  /** The former member's email address. */
  readonly email: string;
  /** These no longer read the app. */
  readonly revokedTokens: readonly MadeToken[];
  /** These stay valid at the owner's request. */
  readonly keptTokens: readonly MadeToken[];
}

const NOT_OWNER = new Rejection('accessDenied', 'Only an owner may remove others.');
const NOT_KEEPER = new Rejection('accessDenied', 'Only an owner may keep the tokens of a former member.');

/**
 * Removes a member, or lets one leave, in one transaction. Concurrent operations of the member are either included or
 * refused.
 * @param removal.appId      internal id
 * @param removal.userId     public id of the member
 * @param removal.keepTokens public ids of the member's tokens that stay valid for the app
 * @param removal.user       the requesting account
 * @throws Refused memberNotFound, lastOwner, tokenNotFound
 */
export async function removeMember(
  sql: Sql,
  removal: { appId: number; userId: string; keepTokens: readonly string[]; user: User },
): Promise<Removal | Rejection> {
  const { appId, userId, keepTokens, user } = removal;
  const by = { userId: user.id, email: user.email };
  return await sql.begin('isolation level read committed', async (tx) => {
    await lockMembers(tx, appId);
    const isOwner = (await roleOf(tx, appId, user.id)) === 'owner';
    if (!isOwner && userId !== user.userId) return NOT_OWNER;
    if (!isOwner && keepTokens.length > 0) return NOT_KEEPER;
    const member = await endMembership(tx, { appId, userId, by });
    const { ended, kept } = await endTokensOf(tx, { appId, userId: member.id, keep: keepTokens, by });
    return { email: member.email, revokedTokens: ended, keptTokens: kept };
  });
}
