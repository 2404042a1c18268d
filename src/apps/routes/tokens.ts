/** Routes of an app's logging token, resource tokens and browser keys. */

import type { Actor } from '../../accounts/log/audit.ts';
import { listMemberships } from '../../accounts/people/members.ts';
import type { User } from '../../accounts/people/users.ts';
import type { Api } from '../../accounts/routes/api.ts';
import { bodyOf, NO_FIELDS } from '../../accounts/routes/body.ts';
import type {
  BrowserKey,
  BrowserKeyList,
  LoggingToken,
  NewProducer,
  NewResourceToken,
  ProducerList,
  ResourceTokenList,
} from '../../api-types/answers.ts';
import { tokenNotFound } from '../../errors.ts';
import { done } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { checkConfirmation } from '../apps.ts';
import { createBrowserKey, listBrowserKeys, restoreBrowserKey, revokeBrowserKey } from '../browser-keys.ts';
import { currentLoggingToken, rotateLoggingToken } from '../logging-tokens.ts';
import {
  createProducer,
  listProducers,
  restoreProducer,
  revokeProducer,
  rotateProducer,
  showProducerToken,
} from '../producers.ts';
import {
  createResourceToken,
  listResourceTokens,
  type ResourceToken,
  restoreResourceToken,
  revokeResourceToken,
} from '../resource-tokens.ts';
import type { Secret } from '../secret.ts';

export interface TokenRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly secret: Secret;
  readonly maxTokensPerAccount: number;
  /** Brings to the database what this process has counted of the usage of apps. */
  readonly writeUsage: () => Promise<void>;
  readonly now: () => number;
}

const ROTATION = bodyOf({
  graceHours: { type: 'number', minimum: 0, maximum: 8_760 },
  confirm: { type: 'string', maxLength: 1_000 },
});
const NEW_TOKEN = bodyOf(
  {
    name: { type: 'string', maxLength: 1_000 },
    expiresInDays: { type: 'number', exclusiveMinimum: 0, maximum: 36_500, nullable: true },
    appIds: { type: 'array', maxItems: 1_000 },
  },
  ['name'],
);

const NEW_KEY = bodyOf(
  {
    name: { type: 'string', maxLength: 1_000 },
    types: { type: 'array', maxItems: 1_000 },
    origins: { type: 'array', maxItems: 1_000 },
  },
  ['name', 'types', 'origins'],
);

const DAY_SECONDS = 86_400;
const DEFAULT_GRACE_HOURS = 24;

export function tokenRoutes(options: TokenRoutesOptions): readonly Route[] {
  const { api, sql, secret, maxTokensPerAccount: maxTokens } = options;
  return [
    api.read('/api/apps/:appId/logging-token', 'change', async ({ app }) =>
      done<LoggingToken>(await currentLoggingToken(sql, secret, app.id)),
    ),
    api.change(
      'POST',
      '/api/apps/:appId/logging-token/rotate',
      'change',
      ROTATION,
      async ({ app, by, note }, body) => {
        const { graceHours = DEFAULT_GRACE_HOURS, confirm = '' } = body;
        // With a grace period nothing is lost.
        if (graceHours === 0) checkConfirmation(confirm, app.name);
        const { loggingToken, previousValidUntil } = await rotateLoggingToken(sql, secret, {
          appId: app.appId,
          graceHours,
          by,
        });
        note('logging-token.rotate', { appId: app.appId });
        return done<Pick<LoggingToken, 'loggingToken' | 'previousValidUntil'>>({
          loggingToken,
          previousValidUntil,
        });
      },
    ),
    api.read('/api/apps/:appId/tokens', 'read', async ({ app, user }) =>
      done<ResourceTokenList>({ tokens: await visibleTokens(sql, app.id, user) }),
    ),
    api.change('POST', '/api/apps/:appId/tokens', 'change', NEW_TOKEN, async ({ app, by, note }, body) => {
      const { name, expiresInDays = null, appIds = [] } = body;
      const made = await createResourceToken(sql, {
        name,
        appIds: [app.appId, ...appIds],
        expiresInSeconds: expiresInDays === null ? null : expiresInDays * DAY_SECONDS,
        maxTokens,
        by,
      });
      for (const appId of made.appIds) note('resource-token.create', { appId, tokenId: made.tokenId });
      return done<NewResourceToken>(made, { status: 201 });
    }),
    ...endRoutes(api, '/api/apps/:appId/tokens', 'resource-token', {
      revoke: (tokenId, of) => revokeResourceToken(sql, tokenId, of),
      restore: (tokenId, of) => restoreResourceToken(sql, tokenId, { ...of, maxTokens }),
    }),
    ...producerRoutes(options),
    ...browserKeyRoutes(options),
  ];
}

const PRODUCER = bodyOf({ name: { type: 'string', maxLength: 1_000 } }, ['name']);
const PRODUCERS = '/api/apps/:appId/producers';

