/** Batches of a consumer for resource tokens: read under a lease, acknowledge, release, skip. */
import { bodyOf } from '../accounts/routes/body.ts';
import type { ResourceToken } from '../apps/resource-token-lookup.ts';
import { invalidField, Refused, Rejection } from '../errors.ts';
import { done } from '../http/data.ts';
import type { Exchange, Outcome } from '../http/exchange.ts';
import { dataOf, json, objectOf, READS } from '../http/operation.ts';
import { Query, wholeNumber } from '../http/query.ts';
import type { ReadSlots } from '../http/read-slots.ts';
import type { Declaration, Parameter, Route } from '../http/route.ts';
import { APP_ID, CURSOR, EVENT_ID, nullable, PAYLOAD, TIMESTAMP, TYPE_ID } from '../read/answer-shapes.ts';
import type { ResourceTokenAccess } from '../read/resource-token-access.ts';
import type { Sql } from '../storage/database/connect.ts';
import type { Engine } from '../storage/database/engine.ts';
import type { CommittedTexts } from '../storage/feed/commit-order.ts';
import { textOf } from '../storage/feed/committed-events.ts';
import { ConsumerStore, type Lease } from '../storage/feed/consumers.ts';
import {
  comparePositions,
  decodePosition,
  encodePosition,
  type FeedPosition,
} from '../storage/feed/position.ts';
import { ReadAhead } from '../storage/feed/read-ahead.ts';
import { RowBuffer } from '../storage/read/copied-rows.ts';
import { matcherOfChoice, skipInConsumer } from './consumers.ts';
import { readBatch } from './read-batch.ts';

const MAX_BATCH = 10_000;
const DEFAULT_BATCH = 100;
const DEFAULT_LEASE_SECONDS = 30;
const MAX_LEASE_SECONDS = 3_600;
const MAX_BODY_BYTES = 16_384;

/** The token is checked first: without a valid one nothing is revealed. */
const ANY: Parameter = {
  form: /^[^\0]*$/,
  refusal: new Rejection('consumerNotFound', 'There is no such consumer.'),
};

const QUERY = new Query({
  limit: wholeNumber('Most events of the batch.', {
    minimum: 1,
    absent: DEFAULT_BATCH,
    largest: MAX_BATCH,
  }),
  leaseSeconds: wholeNumber('How long the batch is leased.', {
    minimum: 1,
    maximum: MAX_LEASE_SECONDS,
    absent: DEFAULT_LEASE_SECONDS,
  }),
});

const COMMITTED_EVENT = objectOf(
  {
    id: EVENT_ID,
    typeId: TYPE_ID,
    typeName: { type: 'string' },
    payload: PAYLOAD,
    createdAt: TIMESTAMP,
    position: { ...CURSOR, description: 'Acknowledges this event and those before it.' },
  },
  { title: 'CommittedEvent' },
);

const LEASE = { type: 'string', pattern: '^\\d{1,16}$', examples: ['17'] };

const PATH = {
  appId: { description: 'The app.', schema: APP_ID },
  name: { description: 'The name of the consumer.', schema: { type: 'string' } },
};

const COMMON = {
  parameters: { appId: ANY, name: ANY },
  headers: ['authorization'],
} as const;

/** What the descriptions of all these routes have. */
const OPERATION = { ...READS, path: PATH } as const;
const REFUSALS = ['accessDenied', 'appNotFound', 'consumerNotFound'] as const;

