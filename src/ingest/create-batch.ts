/** POST /v1/events: the steps of a batch, in the order in which they may refuse it or one of its events. */

import type { EventType, EventTypes } from '../apps/event-type-lookup.ts';
import type { TypeReference } from '../apps/event-types.ts';
import type { LoggingTokens } from '../apps/logging-token-lookup.ts';
import type { SchemaMode } from '../apps/type-schemas.ts';
import { Rejection } from '../errors.ts';
import { ASK_FOR_BEARER, bearerToken } from '../http/bearer.ts';
import type { Exchange, Outcome } from '../http/exchange.ts';
import { flag, Query } from '../http/query.ts';
import type { Limiter } from '../limits/limiter.ts';
import { type AcceptedEvent, dayOf } from '../storage/write/accepted-event.ts';
import type { Outcomes, WriteOutcome } from '../storage/write/event-writer.ts';
import { UNAVAILABLE } from '../storage/write/failures.ts';
import type { KeptAnswer } from '../storage/write/keyed-writer.ts';
import { batchAnswer, type Result } from './batch-answer.ts';
import { overLimit } from './create-event.ts';
import { createEventIds, keyedEventId } from './event-id.ts';
import { eventTimeProblem } from './event-time.ts';
import { IDEMPOTENCY_KEY, idempotencyKeyProblem, keyedRequest } from './idempotency-key.ts';
import type { FindRepeated } from './idempotency-store.ts';
import { type AcceptedEvents, type Lanes, storeApart, storeTogether } from './lanes.ts';
import { type BatchLimits, isLineDelimited, readBatch } from './parse/batch-body.ts';
import type { BatchEvent } from './parse/batch-event.ts';
import { startOfNow } from './past-writer.ts';
import type { PayloadChecks } from './payload-checks.ts';
import type { RetentionBoundary } from './retention-boundary.ts';
import { nextTurn } from './turns.ts';

export interface CreateBatchSteps extends Lanes {
  readonly loggingTokens: LoggingTokens;
  readonly limiter: Limiter;
  /** The response to an earlier request with the same key, if there was one. */
  readonly findRepeated: FindRepeated;
  readonly eventTypes: EventTypes;
  readonly payloadChecks: PayloadChecks;
  /** Changes when the database becomes another one. */
  readonly epoch: () => number;
  readonly retentionBoundary: RetentionBoundary;
  /** A new event id for an event of this time. */
  readonly newEventId: (now: number) => string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Of the text, after inflation. */
  readonly maxBytes: number;
  readonly limits: BatchLimits;
}

/** The headers that it reads. */
/** The parameters that it reads. */
export const BATCH_QUERY = new Query({
  atomic: flag('`true` stores all events of the batch or none, in one transaction.'),
});

export const BATCH_HEADERS = ['authorization', 'content-type', IDEMPOTENCY_KEY] as const;

/** Concurrent lookups or creations of types for one batch: lookups of single events must not wait long. */
const TYPE_LOOKUPS = 4;
/** Limit of days in one batch: each is a partition or a chunk, and each of those takes some locks. */
const MAX_DAYS = 1_000;

/** Batches of at least this many events yield to the event loop between their steps. */
const MANY_EVENTS = 1_000;

const MISSING = new Rejection(
  'invalidLoggingToken',
  'Send the logging token as "Authorization: Bearer <LOGGING_TOKEN>".',
  { headers: ASK_FOR_BEARER },
);
const TOO_MANY_DAYS = new Rejection(
  'invalidBody',
  `The events of a batch may be on at most ${MAX_DAYS} days.`,
);
/** What becomes of the valid events of an atomic batch that has others. */
const HELD_BACK = new Rejection('batchRefused', 'Other events of the atomic batch are refused.');
/** Statuses of refusals that may pass. */
const PASSING: ReadonlySet<number> = new Set([429, 500, 503]);
const OVERDUE = new Rejection('outcomeUnknown', 'The commit took too long: events may be stored.');

