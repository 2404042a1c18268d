/** POST /public/create_event: the steps of a write, in the order in which they may refuse it. */

import type { EventTypes } from '../apps/event-type-lookup.ts';
import type { LoggingTokens } from '../apps/logging-token-lookup.ts';
import { Rejection } from '../errors.ts';
import type { Exchange, Outcome } from '../http/exchange.ts';
import { isSmallBody } from '../http/request-body.ts';
import type { LimitDecision, Limiter } from '../limits/limiter.ts';
import { timestamp } from '../storage/write/accepted-event.ts';
import { POISON } from '../storage/write/failures.ts';
import type { KeptAnswer } from '../storage/write/keyed-writer.ts';
import type { CommitBuffer } from './commit-buffer.ts';
import { IDEMPOTENCY_KEY, idempotencyKeyProblem, keyedRequest } from './idempotency-key.ts';
import type { IdempotentQueue } from './idempotent-queue.ts';
import { parseEventBody } from './parse/event-body.ts';
import type { StageTimes } from './stage-times.ts';
import type { TokenScreen } from './token-screen.ts';

export interface CreateEventSteps {
  readonly loggingTokens: LoggingTokens;
  /** Looks for a token in large bodies, before they are parsed. */
  readonly tokenScreen: TokenScreen;
  readonly limiter: Limiter;
  readonly eventTypes: EventTypes;
  readonly commitBuffer: CommitBuffer;
  /** The way of requests with an Idempotency-Key. */
  readonly idempotentQueue: IdempotentQueue;
  /** A new event id for an event of this time. */
  readonly newEventId: (now: number) => string;
  readonly stageTimes: StageTimes;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
}

const OVERDUE = new Rejection('outcomeUnknown', 'The commit took too long: the event may be stored.');

/** Makes the handler. It answers 201 only after the transaction that holds the event has committed. */
export function createCreateEvent(steps: CreateEventSteps): (exchange: Exchange) => Promise<Outcome> {
  return async (exchange) => {
    const received = await exchange.body({ usesReserve: true });
    if (received instanceof Rejection) return received;

    const stopwatch = steps.stageTimes.start();
    const key = exchange.header(IDEMPOTENCY_KEY);
    const keyProblem = idempotencyKeyProblem(key);
    if (keyProblem !== null) return keyProblem;
    const text = isSmallBody(received) ? received : await steps.tokenScreen.admit(received);
    if (text instanceof Rejection) return text;
    const parsed = parseEventBody(text);
    const body = parsed instanceof Promise ? await parsed : parsed;
    stopwatch?.lap('validate');
    if (body instanceof Rejection) return body;

    // What is known at once is not awaited: an await costs a promise and a turn of the microtask queue.
    const app = steps.loggingTokens.appOf(body.loggingToken);
    const appId = app instanceof Promise ? await app : app;
    stopwatch?.lap('token');
    if (appId instanceof Rejection) return appId;

    const decision = steps.limiter.take(appId);
    exchange.rateLimit = decision instanceof Promise ? await decision : decision;
    stopwatch?.lap('limit');
    if (exchange.rateLimit?.accepted === false) return overLimit(exchange.rateLimit);
    // The moment that was counted: what the limit promises of any 60 seconds can be seen in the events' times, too.
    const createdAt = steps.now();
    const request = key === '' ? null : await keyedRequest(key, exchange.path, text);

    const found = steps.eventTypes.find(appId, body.type);
    const type = found instanceof Promise ? await found : found;
    stopwatch?.lap('type');
    if (type instanceof Rejection) return type;

    const id = steps.newEventId(createdAt);
    const event = { id, appId, typeId: type.id, createdAt, payload: body.payload, source: type.source };
    const answer = created(id, type.publicIdJson, createdAt);
    // The deadline has answered that nothing is stored: so nothing may be, from here on.
    if (exchange.settled) return exchange.late;
    exchange.late = OVERDUE;
    const outcome =
      request === null
        ? ((await steps.commitBuffer.add(event)) ?? answer)
        : await steps.idempotentQueue.add({
            appId,
            request,
            acceptedAt: createdAt,
            events: [event],
            answer,
            answerWithout: () => POISON,
          });
    stopwatch?.lap('commit');
    return outcome;
  };
}

/** By the seconds until a place becomes free: producers that are over their limit come often, and differ in these alone. */
const OVER_LIMIT = new Map<number, { readonly limit: number; readonly refusal: Rejection }>();

/** The 429 of routes whose requests are counted per app. */
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

/** All of it is ASCII. @param typeId as JSON text */
function created(eventId: string, typeId: string, createdAt: number): KeptAnswer {
  const fields = `"eventId":"${eventId}","typeId":${typeId},"timestamp":"${timestamp(createdAt)}"`;
  const body = `{"success":true,${fields},"message":"Event created"}`;
  return { status: 201, body, bytes: body.length };
}
