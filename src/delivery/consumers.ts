/** Consumers: durable positions in an app's events in commit order, under names. */
import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import { nearest } from '../base/did-you-mean.ts';
import { refused, WrongInput } from '../errors.ts';
import { parseFilters, payloadFilter } from '../read/filter/payload-filter.ts';
import type { Sql } from '../storage/database/connect.ts';
import type { CommittedEvent, Consumer, ConsumerStore, StartingPoint } from '../storage/storage.ts';
import { stateOf } from '../storage/storage.ts';

/** Length of names of consumers, webhooks and rules in characters. */
const LONGEST_NAME = 100;
const CONTROL = /[\p{Cc}\p{Cs}]/u;

/** What is wrong with a name, worded to follow its field; null: nothing. */
export function deliveryNameProblem(name: string): string | null {
  if (name === '') return 'must not be empty';
  if ([...name].length > LONGEST_NAME) return `must have at most ${LONGEST_NAME} characters`;
  if (CONTROL.test(name)) return 'must not contain control characters';
  return name.includes('/') ? 'must not contain a slash' : null;
}

/** Which events are wanted. */
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
  const conditions = parseFilters(filter);
  if (typeof conditions === 'string') throw new WrongInput(`the filter ${conditions}`);
  const rows = payloadFilter(conditions, null);
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
  readonly by?: Actor;
}

/**
 * Adds a consumer to an app.
 * @param appId internal id
 * @throws WrongInput for a name, type or filter; Refused consumerExists, tooManyConsumers
 */
export async function addConsumer(
  sql: Sql,
  store: ConsumerStore,
  appId: number,
  { name, types, filter, from, most, by = COMMAND_LINE }: NewConsumer,
): Promise<void> {
  const problem = deliveryNameProblem(name);
  if (problem !== null) throw new WrongInput(`the name ${problem}`);
  matcherOfChoice({ types, filter });
  await checkTypes(sql, appId, types);
  const known = await store.list(appId, 'consumer');
  if (known.some((one) => one.name === name))
    throw refused('consumerExists', `the app has a consumer ${JSON.stringify(name)} already`);
  if (known.length >= most)
    throw refused('tooManyConsumers', `an app may have ${most} consumers (MAX_CONSUMERS_PER_APP)`);
  if (!(await store.add(appId, { name, kind: 'consumer', types, filter, from })))
    throw refused('consumerExists', `the app has a consumer ${JSON.stringify(name)} already`);
  await audit(sql, { appId, by, action: 'consumer.add', name });
}

/** @throws Refused consumerNotFound */
export async function seekConsumer(
  sql: Sql,
  store: ConsumerStore,
  appId: number,
  {
    name,
    from,
    by = COMMAND_LINE,
  }: { readonly name: string; readonly from: StartingPoint; readonly by?: Actor },
): Promise<void> {
  await requireConsumer(store, appId, name);
  if (!(await store.seek(appId, name, from))) throw consumerNotFound(name, []);
  await audit(sql, { appId, by, action: 'consumer.seek', name });
}

/** @throws Refused consumerNotFound */
export async function removeConsumer(
  sql: Sql,
  store: ConsumerStore,
  appId: number,
  { name, by = COMMAND_LINE }: { readonly name: string; readonly by?: Actor },
): Promise<void> {
  await requireConsumer(store, appId, name);
  if (!(await store.remove(appId, name))) throw consumerNotFound(name, []);
  await audit(sql, { appId, by, action: 'consumer.remove', name });
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
  entry: {
    readonly appId: number;
    readonly by: Actor;
    readonly action: 'consumer.add' | 'consumer.seek' | 'consumer.remove';
    readonly name: string;
  },
): Promise<void> {
  const { appId, by, action, name } = entry;
  await sql.begin('isolation level read committed', (tx) =>
    writeAudit(tx, { appId, by, action, details: { name } }),
  );
}

/** A consumer, as commands and routes show it. */
export function shownConsumer(consumer: Consumer, reachHours: number, now: number): ShownConsumer {
  const { name, types, filter, createdAt, lostAt, leasedUntil, waitingSince, isInHistory } = consumer;
  const lagSeconds =
    waitingSince === null ? 0 : Math.max(0, Math.round((now - waitingSince.getTime()) / 1_000));
  const state = stateOf(lostAt !== null, lagSeconds, reachHours * 3_600_000);
  return { name, state, lagSeconds, types, filter, createdAt, leasedUntil, readsHistory: isInHistory };
}

export interface ShownConsumer extends EventChoice {
  readonly name: string;
  readonly state: 'ok' | 'lagging' | 'lost';
  /** Age of the oldest events that are not acknowledged; 0: there are none. */
  readonly lagSeconds: number;
  readonly createdAt: Date;
  readonly leasedUntil: Date | null;
  readonly readsHistory: boolean;
}

/** Rows of many owners in one statement, by the id of the owner and without it. */
export function byId<Row extends { readonly id: number }>(
  rows: readonly Row[],
): ReadonlyMap<number, readonly Omit<Row, 'id'>[]> {
  const groups = new Map<number, Omit<Row, 'id'>[]>();
  for (const { id, ...row } of rows) {
    const group = groups.get(id);
    if (group === undefined) groups.set(id, [row]);
    else group.push(row);
  }
  return groups;
}
