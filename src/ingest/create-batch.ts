/** POST /v1/events: the steps of a batch, in the order in which they may refuse it or one of its events. */

import type { EventType, EventTypes } from '../apps/event-type-lookup.ts';
import type { TypeReference } from '../apps/event-types.ts';
import type { LoggingTokens } from '../apps/logging-token-lookup.ts';
import { Rejection } from '../errors.ts';
import { ASK_FOR_BEARER, bearerToken } from '../http/bearer.ts';
import type { Exchange, Outcome } from '../http/exchange.ts';
import type { Limiter } from '../limits/limiter.ts';
import { type AcceptedEvent, dayOf } from '../storage/write/accepted-event.ts';
import type { Outcomes } from '../storage/write/event-writer.ts';
import { UNAVAILABLE } from '../storage/write/failures.ts';
import type { KeptAnswer, KeyedRequest } from '../storage/write/keyed-writer.ts';
import { batchAnswer, type Result } from './batch-answer.ts';
import type { CommitBuffer } from './commit-buffer.ts';
import { overLimit } from './create-event.ts';
import { createEventIds } from './event-id.ts';
import { beforeRetention, IN_THE_FUTURE } from './event-time.ts';
import { IDEMPOTENCY_KEY, idempotencyKeyProblem, keyedRequest } from './idempotency-key.ts';
import type { IdempotentQueue } from './idempotent-queue.ts';
import { type BatchLimits, isLineDelimited, readBatch } from './parse/batch-body.ts';
import type { BatchEvent } from './parse/batch-event.ts';
import { startOfNow } from './past-writer.ts';
import type { RetentionBoundary } from './retention-boundary.ts';
import { nextTurn } from './turns.ts';

export interface CreateBatchSteps {
  readonly loggingTokens: LoggingTokens;
  readonly limiter: Limiter;
  /** The response to an earlier request with the same key, if there was one. */
  readonly findRepeated: (appId: number, request: KeyedRequest) => Promise<Outcome | null>;
  readonly eventTypes: EventTypes;
  /** Changes when the database becomes another one. */
  readonly epoch: () => number;
  readonly retentionBoundary: RetentionBoundary;
  readonly commitBuffer: CommitBuffer;
  readonly idempotentQueue: IdempotentQueue;
  /** The same for events of past days, which may wait for a locked day. */
  readonly past: {
    readonly commitBuffer: CommitBuffer;
    readonly idempotentQueue: IdempotentQueue;
    /** Why the day of a time takes no events now, or null. */
    readonly refusalOf: (time: number) => Rejection | null;
  };
  /** A new event id for an event of this time. */
  readonly newEventId: (now: number) => string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Of the text, after inflation. */
  readonly maxBytes: number;
  readonly limits: BatchLimits;
}

/** The headers that it reads. */
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
const OVERDUE = new Rejection('outcomeUnknown', 'The commit took too long: events may be stored.');

/** Makes the handler. It responds after the transactions of the events have committed. */
export function createCreateBatch(steps: CreateBatchSteps): (exchange: Exchange) => Promise<Outcome> {
  return async (exchange) => {
    // A compressed body is inflated only after its sender is known.
    exchange.receive({ maxBytes: steps.maxBytes, gzip: true, usesReserve: true });

    const epoch = steps.epoch();
    const appId = await authenticate(steps.loggingTokens, exchange.header('authorization'));
    if (appId instanceof Rejection) return appId;

    exchange.rateLimit = await steps.limiter.take(appId);
    if (exchange.rateLimit?.accepted === false) return overLimit(exchange.rateLimit);

    const text = await exchange.text();
    if (text instanceof Rejection) return text;

    const key = exchange.header(IDEMPOTENCY_KEY);
    const keyProblem = idempotencyKeyProblem(key);
    if (keyProblem !== null) return keyProblem;
    const request = key === '' ? null : await keyedRequest(key, exchange.path, text);
    const repeated = request === null ? null : await steps.findRepeated(appId, request);
    if (repeated !== null) return repeated;

    const lines = isLineDelimited(exchange.header('content-type'));
    const events = await readBatch(text, lines, steps.limits);
    if (events instanceof Rejection) return events;

    const types = await resolveTypes(steps.eventTypes, appId, events);
    await yieldToEventLoop(events.length);
    const acceptedAt = steps.now();
    const batch = await accept(steps, { appId, events, types, acceptedAt });
    if (batch instanceof Rejection) return batch;

    // The database changed between the lookups: the internal ids do not belong together.
    if (epoch !== steps.epoch()) return UNAVAILABLE;
    // The response at the deadline said that nothing is stored, so nothing may be stored from here on.
    if (exchange.settled) return exchange.late;
    exchange.late = OVERDUE;
    if (request === null) {
      const outcomes = await store(steps, batch);
      await yieldToEventLoop(events.length);
      return answer(batch, outcomes);
    }
    if (batch.accepted.length === 0) return answer(batch, []);
    const keyed = {
      appId,
      request,
      acceptedAt,
      events: batch.accepted,
      answer: batchAnswer(batch.results, batch.publicIds),
      answerWithout: (refused: ReadonlyMap<AcceptedEvent, Rejection>) => answerWithout(batch, refused),
    };
    return batch.past === 0 ? await steps.idempotentQueue.add(keyed) : await storePast(steps, keyed);
  };
}

