/**
 * The steps of a batch, in the order in which they may refuse it or one of its events: those of POST /v1/events, and of every
 * route that takes another format.
 */

import type { EventType, EventTypes } from '../apps/event-type-lookup.ts';
import type { TypeReference } from '../apps/event-types.ts';
import type { LoggingTokens } from '../apps/logging-token-lookup.ts';
import { Rejection } from '../errors.ts';
import type { Answer, Exchange, Outcome } from '../http/exchange.ts';
import { decode } from '../http/request-body.ts';
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
import type { Events, Format } from './formats/format.ts';
import { IDEMPOTENCY_KEY, idempotencyKeyProblem, keyedRequest } from './idempotency-key.ts';
import type { IdempotentQueue } from './idempotent-queue.ts';
import type { BatchLimits } from './parse/batch-body.ts';
import type { BatchEvent } from './parse/batch-event.ts';
import { startOfNow } from './past-writer.ts';
import type { RefusedEvents } from './refused-events.ts';
import type { RetentionBoundary } from './retention-boundary.ts';
import { nextTurn } from './turns.ts';

export interface CreateBatchSteps {
  readonly loggingTokens: LoggingTokens;
  readonly limiter: Limiter;
  /** The response to an earlier request with the same key, if there was one. */
  readonly findRepeated: (appId: number, request: KeyedRequest) => Promise<Answer | Rejection | null>;
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
  readonly refusedEvents: RefusedEvents;
  /** A new event id for an event of this time. */
  readonly newEventId: (now: number) => string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Of the body, after decompression. */
  readonly maxBytes: number;
  readonly limits: BatchLimits;
}

/** Concurrent lookups or creations of types for one batch: lookups of single events must not wait long. */
const TYPE_LOOKUPS = 4;
/** Limit of days in one batch: each is a partition or a chunk, and each of those takes some locks. */
const MAX_DAYS = 1_000;

/** Batches of at least this many events yield to the event loop between their steps. */
const MANY_EVENTS = 1_000;

const TOO_MANY_DAYS = new Rejection(
  'invalidBody',
  `The events of a batch may be on at most ${MAX_DAYS} days.`,
);
const OVERDUE = new Rejection('outcomeUnknown', 'The commit took too long: events may be stored.');

/** Makes the handler of a route. It responds after the transactions of the events have committed. */
export function createCreateBatch(
  steps: CreateBatchSteps,
  format: Format,
): (exchange: Exchange) => Promise<Outcome> {
  const create = createSteps(steps, format);
  const { refuse } = format;
  if (refuse === undefined) return create;
  return async (exchange) => {
    const outcome = await create(exchange);
    return outcome instanceof Rejection ? refuse(outcome, exchange) : outcome;
  };
}

function createSteps(
  steps: CreateBatchSteps,
  format: Format,
): (exchange: Exchange) => Promise<Answer | Rejection> {
  const { isBinary = false } = format;
  const body = { maxBytes: steps.maxBytes, compressed: true, usesReserve: true, binary: isBinary };
  return async (exchange) => {
    // A compressed body is decompressed only after its sender is known.
    exchange.receive(body);

    const epoch = steps.epoch();
    const appId = await authenticate(steps.loggingTokens, format, exchange);
    if (appId instanceof Rejection) return appId;

    exchange.rateLimit = await steps.limiter.take(appId);
    if (exchange.rateLimit?.accepted === false) return overLimit(exchange.rateLimit);

    const read = format.reader(exchange);
    if (read instanceof Rejection) return read;
    const received = await exchange.body();
    const text = isBinary ? '' : Buffer.isBuffer(received) ? decode(received) : received;
    if (text instanceof Rejection) return text;

    const key = format.takesIdempotencyKey === true ? exchange.header(IDEMPOTENCY_KEY) : '';
    const keyProblem = idempotencyKeyProblem(key);
    if (keyProblem !== null) return keyProblem;
    const request = key === '' ? null : await keyedRequest(key, exchange.path, text);
    const repeated = request === null ? null : await steps.findRepeated(appId, request);
    if (repeated !== null) return repeated;

    const bytes = Buffer.isBuffer(received) ? received : NO_BYTES;
    const hold = (more: number): Rejection | null => exchange.hold(more);
    const events = await read({ text, bytes, receivedAt: steps.now(), limits: steps.limits, hold });
    if (events instanceof Rejection) return events;

    const types = await resolveTypes(steps.eventTypes, appId, events);
    await yieldToEventLoop(events.length);
    const acceptedAt = steps.now();
    const batch = await accept(steps, { appId, events, types, acceptedAt });
    if (batch instanceof Rejection) return batch;
    const passing = format.repeatsWhole === true ? passingRefusal(steps, batch) : null;
    if (passing !== null) return passing;

    // The database changed between the lookups: the internal ids do not belong together.
    if (epoch !== steps.epoch()) return UNAVAILABLE;
    // The response at the deadline said that nothing is stored, so nothing may be stored from here on.
    if (exchange.settled) return exchange.late;
    exchange.late = OVERDUE;
    const answers = new BatchAnswers(format, exchange, batch);
    const outcome =
      request === null
        ? answers.of(await store(steps, batch))
        : await storeKeyed(steps, batch, answers, { appId, request, acceptedAt });
    steps.refusedEvents.count(exchange.route, answers.toldBy(outcome));
    await yieldToEventLoop(events.length);
    return outcome;
  };
}

