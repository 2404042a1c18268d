/** Group commit: while commit groups are being written, the next one gathers. */
import { type Amount, Room, type RoomLimits } from '../../base/room.ts';
import { type Path, Turns } from '../../base/turns.ts';
import { Rejection } from '../../errors.ts';
import { type AcceptedEvent, dayOf, isKeyed } from '../../storage/write/accepted-event.ts';
import type { CommitPhases, Outcomes, WriteOutcome } from '../../storage/write/event-writer.ts';

/**
 * Writes a commit group, of which all events have keys or none. Never rejects.
 * @returns the outcome of each event, in order
 */
export type WriteGroup = (group: readonly AcceptedEvent[]) => Promise<Outcomes>;

export interface CommitBufferOptions {
  /** Called with each acknowledged event. */
  readonly onStored?: (event: AcceptedEvent) => void;
  readonly write: WriteGroup;
  /** Whose turns an app's batches take: its account's, then its own. */
  readonly holderOf: (appId: number) => Path;
  /** Limit of commit groups in flight: one for each writing connection. */
  readonly connections: number;
  /**
   * Limit of events that wait or are in flight; beyond it events are refused. It applies to single events and to events of
   * batches separately: neither takes the room of the other.
   */
  readonly maxEvents: number;
  /** Limit of the memory of their payloads, at two bytes per character; it applies as that of events does. */
  readonly maxBytes: number;
  /**
   * Milliseconds without the end of any commit group after which waiting events are refused. They were not sent, so they
   * are certainly not stored. Without it, events wait as long as the groups before them take.
   */
  readonly stall?: {
    readonly afterMs: number;
    /** Milliseconds of a monotonic clock. */
    readonly now: () => number;
    /** Whether the database may be unavailable: a slow commit alone is no reason to refuse. */
    readonly isSuspect: () => boolean;
  };
  /** Where it is noted how long the first single event of a group waits, and how long the answers of a group take. */
  readonly phases?: CommitPhases;
}

/** Limits of events and payload characters of one commit group: a larger one costs latency and gains nothing. */
const MAX_GROUP_EVENTS = 4_000;
const MAX_GROUP_CHARACTERS = 2 * 1_048_576;
/**
 * Limit of changes of the day between neighboring events of a commit group: each partition costs locks until the commit,
 * and PostgreSQL has some 7,000 by default for all sessions.
 */
export const MAX_GROUP_DAYS = 100;
/** Events of one app in a commit group, and characters, before the next waiting account has its turn. */
const EVENTS_OF_A_TURN = 1_000;
const CHARACTERS_OF_A_TURN = 256 * 1_024;
/**
 * An event with a longer payload waits with those of batches: PostgreSQL takes up to 30 ms for a megabyte, and small events in
 * its commit group, or after it, would wait as long.
 */
export const LARGE_CHARACTERS = 16_384;
/** After this many bulk commits without a single event, the connection that is reserved for single events is used too. */
const QUIET_COMMITS = 6;

/** Interval of checks for a stall while events wait. */
const STALL_CHECK_MS = 100;

/** The waiting events of one request, or the rest of them after some were taken. */
interface Entry {
  /** Whose turns they take. */
  readonly holder: Path;
  readonly events: readonly AcceptedEvent[];
  readonly resolve: (outcome: WriteOutcome, index: number) => void;
  /** Index of the first one in the request. */
  readonly start: number;
  /** False once some events of the request were taken out. */
  readonly isWhole: boolean;
}

/** Single events take no turns. */
const NOBODY: Path = [];

/** Waiting single events, in order of arrival. */
class SingleQueue {
  readonly held: Room;
  #entries: Entry[] = [];

  constructor(limits: RoomLimits) {
    this.held = new Room(limits);
  }

  get isEmpty(): boolean {
    return this.#entries.length === 0;
  }

  /** Adds events to what is held, or returns why they cannot wait here. */
  admit(amount: Amount): Rejection | null {
    if (!this.held.fits(amount)) return FULL;
    this.held.take(amount);
    return null;
  }

  push(entry: Entry): void {
    this.#entries.push(entry);
  }

  /** Takes the events of the next commit group. */
  take(): readonly Entry[] {
    const waiting = this.#entries;
    const room = new GroupRoom();
    let taken = 0;
    for (const { events } of waiting) {
      // An entry has one event here, which fits or does not.
      if (room.take(events, MAX_GROUP_EVENTS) !== events.length) {
        this.#entries = waiting.slice(taken);
        return waiting.slice(0, taken);
      }
      taken += 1;
    }
    this.#entries = [];
    return waiting;
  }

  release(entries: readonly Entry[]): void {
    for (const { events } of entries) this.held.giveBack(amountOf(events));
  }

