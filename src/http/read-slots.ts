/** The turns of all reads of a process: they share the connections of one pool, and sign-ins and sessions have others. */
import { type NotRun, type Place, Slots, type Waiter } from '../base/slots.ts';
import type { Path } from '../base/turns.ts';
import { Rejection } from '../errors.ts';
import { ArchiveUnavailable } from '../storage/database/archive-source.ts';
import { Abandoned, poolFor, type Sql } from '../storage/database/connect.ts';
import type { EventReader } from '../storage/read/event-reader.ts';
import { TOO_MANY_UNSENT } from './exchange.ts';

export const BUSY = new Rejection(
  'unavailable',
  'The service is busy: too many requests are waiting, and most of them are of this account; try again shortly.',
);
/** While a read waits. */
const LATE = new Rejection(
  'unavailable',
  'The service is busy: the read has waited too long for its turn; try again shortly.',
);
/** While a read waits for the archive. */
const ARCHIVE_LATE = new Rejection(
  'unavailable',
  'Events of this time are in the archive, and reading them has taken too long; try again, or a shorter time.',
  { retryAfterSeconds: 10 },
);
/** Never sent: the exchange is settled already. */
const SETTLED = new Rejection('unavailable', 'The request took too long.');

/** The refusal of what was not run. */
export function refusalOf<T>(outcome: T | NotRun): T | Rejection {
  if (outcome === 'busy') return BUSY;
  return outcome === 'settled' ? SETTLED : outcome;
}

/** Which reads, by the value of the metrics' label `kind`. */
export const READ_KINDS = ['get_events', 'token', 'dashboard', 'share', 'export', 'query'] as const;
export type ReadKind = (typeof READ_KINDS)[number];

export interface ReadTurn {
  readonly kind: ReadKind;
  /** Whose turn it takes: an account, then a token or the account's sessions. */
  readonly turns: Path;
  readonly waiter: ReadWaiter;
}

/** Who waits for a read: a request, or the response that it is a part of. */
export interface ReadWaiter extends Waiter {
  readonly hasRoomForLargeAnswer: boolean;
  /** The response if the deadline passes now. */
  late?: Rejection;
}

/** What a read has in its turn. All of it ends with its waiter. */
export interface ReadPlace {
  readonly sql: Sql;
  readonly events: EventReader;
  /** Between two parts of a read: lets other accounts in that wait. @returns false where the read must end with what it has */
  readonly pass: () => Promise<boolean>;
}

/** The reads of one kind, for metrics. */
export interface ReadStats {
  waiting: number;
  running: number;
  /** Refused, because too many were waiting. */
  refused: number;
}

export interface ReadSlotsOptions {
  /** Reads at once: the connections of the pool. */
  readonly places: number;
  /** Most reads that wait. */
  readonly maxWaiting: number;
  readonly sql: Sql;
  /** Makes a reader of events with a pool. */
  readonly reader: (sql: Sql) => EventReader;
}

export class ReadSlots {
  readonly #options: ReadSlotsOptions;
  readonly #slots: Slots;
  /** The place of each read that runs: a reader of events may outlive the turn that it was opened in. */
  readonly #running = new WeakMap<ReadWaiter, RunningRead>();
  /** Reads that go on with events of the archive. */
  readonly #ofArchive: Slots;
  readonly stats: Readonly<Record<ReadKind, ReadStats>> = {
    get_events: { waiting: 0, running: 0, refused: 0 },
    token: { waiting: 0, running: 0, refused: 0 },
    dashboard: { waiting: 0, running: 0, refused: 0 },
    share: { waiting: 0, running: 0, refused: 0 },
    export: { waiting: 0, running: 0, refused: 0 },
    query: { waiting: 0, running: 0, refused: 0 },
  };

  constructor(options: ReadSlotsOptions) {
    this.#options = options;
    this.#slots = new Slots(options.places, options.maxWaiting);
    this.#ofArchive = new Slots(PLACES_OF_ARCHIVE, options.maxWaiting);
  }

