/**
 * The steps of a batch, in the order in which they may refuse it or one of its events: those of POST /v1/events, and of every
 * route that takes another format.
 */
import { setTimeout } from 'node:timers/promises';
import type { LoggingTokens } from '../apps/logging-token-lookup.ts';
import { atOnce, inSlices, TimeSlice } from '../base/time-slice.ts';
import { type Decoded, decoded, unnamedEncoding } from '../base/utf8.ts';
import { Rejection } from '../errors.ts';
import { ArrivingLines } from '../http/arriving-lines.ts';
import { ENCODINGS } from '../http/compressed-body.ts';
import type { Answer, Exchange, Outcome } from '../http/exchange.ts';
import type { AcceptedEvent } from '../storage/write/accepted-event.ts';
import type { Outcomes } from '../storage/write/event-writer.ts';
import { UNAVAILABLE } from '../storage/write/failures.ts';
import type { KeptAnswer, RequestIdentity } from '../storage/write/idempotent-writer.ts';
import {
  acceptEvents,
  type Batch,
  NONE_REPEATED,
  noteStored,
  type OutcomeOf,
  OVERDUE,
  repeatedOf,
  resultsOf,
} from './accepted-batch.ts';
import { admit } from './admit.ts';
import { batchAnswer, type Result } from './batch-answer.ts';
import { admitBytes } from './byte-limit.ts';
import { overLimit } from './create-event.ts';
import { collect } from './formats/collect.ts';
import type { AnsweringFormat, EventLimits, Events, Format } from './formats/format.ts';
import { IDEMPOTENCY_KEY, idempotencyKeyProblem, requestIdentity } from './idempotency-key.ts';
import type { FindRepeated } from './idempotency-store.ts';
import { hasMoreLines, type StoreLinesSteps, storeInParts, storeLines, WholeLines } from './long-batch.ts';

export interface CreateBatchSteps extends StoreLinesSteps {
  readonly loggingTokens: LoggingTokens;
  /** The response to an earlier request with the same key, if there was one. */
  readonly findRepeated: FindRepeated;
  /** As {@link maxBytes}, of lines that are stored while they arrive. */
  readonly maxStreamBytes: number;
}

/** What becomes of the valid events of an atomic batch that has others. */
const HELD_BACK = new Rejection('batchRefused', 'Other events of the atomic batch are refused.');

/** Makes the handler of a route. It responds after the transactions of the events have committed. */
export function createCreateBatch(
  steps: CreateBatchSteps,
  format: Format,
): (exchange: Exchange) => Promise<Outcome> {
  const create = createSteps(steps, format);
  const { refuse, refusalDelayMs } = format;
  if (refuse === undefined) return create;
  return async (exchange) => {
    exchange.late = refuse(exchange.late, exchange);
    const outcome = await create(exchange);
    if (!(outcome instanceof Rejection)) return outcome;
    // A request without a valid token is answered at once: one that is held back keeps its body in memory.
    const isHeld = refusalDelayMs !== undefined && exchange.writerAppId !== null && outcome.isRetryable;
    if (isHeld) await setTimeout(refusalDelayMs);
    return refuse(outcome, exchange);
  };
}

function createSteps(
  steps: CreateBatchSteps,
  format: Format,
): (exchange: Exchange) => Promise<Answer | Rejection> {
  const { isBinary = false } = format;
  const body = { maxBytes: steps.maxBytes, compressed: true, usesReserve: true, binary: isBinary };
  const { maxEventBytes, maxEvents } = steps.limits;
  const lineBody = { ...body, lines: { maxBytes: steps.maxStreamBytes, maxLineBytes: maxEventBytes } };
  return async (exchange) => {
    const mayBeLong = format.mayBeLong?.(exchange) ?? false;
    // A compressed body is decompressed only after its sender is known.
    exchange.receive(mayBeLong ? lineBody : body);

    const epoch = steps.epoch();
    const appId = await admit(steps, format, exchange);
    if (appId instanceof Rejection) return appId;

    const isAtomic = format.isAtomic?.(exchange) ?? false;
    if (isAtomic instanceof Rejection) return isAtomic;
    const read = format.reader(exchange);
    if (read instanceof Rejection) return read;
    const received = await exchange.bodyOrLines();
    if (received instanceof ArrivingLines)
      return await storeLines(steps, exchange, { appId, lines: received, read });
    if (received instanceof Rejection) return received;
    const packed = !isBinary && Buffer.isBuffer(received) ? unnamedEncoding(received, ENCODINGS) : null;
    if (packed !== null) return packed;
    const holder = steps.accounts.holderOf(appId);
    const sentText = isBinary ? NO_TEXT : await inSlices(decoded(received), new TimeSlice(holder));
    const { text } = sentText;
    if (mayBeLong && hasMoreLines(text, maxEvents))
      return await storeLines(steps, exchange, { appId, lines: new WholeLines(sentText), read });

    const key = format.takesIdempotencyKey === true ? exchange.header(IDEMPOTENCY_KEY) : '';
    const keyProblem = idempotencyKeyProblem(key);
    if (keyProblem !== null) return keyProblem;
    const request = key === '' ? null : await requestIdentity(key, exchange.path, text);
    const repeated = request === null ? null : await steps.findRepeated(appId, request);
    if (repeated !== null) return repeated;

    const bytes = Buffer.isBuffer(received) ? received : NO_BYTES;
    const hold = (more: number): Rejection | null => exchange.hold(more);
    const limits = format.isStoredInParts === true ? ofParts(steps.limits) : steps.limits;
    const stream = read({ ...sentText, bytes, receivedAt: steps.now(), limits, hold });
    const sent = await collect(stream, { limits, hold }, { holder, mayBeEmpty: format.mayBeEmpty ?? false });
    if (sent instanceof Rejection) return sent;

    return await storeSent(steps, format, exchange, { appId, epoch, sent, request, isAtomic });
  };
}