function producerRoutes({ api, sql, secret, writeUsage, now }: TokenRoutesOptions): readonly Route[] {
  const idOf = (parameters: readonly string[]): string => parameters[1] ?? '';
  return [
    api.read(PRODUCERS, 'change', async ({ app }) => {
      // What this process has counted is seen at once.
      await writeUsage();
      const producers = await listProducers(sql, app.id, now());
      return done<ProducerList>({ producers: producers.map(({ kind: _, appIds: __, ...one }) => one) });
    }),
    api.read(`${PRODUCERS}/:tokenId/token`, 'change', async ({ app, parameters }) => {
      const tokenId = idOf(parameters);
      const found = (await listProducers(sql, app.id, now())).find((one) => one.tokenId === tokenId);
      if (found === undefined) throw tokenNotFound(tokenId, 'producer');
      const loggingToken = await showProducerToken(sql, secret, { appId: app.id, tokenId });
      return done<NewProducer>({ tokenId, name: found.name, loggingToken });
    }),
    api.change('POST', PRODUCERS, 'change', PRODUCER, async ({ app, by, note }, { name }) => {
      const { appId, ...made } = await createProducer(sql, secret, { appId: app.appId, name, by });
      note('producer.create', { appId, tokenId: made.tokenId });
      return done<NewProducer>(made, { status: 201 });
    }),
    api.change(
      'POST',
      `${PRODUCERS}/:tokenId/rotate`,
      'change',
      ROTATION,
      async ({ app, by, parameters, note }, { graceHours = DEFAULT_GRACE_HOURS, confirm = '' }) => {
        // With a grace period nothing is lost.
        if (graceHours === 0) checkConfirmation(confirm, app.name);
        const tokenId = idOf(parameters);
        const rotated = await rotateProducer(sql, secret, { appId: app.id, tokenId, graceHours, by });
        if (rotated === null) throw tokenNotFound(tokenId, 'producer');
        note('producer.rotate', { appId: app.appId, tokenId });
        return done<Pick<LoggingToken, 'loggingToken' | 'previousValidUntil'>>(rotated);
      },
    ),
    ...endRoutes(api, PRODUCERS, 'producer', {
      revoke: (tokenId, of) => revokeProducer(sql, { ...of, tokenId }),
      restore: (tokenId, of) => restoreProducer(sql, { ...of, tokenId }),
    }),
  ];
}

function browserKeyRoutes({ api, sql, secret }: TokenRoutesOptions): readonly Route[] {
  return [
    api.read('/api/apps/:appId/browser-keys', 'change', async ({ app }) =>
      done<BrowserKeyList>({ keys: await listBrowserKeys(sql, secret, app.id) }),
    ),
    api.change(
      'POST',
      '/api/apps/:appId/browser-keys',
      'change',
      NEW_KEY,
      async ({ app, by, note }, body) => {
        const made = await createBrowserKey(sql, secret, { appId: app.appId, ...body, by });
        note('browser-key.create', { appId: app.appId, tokenId: made.tokenId });
        return done<Pick<BrowserKey, 'tokenId' | 'name' | 'browserKey'>>(made, { status: 201 });
      },
    ),
    ...endRoutes(api, '/api/apps/:appId/browser-keys', 'browser-key', {
      revoke: (tokenId, of) => revokeBrowserKey(sql, tokenId, of),
      restore: (tokenId, of) => restoreBrowserKey(sql, tokenId, of),
    }),
  ];
}

/** Of what, in which app, and who ends it, or undoes that within a day. @returns null: there is none */
type Change<T> = (tokenId: string, of: { appId: number; by: Actor }) => Promise<T | null>;

function endRoutes(
  api: Api,
  path: string,
  kind: 'resource-token' | 'producer' | 'browser-key',
  { revoke, restore }: { revoke: Change<{ revokedAt: Date }>; restore: Change<{ tokenId: string }> },
): readonly Route[] {
  const noun = kind.replace('-', ' ');
  return [
    api.change('DELETE', `${path}/:tokenId`, 'change', NO_FIELDS, async ({ app, by, parameters, note }) => {
      const tokenId = parameters[1] ?? '';
      const revoked = await revoke(tokenId, { appId: app.id, by });
      if (revoked === null) throw tokenNotFound(tokenId, noun);
      note(`${kind}.revoke`, { appId: app.appId, tokenId });
      return done<Pick<ResourceToken, 'revokedAt'>>(revoked);
    }),
    api.change(
      'POST',
      `${path}/:tokenId/restore`,
      'change',
      NO_FIELDS,
      async ({ app, by, parameters, note }) => {
        const tokenId = parameters[1] ?? '';
        const restored = await restore(tokenId, { appId: app.id, by });
        if (restored === null) throw tokenNotFound(tokenId, `${noun} that was revoked within a day`);
        note(`${kind}.restore`, { appId: app.appId, tokenId });
        return done<Pick<ResourceToken, 'tokenId'>>(restored);
      },
    ),
  ];
}

/** Lists only those apps of a token that the user is a member of. */
async function visibleTokens(sql: Sql, appId: number, user: User): Promise<ResourceToken[]> {
  const [tokens, memberships] = await Promise.all([
    listResourceTokens(sql, appId, { userId: user.id, email: user.email }),
    listMemberships(sql, user),
  ]);
  const own = new Set(memberships.map((membership) => membership.appId));
  return tokens.map((token) => ({ ...token, appIds: token.appIds.filter((id) => own.has(id)) }));
}
