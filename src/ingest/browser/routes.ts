/** The routes that take browser keys. No other route knows such a key, and pages of other origins may read the answers of these alone. */

import { Rejection } from '../../errors.ts';
import { FORWARDING_HEADERS } from '../../http/client-address.ts';
import { json, objectOf } from '../../http/operation.ts';
import type { Schema } from '../../http/query.ts';
import type { Declaration, Method, Route } from '../../http/route.ts';
import { COUNT, REFUSED_EVENT, TIMESTAMP } from '../declarations.ts';
import { COLLECT } from './collect-format.ts';
import { type BrowserFormat, type BrowserSteps, createBrowserEvents } from './create-browser-events.ts';
import { PLAUSIBLE, UMAMI } from './trackers.ts';

const HEADERS = ['content-type', 'origin', ...FORWARDING_HEADERS] as const;
const OBJECT: Schema = { type: 'object', additionalProperties: true };
const REFUSALS = [
  ...(['invalidBrowserKey', 'accessDenied', 'unsupportedMediaType'] as const),
  ...(['outcomeUnknown'] as const),
];

function ofPages(declaration: Omit<Declaration, 'headers'>): Declaration {
  return { ...declaration, headers: HEADERS, remoteAddress: true, crossOrigin: true };
}

const EVENT = objectOf(
  {
    type: { type: 'string', description: 'The name of a type that the key may write.' },
    key: {
      type: 'string',
      maxLength: 200,
      description: 'With `createdAt`: the event is stored once, however often it is sent.',
    },
    createdAt: { type: 'string', format: 'date-time', description: 'By the clock of the service.' },
    payload: OBJECT,
  },
  { title: 'PageEvent', optional: ['key', 'createdAt'] },
);

const COLLECTED = objectOf(
  {
    success: { type: 'boolean', description: 'Whether every event is stored.' },
    stored: COUNT,
    refused: COUNT,
    errors: {
      type: 'array',
      items: {
        ...REFUSED_EVENT,
        properties: { index: COUNT, ...(REFUSED_EVENT.properties as Readonly<Record<string, Schema>>) },
      },
      description: 'One for each event that is not stored; `index` is its place in the request.',
    },
    serverTime: { ...TIMESTAMP, description: 'What the clock of the service showed.' },
  },
  { title: 'CollectAnswer' },
);

const COLLECT_BODY = objectOf(
  {
    key: {
      type: 'string',
      pattern: '^tdb_[0-9A-Za-z]{38}$',
      description: 'The browser key. It comes first.',
    },
    events: {
      type: 'array',
      maxItems: 1_000,
      items: EVENT,
      description: 'None: the answer then has the time of the service.',
    },
  },
  { title: 'Collect' },
);

const COLLECT_EVENTS = ofPages({
  method: 'POST',
  path: '/v1/collect',
  operation: {
    id: 'collectEvents',
    tag: 'Write',
    summary: 'Store events that a page sends with a browser key.',
    description:
      'The `Origin` of the request must be one that the key names. Sent as text/plain, it needs no preflight. A payload may have 16 KiB.',
    token: null,
    isLimited: true,
    body: {
      description: 'The key and the events.',
      content: { 'application/json': { schema: COLLECT_BODY }, 'text/plain': { schema: COLLECT_BODY } },
    },
    answers: {
      200: json('Every event is stored.', COLLECTED),
      207: json('Some or all events are refused.', COLLECTED),
    },
    refusals: REFUSALS,
  },
});

const KEY_IN_PATH = {
  parameters: {
    key: {
      form: /^[^/]{1,200}$/,
      refusal: new Rejection('invalidBrowserKey', 'A browser key is "tdb_" and letters and digits.'),
    },
  },
} as const;
const DESCRIBED_KEY = { key: { description: 'The browser key.', schema: { type: 'string' } } } as const;

/** The address of a tracker, with the key in the path or in the body. */
function trackerRoutes(name: 'umami' | 'plausible', path: string): readonly Declaration[] {
  const isUmami = name === 'umami';
  const Name = isUmami ? 'Umami' : 'Plausible';
  const answers = isUmami
    ? { 200: json('The event is stored.', objectOf({ success: { const: true } })) }
    : {
        202: { description: 'The event is stored.', content: { 'text/plain': { schema: { const: 'ok' } } } },
      };
  return [false, true].map((hasKey) =>
    ofPages({
      method: 'POST',
      path: `/v1/${name}/${hasKey ? ':key/' : ''}${path}`,
      ...(hasKey && KEY_IN_PATH),
      operation: {
        id: `${name}Event${hasKey ? 'ByKey' : ''}`,
        tag: 'Write',
        summary: `Store an event that the tracker of ${Name} sends.`,
        description: hasKey
          ? `The browser key is in the address: the tracker keeps the rest of its settings.`
          : `The browser key is what the tracker sends as \`${isUmami ? 'website' : 'domain'}\`.`,
        token: null,
        isLimited: true,
        ...(hasKey && { path: DESCRIBED_KEY }),
        body: {
          description: `A body as for \`POST /${path}\` of ${Name}.`,
          content: { 'application/json': { schema: OBJECT }, 'text/plain': { schema: OBJECT } },
        },
        answers,
        refusals: [...REFUSALS, 'tooManyEventTypes'],
      },
    }),
  );
}

const UMAMI_ROUTES = trackerRoutes('umami', 'api/send');
const PLAUSIBLE_ROUTES = trackerRoutes('plausible', 'api/event');

const PREFLIGHT_HEADERS = {
  'Access-Control-Allow-Methods': 'POST',
  // Any, as no credentials come with them; browsers that do not know the star: what Umami's tracker sends, and tracing adds.
  'Access-Control-Allow-Headers':
    'Content-Type, X-Umami-Cache, traceparent, tracestate, baggage, sentry-trace, *',
  'Access-Control-Max-Age': '86400',
} as const;

/** The answer to a preflight, which has no key yet: it allows what every page may send. */
function preflightOf({ path, parameters, operation }: Declaration): Declaration {
  return {
    method: 'OPTIONS' satisfies Method,
    path,
    ...(parameters && { parameters }),
    headers: [],
    crossOrigin: true,
    ...(operation && {
      operation: {
        id: `allow${operation.id.charAt(0).toUpperCase()}${operation.id.slice(1)}`,
        tag: 'Write',
        summary: 'Answer a preflight of a browser.',
        token: null,
        isLimited: false,
        ...(operation.path && { path: operation.path }),
        answers: { 200: json('Pages of every origin may send.', objectOf({ success: { const: true } })) },
        refusals: [],
      },
    }),
  };
}

const POSTS = [COLLECT_EVENTS, ...UMAMI_ROUTES, ...PLAUSIBLE_ROUTES];
const PREFLIGHTS = POSTS.map(preflightOf);

/** All that are described. */
export const BROWSER_ROUTES: readonly Declaration[] = [...POSTS, ...PREFLIGHTS];

export function browserRoutes(steps: BrowserSteps): readonly Route[] {
  const taking = (declarations: readonly Declaration[], format: BrowserFormat): Route[] =>
    declarations.map((declaration) => ({ ...declaration, handle: createBrowserEvents(steps, format) }));
  return [
    ...taking([COLLECT_EVENTS], COLLECT),
    ...taking(UMAMI_ROUTES, UMAMI),
    ...taking(PLAUSIBLE_ROUTES, PLAUSIBLE),
    ...PREFLIGHTS.map((declaration) => ({
      ...declaration,
      handle: async () => ({ status: 200, body: '{"success":true}', headers: PREFLIGHT_HEADERS }),
    })),
  ];
}
