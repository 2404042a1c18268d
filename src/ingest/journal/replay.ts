/** Brings what waits in the journal into the database: in order, in bounded batches, each event exactly once. */
import type { Logger } from 'pino';
import { dayOf, type JournaledEvent } from '../../storage/write/accepted-event.ts';
import type { ReplayOutcome } from '../../storage/write/replay-writer.ts';
import { MAX_GROUP_DAYS } from '../commit-buffer.ts';
import type { Journal, WaitingSegment } from './journal.ts';
import type { Quarantined } from './quarantine.ts';

export interface ReplayOptions {
  readonly journal: Journal;
  /** Stores what is missing of a batch. Never rejects. */
  readonly write: (batch: readonly JournaledEvent[]) => Promise<readonly ReplayOutcome[]>;
  /** Called where the database takes no writes after all. */
  readonly onAway: () => void;
  /** Whether the database is believed to take writes; while it is not, {@link Replay.step} alone tries. */
  readonly mayRun?: () => boolean;
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
  /** The database belongs to another installation: the batch waits for its own. */
  | 'foreign'
  /** All that waits is of days that somebody has locked. */
  | 'blocked'
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
  readonly batches: readonly (readonly JournaledEvent[])[];
  readonly damaged: boolean;
  /** The first batch that is not stored yet. */
  next: number;
  /** Events before it. */
  done: number;
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
    if (step === 'away' || step === 'foreign') this.#options.onAway();
  }

  async #look(): Promise<void> {
    try {
      await this.#options.journal.adoptLeftovers();
    } catch (error) {
      this.#options.log.error({ err: error }, 'The journal that another process left cannot be taken over');
    }
    if (!this.#options.journal.isEmpty && (this.#options.mayRun?.() ?? true)) this.run();
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
    if (outcomes.length > 0) this.#noteInstallation(outcomes.includes('foreign'), position);
    for (const obstacle of ['foreign', 'fault', 'away'] as const)
      if (outcomes.includes(obstacle)) return obstacle;
    const { journal } = this.#options;
    const postponed = batch.filter((_, index) => outcomes[index] === 'blocked');
    if (postponed.length > 0 && !(await this.#postpone(postponed))) return 'blocked';
    await this.#setAside(batch, outcomes);
    position.done += batch.length;
    position.next = upTo;
    const isWhole = upTo === position.batches.length;
    // The last events of a file wait until the file is gone: nobody may take the journal for empty before.
    const done = isWhole ? position.done - batch.length : position.done;
    journal.countReplayed(outcomes.filter((outcome) => outcome === 'stored').length, done);
    this.#run.events += batch.length;
    if (isWhole) {
      await journal.finish(position.segment, position.damaged);
      this.#position = null;
    }
    return 'stored';
  }

  /**
   * Puts events of locked days to the end of the journal, so that the others do not wait for them.
   * @returns false where nothing else waits, or there is no room: they stay where they are
   */
  async #postpone(events: readonly JournaledEvent[]): Promise<boolean> {
    const { journal, log } = this.#options;
    if (journal.stats.waitingEvents <= events.length) return false;
    if ((await journal.append(events)) !== null) return false;
    log.warn({ events: events.length }, 'Events of the journal wait for days that are locked');
    return true;
  }

  /** Says it once, however often the batch is tried. */
  #noteInstallation(isForeign: boolean, { segment }: Position): void {
    const { journal, log } = this.#options;
    if (isForeign && !journal.wrongDatabase)
      log.error(
        { segment: segment.path },
        'The database belongs to another installation: the journal waits until its own database is back',
      );
    if (!isForeign && journal.wrongDatabase)
      log.info('The database is the one that the journal belongs to again');
    journal.wrongDatabase = isForeign;
  }

  async #open(): Promise<Position | null> {
    const { journal, log } = this.#options;
    const segment = await journal.oldest();
    if (segment === null) return null;
    try {
      return { segment, ...(await journal.read(segment)), next: 0, done: 0 };
    } catch (error) {
      // What cannot be read now may be read by a person later; those behind it must not wait for that.
      log.error(
        { err: error, segment: segment.path, events: segment.events },
        'A file of the journal cannot be read: it is kept as .corrupt',
      );
      return { segment, batches: [], damaged: true, next: 0, done: 0 };
    }
  }

  async #setAside(batch: readonly JournaledEvent[], outcomes: readonly ReplayOutcome[]): Promise<void> {
    const some = batch.flatMap((event, index): Quarantined[] => {
      const why = outcomes[index];
      return typeof why === 'object' ? [{ event, why }] : [];
    });
    if (some.length === 0) return;
    await this.#options.journal.setAside(some);
    for (const { event, why, events } of summarize(some))
      this.#options.log.error(
        { appId: event.source.appId, ...why, events, eventId: event.id },
        'Events of the journal cannot be stored: they are in quarantine, see "tidemark journal list"',
      );
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
    const isFull = events > MAX_EVENTS || characters > MAX_CHARACTERS || days > MAX_GROUP_DAYS;
    if (end > next && isFull) break;
  }
  return end;
}

/** One of the events of each app and reason, with their number. */
function summarize(some: readonly Quarantined[]): Iterable<Quarantined & { readonly events: number }> {
  const groups = new Map<string, Quarantined & { events: number }>();
  for (const { event, why } of some) {
    const key = `${why.reason} ${event.source.appId}`;
    const group = groups.get(key) ?? { event, why, events: 0 };
    group.events += 1;
    groups.set(key, group);
  }
  return groups.values();
}