  /**
   * Runs a read in its turn. One whose client disconnects or whose deadline passes is not run, and its statement is canceled:
   * otherwise clients that give up early would keep the database busy with reads that no one receives.
   * @returns its result, or why it was not run or not finished; rejects if the read does
   */
  async run<T>(
    { kind, turns, waiter }: ReadTurn,
    read: (place: ReadPlace) => Promise<T>,
  ): Promise<T | Rejection> {
    const stats = this.stats[kind];
    const { late } = waiter;
    waiter.late = LATE;
    stats.waiting += 1;
    let isRunning = false;
    const begin = (): void => {
      isRunning = true;
      stats.waiting -= 1;
      stats.running += 1;
      if (late !== undefined) waiter.late = late;
    };
    const outcome = await this.#slots
      .run(turns, waiter, async (place) => {
        begin();
        if (!waiter.hasRoomForLargeAnswer) return TOO_MANY_UNSENT;
        const running: RunningRead = { place, turns, waits: 0, held: null };
        this.#running.set(waiter, running);
        const sql = poolFor(waiter, this.#options.sql, {
          turns,
          isAdmitted: () => (this.#running.get(waiter)?.held ?? null) !== null,
          outside: (wait) => this.#outside(waiter, wait),
        });
        const pass = async (): Promise<boolean> => (await place.pass()) === null;
        try {
          return await read({ sql, events: this.#options.reader(sql), pass });
        } finally {
          void running.held?.then((giveBack) => giveBack());
        }
      })
      .catch((error: unknown) => {
        if (error instanceof Abandoned) return 'settled' as const;
        if (error instanceof ArchiveUnavailable) return unavailable(error);
        throw error;
      })
      .finally(() => {
        if (isRunning) stats.running -= 1;
        else stats.waiting -= 1;
      });
    if (outcome === 'busy') stats.refused += 1;
    return refusalOf(outcome);
  }

  /**
   * Waits for the archive without the place of a read: the reads of others, which need no archive, do not wait for it. Few reads go on
   * with what they got at the same time, and take turns of their own with the other reads of their account.
   */
  async #outside<T>(waiter: ReadWaiter, wait: () => Promise<T>): Promise<T> {
    const running = this.#running.get(waiter);
    if (running === undefined) return await wait();
    const { late } = waiter;
    waiter.late = ARCHIVE_LATE;
    const [account = ''] = running.turns;
    const outcome = await running.place.outside(async () => {
      running.waits += 1;
      const { held } = running;
      running.held = null;
      (await held)?.();
      try {
        // In an object: what is waited for may be a word, too.
        return { value: await wait() };
      } finally {
        running.waits -= 1;
        if (running.waits === 0) {
          running.held ??= this.#hold(running.turns, waiter);
          await running.held;
        }
      }
    }, [account, 'archive']);
    if (late === undefined) delete waiter.late;
    else waiter.late = late;
    if (outcome === 'settled') throw new Abandoned();
    if (outcome === 'busy') throw new ArchiveUnavailable(BUSY.details);
    return outcome.value;
  }

  /** Waits for a place of those that go on with events of the archive. @returns gives it back */
  #hold(turns: Path, waiter: ReadWaiter): Promise<() => void> {
    return new Promise((resolve) => {
      const held = this.#ofArchive.run(
        turns,
        waiter,
        () =>
          new Promise<void>((giveBack) => {
            resolve(giveBack);
          }),
      );
      // Without a place it has ended, or goes on all the same.
      void held.then(() => resolve(() => undefined));
    });
  }
}

interface RunningRead {
  readonly place: Place;
  readonly turns: Path;
  /** Parts of it that wait for the archive. */
  waits: number;
  /** Its place among those that go on with events of the archive. */
  held: Promise<() => void> | null;
}

/** One may wait for the database while the other one's rows are merged. */
const PLACES_OF_ARCHIVE = 2;

/** Seconds after which a read that the archive has not answered may be sent again. */
const RETRY_SECONDS = 10;

function unavailable({ message }: ArchiveUnavailable): Rejection {
  return new Rejection('unavailable', message, { retryAfterSeconds: RETRY_SECONDS });
}
