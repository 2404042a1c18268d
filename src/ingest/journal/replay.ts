/** Stores the events of the journal in the database: in order, in bounded commit groups, each event exactly once. */
import type { Logger } from 'pino';
import { Rounds } from '../../base/rounds.ts';
import { dayOf, type JournaledEvent } from '../../storage/write/accepted-event.ts';
import type { ReplayOutcome } from '../../storage/write/replay-writer.ts';
import { MAX_GROUP_DAYS } from '../queue/commit-buffer.ts';
import type { Journal, WaitingSegment } from './journal.ts';
import type { Quarantined } from './quarantine.ts';

export interface ReplayOptions {
  readonly journal: Journal;
  /** Stores the missing events of a group. Never rejects. */
  readonly write: (group: readonly JournaledEvent[]) => Promise<readonly ReplayOutcome[]>;
  /** Called when a write shows that the database takes no writes. */
  readonly onUnreachable: () => void;
  /** Whether the database takes writes as far as is known; otherwise only {@link Replay.step} tries. */
  readonly mayRun?: () => boolean;
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** The outcome of one group of a replay. */
export type ReplayStep =
  /** Nothing waits. */
  | 'empty'
  | 'stored'
  /** The database takes no writes: the group waits. */
  | 'unreachable'
  /** The database belongs to another installation: the group waits for its own database. */
  | 'foreign'
  /** Whatever waits has been tried since the last of these answers, and the next group has events that cannot be stored for now. */
  | 'blocked'
  /** Another failure, with its cause in the log: the group waits, because an operator may have to fix the cause. */
  | 'fault';

/** Limits of one group, as in the commit buffer. */
const MAX_EVENTS = 4_000;
const MAX_CHARACTERS = 2 * 1_048_576;

const UNKNOWN_OWNER = {
  reason: 'unknown-owner',
  details:
    'The header of the journal file is damaged; "tidemark journal import" stores the event if its app is here.',
} as const satisfies ReplayOutcome;

/** Interval at which journals of ended processes are taken over and failed groups are retried. */
const LOOK_MS = 10_000;

/** A segment on its way into the database. */
interface Progress {
  readonly segment: WaitingSegment;
  readonly batches: readonly (readonly JournaledEvent[])[];
  readonly damaged: boolean;
  /** Otherwise the events go to quarantine: the operator says whether they are of this installation. */
  readonly ownerKnown: boolean;
  /** Index of the first record that is not stored yet. */
  next: number;
  /** Number of events before it. */
  done: number;
}

export class Replay {
  readonly #options: ReplayOptions;
  #progress: Progress | null = null;
  #step: Promise<ReplayStep> | null = null;
  /** When the replay began, and how many events it has stored; null while nothing waits. */
  #run: { readonly startedAt: number; events: number } | null = null;

  #running: Promise<void> | null = null;
  /** True if events were added since the last step began. */
  #again = false;
  readonly #rounds: Rounds;
  #stopped = false;
  /** The first event that was moved to the end of the journal: when it comes round, all others have been tried. */
  #firstPostponed: string | null = null;

