/**
 * The steps of a batch, in the order in which they may refuse it or one of its events: those of POST /v1/events, and of every
 * route that takes another format.
 */

import type { EventType, EventTypes } from '../apps/event-type-lookup.ts';
import type { TypeReference } from '../apps/event-types.ts';
import type { LoggingTokens } from '../apps/logging-token-lookup.ts';
import type { SchemaMode } from '../apps/type-schemas.ts';
import { Rejection } from '../errors.ts';
import type { Answer, Exchange, Outcome } from '../http/exchange.ts';
import { decode } from '../http/request-body.ts';
import type { Limiter } from '../limits/limiter.ts';
import { type AcceptedEvent, dayOf } from '../storage/write/accepted-event.ts';
import type { Outcomes, WriteOutcome } from '../storage/write/event-writer.ts';
import { UNAVAILABLE } from '../storage/write/failures.ts';
import type { KeptAnswer, KeyedRequest } from '../storage/write/keyed-writer.ts';
import { batchAnswer, type Result } from './batch-answer.ts';
import { overLimit } from './create-event.ts';
import { createEventIds, keyedEventId } from './event-id.ts';
import { eventTimeProblem } from './event-time.ts';
import type { Events, Format } from './formats/format.ts';
import { IDEMPOTENCY_KEY, idempotencyKeyProblem, keyedRequest } from './idempotency-key.ts';
import type { FindRepeated } from './idempotency-store.ts';
import type { BatchLimits } from './parse/batch-body.ts';
import type { BatchEvent } from './parse/batch-event.ts';
import { startOfNow } from './past-writer.ts';
import type { PayloadChecks } from './payload-checks.ts';
import type { RefusedEvents } from './refused-events.ts';
import type { RetentionBoundary } from './retention-boundary.ts';
import { Slices } from './turns.ts';
import { type AcceptedEvents, storeApart, storeTogether, type WriteQueues } from './write-queues.ts';

export interface CreateBatchSteps extends WriteQueues {
  readonly loggingTokens: LoggingTokens;
  readonly limiter: Limiter;
  /** The response to an earlier request with the same key, if there was one. */
  readonly findRepeated: FindRepeated;
  readonly eventTypes: EventTypes;
  readonly payloadChecks: PayloadChecks;
  /** Changes when the database becomes another one. */
  readonly epoch: () => number;
  readonly retentionBoundary: RetentionBoundary;
  readonly refusedEvents: RefusedEvents;
  /** A new event id for an event of this time. */
  readonly newEventId: (now: number) => string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Of the text, after inflation. */
  readonly maxBytes: number;
  readonly limits: Omit<BatchLimits, 'appId'>;
}

/** Concurrent lookups or creations of types for one batch: lookups of single events must not wait long. */
const TYPE_LOOKUPS = 4;
/** Limit of days in one batch: each is a partition or a chunk, and each of those takes some locks. */
const MAX_DAYS = 1_000;

