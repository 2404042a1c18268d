/** Group commit of requests that are stored as a whole: with an Idempotency-Key, and atomic batches. */

import { type Amount, Room, type RoomLimits } from '../../base/room.ts';
import { type Path, Turns } from '../../base/turns.ts';
import { Rejection } from '../../errors.ts';
import type { Answer } from '../../http/exchange.ts';
import { UNAVAILABLE } from '../../storage/write/failures.ts';
import type { IdempotentOutcome, IdempotentRequest } from '../../storage/write/idempotent-writer.ts';
import { repeated } from '../idempotency-store.ts';
import { amountOf, CLOSED, type CommitBufferOptions, FULL } from './commit-buffer.ts';

/**
 * What waits apart, each with a connection and the whole room: single events do not wait for batches, and neither of them for
 * requests with events of past days, which may be locked.
 */
export const LANES = ['event', 'batch', 'past'] as const;
export type Lane = (typeof LANES)[number];

/** Stores requests of a lane, of which no two have the same key. Never rejects. */
export type WriteRequests = (
  requests: readonly IdempotentRequest[],
  lane: Lane,
) => Promise<readonly IdempotentOutcome[]>;

/** As those of the commit buffer. The limits are of what waits, or is being committed, in a lane. */
export interface IdempotentQueueOptions
  extends Pick<CommitBufferOptions, 'onStored' | 'holderOf' | 'maxEvents' | 'maxBytes'> {
  /** One call at a time in each lane. */
  readonly write: WriteRequests;
}

/** Limit of events in one commit: beyond it no further request joins. */
const MAX_EVENTS_TOGETHER = 1_000;

interface Entry {
  readonly request: IdempotentRequest;
  /** App and key; null without a key. */
  readonly name: string | null;
  readonly amount: Amount;
  readonly resolve: (outcome: Answer | Rejection) => void;
}

/** The requests of a lane. */
class Waiting {
  readonly room: Room;
  entries: Entry[] = [];
  isBusy = false;

  constructor(limits: RoomLimits) {
    this.room = new Room(limits);
  }
}

/**
 * One commit of a lane at a time. Of two requests with the same key the second waits for the next commit, where it finds the
 * response of the first; the database does the same for requests of other lanes and processes.
 */
export class IdempotentQueue {
  readonly #options: IdempotentQueueOptions;
  readonly #lanes: Readonly<Record<Lane, Waiting>>;
  #stored = 0;
  #repeated = 0;
  #closed = false;
  #onDrained: (() => void) | null = null;

  constructor(options: IdempotentQueueOptions) {
    this.#options = options;
    this.#lanes = { event: new Waiting(options), batch: new Waiting(options), past: new Waiting(options) };
  }

  /** Events that wait or are being committed. */
  get depth(): number {
    return LANES.reduce((sum, lane) => sum + this.#lanes[lane].room.events, 0);
  }

  /** Stored events, each counted once however often its request is repeated. */
  get stored(): number {
    return this.#stored;
  }

  /** Events whose own keys were stored before. */
  get repeated(): number {
    return this.#repeated;
  }

  /** Resolves with the response once the events are durable, or with the reason why they are not. */
  add(request: IdempotentRequest, lane: Lane): Promise<Answer | Rejection> {
    if (this.#closed) return Promise.resolve(CLOSED);
    const waiting = this.#lanes[lane];
    const amount = amountOf(request.events);
    if (!waiting.room.fits(amount)) return Promise.resolve(FULL);
    waiting.room.take(amount);
    return new Promise((resolve) => {
      const { appId, identity } = request;
      const name = identity && `${appId} ${identity.keyDigest.toString('latin1')}`;
      waiting.entries.push({ request, name, amount, resolve });
      // Requests that arrive in one turn of the event loop share a commit.
      if (!waiting.isBusy && waiting.entries.length === 1) setImmediate(() => this.#flush(lane));
    });
  }

  /** Refuses new requests and waits until none is left. */
  async drain(): Promise<void> {
    this.#closed = true;
    if (this.depth === 0) return;
    await new Promise<void>((resolve) => {
      this.#onDrained = resolve;
    });
  }

  #flush(lane: Lane): void {
    const waiting = this.#lanes[lane];
    if (!waiting.isBusy && waiting.entries.length > 0) void this.#commit(lane, this.#take(waiting));
  }

  #take(waiting: Waiting): readonly Entry[] {
    const names = new Set<string>();
    const taken: Entry[] = [];
    const left: Entry[] = [];
    let events = 0;
    for (const entry of inTurns(waiting.entries, this.#options.holderOf)) {
      const fits = events === 0 || events + entry.request.events.length <= MAX_EVENTS_TOGETHER;
      if (!fits || (entry.name !== null && names.has(entry.name))) {
        left.push(entry);
      } else {
        taken.push(entry);
        events += entry.request.events.length;
      }
      // A later request with the key of one that is left must not overtake it.
      if (entry.name !== null) names.add(entry.name);
    }
    waiting.entries = left;
    return taken;
  }

  async #commit(lane: Lane, group: readonly Entry[]): Promise<void> {
    const waiting = this.#lanes[lane];
    waiting.isBusy = true;
    const requests = group.map(({ request }) => request);
    const outcomes = await this.#options.write(requests, lane);
    waiting.isBusy = false;
    for (const { amount } of group) waiting.room.giveBack(amount);
    this.#flush(lane);
    for (const [index, entry] of group.entries()) {
      const outcome = outcomes[index];
      if (outcome === undefined)
        throw new Error('Idempotent requests were written without an outcome for each.');
      entry.resolve(this.#answer(entry.request, outcome));
    }
    if (this.depth === 0) this.#onDrained?.();
  }

  #answer({ identity }: IdempotentRequest, outcome: IdempotentOutcome): Answer | Rejection {
    if (outcome instanceof Rejection) return outcome;
    // Without an Idempotency-Key none can be known.
    if ('known' in outcome) return identity === null ? UNAVAILABLE : repeated(outcome.known, identity);
    this.#stored += outcome.stored.length;
    this.#repeated += outcome.repeated;
    const { onStored } = this.#options;
    if (onStored !== undefined) for (const event of outcome.stored) onStored(event);
    return outcome.answer;
  }
}

/** Requests in rounds, so that an account with many of them delays no other. */
function inTurns(entries: readonly Entry[], holderOf: (appId: number) => Path): readonly Entry[] {
  const first = entries[0]?.request.appId;
  if (entries.every(({ request }) => request.appId === first)) return entries;
  const turns = new Turns<Entry>();
  for (const entry of entries) turns.push(holderOf(entry.request.appId), entry);
  const ordered: Entry[] = [];
  for (let entry = turns.take(); entry !== null; entry = turns.take()) ordered.push(entry);
  return ordered;
}
