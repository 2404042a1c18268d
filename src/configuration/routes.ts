/** GET and PUT /v1/config: the configuration of the installation for management tokens; GET /config.schema.json: its JSON Schema. */
import { Passwords } from '../accounts/sign-in/passwords.ts';
import type { ManagementScope, ManagementToken, ManagementTokens } from '../apps/management-tokens.ts';
import type { Secret } from '../apps/secret.ts';
import type { Window } from '../base/window.ts';
import type { Config } from '../config.ts';
import { ended, Refused, Rejection } from '../errors.ts';
import type { Exchange, Outcome } from '../http/exchange.ts';
import { dataOf, json, objectOf } from '../http/operation.ts';
import { flag, Query } from '../http/query.ts';
import type { Declaration, Route } from '../http/route.ts';
import type { Sql } from '../storage/database/connect.ts';
import { ConsumerStore } from '../storage/feed/consumers.ts';
import type { Storage } from '../storage/storage.ts';
import { ApplyFailure, applyConfig, showConfig } from './apply.ts';
import { CONFIG_SCHEMA } from './document.ts';

/** Requests of a management token in 60 seconds. */
export const MANAGEMENT_LIMIT_PER_MINUTE = 60;

const QUERY = new Query({
  dryRun: flag('Answers with the plan, and changes nothing.'),
  prune: flag('Also removes what the document does not have.'),
  deleteEvents: flag('Lets prune remove apps that have events, with these.'),
});

const DOCUMENT = {
  type: 'object',
  description: 'The document, whose JSON Schema is at `/config.schema.json`.',
};

const CHANGE = objectOf(
  {
    action: { enum: ['create', 'update', 'remove'] },
    kind: { type: 'string' },
    app: { type: ['string', 'null'] },
    name: { type: 'string' },
    detail: { type: 'string' },
  },
  { title: 'ConfigChange', optional: ['detail'] },
);

const KEPT = objectOf(
  { kind: { type: 'string' }, app: { type: ['string', 'null'] }, name: { type: 'string' } },
  { title: 'KeptConfig' },
);

const WARNING = objectOf(
  { app: { type: 'string' }, alert: { type: 'string' }, warning: { type: 'string' } },
  { title: 'AlertWarning' },
);

export const GET_CONFIG: Declaration = {
  method: 'GET',
  path: '/v1/config',
  headers: ['authorization'],
  operation: {
    id: 'getConfig',
    tag: 'Service',
    summary: 'Read the configuration of the installation, without secrets.',
    token: 'managementToken',
    isLimited: true,
    answers: { 200: json('The configuration.', dataOf(DOCUMENT)) },
    refusals: [],
  },
};

export const PUT_CONFIG: Declaration = {
  method: 'PUT',
  path: '/v1/config',
  headers: ['authorization', 'content-type', 'content-encoding'],
  operation: {
    id: 'putConfig',
    tag: 'Service',
    summary: 'Make the installation as a document says.',
    token: 'managementToken',
    isLimited: true,
    query: QUERY,
    body: {
      description: 'The document in JSON or YAML.',
      content: { 'application/json': { schema: DOCUMENT } },
    },
    answers: {
      200: json(
        'What was changed, or would be.',
        dataOf(
          objectOf({
            dryRun: { type: 'boolean' },
            changes: { type: 'array', items: CHANGE },
            kept: { type: 'array', items: KEPT },
            warnings: { type: 'array', items: WARNING },
          }),
        ),
      ),
    },
    refusals: ['invalidBody', 'accessDenied', 'applyFailed', 'payloadTooLarge', 'unsupportedEncoding'],
    refusalProperties: {
      400: { line: { type: ['integer', 'null'], description: 'Where the mistake is, from 1 on.' } },
      409: {
        done: { type: 'array', items: CHANGE, description: 'What was changed before it failed.' },
        failed: CHANGE,
      },
    },
  },
};

export interface ConfigRouteOptions {
  readonly tokens: ManagementTokens;
  /** By the internal id of the token. */
  readonly limiter: Window<number>;
  readonly storage: Storage;
  readonly secret: Secret;
  readonly config: Config;
  readonly sql: Sql;
  /** Opens a pool of one connection, whose session holds the lock of an apply. */
  readonly open: () => Sql;
  readonly close: (sql: Sql) => Promise<void>;
  /** Called after a change, so that this process knows of it before the response. */
  readonly onChange: () => void;
}

