/** Group commit: while some batches are being committed, the next one gathers. */
import { Rejection } from '../errors.ts';
import { type AcceptedEvent, dayOf } from '../storage/write/accepted-event.ts';
import { AppTurns } from './app-turns.ts';

/**
 * Commits a batch. Never rejects.
 * @returns for each event, in order: null once it is durable, or why it is not
 */
export type WriteBatch = (batch: readonly AcceptedEvent[]) => Promise<readonly (Rejection | null)[]>;

export interface CommitBufferOptions {
  /** Called with each event that is acknowledged. */
  readonly onStored?: (event: AcceptedEvent) => void;
  readonly write: WriteBatch;
  /** Batches that may be in flight at once: one per writing connection. */
  readonly lanes: number;
  /**
   * Events that may wait or be in flight; beyond it events are refused. Those that come alone and those that come by the
   * thousand count apart: neither may take the others' room.
   */
  readonly maxEvents: number;
  /** The same for the memory of their payloads, each character counted as two bytes. */
  readonly maxBytes: number;
  /**
   * Milliseconds without the end of any batch after which what waits is refused: it is not sent yet, so that can be said
   * for certain. Without it events wait as long as the batches before them take.
   */
  readonly stall?: {
    readonly afterMs: number;
    readonly now: () => number;
    /** Whether the database may be gone: a commit that only takes long is no reason. */
    readonly isSuspect: () => boolean;
  };
}

/** Most events and payload characters of one batch: beyond this a larger batch costs latency and gains nothing. */
const MAX_GROUP_EVENTS = 4_000;
const MAX_GROUP_CHARACTERS = 2 * 1_048_576;
/**
 * Most changes of the day from one event of a batch to the next: each partition costs locks until the commit, of which
 * PostgreSQL has some 7,000 by default for everybody together.
 */
export const MAX_GROUP_DAYS = 100;
/** Events of one app in a batch before it is the turn of the next app that waits. */
const EVENTS_OF_A_TURN = 1_000;
/** After this many commits of bulk without an event that came alone, nobody seems to need the lane that is kept free. */
const QUIET_COMMITS = 6;

/** How often a buffer whose lanes are all busy looks whether they move. */
const STALL_CHECK_MS = 100;

/** Events that came together, or those of them that are written together. */
interface Part {
  readonly events: readonly AcceptedEvent[];
  readonly resolve: (outcome: Rejection | null, index: number) => void;
  /** Place of the first one among those that came together. */
  readonly start: number;
  /** False once some of those that came together were taken out. */
  readonly isWhole: boolean;
}

/** How much waits or is in flight, against the ceilings. */
class Holdings {
  /** Events, and what their payloads may take of memory. */
  events = 0;
  bytes = 0;

  fits(events: number, bytes: number, { maxEvents, maxBytes }: CommitBufferOptions): boolean {
    if (this.events + events > maxEvents) return false;
    // What is too large for the ceiling by itself waits alone.
    return this.events === 0 || this.bytes + bytes <= maxBytes;
  }

  add(events: number, bytes: number): void {
    this.events += events;
    this.bytes += bytes;
  }

  release(parts: readonly Part[]): void {
    for (const { events } of parts) {
      this.events -= events.length;
      for (const event of events) this.bytes -= payloadBytes(event);
    }
  }
}

/** Events that came alone and wait, in order of arrival. */
class SingleQueue {
  readonly held = new Holdings();
  #parts: Part[] = [];

  get isEmpty(): boolean {
    return this.#parts.length === 0;
  }

  /** Counts events in, or says why they cannot wait here. */
  admit(events: number, bytes: number, options: CommitBufferOptions): Rejection | null {
    if (!this.held.fits(events, bytes, options)) return FULL;
    this.held.add(events, bytes);
    return null;
  }

  push(part: Part): void {
    this.#parts.push(part);
  }

  /** Takes out what goes into the table together. */
  take(): readonly Part[] {
    const waiting = this.#parts;
    const room = new Room();
    for (const [index, part] of waiting.entries()) {
      const fitting = room.take(part.events, MAX_GROUP_EVENTS);
      if (fitting === part.events.length) continue;
      const [first, rest] = split(part, fitting);
      this.#parts = waiting.slice(index);
      this.#parts[0] = rest;
      const taken = waiting.slice(0, index);
      if (fitting > 0) taken.push(first);
      return taken;
    }
    this.#parts = [];
    return waiting;
  }

