/** The commands for resource tokens, browser keys and the logging tokens of producers. */
import { type Command, Option } from 'commander';
import { createBrowserKey, listBrowserKeys, revokeBrowserKey } from '../apps/browser-keys.ts';
import {
  createManagementToken,
  listManagementTokens,
  MANAGEMENT_SCOPES,
  type ManagementScope,
  revokeManagementToken,
} from '../apps/management-tokens.ts';
import {
  appOfProducer,
  createProducer,
  listProducers,
  restoreProducer,
  revokeProducer,
  rotateProducer,
} from '../apps/producers.ts';
import { createResourceToken, listResourceTokens, revokeResourceToken } from '../apps/resource-tokens.ts';
import { OperatorError } from '../errors.ts';
import { mailNotice } from './command-notice.ts';
import { parseDuration, parseHours } from './duration.ts';
import { JSON_LIST, JSON_OPTION } from './options.ts';
import { formatFields, formatTable } from './output.ts';
import { runCommand, type Session } from './session.ts';

const KINDS = ['resource', 'browser', 'logging', 'management'] as const;

interface Json {
  readonly json?: true;
}

interface NewToken extends Json {
  readonly kind: (typeof KINDS)[number];
  readonly name?: string;
  readonly app?: readonly string[];
  readonly scope?: ManagementScope;
  readonly expires?: number;
  readonly type?: readonly string[];
  readonly origin?: readonly string[];
  readonly expiresIn?: number;
}

export function addTokenCommands(program: Command): void {
  const token = program
    .command('token')
    .description('resource tokens, which read events, and browser keys and logging tokens, which write them');
  addCreateCommand(token);
  addListCommand(token);
  addRevokeCommand(token);
  addRestoreCommand(token);
  addRotateCommand(token);
}

function addCreateCommand(token: Command): void {
  token
    .command('create')
    .description(
      'create a resource token, which is shown only once, a browser key, which may be public, or another logging token, named after its producer',
    )
    .addOption(new Option('--kind <kind>', 'what to create').choices(KINDS).default('resource'))
    .option('--name <name>', 'what it is for, 1 to 200 characters; a browser key is named after its origins')
    .option('--app <id>', 'resource, browser: the app; a resource token may read several: repeat it', collect)
    .addOption(
      new Option('--scope <scope>', 'management: read the configuration, or apply it, too').choices(
        MANAGEMENT_SCOPES,
      ),
    )
    .option(
      '--expires <duration>',
      'the same as --expires-in; a management token ends after 90d without it',
      parseDuration,
    )
    .option('--type <name...>', 'browser: a type that the key may write; repeat for more', collect)
    .option(
      '--origin <origin...>',
      'browser: an origin whose pages may use the key, such as https://shop.example; repeat for more, without any none may',
      collect,
    )
    .option(
      '--expires-in <duration>',
      'resource: such as 90m, 12h, 30d, 2w; without it the token does not expire',
      parseDuration,
    )
    .option(...JSON_OPTION)
    .action((options: NewToken) => CREATE[options.kind](options));
}

const CREATE = {
  resource: createToken,
  browser: createKey,
  logging: createLogging,
  management: createManagement,
} as const;

async function createLogging(options: NewToken): Promise<void> {
  const { name } = options;
  const [appId, another] = appsOf(options);
  if (name === undefined) throw new OperatorError("a logging token needs its producer's name: add --name");
  if (appId === undefined || another !== undefined)
    throw new OperatorError('a logging token is for one app: give --app once');
  if (options.type !== undefined || options.origin !== undefined)
    throw new OperatorError('--type and --origin belong to a browser key: add --kind browser');
  if (options.expiresIn !== undefined || options.expires !== undefined)
    throw new OperatorError('a logging token does not expire: end it with tidemark token revoke');
  await runCommand(options, async (session) => {
    const made = await createProducer(session.sql, await session.secret(), { appId, name });
    const { tokenId, loggingToken } = made;
    return {
      json: made,
      text: formatFields({ Token: tokenId, Name: name, App: appId, 'Logging token': loggingToken }),
      afterwards: () => mailNotice(session, 'producer.create', { appId, tokenId }),
    };
  });
}

const DEFAULT_MANAGEMENT_SECONDS = 90 * 86_400;

/** @throws OperatorError, as for an option that a command must have */
function appsOf({ app, scope }: NewToken): readonly string[] {
  if (scope !== undefined)
    throw new OperatorError('--scope belongs to a management token: add --kind management');
  if (app === undefined) throw new OperatorError("required option '--app <id>' not specified");
  return app;
}

