/** Group commit: events that arrive while commit groups are being written form the next group. */
import { Rejection } from '../errors.ts';
import { type AcceptedEvent, dayOf } from '../storage/write/accepted-event.ts';

/**
 * Writes a commit group. Never rejects.
 * @returns for each event, in order: null once it is durable, or why it is not
 */
export type WriteBatch = (batch: readonly AcceptedEvent[]) => Promise<readonly (Rejection | null)[]>;

export interface CommitBufferOptions {
  readonly write: WriteBatch;
  /** Limit of concurrent commits: the number of writing connections. */
  readonly lanes: number;
  /**
   * Limit of events that wait or are being committed; beyond it events are refused. Single events and events of batches are
   * counted separately, each with this limit.
   */
  readonly maxEvents: number;
  /** Limit of the memory of their payloads, counting two bytes per character. */
  readonly maxBytes: number;
  /**
   * Timeout in milliseconds without the end of a commit, after which waiting events are refused: they are not sent yet, so
   * they are certainly not stored. Without it events wait as long as the commits before them take.
   */
  readonly stall?: {
    readonly afterMs: number;
    readonly now: () => number;
    /** Whether the database may be unreachable: a slow commit alone is not a reason to refuse. */
    readonly isSuspect: () => boolean;
  };
}

/** Limits of a commit group in events and payload characters: a larger one adds latency and no throughput. */
const MAX_GROUP_EVENTS = 4_000;
const MAX_GROUP_CHARACTERS = 2 * 1_048_576;
/**
 * Limit of days in a commit group, counted as changes of the day between successive events: each partition needs locks until
 * the commit, and PostgreSQL's shared lock table has some 7,000 by default.
 */
export const MAX_GROUP_DAYS = 100;
/** After this many commits of batches without a single event, the lane for single events is used for batches too. */
const QUIET_COMMITS = 6;

/** Interval of the check for stalled commits. */
const STALL_CHECK_MS = 100;

/** Events of one request, or those of them that are in one commit group. */
interface Part {
  readonly events: readonly AcceptedEvent[];
  readonly resolve: (outcome: Rejection | null, index: number) => void;
  /** Index of the first one in the request. */
  readonly start: number;
}

/** Waiting events, in order of arrival. */
class Queue {
  /** Events that wait or are being committed, and the memory of their payloads. */
  held = 0;
  heldBytes = 0;
  #parts: Part[] = [];

  get isEmpty(): boolean {
    return this.#parts.length === 0;
  }

  /** Counts events. @returns the refusal if a limit is reached */
  admit(events: number, bytes: number, { maxEvents, maxBytes }: CommitBufferOptions): Rejection | null {
    if (this.held + events > maxEvents) return FULL;
    // A request that exceeds the limit by itself is accepted if nothing else waits.
    if (this.held > 0 && this.heldBytes + bytes > maxBytes) return FULL;
    this.held += events;
    this.heldBytes += bytes;
    return null;
  }

  release(parts: readonly Part[]): void {
    for (const { events } of parts) {
      this.held -= events.length;
      for (const event of events) this.heldBytes -= payloadBytes(event);
    }
  }

  push(part: Part): void {
    this.#parts.push(part);
  }

  /** Removes and returns the events of the next commit group. */
  take(): readonly Part[] {
    const waiting = this.#parts;
    const size = new GroupSize();
    for (const [index, part] of waiting.entries()) {
      const { events, resolve, start } = part;
      let fitting = 0;
      for (const event of events) {
        if (!size.add(event)) break;
        fitting += 1;
      }
      if (fitting === events.length) continue;
      this.#parts = waiting.slice(index);
      this.#parts[0] = { events: events.slice(fitting), resolve, start: start + fitting };
      const taken = waiting.slice(0, index);
      if (fitting > 0) taken.push({ events: events.slice(0, fitting), resolve, start });
      return taken;
    }
    this.#parts = [];
    return waiting;
  }