  /** Takes all waiting events; those in flight stay. */
  drain(): readonly Entry[] {
    const entries = this.#entries;
    this.#entries = [];
    this.release(entries);
    return entries;
  }
}

/**
 * Waiting events of batches: accounts take turns, then the apps of each, and none takes the room of all others. Events with keys
 * are written apart from those without, which cost less to write.
 */
class BulkQueue {
  /** What waits or is in flight, by account and by app. */
  readonly held: Room;
  readonly #limits: RoomLimits;
  readonly #turns = { plain: new Turns<Entry>(), keyed: new Turns<Entry>() } as const;
  /** Whether the last group had keys. */
  #tookKeyed = false;

  constructor(limits: RoomLimits) {
    this.#limits = limits;
    this.held = new Room(limits);
  }

  get isEmpty(): boolean {
    return this.#turns.plain.size === 0 && this.#turns.keyed.size === 0;
  }

  /**
   * Adds the events of an app to what is held, or returns why they cannot wait here. If there is no room, the newest request
   * of the account that holds most, and of its app that holds most, is refused in favor of one that would still hold less.
   */
  admit(holder: Path, amount: Amount): Rejection | null {
    if (amount.events > this.#limits.maxEvents) return FULL;
    while (!this.held.fits(amount)) {
      const evicted = this.#evict(holder, amount.events);
      if (evicted === null) return FULL;
      refuse(evicted, FULL);
    }
    this.held.take(amount, holder);
    return null;
  }

  push(entry: Entry): void {
    this.#turnsOf(entry).push(entry.holder, entry);
  }

  /** Takes the events of the next commit group: if several apps wait, a share of each in turns. */
  take(): readonly Entry[] {
    const taken: Entry[] = [];
    const room = new GroupRoom();
    const turns = this.#next();
    for (;;) {
      const isAlone = turns.holders <= 1;
      const entry = turns.take();
      if (entry === null) return taken;
      const fitting = isAlone
        ? room.take(entry.events, MAX_GROUP_EVENTS)
        : room.take(entry.events, EVENTS_OF_A_TURN, CHARACTERS_OF_A_TURN);
      const [first, rest] = split(entry, fitting);
      if (fitting > 0) taken.push(first);
      if (rest.events.length === 0) continue;
      turns.putBack(rest.holder, rest, fitting === 0);
      if (room.isFull || isAlone) return taken;
    }
  }

  release(entries: readonly Entry[]): void {
    for (const { holder, events } of entries) this.held.giveBack(amountOf(events), holder);
  }

  /** Takes all waiting events; those in flight stay. */
  drain(): readonly Entry[] {
    const entries = [...this.#turns.plain.drain(), ...this.#turns.keyed.drain()];
    this.release(entries);
    return entries;
  }

  /**
   * Takes out a request of which nothing was written yet, of the account with most events, for one that has less; within the
   * asking account, of its app with most events.
   */
  #evict([account = '', app = '']: Path, events: number): Entry | null {
    const wantedOfAccount = this.held.of([account]).events + events;
    const heaviest = this.held.heaviest([], 'events', account, wantedOfAccount);
    const isOwn = heaviest.name === account;
    const wanted = isOwn ? this.held.of([account, app]).events + events : wantedOfAccount;
    const heaviestApp = this.held.heaviest([heaviest.name], 'events', app, isOwn ? wanted : 0);
    // What is left without the request must still be as much as the asking one would hold.
    const held = isOwn ? heaviestApp.amount : heaviest.amount;
    const isEnough = (entry: Entry): boolean => entry.isWhole && held - entry.events.length >= wanted;
    const { plain, keyed } = this.#turns;
    const holder = [heaviest.name, heaviestApp.name];
    const last = plain.popLast(holder, isEnough) ?? keyed.popLast(holder, isEnough);
    if (last !== null) this.release([last]);
    return last;
  }

  /** The first event decides: all events of an entry have keys, or none. */
  #turnsOf({ events: [first] }: Entry): Turns<Entry> {
    return first !== undefined && isKeyed(first) ? this.#turns.keyed : this.#turns.plain;
  }

  /** If both wait, they take turns. */
  #next(): Turns<Entry> {
    const { plain, keyed } = this.#turns;
    this.#tookKeyed = keyed.size > 0 && (plain.size === 0 || !this.#tookKeyed);
    return this.#tookKeyed ? keyed : plain;
  }
}

function split(entry: Entry, at: number): readonly [Entry, Entry] {
  if (at === entry.events.length) return [entry, { ...entry, events: [], isWhole: false }];
  const { holder, events, resolve, start } = entry;
  return [
    { holder, events: events.slice(0, at), resolve, start, isWhole: false },
    { holder, events: events.slice(at), resolve, start: start + at, isWhole: entry.isWhole && at === 0 },
  ];
}

