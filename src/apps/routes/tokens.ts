/** Routes of an app's tokens: the logging token, and the resource tokens that may read it. */

import { listMemberships } from '../../accounts/members.ts';
import { type Api, done } from '../../accounts/routes/api.ts';
import { bodyOf, NO_FIELDS } from '../../accounts/routes/body.ts';
import type { User } from '../../accounts/users.ts';
import { Rejection } from '../../errors.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/connect.ts';
import { checkConfirmation } from '../apps.ts';
import { currentLoggingToken, rotateLoggingToken } from '../logging-tokens.ts';
import {
  createResourceToken,
  listResourceTokens,
  type ResourceToken,
  revokeResourceToken,
} from '../resource-tokens.ts';
import type { Secret } from '../secret.ts';

export interface TokenRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly secret: Secret;
}

const ROTATION = bodyOf(
  {
    graceHours: { type: 'number', minimum: 0, maximum: 8_760 },
    confirm: { type: 'string', maxLength: 1_000 },
  },
  ['confirm'],
);
const NEW_TOKEN = bodyOf(
  {
    name: { type: 'string', maxLength: 1_000 },
    expiresInDays: { type: 'number', exclusiveMinimum: 0, maximum: 36_500, nullable: true },
    appIds: { type: 'array', maxItems: 1_000 },
  },
  ['name'],
);

const DAY_SECONDS = 86_400;
const DEFAULT_GRACE_HOURS = 24;

const NOT_A_MEMBER = new Rejection('appNotFound', 'One of "appIds" is no app of yours.');

export function tokenRoutes({ api, sql, secret }: TokenRoutesOptions): readonly Route[] {
  return [
    api.read('/api/apps/:appId/logging-token', 'member', async ({ app }) =>
      done(await currentLoggingToken(sql, secret, app.id)),
    ),
    api.change(
      'POST',
      '/api/apps/:appId/logging-token/rotate',
      'member',
      ROTATION,
      async ({ app, by }, body) => {
        checkConfirmation(body.confirm, app.name);
        const { graceHours = DEFAULT_GRACE_HOURS } = body;
        const { loggingToken, previousValidUntil } = await rotateLoggingToken(sql, secret, {
          appId: app.appId,
          graceHours,
          by,
        });
        return done({ loggingToken, previousValidUntil });
      },
    ),
    api.read('/api/apps/:appId/tokens', 'member', async ({ app, user }) =>
      done({ tokens: await visibleTokens(sql, app.id, user) }),
    ),
    api.change('POST', '/api/apps/:appId/tokens', 'member', NEW_TOKEN, async ({ app, user, by }, body) => {
      const { name, expiresInDays = null, appIds = [] } = body;
      const own = new Set((await listMemberships(sql, user)).map(({ appId }) => appId));
      if (!appIds.every((appId) => own.has(appId))) return NOT_A_MEMBER;
      const made = await createResourceToken(sql, {
        name,
        appIds: [app.appId, ...appIds],
        expiresInSeconds: expiresInDays === null ? null : expiresInDays * DAY_SECONDS,
        by,
      });
      return done(made, { status: 201 });
    }),
    api.change(
      'DELETE',
      '/api/apps/:appId/tokens/:tokenId',
      'member',
      NO_FIELDS,
      async ({ app, by, parameters }) =>
        done(await revokeResourceToken(sql, parameters[1] ?? '', { appId: app.id, by })),
    ),
  ];
}

/** Of a token's apps only those are named that the reader is a member of. */
async function visibleTokens(sql: Sql, appId: number, user: User): Promise<ResourceToken[]> {
  const [tokens, memberships] = await Promise.all([
    listResourceTokens(sql, appId),
    listMemberships(sql, user),
  ]);
  const own = new Set(memberships.map((membership) => membership.appId));
  return tokens.map((token) => ({ ...token, appIds: token.appIds.filter((id) => own.has(id)) }));
}
