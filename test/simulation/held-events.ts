/** What a commit buffer holds, seen from outside, and the rules that it keeps at every step. */
import {
  CLOSED,
  type CommitBuffer,
  FULL,
  LARGE_CHARACTERS,
  MAX_GROUP_DAYS,
  payloadBytes,
  STALLED,
  type WriteGroup,
} from '../../src/ingest/queue/commit-buffer.ts';
import { type AcceptedEvent, dayOf, isKeyed } from '../../src/storage/write/accepted-event.ts';
import type { WriteOutcome } from '../../src/storage/write/event-writer.ts';
import type { ProcessSettings } from './process.ts';
import type { World } from './world.ts';

/** The milliseconds without a move after which waiting events may be refused. */
const STALL_MS = 700;

/** One call of the buffer. */
interface Request {
  readonly events: readonly AcceptedEvent[];
  readonly step: number;
  /** Whether the limits left room when it was made; null where another call of the same step makes that unknown. */
  readonly fitted: boolean | null;
}

/** Single events, or those of batches. */
class Part {
  readonly events = new Map<AcceptedEvent, Request>();
  bytes = 0;
  lastStep = -1;

  add(request: Request): void {
    for (const event of request.events) {
      this.events.set(event, request);
      this.bytes += payloadBytes(event);
    }
  }

  remove(events: readonly AcceptedEvent[]): void {
    for (const event of events) if (this.events.delete(event)) this.bytes -= payloadBytes(event);
  }

  eventsOf(appId: number): number {
    let sum = 0;
    for (const event of this.events.keys()) if (event.appId === appId) sum += 1;
    return sum;
  }
}

interface Asking {
  readonly step: number;
  readonly appId: number;
  /** Events of the app before. */
  readonly held: number;
  /** And with those for which it asks. */
  readonly wanted: number;
}

export class HeldEvents {
  readonly #world: World;
  readonly #settings: ProcessSettings;
  readonly #single = new Part();
  readonly #bulk = new Part();
  /** Events that were handed to the writer. */
  readonly #written = new Set<AcceptedEvent>();
  /** When a group last began or ended. */
  #movedAt = 0;
  #buffer: CommitBuffer | null = null;
  /** The batch of this step for which others may have to go. */
  #asking: Asking | null = null;

  constructor(world: World, settings: ProcessSettings) {
    this.#world = world;
    this.#settings = settings;
  }