const TOO_MANY_DAYS = new Rejection(
  'invalidBody',
  `The events of a batch may be on at most ${MAX_DAYS} days.`,
);
/** What becomes of the valid events of an atomic batch that has others. */
const HELD_BACK = new Rejection('batchRefused', 'Other events of the atomic batch are refused.');
/** Statuses of refusals that may pass. */
const PASSING: ReadonlySet<number> = new Set([429, 500, 503]);
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
    exchange.writer = appId;

    exchange.rateLimit = await steps.limiter.take(appId);
    if (exchange.rateLimit?.accepted === false) return overLimit(exchange.rateLimit);

    const isAtomic = format.isAtomic?.(exchange) ?? false;
    if (isAtomic instanceof Rejection) return isAtomic;
    const read = format.reader(exchange);
    if (read instanceof Rejection) return read;
    const received = await exchange.body();
    const text = isBinary ? '' : Buffer.isBuffer(received) ? decode(received) : received;
    if (text instanceof Rejection) return text;
    if (received instanceof Rejection) return received;

    const key = format.takesIdempotencyKey === true ? exchange.header(IDEMPOTENCY_KEY) : '';
    const keyProblem = idempotencyKeyProblem(key);
    if (keyProblem !== null) return keyProblem;
    const request = key === '' ? null : await keyedRequest(key, exchange.path, text);
    const repeated = request === null ? null : await steps.findRepeated(appId, request);
    if (repeated !== null) return repeated;

    const bytes = Buffer.isBuffer(received) ? received : NO_BYTES;
    const hold = (more: number): Rejection | null => exchange.hold(more);
    const limits = { ...steps.limits, appId };
    const sent = await read({ text, bytes, receivedAt: steps.now(), limits, hold });
    if (sent instanceof Rejection) return sent;

    const types = await resolveTypes(steps.eventTypes, appId, sent);
    const schemas = schemasOf(types);
    const events = schemas.has('refuse')
      ? await withoutViolations(steps, { appId, events: sent, types })
      : sent;
    // Each step of a large batch takes some milliseconds: other requests run between them.
    const slices = new Slices(appId);
    const acceptedAt = steps.now();
    const batch = await accept(steps, { appId, events, types, acceptedAt }, slices);
    if (batch instanceof Rejection) return batch;
    const refusal = isAtomic ? atomicRefusal(batch.results) : passingRefusal(steps, format, batch);
    if (refusal !== null) return refusal;

    // The database changed between the lookups: the internal ids do not belong together.
    if (epoch !== steps.epoch()) return UNAVAILABLE;
    // The response at the deadline said that nothing is stored, so nothing may be stored from here on.
    if (exchange.settled) return exchange.late;
    exchange.late = OVERDUE;
    const storing = { appId, request, acceptedAt, types, isAtomic, warns: schemas.has('warn') };
    const answers = new BatchAnswers(format, exchange, batch, { isAtomic, slices });
    const outcome = await storeBatch(steps, batch, answers, storing);
    steps.refusedEvents.count(exchange.route, answers.toldBy(outcome));
    if (slices.isOver) await slices.next();
    return outcome;
  };
}

interface Storing {
  readonly appId: number;
  readonly request: KeyedRequest | null;
  readonly acceptedAt: number;
  readonly types: Types;
  readonly isAtomic: boolean;
  /** Whether payloads that are stored are checked against schemas that warn. */
  readonly warns: boolean;
}

/** Stores the events one by one; those of an atomic batch, or of one with a key, in one transaction. */
async function storeBatch(
  steps: CreateBatchSteps,
  batch: Batch,
  answers: BatchAnswers,
  storing: Storing,
): Promise<Answer | Rejection> {
  const { appId, request, acceptedAt, types, isAtomic, warns } = storing;
  if (request === null && !isAtomic) {
    const outcomes = await storeApart(steps, batch);
    if (warns) noteStored(steps, { appId, types, batch, outcomes });
    return await answers.of(outcomes);
  }
  if (batch.accepted.length === 0) return await answers.of([]);
  const together = {
    appId,
    request,
    acceptedAt,
    events: batch.accepted,
    answer: answers.kept(() => null),
    answerRepeated: (repeated: ReadonlySet<AcceptedEvent>) =>
      answers.kept((event) => (repeated.has(event) ? 'repeated' : null)),
    answerWithout: (refused: ReadonlyMap<AcceptedEvent, Rejection>) =>
      answers.without((event) => refused.get(event) ?? null),
  };
  const outcome = await storeTogether(steps, together, batch.past);
  if (warns && outcome === together.answer)
    noteStored(steps, { appId, types, batch, outcomes: batch.accepted.map(() => null) });
  return outcome;
}

