/** The route by which an owner removes a member, or a member leaves. */

import type { Api } from '../../accounts/routes/api.ts';
import { bodyOf } from '../../accounts/routes/body.ts';
import type { MemberRemoval } from '../../api-types/answers.ts';
import { Rejection } from '../../errors.ts';
import { done } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { removeMember } from '../member-removal.ts';

const IDS = { type: 'array', maxItems: 1_000 } as const;
const REMOVAL = bodyOf({ keepTokens: IDS, keepWebhooks: IDS, keepAlerts: IDS });

export function memberRemovalRoute({ api, sql }: { api: Api; sql: Sql }): Route {
  return api.change('DELETE', '/api/apps/:appId/members/:userId', 'read', REMOVAL, async (call, body) => {
    const { app, user, note } = call;
    const { keepTokens = [], keepWebhooks = [], keepAlerts = [] } = body;
    const keep = { tokens: keepTokens, senders: [...keepWebhooks, ...keepAlerts] };
    const userId = call.parameters[1] ?? '';
    const removal = await removeMember(sql, { appId: app.id, userId, keep, user });
    if (removal instanceof Rejection) return removal;
    const { email, ...made } = removal;
    const { appId } = app;
    if (userId === user.userId) note('member.leave', { appId });
    else note('member.remove', { appId, targetUserId: userId, targetEmail: email });
    for (const { tokenId } of made.revokedTokens) note('resource-token.revoke', { appId, tokenId });
    for (const { tokenId } of made.keptTokens) note('resource-token.keep', { appId, tokenId });
    return done<MemberRemoval>(made);
  });
}