  /** The writer of the buffer. */
  observed(write: WriteGroup): WriteGroup {
    return async (group) => {
      this.#movedAt = this.#world.now;
      this.#checkGroup(group);
      const outcomes = await write(group);
      this.#movedAt = this.#world.now;
      for (const part of [this.#single, this.#bulk]) part.remove(group);
      return outcomes;
    };
  }

  /** Sees every call of the buffer. */
  follow(buffer: CommitBuffer): void {
    this.#buffer = buffer;
    const [add, addAll] = [buffer.add.bind(buffer), buffer.addAll.bind(buffer)];
    buffer.add = async (event) => {
      // It waits with those of batches.
      if (event.payload.length > LARGE_CHARACTERS) return await add(event);
      const request = this.#request(this.#single, [event]);
      const outcome = await add(event);
      this.#end(this.#single, request, [outcome]);
      return outcome;
    };
    buffer.addAll = async (events) => {
      const [first] = events;
      if (first === undefined) return await addAll(events);
      this.#ask(first.appId, events.length);
      const request = this.#request(this.#bulk, events);
      const outcomes = await addAll(events);
      this.#end(this.#bulk, request, outcomes);
      return outcomes;
    };
  }

  /** To be called when all promises have settled. */
  check(): void {
    const [single, bulk] = [this.#single, this.#bulk];
    const depth = this.#buffer?.depth ?? 0;
    if (depth < single.events.size + bulk.events.size) this.#dropRests();
    const held = single.events.size + bulk.events.size;
    if (depth !== held)
      throw new Error(`The buffer says that it holds ${depth} events, but it holds ${held}.`);
    const { COMMIT_BUFFER_EVENTS, COMMIT_BUFFER_BYTES } = this.#settings;
    for (const { events, bytes } of [single, bulk]) {
      if (events.size <= COMMIT_BUFFER_EVENTS && bytes <= COMMIT_BUFFER_BYTES) continue;
      // A request that exceeds a limit by itself is taken where nothing else waits.
      if (new Set(events.values()).size > 1)
        throw new Error(`A buffer holds ${events.size} events with ${bytes} bytes, beyond its ceilings.`);
    }
  }

  /** The rests of batches that have begun may be refused together, where the database does not answer: only then. */
  #dropRests(): void {
    // With a journal nothing waits for a stall.
    if (this.#settings.JOURNAL_MAX_BYTES > 0) return;
    this.#checkStall();
    for (const { events } of new Set(this.#bulk.events.values())) {
      const rest = events.filter((event) => !this.#written.has(event));
      if (rest.length < events.length) this.#bulk.remove(rest);
    }
  }

  #ask(appId: number, events: number): void {
    const step = this.#world.steps;
    const asking = this.#asking?.step === step ? this.#asking : null;
    const held = asking?.held ?? this.#bulk.eventsOf(appId);
    // Of two calls of one step either may be the one that others go for.
    this.#asking = { step, appId, held, wanted: Math.min(asking?.wanted ?? Infinity, held + events) };
  }

  #request(part: Part, events: readonly AcceptedEvent[]): Request {
    const { COMMIT_BUFFER_EVENTS, COMMIT_BUFFER_BYTES } = this.#settings;
    const bytes = events.reduce((sum, event) => sum + payloadBytes(event), 0);
    const { steps } = this.#world;
    const hasRoom =
      part.events.size + events.length <= COMMIT_BUFFER_EVENTS &&
      (part.events.size === 0 || part.bytes + bytes <= COMMIT_BUFFER_BYTES);
    const request = { events, step: steps, fitted: part.lastStep === steps ? null : hasRoom };
    part.lastStep = steps;
    part.add(request);
    return request;
  }

  #end(part: Part, { events, step, fitted }: Request, outcomes: readonly WriteOutcome[]): void {
    const before = part === this.#bulk ? part.eventsOf(events[0]?.appId ?? 0) : 0;
    part.remove(events);
    if (outcomes.length !== events.length || [...outcomes].some((outcome) => outcome === undefined))
      throw new Error(`${events.length} events have ${outcomes.length} outcomes, or some have none.`);
    // The rest of a batch was refused before: its others are answered now.
    if (outcomes.every((outcome) => outcome === STALLED)) this.#checkStall();
    const isFull = outcomes.includes(FULL);
    if (isFull && outcomes.some((outcome) => outcome !== FULL))
      throw new Error('A request was refused for want of room in part.');
    if (isFull && events.some((event) => this.#written.has(event)))
      throw new Error('An event was refused for want of room after it was written.');
    const isAtOnce = step === this.#world.steps;
    if (isFull && isAtOnce && fitted === true)
      throw new Error('A request was refused although there was room.');
    if (isFull && !isAtOnce) this.#checkEviction(events, before);
    if (outcomes.includes(CLOSED) && outcomes.some((outcome) => outcome !== CLOSED))
      throw new Error('A request was refused in part because the service stops.');
  }

  #checkEviction([first]: readonly AcceptedEvent[], before: number): void {
    const asking = this.#asking;
    if (asking === null || asking.step !== this.#world.steps)
      throw new Error('A waiting request was refused for want of room that nobody asked for.');
    if (first?.appId === asking.appId) throw new Error('An app was refused what waited in favor of itself.');
    if (before <= asking.wanted)
      throw new Error('An app was refused what waited in favor of one that holds more.');
    for (const { appId } of this.#bulk.events.keys())
      if (appId !== asking.appId && this.#bulk.eventsOf(appId) > before)
        throw new Error('An app was refused what waited although another one holds more.');
  }

  #checkStall(): void {
    if (this.#settings.JOURNAL_MAX_BYTES > 0)
      throw new Error('With a journal nothing is refused for a stall.');
    if (this.#world.now - this.#movedAt < STALL_MS)
      throw new Error(
        `Waiting events were refused ${this.#world.now - this.#movedAt} ms after a group had moved.`,
      );
  }

  #checkGroup(group: readonly AcceptedEvent[]): void {
    const keyed = group.filter(isKeyed).length;
    if (keyed > 0 && keyed < group.length) throw new Error('A group has events with keys and without.');
    let days = 0;
    let day = Number.NaN;
    for (const event of group) {
      if (this.#written.has(event)) throw new Error('An event was handed to the writer twice.');
      this.#written.add(event);
      if (dayOf(event.createdAt) !== day) days += 1;
      day = dayOf(event.createdAt);
    }
    if (days > MAX_GROUP_DAYS) throw new Error(`A group changes its day ${days} times.`);
  }
}
