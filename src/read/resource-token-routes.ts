/** The reads of an app for resource tokens, under /v1. */
import type { ReadableApps } from '../api-types/answers.ts';
import { listAppsOf } from '../apps/apps.ts';
import type { ResourceToken } from '../apps/resource-token-lookup.ts';
import { Rejection } from '../errors.ts';
import { done } from '../http/data.ts';
import { dataOf, json, objectOf, READS } from '../http/operation.ts';
import { Query } from '../http/query.ts';
import type { ReadSlots, ReadWaiter } from '../http/read-slots.ts';
import type { Declaration, Parameter, Route } from '../http/route.ts';
import { APP, APP_ID } from './answer-shapes.ts';
import { type AppRead, headersOfRead, type ReadDeclaration, respond } from './app-read.ts';
import type { ResourceTokenAccess } from './resource-token-access.ts';

export interface ResourceTokenRoutesOptions {
  readonly access: ResourceTokenAccess;
  readonly slots: ReadSlots;
}

/** The token is checked first: without a valid one nothing is revealed, not even whether an app exists. */
const ANY: Parameter = { form: /^/, refusal: new Rejection('notFound', 'There is nothing at this path.') };

const NO_PARAMETERS = new Query({});

export const APPS: Declaration = {
  method: 'GET',
  path: '/v1/apps',
  headers: ['authorization'],
  operation: {
    id: 'listApps',
    ...READS,
    summary: 'Read which apps the token may read.',
    query: NO_PARAMETERS,
    answers: {
      200: json('The apps, in order of creation.', dataOf(objectOf({ apps: { type: 'array', items: APP } }))),
    },
    refusals: [],
  },
};

/** GET /v1/apps, and each of the reads below an app. */
export function resourceTokenRoutes(
  options: ResourceTokenRoutesOptions,
  reads: readonly AppRead[],
): readonly Route[] {
  return [appsRoute(options), ...reads.map((read) => readRoute(options, read))];
}

/** The declaration of a read under /v1. */
export function declareRead(declaration: ReadDeclaration): Declaration {
  const { path, query, operation, maxBodyBytes } = declaration;
  return {
    method: maxBodyBytes === undefined ? 'GET' : 'POST',
    path: `/v1/apps/:appId${path}`,
    parameters: { appId: ANY, eventId: ANY },
    headers: ['authorization', ...headersOfRead(declaration)],
    operation: {
      ...operation,
      ...READS,
      query,
      path: { appId: { description: 'The app to read.', schema: APP_ID }, ...operation.path },
      refusals: ['accessDenied', 'appNotFound', ...operation.refusals],
    },
  };
}

function readRoute({ access, slots }: ResourceTokenRoutesOptions, read: AppRead): Route {
  return {
    ...declareRead(read.declaration),
    handle: async (exchange) => {
      const { maxBodyBytes } = read.declaration;
      // Before the first await: a transport drops a body that nobody reads.
      const text = maxBodyBytes === undefined ? '' : await exchange.text({ maxBytes: maxBodyBytes });
      if (text instanceof Rejection) return text;
      const token = await access.admit(exchange);
      if (token instanceof Rejection) return token;
      const [appId = '', ...parameters] = exchange.parameters;
      const id = await access.app(token, appId);
      if (id instanceof Rejection) return id;
      const holder = { kind: 'token', tokenId: token.tokenId } as const;
      const turns = token.holder;
      return await respond(read, { exchange, app: { id, appId }, holder, turns, parameters, text }, slots);
    },
  };
}

function appsRoute({ access, slots }: ResourceTokenRoutesOptions): Route {
  return {
    ...APPS,
    handle: async (exchange) => {
      const token = await access.admit(exchange);
      if (token instanceof Rejection) return token;
      const unknown = NO_PARAMETERS.unknown(exchange.query);
      if (unknown !== null) return unknown;
      const apps = await listApps(slots, token, exchange);
      if (apps instanceof Rejection) return apps;
      return done<ReadableApps>({ apps });
    },
  };
}

/** The apps that a token may read, in a turn of its holder. */
export async function listApps(
  slots: ReadSlots,
  token: ResourceToken,
  waiter: ReadWaiter,
): Promise<Awaited<ReturnType<typeof listAppsOf>> | Rejection> {
  const turn = { kind: 'token', turns: token.holder, waiter } as const;
  return await slots.run(turn, ({ sql }) => listAppsOf(sql, [...token.apps.values()]));
}
