/** POST /public/create_event: the steps of a write. The first one that refuses the request determines the response. */

import type { LoggingTokens } from '../apps/logging-token-lookup.ts';
import type { Usage } from '../apps/usage.ts';
import { Rejection } from '../errors.ts';
import type { Exchange, Outcome } from '../http/exchange.ts';
import { beginningOf, isSmallBody, type ReceivedBody } from '../http/request-body.ts';
import type { LimitDecision, Limiter } from '../limits/limiter.ts';
import { type AcceptedEvent, timestamp } from '../storage/write/accepted-event.ts';
import { POISON, UNAVAILABLE } from '../storage/write/failures.ts';
import type { KeptAnswer, RequestIdentity } from '../storage/write/idempotent-writer.ts';
import type { AcceptSteps } from './accepted-batch.ts';
import { admitBytes } from './byte-limit.ts';
import { keyedEventId } from './event-id.ts';
import { refusalOfTime } from './event-time.ts';
import { IDEMPOTENCY_KEY, idempotencyKeyProblem, requestIdentity } from './idempotency-key.ts';
import type { FindRepeated } from './idempotency-store.ts';
import { parseEventBody } from './parse/event-body.ts';
import { findTokens } from './parse/find-tokens.ts';
import { startOfCurrentDay } from './queue/past-writer.ts';
import type { WriteQueues } from './queue/write-queues.ts';
import type { StageTimes } from './stage-times.ts';
import type { TokenScreen } from './token-screen.ts';

export interface CreateEventSteps extends Omit<AcceptSteps, 'firstTimes'> {
  readonly queues: WriteQueues;
  readonly loggingTokens: LoggingTokens;
  /** Searches large bodies for a token before they are parsed. */
  readonly tokenScreen: TokenScreen;
  readonly limiter: Limiter;
  /** The answer to an earlier request with the same key, if there was one. */
  readonly findRepeated: FindRepeated;
  /** Changes when the database becomes another one. */
  readonly epoch: () => number;
  /** Called for a request that is refused before its token is read, with the lookup of the token in its body. */
  readonly onRefusedUnread: Usage['refusedUnread'];
  readonly stageTimes: StageTimes;
}

const OVERDUE = new Rejection('outcomeUnknown', 'The commit took too long: the event may be stored.');

/** Creates the handler. It responds with 201 only after the event is committed, or synced to the journal. */
export function createCreateEvent(steps: CreateEventSteps): (exchange: Exchange) => Promise<Outcome> {
  return async (exchange) => {
    const received = await exchange.body({ usesReserve: true, isStrict: true });
    if (received instanceof Rejection) return unread(steps, exchange, exchange.refusedHead, received);

    const stopwatch = steps.stageTimes.start();
    const key = exchange.header(IDEMPOTENCY_KEY);
    const keyProblem = idempotencyKeyProblem(key);
    if (keyProblem !== null) return unread(steps, exchange, received, keyProblem);
    const text = isSmallBody(received) ? received : await steps.tokenScreen.admit(received);
    if (text instanceof Rejection) return text;
    const parsed = parseEventBody(text);
    const body = parsed instanceof Promise ? await parsed : parsed;
    stopwatch?.lap('validate');
    if (body instanceof Rejection) return unread(steps, exchange, text, body);

    // Cached values are not awaited: an await costs a promise and a turn of the microtask queue.
    const epoch = steps.epoch();
    const known = steps.loggingTokens.writerOf(body.loggingToken);
    const writer = known instanceof Promise ? await known : known;
    stopwatch?.lap('token');
    if (writer instanceof Rejection) return writer;
    const { appId } = writer;
    exchange.writerAppId = appId;
    exchange.producerId = writer.producerId;

    const decision = steps.limiter.take(appId);
    exchange.rateLimit = decision instanceof Promise ? await decision : decision;
    stopwatch?.lap('limit');
    if (exchange.rateLimit?.accepted === false) return overLimit(exchange.rateLimit);
    // Close to the time that the limiter counted, so the events' times show the limit as well.
    const acceptedAt = steps.now();
    const request = key === '' ? null : await requestIdentity(key, exchange.path, text);

    const found = steps.eventTypes.find(appId, body.type);
    const type = found instanceof Promise ? await found : found;
    stopwatch?.lap('type');
    if (type instanceof Rejection) return type;
    // Nothing behind this line sees the text as it was sent.
    const payload =
      type.redaction === null ? body.payload : type.redaction.apply(body.payload, steps.redactionKey);
    if (type.schema !== null) {
      const [violation = null] = await steps.payloadChecks.refusalsOf(appId, [{ type, payload }]);
      // What was stored before the schema was set is answered as it was then.
      const repeated =
        violation === null || request === null ? null : await steps.findRepeated(appId, request);
      if (violation !== null) return repeated ?? violation;
    }
    const { keyed } = body;
    const createdAt = keyed === null ? acceptedAt : keyed.createdAt;
    const behind = steps.retentionBoundary.refusalOfNow(appId, [type.id], acceptedAt);
    const refusal = behind && (await behind);
    if (refusal !== null) return refusal;
    const problem =
      keyed === null ? null : await timeProblem(steps, { id: type.id, appId }, createdAt, acceptedAt);
    if (problem !== null) return problem;
    const id = keyed === null ? steps.newEventId(createdAt) : keyedEventId(createdAt, type.source, keyed.key);
    const event = { id, appId, typeId: type.id, createdAt, payload, source: type.source };
    const answer = created(id, type.publicIdJson, createdAt, body.ignoresTime ? TIME_IGNORED : CREATED);
    // A repeated request brings no more bytes.
    if (request !== null && steps.accounts.limits.of(appId, 'bytesPerDay') !== null) {
      const repeated = await steps.findRepeated(appId, request);
      if (repeated !== null) return repeated;
    }
    const admitted = admitBytes(steps, appId, [{ payload }]);
    const full = admitted instanceof Promise ? await admitted : admitted;
    if (full !== null) return full;
    // Between the lookups the database has become another one: the ids do not belong together.
    if (epoch !== steps.epoch()) return UNAVAILABLE;
    // The deadline has passed, and its response said that nothing is stored.
    if (exchange.settled) return exchange.late;
    exchange.late = OVERDUE;
    let outcome: Outcome;
    if (request === null && keyed === null) {
      const stored = await steps.queues.add(event);
      outcome = stored instanceof Rejection ? stored : answer;
    } else {
      const repeated = (): KeptAnswer => created(id, type.publicIdJson, createdAt, STORED_BEFORE);
      outcome = await storeOnce(steps.queues, event, { request, acceptedAt, answer, repeated });
    }
    stopwatch?.lap('commit');
    if (type.schema !== null && outcome === answer) steps.payloadChecks.note(appId, { type, payload });
    return outcome;
  };
}