/** Events of the current day do not wait for those of past days. */
async function store(steps: CreateBatchSteps, { accepted, past }: Batch): Promise<Outcomes> {
  if (past === 0) return await steps.commitBuffer.addAll(accepted);
  const outcomes = await Promise.all([
    steps.past.commitBuffer.addAll(accepted.slice(0, past)),
    steps.commitBuffer.addAll(accepted.slice(past)),
  ]);
  return outcomes.flat();
}

/** A keyed request is committed as a whole, so it is refused while one of its days takes no events. */
async function storePast(
  { past }: CreateBatchSteps,
  keyed: Parameters<IdempotentQueue['add']>[0],
): Promise<Outcome> {
  for (const { createdAt } of keyed.events) {
    const refusal = past.refusalOf(createdAt);
    if (refusal !== null && refusal.status >= 500) return refusal;
  }
  return await past.idempotentQueue.add(keyed);
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
interface Batch {
  /** Events to store, in order of time. */
  readonly accepted: readonly AcceptedEvent[];
  /** The number of events of past days; they are the first ones. */
  readonly past: number;
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
  let days = 0;
  let day = Number.NaN;
  for (const { index, event, type } of good) {
    const createdAt = event.createdAt ?? acceptedAt;
    const id = event.createdAt === null ? steps.newEventId(createdAt) : newPastId(createdAt);
    const { payload } = event;
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
  return { accepted, past, results, indexes: good.map(({ index }) => index), publicIds };
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
  const problem = timeProblem(event.createdAt, acceptedAt, boundary);
  return problem === null ? type : new Rejection('invalidBody', `The field "createdAt" ${problem}.`);
}

function timeProblem(createdAt: number, acceptedAt: number, boundary: number): string | null {
  if (createdAt > acceptedAt) return IN_THE_FUTURE;
  return createdAt < boundary ? beforeRetention(boundary) : null;
}

/** The response. If nothing is stored because of the database, the whole request has failed. */
function answer(batch: Batch, outcomes: readonly (Rejection | null)[]): Outcome {
  if (outcomes.every((outcome) => outcome === null)) return batchAnswer(batch.results, batch.publicIds);
  const isStored = outcomes.includes(null);
  const failures = isStored ? [] : outcomes.filter((outcome) => outcome !== null && outcome.status >= 500);
  for (const reason of ['outcomeUnknown', 'internalError', 'unavailable'] as const) {
    const failure = failures.find((outcome) => outcome?.reason === reason);
    if (failure) return failure;
  }
  const refused = new Map<AcceptedEvent, Rejection>();
  for (const [index, event] of batch.accepted.entries()) {
    const outcome = outcomes[index];
    if (outcome) refused.set(event, outcome);
  }
  return answerWithout(batch, refused);
}

function answerWithout(batch: Batch, refused: ReadonlyMap<AcceptedEvent, Rejection>): KeptAnswer {
  const results = [...batch.results];
  for (const [at, event] of batch.accepted.entries()) {
    const refusal = refused.get(event);
    const index = batch.indexes[at];
    if (refusal !== undefined && index !== undefined) results[index] = refusal;
  }
  return batchAnswer(results, batch.publicIds);
}