  constructor(options: ReplayOptions) {
    this.#options = options;
    this.#rounds = new Rounds({
      work: () => this.#look(),
      pauseMs: () => LOOK_MS,
      onFailure: (error) =>
        options.log.error(
          { err: error },
          'journal: a journal of another process cannot be taken over, retrying',
        ),
    });
  }

  /** Stores the events of earlier processes, and from then on those of processes that end. */
  start(): void {
    this.run();
    this.#rounds.start();
  }

  /** Stores the waiting events in the background. */
  run(): void {
    if (this.#stopped) return;
    this.#again = true;
    this.#running ??= this.#storeAll().finally(() => {
      this.#running = null;
    });
  }

  /** Ends after the current group. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#rounds.stop();
    await this.#running;
    await this.#step;
  }

  async #storeAll(): Promise<void> {
    let step: ReplayStep = 'stored';
    while ((step === 'stored' || (step === 'empty' && this.#again)) && !this.#stopped) {
      this.#again = false;
      step = await this.step();
    }
    if (step === 'unreachable' || step === 'foreign') this.#options.onUnreachable();
  }

  async #look(): Promise<void> {
    try {
      await this.#options.journal.adoptLeftovers();
    } finally {
      if (!this.#options.journal.isEmpty && (this.#options.mayRun?.() ?? true)) this.run();
    }
  }

  /** Stores the next group. Concurrent calls share one step. Never rejects. */
  step(): Promise<ReplayStep> {
    this.#step ??= this.#take()
      .catch((error: unknown): ReplayStep => {
        this.#options.log.error({ err: error }, 'journal: replay failed, retrying');
        return 'fault';
      })
      .finally(() => {
        this.#step = null;
      });
    return this.#step;
  }

  async #take(): Promise<ReplayStep> {
    this.#progress ??= await this.#open();
    const progress = this.#progress;
    if (progress === null) {
      this.#end();
      return 'empty';
    }
    this.#run ??= { startedAt: this.#options.now(), events: 0 };
    const upTo = endOfGroup(progress);
    const group = progress.batches.slice(progress.next, upTo).flat();
    const outcomes = progress.ownerKnown ? await this.#store(group) : group.map(() => UNKNOWN_OWNER);
    if (outcomes.length > 0) this.#noteInstallation(outcomes.includes('foreign'), progress);
    for (const obstacle of ['foreign', 'fault', 'unreachable'] as const)
      if (outcomes.includes(obstacle)) return obstacle;
    const { journal } = this.#options;
    const postponed = group.filter((_, index) => outcomes[index] === 'blocked');
    if (postponed.length > 0 && !(await this.#postpone(postponed))) {
      this.#firstPostponed = null;
      return 'blocked';
    }
    await this.#setAside(group, outcomes);
    progress.done += group.length;
    progress.next = upTo;
    const isWhole = upTo === progress.batches.length;
    // The last events of a file count as waiting until the file is removed: the journal is not empty before.
    const done = isWhole ? progress.done - group.length : progress.done;
    journal.countReplayed(outcomes.filter((outcome) => outcome === 'stored').length, done);
    this.#run.events += group.length;
    if (isWhole) {
      await journal.finish(progress.segment, progress.damaged);
      this.#progress = null;
    }
    return 'stored';
  }

  async #store(group: readonly JournaledEvent[]): Promise<readonly ReplayOutcome[]> {
    return group.length === 0 ? [] : await this.#options.write(group);
  }

  /**
   * Moves events that cannot be stored for now to the end of the journal, so that the others do not wait for them.
   * @returns false if all others have been tried, or there is no room: they stay in the file
   */
  async #postpone(events: readonly JournaledEvent[]): Promise<boolean> {
    const { journal, log } = this.#options;
    if (journal.stats.waitingEvents <= events.length) return false;
    if (events.some(({ id }) => id === this.#firstPostponed)) return false;
    if ((await journal.append(events)) !== null) return false;
    this.#firstPostponed ??= events[0]?.id ?? null;
    log.warn({ events: events.length }, 'journal: events wait for days that are locked');
    return true;
  }

  /** Logs it once, however often the group is tried. */
  #noteInstallation(isForeign: boolean, { segment }: Progress): void {
    const { journal, log } = this.#options;
    if (isForeign && !journal.wrongDatabase)
      log.error(
        { segment: segment.path },
        'journal: the database belongs to another installation, replay waits for its own database',
      );
    if (!isForeign && journal.wrongDatabase) log.info('journal: the database of this installation is back');
    journal.wrongDatabase = isForeign;
  }

  async #open(): Promise<Progress | null> {
    const { journal, log } = this.#options;
    const segment = await journal.oldest();
    if (segment === null) return null;
    try {
      return { segment, ...(await journal.read(segment)), next: 0, done: 0 };
    } catch (error) {
      // An operator may be able to repair the file; the files after it must not wait for that.
      log.error(
        { err: error, segment: segment.path, events: segment.events },
        'journal: a file cannot be read, it is kept as .corrupt',
      );
      return { segment, batches: [], damaged: true, ownerKnown: true, next: 0, done: 0 };
    }
  }

  async #setAside(group: readonly JournaledEvent[], outcomes: readonly ReplayOutcome[]): Promise<void> {
    const some = group.flatMap((event, index): Quarantined[] => {
      const why = outcomes[index];
      return typeof why === 'object' ? [{ event, why }] : [];
    });
    if (some.length === 0) return;
    await this.#options.journal.setAside(some);
    for (const { event, why, events } of summarize(some))
      this.#options.log.error(
        { appId: event.source.appId, ...why, events, eventId: event.id },
        'journal: events cannot be stored, they are in quarantine (tidemark journal list)',
      );
  }

  #end(): void {
    if (this.#run === null) return;
    const { startedAt, events } = this.#run;
    const ms = Math.round(this.#options.now() - startedAt);
    this.#options.log.info({ events, ms }, 'journal: replay complete');
    this.#run = null;
  }
}

/** The end of the next group: whole records, at least one. */
function endOfGroup({ batches, next }: Progress): number {
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

/** One event for each app and reason, with the number of such events. */
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