export const READ_BATCH: Declaration = {
  ...COMMON,
  method: 'GET',
  path: '/v1/apps/:appId/consumers/:name/events',
  operation: {
    ...OPERATION,
    id: 'leaseEvents',
    summary: 'Lease the next events of a consumer, in commit order.',
    query: QUERY,
    answers: {
      200: json(
        'The batch. Without events nothing is leased.',
        dataOf(
          objectOf({
            events: { type: 'array', items: COMMITTED_EVENT, maxItems: MAX_BATCH },
            position: { ...CURSOR, description: 'Acknowledges the whole batch.' },
            lease: nullable(LEASE),
            leasedUntil: nullable(TIMESTAMP),
            deliveries: {
              ...{ type: 'integer', minimum: 0 },
              description:
                'How often a batch was handed out since events were acknowledged last, with this one; 0 without events.',
            },
            hasMore: { type: 'boolean', description: 'Whether more events may be waiting.' },
          }),
        ),
      ),
    },
    refusals: [...REFUSALS, 'consumerLeased', 'consumerLost'],
  },
};

const LEASE_BODY = { lease: LEASE };
const ACK_BODY = objectOf({ ...LEASE_BODY, position: CURSOR }, { title: 'Acknowledgment' });

export const ACKNOWLEDGE: Declaration = {
  ...COMMON,
  method: 'POST',
  path: '/v1/apps/:appId/consumers/:name/ack',
  operation: {
    ...OPERATION,
    id: 'acknowledgeEvents',
    summary: 'Acknowledge leased events up to a position.',
    body: {
      description: 'The lease, and a position of its batch.',
      content: { 'application/json': { schema: ACK_BODY } },
    },
    answers: {
      200: json(
        'They do not come again. The lease is over; what is left of the batch comes again.',
        dataOf(objectOf({ position: CURSOR })),
      ),
    },
    refusals: [...REFUSALS, 'leaseOver'],
  },
};

export const RELEASE: Declaration = {
  ...COMMON,
  method: 'POST',
  path: '/v1/apps/:appId/consumers/:name/release',
  operation: {
    ...OPERATION,
    id: 'releaseEvents',
    summary: 'Give a leased batch back: it comes again at once.',
    body: {
      description: 'The lease.',
      content: { 'application/json': { schema: objectOf(LEASE_BODY, { title: 'LeaseToEnd' }) } },
    },
    answers: { 200: json('The lease is over.', dataOf(objectOf({}))) },
    refusals: [...REFUSALS, 'leaseOver'],
  },
};

export const SKIP: Declaration = {
  ...COMMON,
  method: 'POST',
  path: '/v1/apps/:appId/consumers/:name/skip',
  operation: {
    ...OPERATION,
    id: 'skipEvent',
    summary: 'Leave out the one event that comes next, for a client that fails at it.',
    answers: {
      200: json(
        'The event does not come again. A lease that another client has is over.',
        dataOf(objectOf({ eventId: { ...nullable(EVENT_ID), description: 'Null: no event waits.' } })),
      ),
    },
    refusals: [...REFUSALS, 'consumerLeased', 'consumerLost', 'unavailable'],
  },
};

export const CONSUMER_ROUTES = [READ_BATCH, ACKNOWLEDGE, RELEASE, SKIP] as const;

export interface ConsumerRouteOptions {
  readonly access: ResourceTokenAccess;
  readonly slots: ReadSlots;
  readonly engine: Engine;
  /** Payload bytes after which a batch ends early (MAX_PAGE_BYTES). */
  readonly maxPageBytes: number;
  readonly stats: ConsumerRouteStats;
  readonly ahead: ReadAhead;
}

/** For metrics. */
export interface ConsumerRouteStats {
  leasedEvents: number;
  acknowledgments: number;
}

/** A consumer that a token may use. */
interface Place {
  readonly sql: Sql;
  readonly store: ConsumerStore;
  readonly appId: number;
  readonly name: string;
  readonly pass: () => Promise<boolean>;
}

