/** The route by which an owner removes a member, or a member leaves. */

import type { Api } from '../../accounts/routes/api.ts';
import { bodyOf } from '../../accounts/routes/body.ts';
import type { MemberRemoval } from '../../api-types/answers.ts';
import { Rejection } from '../../errors.ts';
import { done } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { removeMember } from '../member-removal.ts';

const REMOVAL = bodyOf({ keepTokens: { type: 'array', maxItems: 1_000 } });

export function memberRemovalRoute({ api, sql }: { api: Api; sql: Sql }): Route {
  return api.change('DELETE', '/api/apps/:appId/members/:userId', 'viewer', REMOVAL, async (call, body) => {
    const { app, user, note } = call;
    const { keepTokens = [] } = body;
    const userId = call.parameters[1] ?? '';
    const removal = await removeMember(sql, { appId: app.id, userId, keepTokens, user });
    if (removal instanceof Rejection) return removal;
    const { email, revokedTokens, keptTokens } = removal;
    const { appId } = app;
    if (userId === user.userId) note('member.leave', { appId });
    else note('member.remove', { appId, targetUserId: userId, targetEmail: email });
    for (const { tokenId } of revokedTokens) note('resource-token.revoke', { appId, tokenId });
    for (const { tokenId } of keptTokens) note('resource-token.keep', { appId, tokenId });
    return done<MemberRemoval>({ revokedTokens, keptTokens });
  });
}
