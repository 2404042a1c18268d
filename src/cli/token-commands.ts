/** The commands for resource tokens, browser keys and the logging tokens of producers. */
import { Option } from 'commander';
import {
  createBrowserKey,
  listBrowserKeys,
  restoreBrowserKey,
  revokeBrowserKey,
} from '../apps/browser-keys.ts';
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
import {
  createResourceToken,
  listResourceTokens,
  restoreResourceToken,
  revokeResourceToken,
} from '../apps/resource-tokens.ts';
import { WrongInput } from '../errors.ts';
import { mailNotice } from './command-notice.ts';
import { collect, parseDuration, parseHours } from './duration.ts';
import { JSON_OPTION } from './options.ts';
import { formatFields, formatTable } from './output.ts';
import type { Answer, Command, Session } from './session.ts';

const KINDS = ['resource', 'browser', 'logging', 'management'] as const;

type Work = (session: Session) => Promise<Answer>;

interface NewToken {
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
    .action(function (options: NewToken) {
      return this.onInstallation(CREATE[options.kind](options));
    });
}

/** Refuses what the kind does not take, before a database is opened. */
const CREATE = {
  resource: createToken,
  browser: createKey,
  logging: createLogging,
  management: createManagement,
} as const;

function createLogging(options: NewToken): Work {
  const { name } = options;
  const [appId, another] = appsOf(options);
  if (name === undefined) throw new WrongInput("a logging token needs its producer's name: add --name");
  if (appId === undefined || another !== undefined)
    throw new WrongInput('a logging token is for one app: give --app once');
  if (options.type !== undefined || options.origin !== undefined)
    throw new WrongInput('--type and --origin belong to a browser key: add --kind browser');
  if (options.expiresIn !== undefined || options.expires !== undefined)
    throw new WrongInput('a logging token does not expire: end it with tidemark token revoke');
  return async (session) => {
    const made = await createProducer(session.sql, await session.secret(), { appId, name });
    const { tokenId, loggingToken } = made;
    return {
      json: made,
      text: formatFields({ Token: tokenId, Name: name, App: appId, 'Logging token': loggingToken }),
      afterwards: () => mailNotice(session, 'producer.create', { appId, tokenId }),
    };
  };
}

const DEFAULT_MANAGEMENT_SECONDS = 90 * 86_400;

/** @throws WrongInput, as for an option that a command must have */
function appsOf({ app, scope }: NewToken): readonly string[] {
  if (scope !== undefined)
    throw new WrongInput('--scope belongs to a management token: add --kind management');
  if (app === undefined) throw new WrongInput("required option '--app <id>' not specified");
  return app;
}

function createManagement(options: NewToken): Work {
  const { name = 'management', scope, expiresIn, expires = expiresIn } = options;
  if (scope === undefined)
    throw new WrongInput('a management token needs a scope: add --scope read or --scope apply');
  if (options.app !== undefined || options.type !== undefined || options.origin !== undefined)
    throw new WrongInput(
      'a management token is for the whole installation: leave out --app, --type and --origin',
    );
  return async ({ sql }) => {
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
  };
}

function createToken(options: NewToken): Work {
  const { name, expires = null, expiresIn = expires } = options;
  const appIds = appsOf(options);
  if (name === undefined) throw new WrongInput("a resource token needs a name: add --name 'what it is for'");
  if (options.type !== undefined || options.origin !== undefined)
    throw new WrongInput('--type and --origin belong to a browser key: add --kind browser');
  return async (session) => {
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
  };
}

function createKey(options: NewToken): Work {
  const { type: types = [], origin: origins = [] } = options;
  const [appId, another] = appsOf(options);
  if (appId === undefined || another !== undefined)
    throw new WrongInput('a browser key is for one app: give --app once');
  if (types.length === 0)
    throw new WrongInput('a browser key needs the types that it may write: add --type NAME');
  if (options.expiresIn !== undefined || options.expires !== undefined)
    throw new WrongInput('a browser key does not expire: end it with tidemark token revoke');
  return async (session) => {
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
  };
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
    .list(async ({ sql, secret }, options: { readonly kind?: string }) => {
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
            // Whether one can be restored says `token restore`.
            ...[...tokens, ...keys, ...producers].map(({ restorableUntil: _, ...one }) => one),
            ...management.map((one) => ({ kind: 'management', ...one })),
          ],
        },
        text: formatTable(head, rows, 'There are no tokens.'),
      };
    });
}