/** Makes the handler. It responds after the transactions of the events have committed. */
export function createCreateBatch(steps: CreateBatchSteps): (exchange: Exchange) => Promise<Outcome> {
  return async (exchange) => {
    // A compressed body is inflated only after its sender is known.
    exchange.receive({ maxBytes: steps.maxBytes, gzip: true, usesReserve: true });

    const epoch = steps.epoch();
    const appId = await authenticate(steps.loggingTokens, exchange.header('authorization'));
    if (appId instanceof Rejection) return appId;
    exchange.writer = appId;

    exchange.rateLimit = await steps.limiter.take(appId);
    if (exchange.rateLimit?.accepted === false) return overLimit(exchange.rateLimit);

    const query = BATCH_QUERY.parse(exchange.query);
    if (query instanceof Rejection) return query;
    const text = await exchange.text();
    if (text instanceof Rejection) return text;

    const key = exchange.header(IDEMPOTENCY_KEY);
    const keyProblem = idempotencyKeyProblem(key);
    if (keyProblem !== null) return keyProblem;
    const request = key === '' ? null : await keyedRequest(key, exchange.path, text);
    const repeated = request === null ? null : await steps.findRepeated(appId, request);
    if (repeated !== null) return repeated;

    const lines = isLineDelimited(exchange.header('content-type'));
    const read = await readBatch(text, lines, steps.limits);
    if (read instanceof Rejection) return read;

    const types = await resolveTypes(steps.eventTypes, appId, read);
    const schemas = schemasOf(types);
    const events = schemas.has('refuse')
      ? await withoutViolations(steps, { appId, events: read, types })
      : read;
    await yieldToEventLoop(events.length);
    const acceptedAt = steps.now();
    const batch = await accept(steps, { appId, events, types, acceptedAt });
    if (batch instanceof Rejection) return batch;
    const refusal = query.atomic ? atomicRefusal(batch.results) : null;
    if (refusal !== null) return refusal;

    // The database changed between the lookups: the internal ids do not belong together.
    if (epoch !== steps.epoch()) return UNAVAILABLE;
    // The response at the deadline said that nothing is stored, so nothing may be stored from here on.
    if (exchange.settled) return exchange.late;
    exchange.late = OVERDUE;
    if (request === null && !query.atomic) {
      const outcomes = await storeApart(steps, batch);
      if (schemas.has('warn')) noteStored(steps, { appId, types, batch, outcomes });
      await yieldToEventLoop(events.length);
      return answer(batch, outcomes);
    }
    if (batch.accepted.length === 0) return answer(batch, []);
    const together = {
      appId,
      request,
      acceptedAt,
      events: batch.accepted,
      answer: batchAnswer(batch.results, batch.publicIds),
      answerRepeated: (repeated: ReadonlySet<AcceptedEvent>) =>
        answerOf(batch, (event) => (repeated.has(event) ? 'repeated' : null)),
      answerWithout: (refused: ReadonlyMap<AcceptedEvent, Rejection>) =>
        (query.atomic ? atomicRefusal(resultsOf(batch, (event) => refused.get(event) ?? null)) : null) ??
        answerOf(batch, (event) => refused.get(event) ?? null),
    };
    const outcome = await storeTogether(steps, together, batch.past);
    if (schemas.has('warn') && outcome === together.answer)
      noteStored(steps, { appId, types, batch, outcomes: batch.accepted.map(() => null) });
    return outcome;
  };
}

/** How the schemas of a batch's types are meant; most batches have none. */
function schemasOf(types: Types): ReadonlySet<SchemaMode> {
  const modes = new Set<SchemaMode>();
  for (const type of types.values())
    if (!(type instanceof Rejection) && type.schema !== null) modes.add(type.schema.mode);
  return modes;
}