/** Of a format whose clients repeat whole requests: why this one may succeed later, and not now. */
function passingRefusal(
  { past }: CreateBatchSteps,
  { repeatsWhole = false }: Format,
  batch: Batch,
): Rejection | null {
  if (!repeatsWhole) return null;
  for (const result of batch.results)
    if (result instanceof Rejection && PASSING.has(result.status)) return result;
  for (const { createdAt } of batch.accepted.slice(0, batch.past)) {
    const refusal = past.refusalOf(createdAt);
    if (refusal !== null && refusal.status >= 500) return refusal;
  }
  return null;
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
  { appId, events, types }: { appId: number; events: Events; types: Types },
): Promise<Events> {
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
    readonly events: Events;
    readonly types: Types;
    readonly acceptedAt: number;
  },
  slices: Slices,
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
    if (slices.isOverAfterStep) await slices.next();
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
    if (slices.isOverAfterStep) await slices.next();
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

const NO_BYTES = Buffer.alloc(0);

/** @param index of an accepted event among them */
type OutcomeOf = (event: AcceptedEvent, index: number) => WriteOutcome;

/** The responses that are made of a batch, of which one is sent. */
class BatchAnswers {
  readonly #format: Format;
  readonly #exchange: Exchange;
  readonly #batch: Batch;
  readonly #isAtomic: boolean;
  readonly #slices: Slices;
  readonly #told = new Map<Answer | Rejection, readonly Result[]>();

  constructor(
    format: Format,
    exchange: Exchange,
    batch: Batch,
    { isAtomic, slices }: { readonly isAtomic: boolean; readonly slices: Slices },
  ) {
    this.#format = format;
    this.#exchange = exchange;
    this.#batch = batch;
    this.#isAtomic = isAtomic;
    this.#slices = slices;
  }

  /**
   * If nothing is stored because of the database, the whole request has failed; also if something is stored, where the
   * clients repeat whole requests.
   */
  async of(outcomes: Outcomes): Promise<Answer | Rejection> {
    const refusals = outcomes.filter((outcome) => outcome instanceof Rejection);
    const isKept = refusals.length < outcomes.length && this.#format.repeatsWhole !== true;
    const failures = isKept ? [] : refusals.filter(({ status }) => status >= 500);
    for (const reason of ['outcomeUnknown', 'internalError', 'unavailable'] as const) {
      const failure = failures.find((outcome) => outcome.reason === reason);
      if (failure) return failure;
    }
    const outcomeOf: OutcomeOf = (_, index) => outcomes[index] ?? null;
    const results = refusals.length === 0 ? this.#batch.results : resultsOf(this.#batch, outcomeOf);
    const { publicIds } = this.#batch;
    const repeated = outcomes.includes('repeated') ? repeatedOf(this.#batch, outcomeOf) : NONE_REPEATED;
    const told = { exchange: this.#exchange, results, publicIds, repeated, slices: this.#slices };
    const answer = await this.#format.answer(told);
    this.#told.set(answer, results);
    return answer;
  }

  /** What is kept under an Idempotency-Key. */
  kept(outcomeOf: OutcomeOf): KeptAnswer {
    const results = resultsOf(this.#batch, outcomeOf);
    const repeated = repeatedOf(this.#batch, outcomeOf);
    const answer = batchAnswer({ results, publicIds: this.#batch.publicIds, repeated });
    this.#told.set(answer, results);
    return answer;
  }

  /** The same where the database refuses some of the events: an atomic batch is refused then. */
  without(outcomeOf: OutcomeOf): KeptAnswer | Rejection {
    const refusal = this.#isAtomic ? atomicRefusal(resultsOf(this.#batch, outcomeOf)) : null;
    return refusal ?? this.kept(outcomeOf);
  }

  /** The results that an answer tells; none where it is not of this batch, but a refusal or an earlier answer. */
  toldBy(answer: Answer | Rejection): readonly Result[] {
    return this.#told.get(answer) ?? [];
  }
}

const NONE_REPEATED: ReadonlySet<Result> = new Set();

function repeatedOf(batch: Batch, outcomeOf: OutcomeOf): ReadonlySet<Result> {
  return new Set(batch.accepted.filter((event, index) => outcomeOf(event, index) === 'repeated'));
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
