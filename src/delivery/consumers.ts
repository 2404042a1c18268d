/** Consumers: durable positions in an app's events in commit order, under names. */
import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import { eventTypeNameProblem } from '../apps/event-types.ts';
import { nearest } from '../base/did-you-mean.ts';
import { notYet, Refused, refused, WrongInput } from '../errors.ts';
import { parseFilters, payloadFilter } from '../read/filter/payload-filter.ts';
import type { Sql } from '../storage/database/connect.ts';
import type { CommittedEvent } from '../storage/feed/committed-events.ts';
import type { Consumer, ConsumerKind, ConsumerStore, StartingPoint } from '../storage/feed/consumers.ts';
import { stateOf } from '../storage/feed/upkeep.ts';

/** Length of names of consumers, webhooks and rules in characters. */
const LONGEST_NAME = 100;
const NOT_REACHED = notYet(
  'Many events that the consumer does not want are before the next one: try again, and the next look continues.',
);
const CONTROL = /[\p{Cc}\p{Cs}]/u;

/** What is wrong with a name, worded to follow its field; null: nothing. */
export function deliveryNameProblem(name: string): string | null {
  if (name === '') return 'must not be empty';
  if ([...name].length > LONGEST_NAME) return `must have at most ${LONGEST_NAME} characters`;
  if (CONTROL.test(name)) return 'must not contain control characters';
  return name.includes('/') ? 'must not contain a slash' : null;
}

export interface EventChoice {
  /** Names of types; empty: all. */
  readonly types: readonly string[];
  /** Conditions on the payload, all of which must be met. */
  readonly filter: readonly string[];
}

/**
 * Tests events by type and payload.
 * @throws WrongInput for a filter that is none, with the column
 */
export function matcherOfChoice({ types, filter }: EventChoice): (event: CommittedEvent) => boolean {
  // It is stored as it is written.
  if (filter.some((one) => one.includes('\0')))
    throw new WrongInput('the filter must not contain NUL: write it as "\\u0000", in quotes');
  const conditions = parseFilters(filter);
  if (typeof conditions === 'string') throw new WrongInput(`the filter ${conditions}`);
  const rows = payloadFilter(conditions);
  const wanted = new Set(types);
  return ({ typeName, payload }) =>
    (wanted.size === 0 || wanted.has(typeName)) && (rows === null || rows.matches(payload));
}

/**
 * Checks names of types against those that the app has: a misspelled one would wait for ever.
 * @throws WrongInput with the nearest name, where one is near
 */
export async function checkTypes(sql: Sql, appId: number, types: readonly string[]): Promise<void> {
  if (types.length === 0) return;
  const rows = await sql<{ name: string }[]>`SELECT name FROM event_types WHERE app_id = ${appId}`;
  const known = rows.map(({ name }) => name);
  for (const type of types) {
    if (known.includes(type)) continue;
    const problem = eventTypeNameProblem(type);
    if (problem !== null)
      throw new WrongInput(`the name of an event type ${problem}: ${JSON.stringify(type)}`);
    const meant = nearest(type, known);
    if (meant !== null)
      throw new WrongInput(
        `the app has no event type ${JSON.stringify(type)}: did you mean ${JSON.stringify(meant)}?`,
      );
  }
}

export interface NewConsumer extends EventChoice {
  readonly name: string;
  readonly from: StartingPoint;
  /** MAX_CONSUMERS_PER_APP. */
  readonly most: number;
}

/**
 * Adds a consumer to an app.
 * @throws WrongInput for a name, type or filter; Refused consumerExists, tooManyConsumers
 */
export async function addConsumer(
  sql: Sql,
  store: ConsumerStore,
  appId: number,
  { name, types, filter, from, most }: NewConsumer,
): Promise<void> {
  const problem = deliveryNameProblem(name);
  if (problem !== null) throw new WrongInput(`the name ${problem}`);
  matcherOfChoice({ types, filter });
  await checkTypes(sql, appId, types);
  const known = await store.list(appId, 'consumer');
  const exists = () => refused('consumerExists', `the app has a consumer ${JSON.stringify(name)} already`);
  if (known.some((one) => one.name === name)) throw exists();
  if (known.length >= most)
    throw refused('tooManyConsumers', `an app may have ${most} consumers (MAX_CONSUMERS_PER_APP)`);
  if (!(await store.add(appId, { name, kind: 'consumer', types, filter, from }))) throw exists();
  await audit(sql, { appId, by: COMMAND_LINE, action: 'consumer.add', name });
}

/** @throws Refused consumerNotFound */
export async function seekConsumer(
  sql: Sql,
  store: ConsumerStore,
  appId: number,
  { name, from }: Pick<NewConsumer, 'name' | 'from'>,
): Promise<void> {
  await requireConsumer(store, appId, name);
  if (!(await store.seek(appId, name, from))) throw consumerNotFound(name, []);
  await audit(sql, { appId, by: COMMAND_LINE, action: 'consumer.seek', name });
}

/**
 * Leaves out the one event that comes next, for a client that fails at it. Its lease ends.
 * @returns the id of the event; null: none waits
 * @throws Refused consumerNotFound, consumerLost, consumerLeased, or unavailable where the steps were not enough
 */