/** The events of a batch, with a refusal in place of each that violates the schema of its type. */
async function withoutViolations(
  { payloadChecks }: CreateBatchSteps,
  { appId, events, types }: { appId: number; events: readonly (BatchEvent | Rejection)[]; types: Types },
): Promise<readonly (BatchEvent | Rejection)[]> {
  const typed = events.map((event) => {
    const type = event instanceof Rejection ? event : types.get(event.type);
    return event instanceof Rejection || type === undefined || type instanceof Rejection
      ? null
      : { type, payload: event.payload };
  });
  const violations = await payloadChecks.refusalsOf(appId, typed);
  return events.map((event, index) => violations[index] ?? event);
}

/** Has the payloads checked that were stored, against schemas that warn. */
function noteStored(
  { payloadChecks }: CreateBatchSteps,
  stored: { appId: number; types: Types; batch: Batch; outcomes: Outcomes },
): void {
  const { appId, types, batch, outcomes } = stored;
  const byId = new Map<number, EventType>();
  for (const type of types.values()) if (!(type instanceof Rejection)) byId.set(type.id, type);
  for (const [index, { typeId, payload }] of batch.accepted.entries()) {
    const type = byId.get(typeId);
    if (type !== undefined && outcomes[index] === null) payloadChecks.note(appId, { type, payload });
  }
}

async function authenticate(tokens: LoggingTokens, authorization: string): Promise<number | Rejection> {
  const token = bearerToken(authorization);
  if (token === null) return MISSING;
  const appId = await tokens.appOf(token);
  if (typeof appId === 'number') return appId;
  return new Rejection(appId.reason, appId.details, { headers: ASK_FOR_BEARER });
}

/** Each step of a large batch takes some milliseconds: other requests run between them. */
async function yieldToEventLoop(events: number): Promise<void> {
  if (events >= MANY_EVENTS) await nextTurn();
}

type Types = ReadonlyMap<TypeReference, EventType | Rejection>;

/** Looks up each type of the events once. */
async function resolveTypes(
  eventTypes: EventTypes,
  appId: number,
  events: readonly (BatchEvent | Rejection)[],
): Promise<Types> {
  const named = new Set<TypeReference>();
  for (const event of events) if (!(event instanceof Rejection)) named.add(event.type);
  const types = new Map<TypeReference, EventType | Rejection>();
  const references = named.values();
  const lookUp = async (): Promise<void> => {
    for (const reference of references) types.set(reference, await eventTypes.find(appId, reference));
  };
  await Promise.all(Array.from({ length: TYPE_LOOKUPS }, lookUp));
  return types;
}

/** A batch whose events have been accepted, or refused one by one. */
interface Batch extends AcceptedEvents {
  /** One for each event of the request, in its order: the result if it is stored. */
  readonly results: readonly Result[];
  /** The index in `results` of each accepted event. */
  readonly indexes: readonly number[];
  /** Public ids of the types, by internal ids. */
  readonly publicIds: ReadonlyMap<number, string>;
}