  /** Refuses waiting events, not those that are being committed. */
  refuse(refusal: Rejection): void {
    const refused = this.#parts;
    this.#parts = [];
    this.release(refused);
    for (const { events, resolve, start } of refused)
      for (let index = 0; index < events.length; index += 1) resolve(refusal, start + index);
  }
}

/** The size of a commit group. */
class GroupSize {
  #events = 0;
  #characters = 0;
  #days = 0;
  #day = Number.NaN;

  /** Counts the next event. @returns false if it does not fit */
  add({ payload, createdAt }: AcceptedEvent): boolean {
    if (this.#events === MAX_GROUP_EVENTS) return false;
    this.#characters += payload.length;
    const day = dayOf(createdAt);
    if (day !== this.#day) this.#days += 1;
    this.#day = day;
    if (this.#events > 0 && (this.#characters > MAX_GROUP_CHARACTERS || this.#days > MAX_GROUP_DAYS))
      return false;
    this.#events += 1;
    return true;
  }
}

export const FULL = new Rejection('unavailable', 'Too many events wait for their commit; try again shortly.');
export const CLOSED = new Rejection('unavailable', 'The service is stopping; try again shortly.');
const STALLED = new Rejection('unavailable', 'The database does not answer; try again shortly.');

/** Upper bound of a payload's memory: V8 stores text with one or two bytes per character. */
export function payloadBytes(event: AcceptedEvent): number {
  return 2 * event.payload.length;
}

/**
 * An idle service commits an event at once, so its latency is one commit. Under load a group has the events that arrived
 * during the commits before it, so throughput grows with load. There is no timer to tune.
 *
 * Events of batches wait in a queue of their own and leave one lane free for single events, unless there was none for a
 * while. With only one lane, the two queues take turns.
 */
export class CommitBuffer {
  readonly #options: CommitBufferOptions;
  readonly #single = new Queue();
  readonly #bulk = new Queue();
  #busyLanes = 0;
  #busyWithBulk = 0;
  /** Commits of batches since the last single event. */
  #bulkInARow = 0;
  #stored = 0;
  #scheduled = false;
  #closed = false;
  #onDrained: (() => void) | null = null;
  /** When a commit last began or ended. */
  #movedAt = 0;
  #stallCheck: NodeJS.Timeout | null = null;

  constructor(options: CommitBufferOptions) {
    this.#options = options;
  }

  /** Events that wait or are being committed. */
  get depth(): number {
    return this.#single.held + this.#bulk.held;
  }

  /** Events that were acknowledged. */
  get stored(): number {
    return this.#stored;
  }

  /** Resolves with null once the event is durable, or with the reason why it is not. */
  add(event: AcceptedEvent): Promise<Rejection | null> {
    const refusal = this.#admit(this.#single, 1, payloadBytes(event));
    if (refusal !== null) return Promise.resolve(refusal);
    return new Promise((resolve) => {
      this.#single.push({ events: [event], resolve, start: 0 });
      this.#schedule();
    });
  }

  /**
   * Adds many events, or none of them if not all fit. They are committed in order and in several groups, so events of the
   * same day should be adjacent.
   * @returns for each event, in order: null once it is durable, or why it is not
   */
  addAll(events: readonly AcceptedEvent[]): Promise<readonly (Rejection | null)[]> {
    if (events.length === 0) return Promise.resolve([]);
    const bytes = events.reduce((sum, event) => sum + payloadBytes(event), 0);
    const refusal = this.#admit(this.#bulk, events.length, bytes);
    if (refusal !== null) return Promise.resolve(events.map(() => refusal));
    return new Promise((resolve) => {
      const outcomes: (Rejection | null)[] = [];
      let waiting = events.length;
      // One function for all events, because one per event would cost memory.
      const settle = (outcome: Rejection | null, index: number): void => {
        outcomes[index] = outcome;
        waiting -= 1;
        if (waiting === 0) resolve(outcomes);
      };
      this.#bulk.push({ events, resolve: settle, start: 0 });
      this.#schedule();
    });
  }

  #admit(queue: Queue, events: number, bytes: number): Rejection | null {
    return this.#closed ? CLOSED : queue.admit(events, bytes, this.#options);
  }

  /** Refuses new events and waits until none is left. */
  async drain(): Promise<void> {
    this.#closed = true;
    if (this.depth === 0) return;
    await new Promise<void>((resolve) => {
      this.#onDrained = resolve;
    });
  }

  /** Events that arrive in one turn of the event loop share a group. */
  #schedule(): void {
    if (this.#busyLanes > 0) this.#watch();
    if (this.#scheduled || this.#busyLanes >= this.#options.lanes) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    while (this.#busyLanes < this.#options.lanes) {
      const isBulk = this.#isTurnOfBulk();
      const queue = isBulk ? this.#bulk : this.#single;
      if (queue.isEmpty) break;
      void this.#commit(queue.take(), isBulk);
    }
    if (!this.#single.isEmpty || !this.#bulk.isEmpty) this.#watch();
  }

  #watch(): void {
    const { stall } = this.#options;
    if (stall === undefined || this.#stallCheck !== null) return;
    this.#stallCheck = setInterval(() => {
      if (this.#single.isEmpty && this.#bulk.isEmpty) this.#unwatch();
      else if (stall.now() - this.#movedAt >= stall.afterMs && stall.isSuspect()) this.#refuseWaiting();
    }, STALL_CHECK_MS);
    this.#stallCheck.unref();
  }

  #unwatch(): void {
    if (this.#stallCheck !== null) clearInterval(this.#stallCheck);
    this.#stallCheck = null;
  }

  #refuseWaiting(): void {
    this.#single.refuse(STALLED);
    this.#bulk.refuse(STALLED);
  }

  #isTurnOfBulk(): boolean {
    if (this.#bulk.isEmpty) return false;
    const { lanes } = this.#options;
    if (lanes === 1) return this.#single.isEmpty || this.#bulkInARow === 0;
    const isQuiet = this.#single.isEmpty && this.#bulkInARow >= QUIET_COMMITS;
    return this.#busyWithBulk < (isQuiet ? lanes : lanes - 1);
  }

  async #commit(parts: readonly Part[], isBulk: boolean): Promise<void> {
    this.#bulkInARow = isBulk ? this.#bulkInARow + 1 : 0;
    if (isBulk) this.#busyWithBulk += 1;
    this.#busyLanes += 1;
    this.#movedAt = this.#options.stall?.now() ?? 0;
    const outcomes = await this.#options.write(eventsOf(parts));
    this.#busyLanes -= 1;
    this.#movedAt = this.#options.stall?.now() ?? 0;
    if (isBulk) this.#busyWithBulk -= 1;
    (isBulk ? this.#bulk : this.#single).release(parts);
    // Send the next group before the responses are written, so that the database works meanwhile.
    this.#flush();
    let at = 0;
    for (const { events, resolve, start } of parts) {
      for (let index = 0; index < events.length; index += 1) {
        const outcome = outcomeOf(outcomes, at);
        if (outcome === null) this.#stored += 1;
        resolve(outcome, start + index);
        at += 1;
      }
    }
    if (this.depth === 0) {
      this.#unwatch();
      this.#onDrained?.();
    }
  }
}

function eventsOf(parts: readonly Part[]): readonly AcceptedEvent[] {
  const [first] = parts;
  return parts.length === 1 && first !== undefined ? first.events : parts.flatMap(({ events }) => events);
}

/** Only null is an acknowledgement: an outcome that is missing must never pass for one. */
function outcomeOf(outcomes: readonly (Rejection | null)[], index: number): Rejection | null {
  const outcome = outcomes[index];
  if (outcome === undefined)
    throw new Error('A commit group was written without an outcome for each of its events.');
  return outcome;
}