/** With a key all events are committed together, or none. */
async function storeKeyed(
  steps: CreateBatchSteps,
  batch: Batch,
  answers: BatchAnswers,
  keyed: { readonly appId: number; readonly request: KeyedRequest; readonly acceptedAt: number },
): Promise<Answer | Rejection> {
  if (batch.accepted.length === 0) return answers.of([]);
  const events = {
    ...keyed,
    events: batch.accepted,
    answer: answers.kept(NONE_REFUSED),
    answerWithout: (refused: ReadonlyMap<AcceptedEvent, Rejection>) => answers.kept(refused),
  };
  return batch.past === 0 ? await steps.idempotentQueue.add(events) : await storePast(steps, events);
}

/** Why the request may succeed as a whole later, and not now; null where nothing speaks for that. */
function passingRefusal({ past }: CreateBatchSteps, batch: Batch): Rejection | null {
  for (const result of batch.results)
    if (result instanceof Rejection && (result.status === 429 || result.status >= 500)) return result;
  for (const { createdAt } of batch.accepted.slice(0, batch.past)) {
    const refusal = past.refusalOf(createdAt);
    if (refusal !== null && refusal.status >= 500) return refusal;
  }
  return null;
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
): Promise<Answer | Rejection> {
  for (const { createdAt } of keyed.events) {
    const refusal = past.refusalOf(createdAt);
    if (refusal !== null && refusal.status >= 500) return refusal;
  }
  return await past.idempotentQueue.add(keyed);
}

async function authenticate(
  tokens: LoggingTokens,
  format: Format,
  exchange: Exchange,
): Promise<number | Rejection> {
  const token = format.token(exchange);
  if (token === null) return format.noToken;
  const appId = await tokens.appOf(token);
  if (typeof appId === 'number') return appId;
  return new Rejection(appId.reason, appId.details, { headers: format.challenge });
}

/** Each step of a large batch takes some milliseconds: other requests run between them. */
async function yieldToEventLoop(events: number): Promise<void> {
  if (events >= MANY_EVENTS) await nextTurn();
}

type Types = ReadonlyMap<TypeReference, EventType | Rejection>;

/** Looks up each type of the events once. */
async function resolveTypes(eventTypes: EventTypes, appId: number, events: Events): Promise<Types> {
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
    readonly events: Events;
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

const NO_BYTES = Buffer.alloc(0);
const NONE_REFUSED: ReadonlyMap<AcceptedEvent, Rejection> = new Map();

/** The answers that are made of a batch, of which one is sent. */
class BatchAnswers {
  readonly #format: Format;
  readonly #exchange: Exchange;
  readonly #batch: Batch;
  readonly #told = new Map<Answer | Rejection, readonly Result[]>();

  constructor(format: Format, exchange: Exchange, batch: Batch) {
    this.#format = format;
    this.#exchange = exchange;
    this.#batch = batch;
  }

  /**
   * What came of the batch. Where nothing is stored and the database is why, that is an error of the whole request; also
   * where something is, if the format's clients repeat requests as a whole.
   */
  of(outcomes: readonly (Rejection | null)[]): Answer | Rejection {
    if (outcomes.every((outcome) => outcome === null)) return this.#tell(NONE_REFUSED);
    const isKept = outcomes.includes(null) && this.#format.repeatsWhole !== true;
    const failures = isKept ? [] : outcomes.filter((outcome) => outcome !== null && outcome.status >= 500);
    for (const reason of ['outcomeUnknown', 'internalError', 'unavailable'] as const) {
      const failure = failures.find((outcome) => outcome?.reason === reason);
      if (failure) return failure;
    }
    const refused = new Map<AcceptedEvent, Rejection>();
    for (const [index, event] of this.#batch.accepted.entries()) {
      const outcome = outcomes[index];
      if (outcome) refused.set(event, outcome);
    }
    return this.#tell(refused);
  }

  /** What is kept under an Idempotency-Key. @param refused what the database refuses of the batch */
  kept(refused: ReadonlyMap<AcceptedEvent, Rejection>): KeptAnswer {
    const results = this.#resultsWithout(refused);
    const answer = batchAnswer(results, this.#batch.publicIds);
    this.#told.set(answer, results);
    return answer;
  }

  #tell(refused: ReadonlyMap<AcceptedEvent, Rejection>): Answer | Rejection {
    const results = this.#resultsWithout(refused);
    const { publicIds } = this.#batch;
    const answer = this.#format.answer({ exchange: this.#exchange, results, publicIds });
    this.#told.set(answer, results);
    return answer;
  }

  #resultsWithout(refused: ReadonlyMap<AcceptedEvent, Rejection>): readonly Result[] {
    const { accepted, indexes, results } = this.#batch;
    if (refused.size === 0) return results;
    const changed = [...results];
    for (const [index, event] of accepted.entries()) {
      const refusal = refused.get(event);
      const at = indexes[index];
      if (refusal !== undefined && at !== undefined) changed[at] = refusal;
    }
    return changed;
  }

  /** The results that an answer tells; none where it is not of this batch, but a refusal or an earlier answer. */
  toldBy(answer: Answer | Rejection): readonly Result[] {
    return this.#told.get(answer) ?? [];
  }
}