/**
 * A refusal of a body before its token is read. Where the body has one it is looked up all the same, so that its owner can see what
 * is wrong: looked for in the beginning alone. The answer does not wait for that, and a token that nobody has costs what it does in a
 * body that is right.
 */
function unread(
  steps: CreateEventSteps,
  { route, refusedHead }: Exchange,
  body: ReceivedBody,
  refusal: Rejection,
): Rejection {
  const beginning = beginningOf(body);
  const [token] = findTokens(beginning.text).tokens;
  if (token === undefined || refusal.status >= 500) return refusal;
  const refusedBody = refusedHead === '' ? beginning : null;
  steps.onRefusedUnread(steps.loggingTokens.writerOf(token), refusal, { route, refusedBody });
  return refusal;
}

async function timeProblem(
  { retentionBoundary }: CreateEventSteps,
  { id, appId }: { readonly id: number; readonly appId: number },
  createdAt: number,
  acceptedAt: number,
): Promise<Rejection | null> {
  return refusalOfTime(createdAt, acceptedAt, (await retentionBoundary.of(appId))(id));
}

/** Stores an event with a key, or of a request with an Idempotency-Key, unless it is stored already. */
async function storeOnce(
  queues: WriteQueues,
  event: AcceptedEvent,
  options: {
    readonly request: RequestIdentity | null;
    readonly acceptedAt: number;
    readonly answer: KeptAnswer;
    /** The answer if the event was stored before, by its own key. */
    readonly repeated: () => KeptAnswer;
  },
): Promise<Outcome> {
  const { request, acceptedAt, answer, repeated } = options;
  const { appId, createdAt } = event;
  const past = createdAt < startOfCurrentDay(acceptedAt) ? 1 : 0;
  if (request !== null) {
    const together = { appId, identity: request, acceptedAt, events: [event], answer };
    return await queues.storeTogether(
      { ...together, answerRepeated: repeated, answerWithout: (refused) => refused.get(event) ?? POISON },
      past,
    );
  }
  const [outcome] = await queues.storeApart({ accepted: [event], past, keyed: 1 });
  if (outcome === undefined) throw new Error('An event was stored without an outcome.');
  if (outcome instanceof Rejection) return outcome;
  return outcome === 'repeated' ? repeated() : answer;
}

/** Cached refusals by their Retry-After seconds: they are frequent under load and differ in nothing else. */
const OVER_LIMIT = new Map<number, { readonly limit: number; readonly refusal: Rejection }>();

/** The 429 of routes whose requests are limited per app. */
export function overLimit({ limit, resetSeconds }: LimitDecision): Rejection {
  const known = OVER_LIMIT.get(resetSeconds);
  if (known?.limit === limit) return known.refusal;
  const refusal = new Rejection(
    'rateLimitExceeded',
    `At most ${limit} requests per minute and app are accepted.`,
    { retryAfterSeconds: resetSeconds },
  );
  OVER_LIMIT.set(resetSeconds, { limit, refusal });
  return refusal;
}

const CREATED = '"message":"Event created"';
const STORED_BEFORE = '"repeated":true,"message":"Event was stored before"';
const TIME_IGNORED =
  '"message":"Event created with the time of this request: createdAt counts only together with key, or on POST /v1/events"';

/** The body is ASCII, so its length is its size in bytes. @param typeId as JSON text @param end the last fields, as JSON text */
function created(eventId: string, typeId: string, createdAt: number, end: string): KeptAnswer {
  const fields = `"eventId":"${eventId}","typeId":${typeId},"timestamp":"${timestamp(createdAt)}"`;
  const body = `{"success":true,${fields},${end}}`;
  return { status: 201, body, bytes: body.length };
}