export async function skipInConsumer(
  sql: Sql,
  store: ConsumerStore,
  appId: number,
  { name, by = COMMAND_LINE, ...limits }: { readonly name: string; readonly by?: Actor } & SkipLimits,
): Promise<string | null> {
  await requireConsumer(store, appId, name);
  const skipped = await skipNext(store, { appId, name, kind: 'consumer' }, limits);
  if (skipped === 'lost')
    throw refused('consumerLost', 'the consumer is lost: "consumer seek" tells it where to go on');
  if (skipped === 'leased')
    throw refused(
      'consumerLeased',
      'a client reads from the consumer: run it again once its lease has ended',
    );
  if (skipped === 'later') throw new Refused(NOT_REACHED);
  if (skipped === null) return null;
  await audit(sql, { appId, by, action: 'consumer.skip', name });
  return skipped.id;
}

/** How long a skip keeps others from reading, from each of its steps on. */
const SKIP_LEASE_MS = 30_000;

export interface SkipLimits {
  /** How often a hundred events are looked at; where the event is not among them, the next call continues there. */
  readonly mostSteps?: number;
  /** Lets others in before each step. @returns false where nobody waits for it any more */
  readonly pass?: () => Promise<boolean>;
}

/**
 * Acknowledges the next event that a consumer or webhook wants, and those before it that it does not.
 * @returns null: no event waits; `leased`: another one has it at this moment; `later`: the steps were not enough, and the next call
 *   continues there
 */
export async function skipNext(
  store: ConsumerStore,
  { appId, name, kind }: { readonly appId: number; readonly name: string; readonly kind: ConsumerKind },
  { mostSteps = Number.POSITIVE_INFINITY, pass = async () => true }: SkipLimits = {},
): Promise<CommittedEvent | null | 'lost' | 'leased' | 'later'> {
  await store.endLease(appId, name);
  const lease = await store.lease(appId, name, SKIP_LEASE_MS, kind);
  if (lease === 'lost' || lease === 'unknown') return 'lost';
  if ('leasedForSeconds' in lease) return 'leased';
  const { types, filter, epoch } = lease;
  const matches = matcherOfChoice({ types, filter });
  let position = lease.position;
  let hasMore = true;
  for (let steps = 0; hasMore; steps += 1) {
    if (steps >= mostSteps || !(await pass())) {
      await store.release(appId, name, epoch);
      return 'later';
    }
    const read = await store.read(appId, position, { limit: 100, maxBytes: 1_000_000 });
    const event = read.events.find(matches);
    position = event?.position ?? read.position;
    const isOurs = await store.acknowledge(appId, name, {
      ...{ epoch, position, events: 0 },
      ...(event === undefined && { extendsMs: SKIP_LEASE_MS }),
    });
    if (isOurs !== 'done') return 'leased';
    if (event !== undefined) return event;
    hasMore = read.hasMore;
  }
  await store.release(appId, name, epoch);
  return null;
}

/** @throws Refused consumerNotFound */
export async function removeConsumer(
  sql: Sql,
  store: ConsumerStore,
  appId: number,
  name: string,
): Promise<void> {
  await requireConsumer(store, appId, name);
  if (!(await store.remove(appId, name))) throw consumerNotFound(name, []);
  await audit(sql, { appId, by: COMMAND_LINE, action: 'consumer.remove', name });
}

async function requireConsumer(store: ConsumerStore, appId: number, name: string): Promise<void> {
  const known = (await store.list(appId, 'consumer')).map((one) => one.name);
  if (!known.includes(name)) throw consumerNotFound(name, known);
}

function consumerNotFound(name: string, known: readonly string[]): Error {
  const meant = nearest(name, known);
  const advice = meant === null ? '' : `: did you mean ${JSON.stringify(meant)}?`;
  return refused('consumerNotFound', `the app has no consumer ${JSON.stringify(name)}${advice}`);
}

async function audit(
  sql: Sql,
  { name, ...entry }: Omit<Parameters<typeof writeAudit>[1], 'details'> & { readonly name: string },
): Promise<void> {
  await sql.begin('isolation level read committed', (tx) => writeAudit(tx, { ...entry, details: { name } }));
}

/** A consumer, as commands and routes show it. */
export function shownConsumer(consumer: Consumer, reachHours: number, now: number): ShownConsumer {
  const { name, types, filter, createdAt, lostAt, leasedUntil, deliveries, waitingSince, isInHistory } =
    consumer;
  const lagSeconds =
    waitingSince === null ? 0 : Math.max(0, Math.round((now - waitingSince.getTime()) / 1_000));
  const state = stateOf(lostAt !== null, lagSeconds, reachHours * 3_600_000);
  return {
    name,
    state,
    lagSeconds,
    types,
    filter,
    createdAt,
    leasedUntil,
    deliveries,
    readsHistory: isInHistory,
  };
}

export interface ShownConsumer extends EventChoice {
  readonly name: string;
  readonly state: 'ok' | 'lagging' | 'lost';
  /** Age of the oldest events that are not acknowledged; 0: there are none. */
  readonly lagSeconds: number;
  readonly createdAt: Date;
  readonly leasedUntil: Date | null;
  /** How often a batch was handed out since events were acknowledged last. */
  readonly deliveries: number;
  readonly readsHistory: boolean;
}
