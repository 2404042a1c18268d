/** Brings what waits in the journal into the database: in order, in bounded batches, each event exactly once. */
import type { Logger } from 'pino';
import { type AcceptedEvent, dayOf } from '../../storage/write/accepted-event.ts';
import type { Outcomes } from '../../storage/write/event-writer.ts';
import { MAX_BATCH_DAYS } from '../commit-buffer.ts';
import type { Journal, WaitingSegment } from './journal.ts';

export interface ReplayOptions {
  readonly journal: Journal;
  /** Stores what is missing of a batch. Never rejects. */
  readonly write: (batch: readonly AcceptedEvent[]) => Promise<Outcomes>;
  /** Called with the apps of a file's events when all of them are stored, before the file goes. */
  readonly settle?: (appIds: ReadonlySet<number>) => Promise<void>;
  /** Called where the database takes no writes after all. */
  readonly onAway: () => void;
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** What came of one batch of a replay. */
export type ReplayStep =
  /** Nothing waits. */
  | 'empty'
  | 'stored'
  /** The database takes no writes: the batch waits. */
  | 'away'
  /** Something that the log has told: the batch waits, for a person may have to mend it. */
  | 'fault';

/** As many events and payload characters as a producer's batch: one transaction, one answer to wait for. */
const MAX_EVENTS = 4_000;
const MAX_CHARACTERS = 2 * 1_048_576;

/** How often what other processes left is looked for, and what could not be stored is tried again. */
const LOOK_MS = 10_000;

/** A segment on its way into the database. */
interface Position {
  readonly segment: WaitingSegment;
  readonly batches: readonly (readonly AcceptedEvent[])[];
  readonly damaged: boolean;
  /** The first batch that is not stored yet. */
  next: number;
}

export class Replay {
  readonly #options: ReplayOptions;
  #position: Position | null = null;
  #step: Promise<ReplayStep> | null = null;
  /** Since when events are being replayed, and how many were; null while nothing waits. */
  #run: { readonly startedAt: number; events: number } | null = null;

  #running: Promise<void> | null = null;
  /** Something was added since the last step began. */
  #again = false;
  #timer: NodeJS.Timeout | null = null;
  #stopped = false;

  constructor(options: ReplayOptions) {
    this.#options = options;
  }

  /** Stores what is left of earlier processes, and from then on what others leave. */
  start(): void {
    this.run();
    this.#timer = setInterval(() => void this.#look(), LOOK_MS);
    this.#timer.unref();
  }

  /** Stores what waits, behind whatever else goes on. */
  run(): void {
    if (this.#stopped) return;
    this.#again = true;
    this.#running ??= this.#storeAll().finally(() => {
      this.#running = null;
    });
  }

  /** Ends after the batch that is under way. */
  async stop(): Promise<void> {
    this.#stopped = true;
    if (this.#timer !== null) clearInterval(this.#timer);
    await this.#running;
    await this.#step;
  }

  async #storeAll(): Promise<void> {
    let step: ReplayStep = 'stored';
    while ((step === 'stored' || (step === 'empty' && this.#again)) && !this.#stopped) {
      this.#again = false;
      step = await this.step();
    }
    if (step === 'away') this.#options.onAway();
  }

  async #look(): Promise<void> {
    try {
      await this.#options.journal.adoptLeftovers();
    } catch (error) {
      this.#options.log.error({ err: error }, 'The journal that another process left can not be taken over');
    }
    if (!this.#options.journal.isEmpty) this.run();
  }

  /** Stores the next batch. Who calls while that is under way waits for the same one. Never rejects. */
  step(): Promise<ReplayStep> {
    this.#step ??= this.#take()
      .catch((error: unknown): ReplayStep => {
        this.#options.log.error({ err: error }, 'The journal could not be replayed; it is tried again');
        return 'fault';
      })
      .finally(() => {
        this.#step = null;
      });
    return this.#step;
  }

  async #take(): Promise<ReplayStep> {
    this.#position ??= await this.#open();
    const position = this.#position;
    if (position === null) {
      this.#end();
      return 'empty';
    }
    this.#run ??= { startedAt: this.#options.now(), events: 0 };
    const upTo = endOfBatch(position);
    const batch = position.batches.slice(position.next, upTo).flat();
    const outcomes = batch.length === 0 ? [] : await this.#options.write(batch);
    const reasons = outcomes.map((outcome) => outcome?.reason);
    if (reasons.includes('internalError')) return 'fault';
    if (reasons.some((reason) => reason !== undefined && reason !== 'invalidBody')) return 'away';
    await this.#setRefusedAside(batch, outcomes);
    this.#options.journal.countReplayed(reasons.filter((reason) => reason === undefined).length);
    this.#run.events += batch.length;
    position.next = upTo;
    if (upTo === position.batches.length) {
      await this.#options.settle?.(new Set(position.batches.flat().map(({ appId }) => appId)));
      await this.#options.journal.finish(position.segment, position.damaged);
      this.#position = null;
    }
    return 'stored';
  }

  async #open(): Promise<Position | null> {
    const { journal, log } = this.#options;
    const segment = await journal.oldest();
    if (segment === null) return null;
    try {
      return { segment, ...(await journal.read(segment)), next: 0 };
    } catch (error) {
      // What can not be read now may be read by a person later; those behind it must not wait for that.
      log.error(
        { err: error, segment: segment.path, events: segment.events },
        'A file of the journal can not be read: it is kept as .corrupt',
      );
      return { segment, batches: [], damaged: true, next: 0 };
    }
  }

  async #setRefusedAside(batch: readonly AcceptedEvent[], outcomes: Outcomes): Promise<void> {
    for (const [index, event] of batch.entries()) {
      if (outcomes[index] === null) continue;
      await this.#options.journal.setAside(event);
      this.#options.log.error(
        { eventId: event.id },
        'The database refuses an event of the journal: it is kept in refused.ndjson',
      );
    }
  }

  #end(): void {
    if (this.#run === null) return;
    const { startedAt, events } = this.#run;
    const ms = Math.round(this.#options.now() - startedAt);
    this.#options.log.info({ events, ms }, 'The journal is replayed: all of its events are in the database');
    this.#run = null;
  }
}

/** How far the next transaction reaches: whole records, at least one. */
function endOfBatch({ batches, next }: Position): number {
  let events = 0;
  let characters = 0;
  let days = 0;
  let day = Number.NaN;
  let end = next;
  for (; end < batches.length; end += 1) {
    const batch = batches[end] ?? [];
    events += batch.length;
    for (const { payload, createdAt } of batch) {
      characters += payload.length;
      if (dayOf(createdAt) !== day) days += 1;
      day = dayOf(createdAt);
    }
    const isFull = events > MAX_EVENTS || characters > MAX_CHARACTERS || days > MAX_BATCH_DAYS;
    if (end > next && isFull) break;
  }
  return end;
}
