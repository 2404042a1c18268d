/** The queues in which accepted events wait for their commit, and which of them waits where. */
import type { Rejection } from '../errors.ts';
import type { Answer } from '../http/exchange.ts';
import { type AcceptedEvent, isKeyed } from '../storage/write/accepted-event.ts';
import type { Outcomes, WriteOutcome } from '../storage/write/event-writer.ts';
import type { IdempotentRequest } from '../storage/write/idempotent-writer.ts';
import type { EventBuffer, RequestQueue } from './node-queues.ts';

export interface WriteQueues {
  readonly commitBuffer: EventBuffer;
  /** For requests with an Idempotency-Key. */
  readonly idempotentQueue: RequestQueue;
  /** The same for events of past days, which may wait for one of these days. */
  readonly past: {
    readonly commitBuffer: EventBuffer;
    readonly idempotentQueue: RequestQueue;
    /** Why the day of a time is not writable now, or null. */
    readonly refusalOf: (time: number) => Rejection | null;
  };
}

/** Accepted events of one request, in order of time. */
export interface AcceptedEvents {
  readonly accepted: readonly AcceptedEvent[];
  /** How many of these, the first ones, are of past days. */
  readonly past: number;
  /** How many have keys. */
  readonly keyed: number;
}

interface Group {
  readonly events: AcceptedEvent[];
  /** Of the events among those of the request. */
  readonly indexes: number[];
}

/**
 * Stores events, each as soon as it can be: those of now do not wait for those of past days, nor those without keys for
 * those that may be there already.
 */
export async function storeApart(queues: WriteQueues, events: AcceptedEvents): Promise<Outcomes> {
  const { accepted, past, keyed } = events;
  if (past === 0 && keyed === 0) return await queues.commitBuffer.addAll(accepted);
  const newGroup = (): Group => ({ events: [], indexes: [] });
  const groups = { past: [newGroup(), newGroup()], now: [newGroup(), newGroup()] } as const;
  for (const [index, event] of accepted.entries()) {
    const group = groups[index < past ? 'past' : 'now'][isKeyed(event) ? 1 : 0];
    group?.events.push(event);
    group?.indexes.push(index);
  }
  const outcomes = new Array<WriteOutcome>(accepted.length);
  const add = async (buffer: EventBuffer, group: Group): Promise<void> => {
    const stored = await buffer.addAll(group.events);
    for (const [at, index] of group.indexes.entries()) {
      const outcome = stored[at];
      if (outcome === undefined) throw new Error('Events were stored without an outcome for each of them.');
      outcomes[index] = outcome;
    }
  };
  await Promise.all([
    ...groups.past.map((group) => add(queues.past.commitBuffer, group)),
    ...groups.now.map((group) => add(queues.commitBuffer, group)),
  ]);
  return outcomes;
}

/** Stores the events of a request in one commit, which waits until each of their days takes events. @param past as above */
export async function storeTogether(
  { idempotentQueue, past: pastQueues }: WriteQueues,
  request: IdempotentRequest,
  past: number,
): Promise<Answer | Rejection> {
  if (past === 0) return await idempotentQueue.add(request);
  for (const { createdAt } of request.events) {
    const refusal = pastQueues.refusalOf(createdAt);
    if (refusal?.isRetryable) return refusal;
  }
  return await pastQueues.idempotentQueue.add(request);
}