function addRevokeCommand(token: Command): void {
  token
    .command('revoke')
    .description('revoke a resource token, a browser key or a producer at once')
    .argument('<id>', 'the token, tok_…')
    .run(async (session, id: string) => {
      const { kind, ...revoked } = await revokeOne(session, id);
      const text = formatFields({ Token: id, Revoked: revoked.revokedAt });
      // A management token is no app's, whose owners would be told.
      if (kind === 'management') return { json: revoked, text };
      return {
        json: revoked,
        text: `${text}\nWithin a day of it this can be undone: tidemark token restore ${id}`,
        afterwards: () => mailNotice(session, `${kind}.revoke`, { tokenId: id }),
      };
    });
}

async function revokeOne({ sql }: Session, id: string) {
  const appId = await appOfProducer(sql, id);
  const producer = appId === null ? null : await revokeProducer(sql, { appId, tokenId: id });
  if (producer !== null) return { kind: 'producer', ...producer } as const;
  const key = await revokeBrowserKey(sql, id);
  if (key !== null) return { kind: 'browser-key', ...key } as const;
  const management = await revokeManagementToken(sql, id);
  if (management !== null) return { kind: 'management', ...management } as const;
  return { kind: 'resource-token', ...(await revokeResourceToken(sql, id)) } as const;
}

function addRestoreCommand(token: Command): void {
  token
    .command('restore')
    .description('undo the revocation of a resource token, a browser key or a producer, within a day')
    .argument('<id>', 'the token, tok_…')
    .run(async (session, tokenId: string) => {
      const { kind, ...restored } = await restoreOne(session, tokenId);
      const expires = 'expiresAt' in restored && { Expires: restored.expiresAt };
      return {
        json: restored,
        text: formatFields({ Token: tokenId, State: 'not revoked any more', ...expires }),
        afterwards: () => mailNotice(session, `${kind}.restore`, { tokenId }),
      };
    });
}

async function restoreOne({ sql, config }: Session, tokenId: string) {
  const appId = await appOfProducer(sql, tokenId);
  const producer = appId === null ? null : await restoreProducer(sql, { appId, tokenId });
  if (producer !== null) return { kind: 'producer', ...producer } as const;
  const key = await restoreBrowserKey(sql, tokenId);
  if (key !== null) return { kind: 'browser-key', ...key } as const;
  const token = await restoreResourceToken(sql, tokenId, { maxTokens: config.MAX_TOKENS_PER_ACCOUNT });
  if (token !== null) return { kind: 'resource-token', ...token } as const;
  throw new WrongInput(
    `${tokenId} is no resource token, browser key or producer that was revoked within a day. What ended with its creator's membership is not restored.`,
  );
}

function addRotateCommand(token: Command): void {
  token
    .command('rotate')
    .description('give a producer a new logging token; its earlier ones end after a grace period')
    .argument('<id>', 'the token, tok_…')
    .option('--grace <hours>', 'how long the earlier tokens stay valid; 0 ends them at once', parseHours, 24)
    .run(async (session, tokenId: string, options: { grace: number }) => {
      const appId = await appOfProducer(session.sql, tokenId);
      const rotated =
        appId === null
          ? null
          : await rotateProducer(session.sql, await session.secret(), {
              ...{ appId, tokenId, graceHours: options.grace },
            });
      if (rotated === null) throw new WrongInput(`${tokenId} is no valid producer`);
      return {
        json: rotated,
        text: formatFields({
          Token: tokenId,
          'Logging token': rotated.loggingToken,
          'Earlier tokens end': rotated.previousValidUntil,
        }),
        afterwards: () => mailNotice(session, 'producer.rotate', { tokenId }),
      };
    });
}
