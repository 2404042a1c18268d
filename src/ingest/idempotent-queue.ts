/** Group commit of requests that are stored as a whole: with an Idempotency-Key, and atomic batches. */

import { type Amount, Room } from '../base/room.ts';
import { type Path, Turns } from '../base/turns.ts';
import { Rejection } from '../errors.ts';
import type { Answer } from '../http/exchange.ts';
import type { AcceptedEvent } from '../storage/write/accepted-event.ts';
import { UNAVAILABLE } from '../storage/write/failures.ts';
import type { IdempotentOutcome, IdempotentRequest } from '../storage/write/idempotent-writer.ts';
import { amountOf, CLOSED, FULL } from './commit-buffer.ts';
import { repeated } from './idempotency-store.ts';

export interface IdempotentQueueOptions {
  /** Called with each event that is acknowledged, once. */
  readonly onStored?: (event: AcceptedEvent) => void;
  /** Stores requests of which no two have the same key. Never rejects. */
  readonly write: (requests: readonly IdempotentRequest[]) => Promise<readonly IdempotentOutcome[]>;
  /** Whose turns an app's requests take: its account's, then its own. */
  readonly holderOf: (appId: number) => Path;
  /** Limit of events that wait or are being committed; beyond it requests are refused. */
  readonly maxEvents: number;
  /** The same for the memory of their payloads, as in the commit buffer. */
  readonly maxBytes: number;
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

/**
 * One commit at a time. Of two requests with the same key the second waits for the next commit, where it finds the response
 * of the first; the database does the same for requests of other processes.
 */
export class IdempotentQueue {
  readonly #options: IdempotentQueueOptions;
  #waiting: Entry[] = [];
  #busy = false;
  readonly #room: Room;
  #stored = 0;
  #repeated = 0;
  #closed = false;
  #onDrained: (() => void) | null = null;

  constructor(options: IdempotentQueueOptions) {
    this.#options = options;
    this.#room = new Room(options);
  }

  /** Events that wait or are being committed. */
  get depth(): number {
    return this.#room.events;
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
  add(request: IdempotentRequest): Promise<Answer | Rejection> {
    if (this.#closed) return Promise.resolve(CLOSED);
    const amount = amountOf(request.events);
    if (!this.#room.fits(amount)) return Promise.resolve(FULL);
    this.#room.take(amount);
    return new Promise((resolve) => {
      const { appId, identity } = request;
      const name = identity && `${appId} ${identity.keyDigest.toString('latin1')}`;
      this.#waiting.push({ request, name, amount, resolve });
      // Requests that arrive in one turn of the event loop share a commit.
      if (!this.#busy && this.#waiting.length === 1) setImmediate(() => this.#flush());
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

  #flush(): void {
    if (!this.#busy && this.#waiting.length > 0) void this.#commit(this.#take());
  }

  #take(): readonly Entry[] {
    const names = new Set<string>();
    const taken: Entry[] = [];
    const left: Entry[] = [];
    let events = 0;
    for (const entry of inTurns(this.#waiting, this.#options.holderOf)) {
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
    this.#waiting = left;
    return taken;
  }

  async #commit(batch: readonly Entry[]): Promise<void> {
    this.#busy = true;
    const outcomes = await this.#options.write(batch.map(({ request }) => request));
    this.#busy = false;
    for (const { amount } of batch) this.#room.giveBack(amount);
    this.#flush();
    for (const [index, entry] of batch.entries()) {
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
