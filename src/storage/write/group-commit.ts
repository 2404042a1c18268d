/**
 * The one way into the events table. Single events, batches, keyed requests, replays and imports differ in what they write
 * together and in what its outcome is; when a try fails, what is done about it is the same for all of them.
 */
import type { Rejection } from '../../errors.ts';
import { datesOf, type EventContent } from './accepted-event.ts';
import type { CopyConnection } from './copy-connection.ts';
import type { EngineWrites } from './engine-writes.ts';
import {
  backOff,
  classify,
  FAULT,
  type Failure,
  OUTCOME_UNKNOWN,
  timeoutMs,
  UNAVAILABLE,
  type WriteTimeouts,
} from './failures.ts';

/** What the tries of a group have in common. */
export interface Attempt {
  readonly startedAt: number;
  /** Some of the group may be stored already: then only what is missing is inserted. */
  uncertain: boolean;
  retries: number;
}

/**
 * One kind of group, of units that are stored together and refused one by one. Outcomes are one for each unit, in order; or
 * one for all of a transaction, where nobody asks for more.
 */
export interface GroupKind<Unit, Outcome> {
  /** Of the units, for the log. */
  readonly name: string;
  /**
   * Stores units in one transaction, or throws.
   * @returns their outcomes
   */
  readonly store: (
    connection: CopyConnection,
    units: readonly Unit[],
    attempt: Attempt,
  ) => Promise<readonly Outcome[]>;
  /** The events of units, for which there may be no room. */
  readonly eventsOf: (units: readonly Unit[]) => readonly EventContent[];
  /** The one unit of a group whose data the database refuses. */
  readonly refuse: (
    connection: CopyConnection,
    unit: Unit,
    attempt: Attempt,
    error: unknown,
  ) => Promise<Outcome> | Outcome;
  /** Units that were tried in vain. May throw, where nobody waits for single outcomes. */
  readonly giveUp: (units: readonly Unit[], end: GivenUp) => Promise<readonly Outcome[]> | readonly Outcome[];
}

/** How the tries of a group have ended. */
export interface GivenUp {
  /** What can be said of its units for certain. */
  readonly refusal: Rejection;
  /** Of the last try. */
  readonly failure: Failure;
  readonly error: unknown;
}

/** A part of a logger. */
export interface WriteLog {
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface GroupCommitOptions {
  readonly engine: EngineWrites;
  readonly timeouts: WriteTimeouts;
  readonly log: WriteLog;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** Days for which room is made in one transaction; each of them costs some five locks until its end. */
const DAYS_AT_ONCE = 32;

export class GroupCommit {
  readonly #options: GroupCommitOptions;
  #retries = 0;

  constructor(options: GroupCommitOptions) {
    this.#options = options;
  }

  /** Tries of groups after their first one. */
  get retries(): number {
    return this.#retries;
  }

  /** Begins a group's tries. @param uncertain whether some of it may be stored already */
  begin(uncertain: boolean): Attempt {
    return { startedAt: this.#options.now(), uncertain, retries: 0 };
  }

  /**
   * Stores a group, by as many tries as it takes and there is time for.
   * @returns the outcomes of its units
   */
  async run<Unit, Outcome>(
    kind: GroupKind<Unit, Outcome>,
    connection: CopyConnection,
    units: readonly Unit[],
    attempt: Attempt,
  ): Promise<readonly Outcome[]> {
    for (;;) {
      try {
        return await kind.store(connection, units, attempt);
      } catch (error) {
        const outcomes = await this.#recover(kind, connection, units, attempt, error);
        if (outcomes !== null) return outcomes;
      }
    }
  }

  /** Makes room for events of these days, where the engine does not do so by itself. @param dates ISO 8601 */
  async makeRoom(connection: CopyConnection, dates: readonly string[]): Promise<void> {
    const { makeRoom } = this.#options.engine;
    if (makeRoom === null) return;
    for (let from = 0; from < dates.length; from += DAYS_AT_ONCE)
      await connection.query(makeRoom, [dates.slice(from, from + DAYS_AT_ONCE)]);
  }

  /** Prepares the next try and returns null, or returns the units' outcomes. */
  async #recover<Unit, Outcome>(
    kind: GroupKind<Unit, Outcome>,
    connection: CopyConnection,
    units: readonly Unit[],
    attempt: Attempt,
    error: unknown,
  ): Promise<readonly Outcome[] | null> {
    const failure = classify(error);
    const context = { err: error, failure, [kind.name]: units.length };
    const { log } = this.#options;
    if (failure === 'fault') {
      log.error(context, 'write: failed');
      return await kind.giveUp(units, {
        refusal: attempt.uncertain ? OUTCOME_UNKNOWN : FAULT,
        failure,
        error,
      });
    }
    if (failure === 'data') return await this.#isolate(kind, connection, units, attempt, error);
    if (failure === 'lost' || failure === 'duplicate') attempt.uncertain = true;
    if (connection.hasLeft || this.#isOver(attempt, failure)) {
      log.warn(context, 'write: failed until its time was over');
      const refusal = attempt.uncertain ? OUTCOME_UNKNOWN : UNAVAILABLE;
      return await kind.giveUp(units, { refusal, failure, error });
    }
    if (attempt.retries === 0) log.warn(context, 'write: failed, retrying');
    if (failure === 'missing-partition') await this.#makeRoomFor(connection, kind.eventsOf(units));
    else await backOff(attempt.retries);
    attempt.retries += 1;
    this.#retries += 1;
    return null;
  }

  #isOver({ startedAt, uncertain }: Attempt, failure: Failure): boolean {
    const { timeouts, now } = this.#options;
    return now() - startedAt >= timeoutMs(timeouts, failure, uncertain);
  }

  /** Halves the group until the unit that cannot be stored stands alone; its neighbors are stored. */
  async #isolate<Unit, Outcome>(
    kind: GroupKind<Unit, Outcome>,
    connection: CopyConnection,
    units: readonly Unit[],
    attempt: Attempt,
    error: unknown,
  ): Promise<readonly Outcome[]> {
    const [unit] = units;
    if (unit === undefined) return [];
    if (units.length === 1) return [await kind.refuse(connection, unit, attempt, error)];
    const middle = units.length >> 1;
    const first = await this.run(kind, connection, units.slice(0, middle), { ...attempt });
    const second = await this.run(kind, connection, units.slice(middle), { ...attempt });
    return [...first, ...second];
  }

  async #makeRoomFor(connection: CopyConnection, events: readonly EventContent[]): Promise<void> {
    try {
      await this.makeRoom(connection, datesOf(events));
    } catch (error) {
      // The group's next try fails again and decides; here it only must not be lost.
      this.#options.log.warn({ err: error }, 'write: a partition could not be made');
    }
  }
}