const BUSY = new Rejection(
  'unavailable',
  'Another configuration is being applied: try again when it is done.',
);
const READ_ONLY = new Rejection(
  'accessDenied',
  'The management token has the scope "read": applying needs one with the scope "apply".',
);

export function configRoutes(options: ConfigRouteOptions): readonly Route[] {
  let isApplying = false;
  return [
    {
      ...GET_CONFIG,
      handle: async (exchange) => {
        const token = await admit(options, exchange, 'read');
        if (token instanceof Rejection) return token;
        const store = new ConsumerStore(options.storage.engine, options.sql);
        return answer(await showConfig({ sql: options.sql, store }, null));
      },
    },
    {
      ...PUT_CONFIG,
      handle: async (exchange) => {
        exchange.receive();
        const token = await admit(options, exchange, 'apply');
        if (token instanceof Rejection) return token;
        const text = await exchange.text();
        if (text instanceof Rejection) return text;
        const query = QUERY.unknown(exchange.query) ?? QUERY.parse(exchange.query);
        if (query instanceof Rejection) return query;
        if (isApplying) return BUSY;
        isApplying = true;
        const sql = options.open();
        try {
          return await apply(options, { sql, token, text, query });
        } finally {
          isApplying = false;
          await options.close(sql);
        }
      },
    },
  ];
}

/** The valid token of a request, with the request counted. */
async function admit(
  { tokens, limiter }: ConfigRouteOptions,
  exchange: Exchange,
  scope: ManagementScope,
): Promise<ManagementToken | Rejection> {
  const token = await tokens.authenticate(exchange.header('authorization'));
  if (token instanceof Rejection) return token;
  const decision = limiter.take(token.id);
  exchange.rateLimit = decision;
  if (decision !== null && !decision.accepted)
    return new Rejection(
      'rateLimitExceeded',
      `A management token may send ${decision.limit} requests in 60 seconds.`,
      { retryAfterSeconds: decision.resetSeconds },
    );
  return scope === 'apply' && token.scope !== 'apply' ? READ_ONLY : token;
}

async function apply(
  { storage, secret, config, onChange }: ConfigRouteOptions,
  given: {
    readonly sql: Sql;
    readonly token: ManagementToken;
    readonly text: string;
    readonly query: { readonly dryRun: boolean; readonly prune: boolean; readonly deleteEvents: boolean };
  },
): Promise<Outcome> {
  const { sql, token, text, query } = given;
  const by = { userId: null, email: `management token ${token.name}` };
  const store = new ConsumerStore(storage.engine, sql);
  const events = storage.reader(sql);
  // YAML and its schema are a twentieth of a start, and most installations never ask for them.
  const { ConfigMistake, parseConfig } = await import('./parse.ts');
  try {
    const options = {
      sql,
      store,
      events,
      secret: async () => secret,
      config,
      passwords: new Passwords(),
      by,
    };
    const applied = await applyConfig(options, await parseConfig(text), query);
    return answer({ dryRun: query.dryRun, ...applied });
  } catch (error) {
    if (error instanceof Refused) return error.rejection;
    if (error instanceof ConfigMistake) {
      const { pointer, line, message } = error;
      return new Rejection('invalidBody', ended(message), { param: pointer, fields: { line } });
    }
    if (!(error instanceof ApplyFailure)) throw error;
    const { done, failed, message } = error;
    return new Rejection('applyFailed', ended(message), { fields: { done, failed } });
  } finally {
    onChange();
  }
}

function answer(data: object | null): Outcome {
  return { status: 200, body: JSON.stringify({ success: true, data }) };
}

export const CONFIG_SCHEMA_ROUTE: Declaration = {
  method: 'GET',
  path: '/config.schema.json',
  headers: [],
  operation: {
    id: 'getConfigSchema',
    tag: 'Service',
    summary: 'Read the JSON Schema of the configuration as a file.',
    token: null,
    isLimited: false,
    answers: { 200: json('A JSON Schema, draft 07.', { type: 'object' }) },
    refusals: [],
  },
};

const SCHEMA_BODY = JSON.stringify(CONFIG_SCHEMA);

/** The schema for editors and checks, without a token. */
export function configSchemaRoute(): Route {
  return { ...CONFIG_SCHEMA_ROUTE, handle: async () => ({ status: 200, body: SCHEMA_BODY }) };
}