async function accept(
  steps: CreateBatchSteps,
  batch: {
    readonly appId: number;
    readonly events: readonly (BatchEvent | Rejection)[];
    readonly types: Types;
    readonly acceptedAt: number;
  },
): Promise<Batch | Rejection> {
  const { appId, events, types, acceptedAt } = batch;
  const isDated = events.some((event) => !(event instanceof Rejection) && event.createdAt !== null);
  const boundary = isDated ? await steps.retentionBoundary.boundary() : 0;
  // Ids begin with the time: ids of past events come from a generator of their own, in order of time.
  const newPastId = createEventIds();
  const results = new Array<Result>(events.length);
  const good: { readonly index: number; readonly event: BatchEvent; readonly type: EventType }[] = [];
  for (const [index, event] of events.entries()) {
    const type = typeOf(event, types, acceptedAt, boundary);
    if (type instanceof Rejection) results[index] = type;
    else good.push({ index, event: event as BatchEvent, type }); // It has a type.
  }
  if (isDated) good.sort((a, b) => (a.event.createdAt ?? acceptedAt) - (b.event.createdAt ?? acceptedAt));
  const accepted: AcceptedEvent[] = [];
  const now = startOfNow(acceptedAt);
  let past = 0;
  let keyed = 0;
  let days = 0;
  let day = Number.NaN;
  for (const { index, event, type } of good) {
    const createdAt = event.createdAt ?? acceptedAt;
    const { payload, key } = event;
    let id: string;
    if (key !== null) id = keyedEventId(createdAt, type.source, key);
    else id = event.createdAt === null ? steps.newEventId(createdAt) : newPastId(createdAt);
    if (key !== null) keyed += 1;
    const acceptedEvent = { id, appId, typeId: type.id, createdAt, payload, source: type.source };
    accepted.push(acceptedEvent);
    if (createdAt < now) past += 1;
    results[index] = acceptedEvent;
    if (dayOf(createdAt) !== day) days += 1;
    day = dayOf(createdAt);
  }
  if (days > MAX_DAYS) return TOO_MANY_DAYS;
  const publicIds = new Map<number, string>();
  for (const type of types.values()) if (!(type instanceof Rejection)) publicIds.set(type.id, type.publicId);
  return { accepted, past, keyed, results, indexes: good.map(({ index }) => index), publicIds };
}

/** The type of an event, or the first thing that is wrong with the event. */
function typeOf(
  event: BatchEvent | Rejection,
  types: Types,
  acceptedAt: number,
  boundary: number,
): EventType | Rejection {
  if (event instanceof Rejection) return event;
  const type = types.get(event.type);
  if (type === undefined) throw new Error('A type was not looked up.');
  if (type instanceof Rejection || event.createdAt === null) return type;
  const problem = eventTimeProblem(event.createdAt, acceptedAt, boundary);
  return problem === null ? type : new Rejection('invalidBody', `The field "createdAt" ${problem}.`);
}

/** The response. If nothing is stored because of the database, the whole request has failed. */
function answer(batch: Batch, outcomes: Outcomes): Outcome {
  if (outcomes.every((outcome) => outcome === null)) return batchAnswer(batch.results, batch.publicIds);
  const refusals = outcomes.filter((outcome) => outcome instanceof Rejection);
  const isStored = refusals.length < outcomes.length;
  const failures = isStored ? [] : refusals.filter(({ status }) => status >= 500);
  for (const reason of ['outcomeUnknown', 'internalError', 'unavailable'] as const) {
    const failure = failures.find((outcome) => outcome.reason === reason);
    if (failure) return failure;
  }
  return answerOf(batch, (_, index) => outcomes[index] ?? null);
}

type OutcomeOf = (event: AcceptedEvent, index: number) => WriteOutcome;

/** @param outcomeOf the accepted events, with their places among them */
function answerOf(batch: Batch, outcomeOf: OutcomeOf): KeptAnswer {
  const repeated = batch.accepted.filter((event, index) => outcomeOf(event, index) === 'repeated');
  return batchAnswer(resultsOf(batch, outcomeOf), batch.publicIds, new Set(repeated));
}

function resultsOf(batch: Batch, outcomeOf: OutcomeOf): readonly Result[] {
  const results = [...batch.results];
  for (const [at, event] of batch.accepted.entries()) {
    const outcome = outcomeOf(event, at);
    const index = batch.indexes[at];
    if (outcome instanceof Rejection && index !== undefined) results[index] = outcome;
  }
  return results;
}

/** Why an atomic batch is refused: null if none of its events is. */
function atomicRefusal(results: readonly Result[]): Rejection | null {
  const refusals = results.filter((result) => result instanceof Rejection);
  const [first] = refusals;
  if (first === undefined) return null;
  // The same batch may be stored later.
  if (refusals.every(({ status }) => PASSING.has(status))) return first;
  return new Rejection(
    'batchRefused',
    `${refusals.length} of ${results.length} events are refused, so none is stored.`,
    {
      fields: {
        results: results.map((result) => (result instanceof Rejection ? result : HELD_BACK).fields()),
      },
    },
  );
}