/** Batches that a request of a format without a limit of its own may have in it. */
const MOST_BATCHES = 10;

function ofParts(limits: EventLimits): EventLimits {
  return { ...limits, maxEvents: MOST_BATCHES * limits.maxEvents };
}

/** A request of many events counts as the batches do that it stands for: the first was counted with its token. */
async function countParts(
  { limiter, limits }: CreateBatchSteps,
  exchange: Exchange,
  appId: number,
  events: number,
): Promise<Rejection | null> {
  for (let counted = limits.maxEvents; counted < events; counted += limits.maxEvents) {
    const decision = await limiter.take(appId);
    exchange.rateLimit = decision;
    if (decision?.accepted === false) return overLimit(decision);
  }
  return null;
}

/** The events that a request has brought, and what was known of it when they were read. */
interface SentBatch {
  readonly appId: number;
  /** Epoch of the database in which the sender was looked up. */
  readonly epoch: number;
  readonly sent: Events;
  /** Null without an Idempotency-Key. */
  readonly request: RequestIdentity | null;
  readonly isAtomic: boolean;
}

/** The rest of the steps, which are the same whoever the sender is. */
export async function storeSent(
  steps: CreateBatchSteps,
  format: AnsweringFormat,
  exchange: Exchange,
  { appId, epoch, sent, request, isAtomic }: SentBatch,
): Promise<Answer | Rejection> {
  const batch = await acceptEvents(steps, appId, sent);
  if (batch instanceof Rejection) return batch;
  const refusal = isAtomic ? atomicRefusal(batch.results) : retryableRefusal(steps, format, batch, sent);
  if (refusal !== null) return refusal;

  const full =
    (await countParts(steps, exchange, appId, sent.length)) ??
    (await admitBytes(steps, appId, batch.accepted));
  if (full !== null) return full;
  // The database changed between the lookups: the internal ids do not belong together.
  if (epoch !== steps.epoch()) return UNAVAILABLE;
  // The response at the deadline said that nothing is stored, so nothing may be stored from here on.
  if (exchange.settled) return exchange.late;
  exchange.late = format.refuse?.(OVERDUE, exchange) ?? OVERDUE;
  const slices = new TimeSlice(steps.accounts.holderOf(appId));
  const answers = new BatchAnswers(format, exchange, batch, { isAtomic, slices });
  const outcome = await storeBatch(steps, exchange, batch, answers, { request, isAtomic });
  steps.refusedEvents.count(exchange, answers.reportedBy(outcome));
  if (slices.isOver) await slices.next();
  return outcome;
}

/** Stores the events one by one; those of an atomic batch, or of one with a key, in one transaction. */
async function storeBatch(
  steps: CreateBatchSteps,
  exchange: Exchange,
  batch: Batch,
  answers: BatchAnswers,
  { request, isAtomic }: { readonly request: RequestIdentity | null; readonly isAtomic: boolean },
): Promise<Answer | Rejection> {
  const { appId, acceptedAt } = batch;
  if (request === null && !isAtomic) {
    const isLong = batch.results.length > steps.limits.maxEvents;
    const outcomes = isLong
      ? await storeInParts(steps.queues, exchange, batch)
      : await steps.queues.storeApart(batch);
    noteStored(steps, batch, outcomes);
    return await answers.of(outcomes);
  }
  if (batch.accepted.length === 0) return await answers.of([]);
  const together = {
    appId,
    identity: request,
    acceptedAt,
    events: batch.accepted,
    answer: answers.kept(() => null),
    answerRepeated: (repeated: ReadonlySet<AcceptedEvent>) =>
      answers.kept((event) => (repeated.has(event) ? 'repeated' : null)),
    answerWithout: (refused: ReadonlyMap<AcceptedEvent, Rejection>) =>
      answers.without((event) => refused.get(event) ?? null),
  };
  const outcome = await steps.queues.storeTogether(together, batch.past);
  if (outcome === together.answer)
    noteStored(
      steps,
      batch,
      batch.accepted.map(() => null),
    );
  return outcome;
}