function refuse({ events, resolve, start }: Entry, refusal: Rejection): void {
  for (let index = 0; index < events.length; index += 1) resolve(refusal, start + index);
}

/** What still fits into a commit group. */
class GroupRoom {
  #events = 0;
  #characters = 0;
  #days = 0;
  #day = Number.NaN;
  #isFull = false;

  /** Whether an event did not fit: then no later one does. */
  get isFull(): boolean {
    return this.#isFull;
  }

  /**
   * Adds events from the first one on.
   * @param most       limit of them
   * @param characters after which no other one is added
   * @returns how many fit
   */
  take(events: readonly AcceptedEvent[], most: number, characters = MAX_GROUP_CHARACTERS): number {
    const end = this.#characters + characters;
    let fitting = 0;
    for (const event of events) {
      if (fitting === most || this.#characters >= end || !this.#takes(event)) break;
      fitting += 1;
    }
    return fitting;
  }

  /** Adds the next event if it fits. */
  #takes({ payload, createdAt }: AcceptedEvent): boolean {
    this.#characters += payload.length;
    const day = dayOf(createdAt);
    if (day !== this.#day) this.#days += 1;
    this.#day = day;
    const isOver = this.#characters > MAX_GROUP_CHARACTERS || this.#days > MAX_GROUP_DAYS;
    this.#isFull = this.#events === MAX_GROUP_EVENTS || (this.#events > 0 && isOver);
    if (!this.#isFull) this.#events += 1;
    return !this.#isFull;
  }
}

export const FULL = new Rejection('unavailable', 'Too many events wait for their commit; try again shortly.');
export const CLOSED = new Rejection('unavailable', 'The service is stopping; try again shortly.');
export const STALLED = new Rejection('unavailable', 'The database does not answer; try again shortly.');

/** What events take of the room. */
export function amountOf(events: readonly AcceptedEvent[]): Amount {
  let bytes = 0;
  for (const event of events) bytes += payloadBytes(event);
  return { events: events.length, bytes };
}

/** The memory that a payload may take: V8 keeps text at one or two bytes per character. */
export function payloadBytes(event: AcceptedEvent): number {
  return 2 * event.payload.length;
}

/**
 * An idle service commits an event at once, so its latency is one commit. Under load a commit group is whatever has arrived
 * while the groups before it were in flight, so throughput grows with load. There is no timer to tune.
 *
 * Events of batches wait in a queue of their own and leave one connection free for single events, unless none of these has
 * arrived for a while. With one connection the two queues take turns.
 */
export class CommitBuffer {
  readonly #options: CommitBufferOptions;
  readonly #single: SingleQueue;
  readonly #bulk: BulkQueue;
  #inFlight = 0;
  #bulkInFlight = 0;
  /** Bulk commits since the last single event. */
  #bulkInARow = 0;
  #stored = 0;
  #repeated = 0;
  #scheduled = false;
  #closed = false;
  #onDrained: (() => void) | null = null;
  /** When a connection was last taken or given back. */
  #movedAt = 0;
  #stallCheck: NodeJS.Timeout | null = null;
  /** To be called when the single events that wait are taken; null while none waits. */
  #endWait: ReturnType<CommitPhases['begin']> | null = null;

  constructor(options: CommitBufferOptions) {
    this.#options = options;
    this.#single = new SingleQueue(options);
    this.#bulk = new BulkQueue(options);
  }

  /** Events that wait or are in flight. */
  get depth(): number {
    return this.#single.held.events + this.#bulk.held.events;
  }

  /** Events that were acknowledged, each key once. */
  get stored(): number {
    return this.#stored;
  }

  /** Events whose keys were stored before. */
  get repeated(): number {
    return this.#repeated;
  }

  /** Adds an event without a key. Resolves with what became of it. */
  add(event: AcceptedEvent): Promise<WriteOutcome> {
    if (this.#closed) return Promise.resolve(CLOSED);
    if (event.payload.length > LARGE_CHARACTERS)
      return this.addAll([event]).then((outcomes) => outcomeOf(outcomes, 0));
    const refusal = this.#single.admit({ events: 1, bytes: payloadBytes(event) });
    if (refusal !== null) return Promise.resolve(refusal);
    return new Promise((resolve) => {
      this.#single.push({ holder: NOBODY, events: [event], resolve, start: 0, isWhole: true });
      this.#endWait ??= this.#options.phases?.begin() ?? null;
      this.#schedule();
    });
  }

  /**
   * Adds many events of one app, all of them with keys or none, or adds none if there is not room for all. They are committed
   * in several groups, in their order: events of the same day should be neighbors.
   * @returns the outcome of each event, in order
   */
  addAll(events: readonly AcceptedEvent[]): Promise<Outcomes> {
    const [first] = events;
    if (first === undefined) return Promise.resolve([]);
    const holder = this.#options.holderOf(first.appId);
    const refusal = this.#closed ? CLOSED : this.#bulk.admit(holder, amountOf(events));
    if (refusal !== null) return Promise.resolve(events.map(() => refusal));
    return new Promise((resolve) => {
      const outcomes: WriteOutcome[] = [];
      let waiting = events.length;
      // One function for all events: one for each would be expensive.
      const settle = (outcome: WriteOutcome, index: number): void => {
        outcomes[index] = outcome;
        waiting -= 1;
        if (waiting === 0) resolve(outcomes);
      };
      this.#bulk.push({ holder, events, resolve: settle, start: 0, isWhole: true });
      this.#schedule();
    });
  }

  /** Refuses new events and waits until none is left. */
  async drain(): Promise<void> {
    this.#closed = true;
    if (this.depth === 0) return;
    await new Promise<void>((resolve) => {
      this.#onDrained = resolve;
    });
  }

  /** Events that arrive in one turn of the event loop share a commit group. */
  #schedule(): void {
    if (this.#inFlight > 0) this.#watch();
    if (this.#scheduled || this.#inFlight >= this.#options.connections) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    while (this.#inFlight < this.#options.connections) {
      const isBulk = this.#isTurnOfBulk();
      const queue = isBulk ? this.#bulk : this.#single;
      if (queue.isEmpty) break;
      const taken = queue.take();
      if (!isBulk) this.#singleTaken();
      void this.#commit(taken, isBulk);
    }
    if (!this.#single.isEmpty || !this.#bulk.isEmpty) this.#watch();
  }

  /** What did not fit into the group waits from now on. */
  #singleTaken(): void {
    this.#endWait?.('queue');
    if (this.#single.isEmpty) this.#endWait = null;
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
    for (const queue of [this.#single, this.#bulk]) for (const entry of queue.drain()) refuse(entry, STALLED);
    this.#endWait = null;
  }

  #isTurnOfBulk(): boolean {
    if (this.#bulk.isEmpty) return false;
    const { connections } = this.#options;
    if (connections === 1) return this.#single.isEmpty || this.#bulkInARow === 0;
    const isQuiet = this.#single.isEmpty && this.#bulkInARow >= QUIET_COMMITS;
    return this.#bulkInFlight < (isQuiet ? connections : connections - 1);
  }

  async #commit(entries: readonly Entry[], isBulk: boolean): Promise<void> {
    this.#bulkInARow = isBulk ? this.#bulkInARow + 1 : 0;
    if (isBulk) this.#bulkInFlight += 1;
    this.#inFlight += 1;
    this.#movedAt = this.#options.stall?.now() ?? 0;
    const outcomes = await this.#options.write(eventsOf(entries));
    this.#inFlight -= 1;
    this.#movedAt = this.#options.stall?.now() ?? 0;
    if (isBulk) this.#bulkInFlight -= 1;
    (isBulk ? this.#bulk : this.#single).release(entries);
    // The next group is sent before the responses of this one are written: the database works meanwhile.
    this.#flush();
    const { onStored, phases } = this.#options;
    const endAnswers = phases?.begin();
    // By then the continuations of all requests have answered.
    if (endAnswers !== undefined) setImmediate(endAnswers, 'answer');
    let at = 0;
    for (const { events, resolve, start } of entries) {
      // entries() would make a pair for each event: of batches that is a tenth of all garbage.
      let index = start;
      for (const event of events) {
        const outcome = outcomeOf(outcomes, at);
        if (outcome === null) {
          this.#stored += 1;
          onStored?.(event);
        } else if (outcome === 'repeated') this.#repeated += 1;
        resolve(outcome, index);
        index += 1;
        at += 1;
      }
    }
    if (this.depth === 0) {
      this.#unwatch();
      this.#onDrained?.();
    }
  }
}

function eventsOf(entries: readonly Entry[]): readonly AcceptedEvent[] {
  const [first] = entries;
  return entries.length === 1 && first !== undefined ? first.events : entries.flatMap(({ events }) => events);
}

/** A missing outcome must not pass for an acknowledgement. */
function outcomeOf(outcomes: Outcomes, index: number): WriteOutcome {
  const outcome = outcomes[index];
  if (outcome === undefined)
    throw new Error('A commit group was written without an outcome for each of its events.');
  return outcome;
}
