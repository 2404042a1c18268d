/** Group commit: while some batches are being committed, the next one gathers. */
import { Rejection } from '../http/rejection.ts';

/** One accepted event on its way into the table. */
export interface AcceptedEvent {
  readonly id: string;
  readonly appId: number;
  readonly typeId: number;
  /** Milliseconds since the epoch. */
  readonly createdAt: number;
  /** The payload's JSON text. */
  readonly payload: string;
}

/**
 * Commits a batch. Never rejects.
 * @returns for each event, in order: null once it is durable, or why it is not
 */
export type WriteBatch = (batch: readonly AcceptedEvent[]) => Promise<readonly (Rejection | null)[]>;

export interface CommitBufferOptions {
  readonly write: WriteBatch;
  /** Batches that may be in flight at once: one per writing connection. */
  readonly lanes: number;
  /** Events that may wait or be in flight; beyond it events are refused. */
  readonly maxEvents: number;
  /**
   * Milliseconds without the end of any batch, while every lane is busy, after which what waits is refused: it is not
   * sent yet, so that can be said for certain. Without it events wait as long as the batches before them take.
   */
  readonly stall?: { readonly afterMs: number; readonly now: () => number };
}

/** Most events and payload characters of one batch: beyond this a larger batch costs latency and gains nothing. */
const MAX_BATCH_EVENTS = 4_000;
const MAX_BATCH_CHARACTERS = 2 * 1_048_576;

/** How often a buffer whose lanes are all busy looks whether they move. */
const STALL_CHECK_MS = 100;

interface Entry {
  readonly event: AcceptedEvent;
  readonly resolve: (outcome: Rejection | null) => void;
}

const FULL = new Rejection('unavailable', 'Too many events wait for their commit; try again shortly.');
const STALLED = new Rejection('unavailable', 'The database does not answer; try again shortly.');
const CLOSED = new Rejection('unavailable', 'The service is stopping; try again shortly.');

/**
 * An idle service commits an event at once, so its latency is one commit; under load a batch is whatever has arrived
 * while the batches before it were in flight, so throughput grows with load. There is no timer to tune.
 */
export class CommitBuffer {
  readonly #options: CommitBufferOptions;
  #waiting: Entry[] = [];
  #busyLanes = 0;
  #held = 0;
  #scheduled = false;
  #closed = false;
  #onDrained: (() => void) | null = null;
  /** When a lane was last taken or given back. */
  #movedAt = 0;
  #stallCheck: NodeJS.Timeout | null = null;

  constructor(options: CommitBufferOptions) {
    this.#options = options;
  }

  /** Events that wait or are in flight. */
  get depth(): number {
    return this.#held;
  }

  /** Resolves with null once the event is durable, or with the reason why it is not. */
  add(event: AcceptedEvent): Promise<Rejection | null> {
    if (this.#closed) return Promise.resolve(CLOSED);
    if (this.#held >= this.#options.maxEvents) return Promise.resolve(FULL);
    this.#held += 1;
    return new Promise((resolve) => {
      this.#waiting.push({ event, resolve });
      this.#schedule();
    });
  }

  /** Takes no more events and waits until none is left. */
  async drain(): Promise<void> {
    this.#closed = true;
    if (this.#held === 0) return;
    await new Promise<void>((resolve) => {
      this.#onDrained = resolve;
    });
  }

  /** What arrives in one turn of the event loop goes out together. */
  #schedule(): void {
    if (this.#busyLanes >= this.#options.lanes) this.#watch();
    if (this.#scheduled || this.#busyLanes >= this.#options.lanes) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    while (this.#waiting.length > 0 && this.#busyLanes < this.#options.lanes)
      void this.#commit(this.#takeBatch());
  }

  #watch(): void {
    const { stall, lanes } = this.#options;
    if (stall === undefined || this.#stallCheck !== null) return;
    this.#stallCheck = setInterval(() => {
      if (this.#busyLanes < lanes) this.#unwatch();
      else if (stall.now() - this.#movedAt >= stall.afterMs) this.#refuseWaiting();
    }, STALL_CHECK_MS);
    this.#stallCheck.unref();
  }

  #unwatch(): void {
    if (this.#stallCheck !== null) clearInterval(this.#stallCheck);
    this.#stallCheck = null;
  }

  #refuseWaiting(): void {
    const refused = this.#waiting;
    this.#waiting = [];
    this.#held -= refused.length;
    for (const entry of refused) entry.resolve(STALLED);
  }

  #takeBatch(): readonly Entry[] {
    const waiting = this.#waiting;
    let events = 0;
    for (let characters = 0; events < waiting.length && events < MAX_BATCH_EVENTS; events += 1) {
      characters += waiting[events]?.event.payload.length ?? 0;
      if (events > 0 && characters > MAX_BATCH_CHARACTERS) break;
    }
    this.#waiting = events === waiting.length ? [] : waiting.slice(events);
    return events === waiting.length ? waiting : waiting.slice(0, events);
  }

  async #commit(batch: readonly Entry[]): Promise<void> {
    this.#busyLanes += 1;
    this.#movedAt = this.#options.stall?.now() ?? 0;
    const outcomes = await this.#options.write(batch.map((entry) => entry.event));
    this.#busyLanes -= 1;
    this.#movedAt = this.#options.stall?.now() ?? 0;
    this.#held -= batch.length;
    // The next batch goes out before this one's answers are written: the database works while they are.
    this.#flush();
    for (const [index, entry] of batch.entries()) entry.resolve(outcomeOf(outcomes, index));
    if (this.#held === 0) this.#unwatch();
    if (this.#held === 0) this.#onDrained?.();
  }
}

/** Only null is an acknowledgement: an outcome that is missing must never pass for one. */
function outcomeOf(outcomes: readonly (Rejection | null)[], index: number): Rejection | null {
  const outcome = outcomes[index];
  if (outcome === undefined)
    throw new Error('A batch was written without an outcome for each of its events.');
  return outcome;
}