/**
 * Why a request may succeed later, and not now. Null unless clients of the format repeat whole requests, or repeat events with keys
 * and all of these have one.
 */
function retryableRefusal(
  { queues }: CreateBatchSteps,
  { repeatsWhole = false, repeatsKeyed = false, refuse }: AnsweringFormat,
  batch: Batch,
  sent: Events,
): Rejection | null {
  // Pages are told nothing of the app, and a refusal of the whole would: theirs stay with the events.
  const isKeyed =
    repeatsKeyed &&
    refuse !== undefined &&
    sent.every((event) => event instanceof Rejection || event.key !== null);
  if (!repeatsWhole && !isKeyed) return null;
  for (const result of batch.results) if (result instanceof Rejection && result.isRetryable) return result;
  for (const { createdAt } of batch.accepted.slice(0, batch.past)) {
    const refusal = queues.refusalOf(createdAt);
    if (refusal?.isRetryable) return refusal;
  }
  return null;
}

const NO_BYTES = Buffer.alloc(0);
const NO_TEXT: Decoded = { text: '', damage: null };

/** The responses that are made of a batch, of which one is sent. */
class BatchAnswers {
  readonly #format: AnsweringFormat;
  readonly #exchange: Exchange;
  readonly #batch: Batch;
  readonly #isAtomic: boolean;
  readonly #slices: TimeSlice;
  readonly #reported = new Map<Answer | Rejection, readonly Result[]>();

  constructor(
    format: AnsweringFormat,
    exchange: Exchange,
    batch: Batch,
    { isAtomic, slices }: { readonly isAtomic: boolean; readonly slices: TimeSlice },
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
    const { repeatsWhole = false, repeatsKeyed = false } = this.#format;
    const isRepeated = repeatsWhole || (repeatsKeyed && this.#batch.keyed === this.#batch.accepted.length);
    const isKept = refusals.length < outcomes.length && !isRepeated;
    const failures = isKept ? [] : refusals;
    for (const reason of ['outcomeUnknown', 'internalError', 'unavailable'] as const) {
      const failure = failures.find((outcome) => outcome.reason === reason);
      if (failure) return failure;
    }
    const outcomeOf: OutcomeOf = (_, index) => outcomes[index] ?? null;
    const results = refusals.length === 0 ? this.#batch.results : resultsOf(this.#batch, outcomeOf);
    const { publicIds } = this.#batch;
    const repeated = outcomes.includes('repeated') ? repeatedOf(this.#batch, outcomeOf) : NONE_REPEATED;
    const report = { exchange: this.#exchange, results, publicIds, repeated, slices: this.#slices };
    const answer = await this.#format.answer(report);
    this.#reported.set(answer, results);
    return answer;
  }

  /** What is kept under an Idempotency-Key. */
  kept(outcomeOf: OutcomeOf): KeptAnswer {
    const results = resultsOf(this.#batch, outcomeOf);
    const repeated = repeatedOf(this.#batch, outcomeOf);
    const answer = atOnce(batchAnswer({ results, publicIds: this.#batch.publicIds, repeated }));
    this.#reported.set(answer, results);
    return answer;
  }

  /** What is kept where the database refuses some of the events: an atomic batch is refused then. */
  without(outcomeOf: OutcomeOf): KeptAnswer | Rejection {
    const refusal = this.#isAtomic ? atomicRefusal(resultsOf(this.#batch, outcomeOf)) : null;
    return refusal ?? this.kept(outcomeOf);
  }

  /** The results that an answer reports; none where it is not of this batch, but a refusal or an earlier answer. */
  reportedBy(answer: Answer | Rejection): readonly Result[] {
    return this.#reported.get(answer) ?? [];
  }
}

/** Why an atomic batch is refused: null if none of its events is. */
function atomicRefusal(results: readonly Result[]): Rejection | null {
  const refusals = results.filter((result) => result instanceof Rejection);
  const [first] = refusals;
  if (first === undefined) return null;
  // This batch may be stored later.
  if (refusals.every(({ isRetryable }) => isRetryable)) return first;
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
