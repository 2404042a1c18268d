/** POST /public/create_event: the steps of a write, in the order in which they may refuse it. */
import type { Exchange, Outcome } from '../http/exchange.ts';
import { Rejection } from '../http/rejection.ts';
import type { Limiter } from '../limits/limiter.ts';
import type { CommitBuffer } from './commit-buffer.ts';
import { parseEventBody } from './event-body.ts';
import type { EventTypes } from './event-types.ts';
import { timestamp } from './event-writer.ts';
import type { LoggingTokens } from './logging-tokens.ts';
import type { StageTimes } from './stage-times.ts';

export interface CreateEventSteps {
  readonly loggingTokens: LoggingTokens;
  readonly limiter: Limiter;
  readonly eventTypes: EventTypes;
  readonly commitBuffer: CommitBuffer;
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
    const text = await exchange.text();
    if (text instanceof Rejection) return text;

    const stopwatch = steps.stageTimes.start();
    const body = parseEventBody(text);
    stopwatch?.lap('validate');
    if (body instanceof Rejection) return body;

    const appId = await steps.loggingTokens.appOf(body.loggingToken);
    stopwatch?.lap('token');
    if (appId instanceof Rejection) return appId;

    exchange.rateLimit = await steps.limiter.take(appId);
    stopwatch?.lap('limit');
    if (exchange.rateLimit?.accepted === false)
      return overLimit(exchange.rateLimit.limit, exchange.rateLimit.resetSeconds);

    const type = await steps.eventTypes.find(appId, body.type);
    stopwatch?.lap('type');
    if (type instanceof Rejection) return type;

    const createdAt = steps.now();
    const id = steps.newEventId(createdAt);
    exchange.late = OVERDUE;
    const refused = await steps.commitBuffer.add({
      id,
      appId,
      typeId: type.id,
      createdAt,
      payload: body.payload,
    });
    stopwatch?.lap('commit');
    return refused ?? created(id, type.publicId, createdAt);
  };
}

function overLimit(limit: number, retryAfterSeconds: number): Rejection {
  return new Rejection('rateLimitExceeded', `At most ${limit} requests per minute and app are accepted.`, {
    retryAfterSeconds,
  });
}

/** Every value in it is of our own making and needs no escaping. */
function created(eventId: string, typeId: string, createdAt: number): Outcome {
  const fields = `"eventId":"${eventId}","typeId":"${typeId}","timestamp":"${timestamp(createdAt)}"`;
  return { status: 201, body: `{"success":true,${fields},"message":"Event created"}` };
}