async function createManagement(options: NewToken): Promise<void> {
  const { name = 'management', scope, expiresIn, expires = expiresIn } = options;
  if (scope === undefined)
    throw new OperatorError('a management token needs a scope: add --scope read or --scope apply');
  if (options.app !== undefined || options.type !== undefined || options.origin !== undefined)
    throw new OperatorError(
      'a management token is for the whole installation: leave out --app, --type and --origin',
    );
  await runCommand(options, async ({ sql }) => {
    const expiresInSeconds = expires ?? DEFAULT_MANAGEMENT_SECONDS;
    const made = await createManagementToken(sql, { name, scope, expiresInSeconds });
    const { tokenId, managementToken, expiresAt } = made;
    const text = formatFields({
      Token: tokenId,
      Name: name,
      Scope: scope,
      Expires: expiresAt,
      'Management token': managementToken,
    });
    return { json: made, text: `${text}\nStore it now: it is not shown again.` };
  });
}

async function createToken(options: NewToken): Promise<void> {
  const { name, expires = null, expiresIn = expires } = options;
  const appIds = appsOf(options);
  if (name === undefined)
    throw new OperatorError("a resource token needs a name: add --name 'what it is for'");
  if (options.type !== undefined || options.origin !== undefined)
    throw new OperatorError('--type and --origin belong to a browser key: add --kind browser');
  await runCommand(options, async (session) => {
    const made = await createResourceToken(session.sql, {
      name,
      appIds,
      expiresInSeconds: expiresIn,
    });
    const { tokenId, resourceToken, expiresAt } = made;
    const text = formatFields({
      Token: tokenId,
      Name: made.name,
      Apps: appIds,
      Expires: expiresAt,
      'Resource token': resourceToken,
    });
    return {
      json: { tokenId, resourceToken, expiresAt },
      text: `${text}\nStore it now: it is not shown again.`,
      afterwards: async () => {
        for (const appId of appIds) await mailNotice(session, 'resource-token.create', { appId, tokenId });
      },
    };
  });
}

async function createKey(options: NewToken): Promise<void> {
  const { type: types = [], origin: origins = [] } = options;
  const [appId, another] = appsOf(options);
  if (appId === undefined || another !== undefined)
    throw new OperatorError('a browser key is for one app: give --app once');
  if (types.length === 0)
    throw new OperatorError('a browser key needs the types that it may write: add --type NAME');
  if (options.expiresIn !== undefined || options.expires !== undefined)
    throw new OperatorError('a browser key does not expire: end it with tidemark token revoke');
  await runCommand(options, async (session) => {
    const name = options.name ?? (origins.join(', ').slice(0, 200) || 'browser');
    const made = await createBrowserKey(session.sql, await session.secret(), { appId, name, types, origins });
    const { tokenId, browserKey } = made;
    const text = formatFields({
      Token: tokenId,
      Name: made.name,
      App: appId,
      Types: made.types,
      Origins: made.origins.length === 0 ? 'none, so no page can use it yet' : made.origins,
      'Browser key': browserKey,
    });
    return {
      json: { tokenId, name: made.name, browserKey, appId, types: made.types, origins: made.origins },
      text,
      afterwards: () => mailNotice(session, 'browser-key.create', { appId, tokenId }),
    };
  });
}

function addListCommand(token: Command): void {
  token
    .command('list')
    .description(
      'list resource tokens, browser keys and management tokens, or the logging tokens of producers, without their texts',
    )
    .addOption(
      new Option('--kind <kind>', 'tokens of one kind; without it, all but logging tokens').choices(KINDS),
    )
    .option(...JSON_LIST)
    .action((options: Json & { readonly kind?: string }) =>
      runCommand(options, async ({ sql, secret }) => {
        const isAsked = (kind: string): boolean =>
          options.kind === undefined ? kind !== 'logging' : options.kind === kind;
        const tokens = isAsked('resource') ? await listResourceTokens(sql) : [];
        const keys = isAsked('browser') ? await listBrowserKeys(sql, await secret()) : [];
        const management = isAsked('management') ? await listManagementTokens(sql) : [];
        const producers = isAsked('logging') ? await listProducers(sql, null, Date.now()) : [];
        const rows = [
          ...tokens.map((one) => ['resource', one, one.expiresAt, one.lastUsedAt] as const),
          ...keys.map((one) => ['browser', one, null, null] as const),
          ...producers.map((one) => ['logging', one, null, one.lastUsedAt] as const),
        ].map(([kind, one, expiresAt, lastUsedAt]) => [
          one.tokenId,
          kind,
          one.name,
          one.appIds,
          one.createdBy?.email ?? null,
          one.createdAt,
          expiresAt,
          one.revokedAt,
          lastUsedAt,
        ]);
        rows.push(
          ...management.map((one) => [
            one.tokenId,
            `management: ${one.scope}`,
            one.name,
            'all',
            null,
            one.createdAt,
            one.expiresAt,
            one.revokedAt,
            one.lastUsedAt,
          ]),
        );
        const head = [
          'Token',
          'Kind',
          'Name',
          'Apps',
          'Created by',
          'Created',
          'Expires',
          'Revoked',
          'Last used',
        ];
        return {
          json: {
            tokens: [
              ...tokens,
              ...keys,
              ...producers,
              ...management.map((one) => ({ kind: 'management', ...one })),
            ],
          },
          text: formatTable(head, rows, 'There are no tokens.'),
        };
      }),
    );
}