  release(parts: readonly Part[]): void {
    this.held.release(parts);
  }

  /** Takes out all that waits; what is in flight stays. */
  drain(): readonly Part[] {
    const parts = this.#parts;
    this.#parts = [];
    this.release(parts);
    return parts;
  }
}

/** Events of batches, which wait by app: the apps take turns, and none takes the room of all others. */
class BulkQueue {
  readonly held = new Holdings();
  readonly #turns = new AppTurns<Part>();
  /** Of each app, its events that wait or are in flight. */
  readonly #ofApp = new Map<number, number>();

  get isEmpty(): boolean {
    return this.#turns.apps === 0;
  }

  /**
   * Counts the events of an app in, or says why they cannot wait here. Where there is no room, what came last of the app
   * that has most of it makes room for an app that would still have less.
   */
  admit(appId: number, events: number, bytes: number, options: CommitBufferOptions): Rejection | null {
    while (!this.held.fits(events, bytes, options)) {
      const evicted = this.#evict(appId, events);
      if (evicted === null) return FULL;
      refuse(evicted, FULL);
    }
    this.held.add(events, bytes);
    this.#ofApp.set(appId, (this.#ofApp.get(appId) ?? 0) + events);
    return null;
  }

  push(part: Part): void {
    this.#turns.push(appOf(part), part);
  }

  /** Takes out what goes into the table together: where several apps wait, a share of each in turns. */
  take(): readonly Part[] {
    const taken: Part[] = [];
    const room = new Room();
    for (;;) {
      const isAlone = this.#turns.apps <= 1;
      const part = this.#turns.take();
      if (part === null) return taken;
      const fitting = room.take(part.events, isAlone ? MAX_GROUP_EVENTS : EVENTS_OF_A_TURN);
      const [first, rest] = split(part, fitting);
      if (fitting > 0) taken.push(first);
      if (rest.events.length === 0) continue;
      this.#turns.putBack(appOf(rest), rest, fitting === 0);
      if (fitting < EVENTS_OF_A_TURN || isAlone) return taken;
    }
  }

  release(parts: readonly Part[]): void {
    this.held.release(parts);
    for (const part of parts) {
      const appId = appOf(part);
      const left = (this.#ofApp.get(appId) ?? 0) - part.events.length;
      if (left > 0) this.#ofApp.set(appId, left);
      else this.#ofApp.delete(appId);
    }
  }

  /** Takes out all that waits; what is in flight stays. */
  drain(): readonly Part[] {
    const parts = this.#turns.drain();
    this.release(parts);
    return parts;
  }

  /** Takes out a batch of which nothing was written yet, of the app with most events, for one that has less. */
  #evict(appId: number, events: number): Part | null {
    const wanted = (this.#ofApp.get(appId) ?? 0) + events;
    let heaviest: readonly [number, number] = [appId, wanted];
    for (const entry of this.#ofApp) if (entry[1] > heaviest[1]) heaviest = entry;
    const [heaviestApp, most] = heaviest;
    if (heaviestApp === appId) return null;
    const last = this.#turns.popLast(
      heaviestApp,
      (part) => part.isWhole && most - part.events.length >= wanted,
    );
    if (last !== null) this.release([last]);
    return last;
  }
}

/** All events of a part are of one app. */
function appOf({ events }: Part): number {
  return events[0]?.appId ?? 0;
}

function split(part: Part, at: number): readonly [Part, Part] {
  if (at === part.events.length) return [part, { ...part, events: [], isWhole: false }];
  const { events, resolve, start } = part;
  return [
    { events: events.slice(0, at), resolve, start, isWhole: false },
    { events: events.slice(at), resolve, start: start + at, isWhole: part.isWhole && at === 0 },
  ];
}

function refuse({ events, resolve, start }: Part, refusal: Rejection): void {
  for (let index = 0; index < events.length; index += 1) resolve(refusal, start + index);
}

/** What still fits into a batch. */
class Room {
  #events = 0;
  #characters = 0;
  #days = 0;
  #day = Number.NaN;