export function consumerRoutes(given: Omit<ConsumerRouteOptions, 'ahead'>): readonly Route[] {
  const options = { ...given, ahead: new ReadAhead() };
  return [
    {
      ...READ_BATCH,
      handle: (exchange) =>
        admitted(options, exchange, async (token, appId) => {
          const unknown = QUERY.unknown(exchange.query);
          if (unknown !== null) return unknown;
          const query = QUERY.parse(exchange.query);
          if (query instanceof Rejection) return query;
          return await inPlace(options, exchange, { token, appId }, (place) => lease(options, place, query));
        }),
    },
    {
      ...ACKNOWLEDGE,
      handle: (exchange) =>
        withBody(options, exchange, ACK, (place, body) => acknowledge(options, place, body)),
    },
    { ...RELEASE, handle: (exchange) => withBody(options, exchange, END, release) },
    {
      ...SKIP,
      handle: (exchange) =>
        admitted(options, exchange, (token, appId) =>
          inPlace(options, exchange, { token, appId }, (place) => skip(place, token)),
        ),
    },
  ];
}

async function admitted(
  { access }: ConsumerRouteOptions,
  exchange: Exchange,
  work: (token: ResourceToken, appId: number) => Promise<Outcome>,
): Promise<Outcome> {
  const token = await access.admit(exchange);
  if (token instanceof Rejection) return token;
  const appId = await access.app(token, exchange.parameters[0] ?? '');
  if (appId instanceof Rejection) return appId;
  return await work(token, appId);
}

async function inPlace(
  { slots, engine, ahead }: ConsumerRouteOptions,
  exchange: Exchange,
  { token, appId }: { readonly token: ResourceToken; readonly appId: number },
  work: (place: Place) => Promise<Outcome>,
): Promise<Outcome> {
  const turn = { kind: 'token', turns: token.holder, waiter: exchange } as const;
  const name = exchange.parameters[1] ?? '';
  return await slots.run(turn, ({ sql, pass }) =>
    work({ sql, store: new ConsumerStore(engine, sql, ahead), appId, name, pass }),
  );
}

const TEXT = { type: 'string', maxLength: 1_000 } as const;
const ACK = bodyOf({ lease: TEXT, position: TEXT }, ['lease', 'position']);
const END = bodyOf({ lease: TEXT }, ['lease']);

async function withBody<B>(
  options: ConsumerRouteOptions,
  exchange: Exchange,
  parse: (text: string) => B | Rejection,
  work: (place: Place, body: B) => Promise<Outcome>,
): Promise<Outcome> {
  const text = await exchange.text({ maxBytes: MAX_BODY_BYTES });
  if (text instanceof Rejection) return text;
  return await admitted(options, exchange, async (token, appId) => {
    const body = parse(text);
    if (body instanceof Rejection) return body;
    return await inPlace(options, exchange, { token, appId }, (place) => work(place, body));
  });
}

async function lease(
  { maxPageBytes, stats }: ConsumerRouteOptions,
  { store, appId, name }: Place,
  { limit, leaseSeconds }: { readonly limit: number; readonly leaseSeconds: number },
): Promise<Outcome> {
  const leased = await store.lease(appId, name, leaseSeconds * 1_000, 'consumer');
  if (leased === 'unknown') return notFound(name);
  if (leased === 'lost')
    return new Rejection(
      'consumerLost',
      'The consumer has lagged longer than CONSUMER_REACH_HOURS. An operator tells it where to go on: tidemark consumer seek.',
    );
  if ('leasedForSeconds' in leased)
    return new Rejection('consumerLeased', 'Another client has leased the next events.', {
      retryAfterSeconds: leased.leasedForSeconds,
    });
  const leasedUntil = Date.now() + leaseSeconds * 1_000;
  const answer = new RowBuffer();
  answer.add(HEAD);
  const limits = { limit, maxBytes: maxPageBytes };
  const batch = await readOrRelease({ store, appId, name }, leased, { limits, answer });
  const keeps = batch.length > 0;
  const { position, passed } = batch;
  const deliveries = await store.granted(appId, name, leased.epoch, { position, passed, keeps });
  if (deliveries === null) return over();
  stats.leasedEvents += batch.length;
  const rest = {
    position: encodePosition(position),
    lease: keeps ? String(leased.epoch) : null,
    leasedUntil: keeps ? new Date(leasedUntil).toISOString() : null,
    deliveries,
    hasMore: batch.hasMore,
  };
  answer.add(Buffer.from(`],${JSON.stringify(rest).slice(1, -1)}}}`));
  return { status: 200, body: answer.bytes, onSent: () => answer.release() };
}