function addRevokeCommand(token: Command): void {
  token
    .command('revoke')
    .description('revoke a resource token, a browser key or a producer at once')
    .argument('<id>', 'the token, tok_…')
    .option(...JSON_OPTION)
    .action((id: string, options: Json) =>
      runCommand(options, async (session) => {
        const producer = await revokeOne(session, id);
        if (producer !== null) return producer;
        const key = await revokeBrowserKey(session.sql, id);
        const management = key === null ? await revokeManagementToken(session.sql, id) : null;
        const revoked = key ?? management ?? (await revokeResourceToken(session.sql, id));
        const event = key === null ? 'resource-token.revoke' : 'browser-key.revoke';
        return {
          json: revoked,
          text: formatFields({ Token: revoked.tokenId, Revoked: revoked.revokedAt }),
          // A management token is no app's, whose owners would be told.
          ...(management === null && {
            afterwards: () => mailNotice(session, event, { tokenId: revoked.tokenId }),
          }),
        };
      }),
    );
}

async function revokeOne(session: Session, tokenId: string) {
  const appId = await appOfProducer(session.sql, tokenId);
  const revoked = appId === null ? null : await revokeProducer(session.sql, { appId, tokenId });
  if (revoked === null) return null;
  return {
    json: revoked,
    text: `${formatFields({ Token: tokenId, Revoked: revoked.revokedAt })}\nFor a day this can be undone: tidemark token restore ${tokenId}`,
    afterwards: () => mailNotice(session, 'producer.revoke', { tokenId }),
  };
}

function addRestoreCommand(token: Command): void {
  token
    .command('restore')
    .description('undo the revocation of a producer, within a day')
    .argument('<id>', 'the token, tok_…')
    .option(...JSON_OPTION)
    .action((tokenId: string, options: Json) =>
      runCommand(options, async (session) => {
        const appId = await appOfProducer(session.sql, tokenId);
        const restored = appId === null ? null : await restoreProducer(session.sql, { appId, tokenId });
        if (restored === null)
          throw new OperatorError(`${tokenId} is no producer that was revoked within a day`);
        return {
          json: restored,
          text: formatFields({ Token: tokenId, State: 'valid again' }),
          afterwards: () => mailNotice(session, 'producer.restore', { tokenId }),
        };
      }),
    );
}

function addRotateCommand(token: Command): void {
  token
    .command('rotate')
    .description('give a producer a new logging token; its earlier ones end after a grace period')
    .argument('<id>', 'the token, tok_…')
    .option('--grace <hours>', 'how long the earlier tokens stay valid; 0 ends them at once', parseHours, 24)
    .option(...JSON_OPTION)
    .action((tokenId: string, options: Json & { grace: number }) =>
      runCommand(options, async (session) => {
        const appId = await appOfProducer(session.sql, tokenId);
        const rotated =
          appId === null
            ? null
            : await rotateProducer(session.sql, await session.secret(), {
                ...{ appId, tokenId, graceHours: options.grace },
              });
        if (rotated === null) throw new OperatorError(`${tokenId} is no valid producer`);
        return {
          json: rotated,
          text: formatFields({
            Token: tokenId,
            'Logging token': rotated.loggingToken,
            'Earlier tokens end': rotated.previousValidUntil,
          }),
          afterwards: () => mailNotice(session, 'producer.rotate', { tokenId }),
        };
      }),
    );
}

function collect(value: string, before: readonly string[] = []): string[] {
  return [...before, value];
}