  /** Counts events in, from the first one on, and says how many fit. @param most of them */
  take(events: readonly AcceptedEvent[], most: number): number {
    let fitting = 0;
    for (const event of events) {
      if (fitting === most || !this.#takes(event)) break;
      fitting += 1;
    }
    return fitting;
  }

  /** Counts the next event in, unless it does not fit. */
  #takes({ payload, createdAt }: AcceptedEvent): boolean {
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

/** What a payload may take of memory: V8 keeps text as one or two bytes a character. */
export function payloadBytes(event: AcceptedEvent): number {
  return 2 * event.payload.length;
}

/**
 * An idle service commits an event at once, so its latency is one commit; under load a batch is whatever has arrived
 * while the batches before it were in flight, so throughput grows with load. There is no timer to tune.
 *
 * Events that come by the thousand in one request wait in a queue of their own and leave one lane free for those that
 * come alone, unless none of these has come for a while; where there is one lane, the two queues take turns.
 */
export class CommitBuffer {
  readonly #options: CommitBufferOptions;
  readonly #single = new SingleQueue();
  readonly #bulk = new BulkQueue();
  #busyLanes = 0;
  #busyWithBulk = 0;
  /** Commits of bulk since the last event that came alone. */
  #bulkInARow = 0;
  #stored = 0;
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
    return this.#single.held.events + this.#bulk.held.events;
  }

  /** Events that were acknowledged. */
  get stored(): number {
    return this.#stored;
  }

  /** Resolves with null once the event is durable, or with the reason why it is not. */
  add(event: AcceptedEvent): Promise<Rejection | null> {
    if (this.#closed) return Promise.resolve(CLOSED);
    const refusal = this.#single.admit(1, payloadBytes(event), this.#options);
    if (refusal !== null) return Promise.resolve(refusal);
    return new Promise((resolve) => {
      this.#single.push({ events: [event], resolve, start: 0, isWhole: true });
      this.#schedule();
    });
  }

  /**
   * Adds many events of one app, or none of them where there is not room for all. They are committed in pieces, in their
   * order: events of the same day should stand together.
   * @returns for each event, in order: null once it is durable, or why it is not
   */
  addAll(events: readonly AcceptedEvent[]): Promise<readonly (Rejection | null)[]> {
    const [first] = events;
    if (first === undefined) return Promise.resolve([]);
    const bytes = events.reduce((sum, event) => sum + payloadBytes(event), 0);
    const refusal = this.#closed
      ? CLOSED
      : this.#bulk.admit(first.appId, events.length, bytes, this.#options);
    if (refusal !== null) return Promise.resolve(events.map(() => refusal));
    return new Promise((resolve) => {
      const outcomes: (Rejection | null)[] = [];
      let waiting = events.length;
      // One function for all: ten thousand of them would be a burden of their own.
      const settle = (outcome: Rejection | null, index: number): void => {
        outcomes[index] = outcome;
        waiting -= 1;
        if (waiting === 0) resolve(outcomes);
      };
      this.#bulk.push({ events, resolve: settle, start: 0, isWhole: true });
      this.#schedule();
    });
  }

  /** Takes no more events and waits until none is left. */
  async drain(): Promise<void> {
    this.#closed = true;
    if (this.depth === 0) return;
    await new Promise<void>((resolve) => {
      this.#onDrained = resolve;
    });
  }

  /** What arrives in one turn of the event loop goes out together. */
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
    for (const queue of [this.#single, this.#bulk]) for (const part of queue.drain()) refuse(part, STALLED);
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
    // The next batch goes out before this one's answers are written: the database works while they are.
    this.#flush();
    const { onStored } = this.#options;
    let at = 0;
    for (const { events, resolve, start } of parts) {
      for (const [index, event] of events.entries()) {
        const outcome = outcomeOf(outcomes, at);
        if (outcome === null) {
          this.#stored += 1;
          onStored?.(event);
        }
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
    throw new Error('A batch was written without an outcome for each of its events.');
  return outcome;
}