const HEAD = Buffer.from('{"success":true,"data":{"events":[');

/** A read that fails leaves no lease. */
async function readOrRelease(
  { store, appId, name }: Pick<Place, 'store' | 'appId' | 'name'>,
  { position, types, filter, epoch }: Lease,
  {
    limits,
    answer,
  }: {
    readonly limits: { readonly limit: number; readonly maxBytes: number };
    readonly answer: RowBuffer;
  },
): Promise<CommittedTexts & { readonly passed: FeedPosition | null }> {
  try {
    if (types.length === 0 && filter.length === 0)
      return { ...(await store.write(appId, position, limits, answer)), passed: null };
    const matches = matcherOfChoice({ types, filter });
    const { events, ...batch } = await readBatch(store, appId, position, { ...limits, matches });
    answer.add(Buffer.from(events.map(textOf).join()));
    return { ...batch, length: events.length };
  } catch (error) {
    await store.release(appId, name, epoch).catch(() => undefined);
    throw error;
  }
}

async function acknowledge(
  { stats }: ConsumerRouteOptions,
  { store, appId, name }: Place,
  { lease: given, position: text }: { readonly lease: string; readonly position: string },
): Promise<Outcome> {
  const epoch = epochOf(given);
  if (epoch === null) return invalidField('lease', 'must be the lease of a batch');
  const position = decodePosition(text);
  if (position === null) return invalidField('position', 'must be a position of the batch');
  const leased = await store.leased(appId, name, epoch, 'consumer');
  if (leased === 'unknown') return notFound(name);
  if (leased === 'old') return over();
  if (comparePositions(position, leased.from) < 0 || comparePositions(position, leased.to) > 0)
    return invalidField('position', 'must be a position of the leased batch');
  const outcome = await store.acknowledge(appId, name, { epoch, position, events: 0 });
  if (outcome === 'unknown') return notFound(name);
  if (outcome === 'old') return over();
  stats.acknowledgments += 1;
  return { status: 200, body: JSON.stringify({ success: true, data: { position: text } }) };
}

async function release(
  { store, appId, name }: Place,
  { lease: given }: { readonly lease: string },
): Promise<Outcome> {
  const epoch = epochOf(given);
  if (epoch === null) return invalidField('lease', 'must be the lease of a batch');
  const leased = await store.leased(appId, name, epoch, 'consumer');
  const outcome = typeof leased === 'string' ? leased : await store.release(appId, name, epoch);
  if (outcome === 'unknown') return notFound(name);
  if (outcome === 'old') return over();
  return { status: 200, body: '{"success":true,"data":{}}' };
}

/** How often a request looks at 100 events for the one that comes next. */
const MOST_SKIP_STEPS = 20;

async function skip({ sql, store, appId, name, pass }: Place, { tokenId }: ResourceToken): Promise<Outcome> {
  const [token] = await sql<{ name: string }[]>`SELECT name FROM resource_tokens WHERE id = ${tokenId}`;
  const by = { userId: null, email: `resource token ${token?.name}` };
  try {
    const eventId = await skipInConsumer(sql, store, appId, {
      ...{ name, by, mostSteps: MOST_SKIP_STEPS, pass },
    });
    return done<{ eventId: string | null }>({ eventId });
  } catch (error) {
    if (error instanceof Refused) return error.rejection;
    throw error;
  }
}

function epochOf(text: string): number | null {
  return /^\d{1,15}$/.test(text) ? Number(text) : null;
}

function notFound(name: string): Rejection {
  return new Rejection('consumerNotFound', `The app has no consumer ${JSON.stringify(name)}.`);
}

function over(): Rejection {
  return new Rejection('leaseOver', 'The lease has ended, or another one has begun: the batch comes again.');
}
