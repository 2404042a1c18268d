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
  NO_PARTITION,
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
  /** Partitions were made for it. If one is missing nevertheless, making them again would not help. */
  hasRoom: boolean;
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
  /**
   * Units that were tried in vain. Where that is a matter of their days (no partition, a lock), each call has the units of
   * the same days. May throw, where nobody waits for single outcomes.
   */
  readonly giveUp: (units: readonly Unit[], end: GivenUp) => Promise<readonly Outcome[]> | readonly Outcome[];
}

/** How the tries of a group have ended. */
export interface GivenUp {
  /** What can be said of its units for certain. */
  readonly refusal: Rejection;
  /** Of the last try. */
  readonly failure: Failure;
  readonly error: unknown;
  readonly attempt: Attempt;
}

/** A part of a logger. */
export interface WriteLog {
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface GroupCommitOptions {
  readonly engine: EngineWrites;
  readonly timeouts: WriteTimeouts;
  /** True where events are of past days, which may be the first ones of their months or years. */
  readonly past?: boolean;
  readonly log: WriteLog;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** Days for which room is made in one transaction; each of them costs some five locks until its end. */
const DAYS_AT_ONCE = 32;
/** When so many days of a group in a row meet a lock, it is probably on all of the table: the others are not tried. */
const MOST_BLOCKED_DAYS = 3;

/** Days of which a process remembers that they have room. */
const MOST_ROOMY_DAYS = 50_000;

/** Most days that a line of the log names. */
const MOST_DAYS_LOGGED = 5;

export class GroupCommit {
  readonly #options: GroupCommitOptions;
  /** Past days for which room was made ahead; null where that is not needed. */
  readonly #roomy: Set<string> | null;
  #retries = 0;

  constructor(options: GroupCommitOptions) {
    this.#options = options;
    this.#roomy = options.past === true && options.engine.makesRoomAhead ? new Set() : null;
  }

  /** Tries of groups after their first one. */
  get retries(): number {
    return this.#retries;
  }

  /** Begins a group's tries. @param uncertain whether some of it may be stored already */
  begin(uncertain: boolean): Attempt {
    return { startedAt: this.#options.now(), uncertain, retries: 0, hasRoom: false };
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
        if (this.#roomy !== null) await this.#makeRoomAhead(connection, kind.eventsOf(units), this.#roomy);
        return await kind.store(connection, units, attempt);
      } catch (error) {
        const outcomes = await this.#recover(kind, connection, units, attempt, error);
        if (outcomes !== null) return outcomes;
      }
    }
  }

  /** Makes room for events of these days. @param dates ISO 8601 */
  async makeRoom(connection: CopyConnection, dates: readonly string[]): Promise<void> {
    const { makeRoom } = this.#options.engine;
    for (let from = 0; from < dates.length; from += DAYS_AT_ONCE)
      await connection.query(makeRoom, [dates.slice(from, from + DAYS_AT_ONCE)]);
  }

  async #makeRoomAhead(
    connection: CopyConnection,
    events: readonly EventContent[],
    roomy: Set<string>,
  ): Promise<void> {
    const dates = datesOf(events).filter((date) => !roomy.has(date));
    if (dates.length === 0) return;
    try {
      await this.makeRoom(connection, dates);
    } catch (error) {
      if (meaningOf(error) !== 'no-partition') throw error;
      // The rows make room for themselves, if less of it.
      this.#options.log.warn(
        { err: error, days: dates.slice(0, MOST_DAYS_LOGGED) },
        'write: no wide chunk was made',
      );
    }
    if (roomy.size + dates.length > MOST_ROOMY_DAYS) roomy.clear();
    for (const date of dates) roomy.add(date);
  }

  /** Prepares the next try and returns null, or returns the units' outcomes. */
  async #recover<Unit, Outcome>(
    kind: GroupKind<Unit, Outcome>,
    connection: CopyConnection,
    units: readonly Unit[],
    attempt: Attempt,
    cause: unknown,
  ): Promise<readonly Outcome[] | null> {
    const { failure, error } = await this.#diagnose(kind, connection, units, attempt, cause);
    if (failure === 'missing-partition') return this.#again(attempt);
    const context = { err: error, failure, [kind.name]: units.length };
    const { log } = this.#options;
    if (failure === 'fault') {
      log.error(context, 'write: failed');
      const refusal = attempt.uncertain ? OUTCOME_UNKNOWN : FAULT;
      return await kind.giveUp(units, { refusal, failure, error, attempt });
    }
    if (failure === 'data') return await this.#isolate(kind, connection, units, attempt, error);
    if (failure === 'lost' || failure === 'duplicate') attempt.uncertain = true;
    if (connection.hasLeft || this.#isOver(attempt, failure)) {
      const days = BY_DAY.has(failure) && !connection.hasLeft ? unitsByDays(kind, units) : [];
      if (days.length > 1) return await this.#runByDays(kind, connection, days, { failure, error, attempt });
      log.warn({ ...context, days: daysForLog(kind, units) }, 'write: failed until its time was over');
      return await kind.giveUp(units, { refusal: refusalOf(failure, attempt), failure, error, attempt });
    }
    if (attempt.retries === 0) log.warn(context, 'write: failed, retrying');
    await backOff(attempt.retries);
    return this.#again(attempt);
  }

  #again(attempt: Attempt): null {
    attempt.retries += 1;
    this.#retries += 1;
    return null;
  }

  /**
   * What a failure means. Where a partition is missing, it is made here: what is returned as `missing-partition` has room now,
   * and what could not be made is a failure of its own, with its own cause.
   */
  async #diagnose<Unit, Outcome>(
    kind: GroupKind<Unit, Outcome>,
    connection: CopyConnection,
    units: readonly Unit[],
    attempt: Attempt,
    error: unknown,
  ): Promise<{ readonly failure: Failure; readonly error: unknown }> {
    const failure = classify(error);
    if (failure !== 'missing-partition') return { failure, error };
    if (attempt.hasRoom) return { failure: 'no-partition', error };
    try {
      await this.makeRoom(connection, datesOf(kind.eventsOf(units)));
      attempt.hasRoom = true;
      return { failure, error };
    } catch (obstacle) {
      return { failure: meaningOf(obstacle), error: obstacle };
    }
  }

  /**
   * Gives up the days of a group that another session has locked, and tries the others once. Where nobody knows which days
   * these are, or no partition could be made for some of them, each is tried alone.
   */
  async #runByDays<Unit, Outcome>(
    kind: GroupKind<Unit, Outcome>,
    connection: CopyConnection,
    groups: readonly DayGroup<Unit>[],
    end: Omit<GivenUp, 'refusal'>,
  ): Promise<readonly Outcome[]> {
    const { attempt, failure } = end;
    const locked = failure === 'blocked' ? await this.#lockedAmong(connection, groups) : NO_DAYS;
    const isLocked = ({ dates }: DayGroup<Unit>): boolean => dates.some((date) => locked.has(date));
    const outcomes: PlacedOutcome<Outcome>[] = [];
    for (const group of groups.filter(isLocked)) {
      const units = group.units.map(({ unit }) => unit);
      const given = await kind.giveUp(units, { ...end, refusal: refusalOf(failure, attempt) });
      outcomes.push(...inPlace(group, given));
    }
    const others = groups.filter((group) => !isLocked(group));
    if (locked.size === 0) return inOrder(await this.#runEach(kind, connection, others, attempt));
    if (others.length > 0) {
      const rest = { dates: [], units: others.flatMap(({ units }) => units) };
      const units = rest.units.map(({ unit }) => unit);
      outcomes.push(
        ...inPlace(rest, await this.run(kind, connection, units, { ...attempt, hasRoom: false })),
      );
    }
    return inOrder(outcomes);
  }

  /** Days whose rows are locked now, as far as that is known. */
  async #lockedAmong<Unit>(
    connection: CopyConnection,
    groups: readonly DayGroup<Unit>[],
  ): Promise<ReadonlySet<string>> {
    try {
      const dates = [...new Set(groups.flatMap((group) => group.dates))];
      const { rows } = await connection.query<{ day: string }>(this.#options.engine.lockedDays, [dates]);
      return new Set(rows.map(({ day }) => day));
    } catch (error) {
      this.#options.log.warn({ err: error }, 'write: locks could not be read');
      return NO_DAYS;
    }
  }

  /** Tries groups one by one, each once, so that what is wrong with one of them does not concern the others. */
  async #runEach<Unit, Outcome>(
    kind: GroupKind<Unit, Outcome>,
    connection: CopyConnection,
    groups: readonly DayGroup<Unit>[],
    attempt: Attempt,
  ): Promise<PlacedOutcome<Outcome>[]> {
    const outcomes: PlacedOutcome<Outcome>[] = [];
    let inARow = 0;
    let isBlocked = false;
    const watched: GroupKind<Unit, Outcome> = {
      ...kind,
      giveUp: (units, end) => {
        isBlocked = end.failure === 'blocked';
        return kind.giveUp(units, end);
      },
    };
    for (const group of groups) {
      const units = group.units.map(({ unit }) => unit);
      isBlocked = inARow >= MOST_BLOCKED_DAYS;
      const found = isBlocked
        ? await kind.giveUp(units, { ...NOT_TRIED, refusal: refusalOf('blocked', attempt), attempt })
        : await this.run(watched, connection, units, { ...attempt, hasRoom: false });
      inARow = isBlocked ? inARow + 1 : 0;
      outcomes.push(...inPlace(group, found));
    }
    return outcomes;
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
}

/** Failures that may concern single days of a group. */
const BY_DAY: ReadonlySet<Failure> = new Set(['blocked', 'no-partition']);

const NO_DAYS: ReadonlySet<string> = new Set();

const NOT_TRIED = {
  failure: 'transient',
  error: new Error('Other days of the same group were locked'),
} as const;

function refusalOf(failure: Failure, { uncertain }: Attempt): Rejection {
  if (uncertain) return OUTCOME_UNKNOWN;
  return failure === 'no-partition' ? NO_PARTITION : UNAVAILABLE;
}

/** What it means that a partition could not be made: what is no matter of locks and connections will not change soon. */
function meaningOf(obstacle: unknown): Failure {
  const failure = classify(obstacle);
  // Nothing of the group was sent.
  if (failure === 'lost') return 'unreachable';
  return failure === 'blocked' || failure === 'transient' || failure === 'unreachable'
    ? failure
    : 'no-partition';
}

/** Units of a group that lie on the same days, with their places in it. */
interface DayGroup<Unit> {
  /** ISO 8601. */
  readonly dates: readonly string[];
  readonly units: { readonly unit: Unit; readonly place: number }[];
}

interface PlacedOutcome<Outcome> {
  readonly outcome: Outcome;
  readonly place: number;
}

/** One outcome for all of a transaction has the place of its first unit. */
function inPlace<Unit, Outcome>(
  { units }: DayGroup<Unit>,
  outcomes: readonly Outcome[],
): PlacedOutcome<Outcome>[] {
  return outcomes.map((outcome, index) => ({ outcome, place: units[index]?.place ?? 0 }));
}

function inOrder<Outcome>(outcomes: readonly PlacedOutcome<Outcome>[]): readonly Outcome[] {
  return outcomes.toSorted((a, b) => a.place - b.place).map(({ outcome }) => outcome);
}

/** Units in groups of the same days, in order of their first ones. */
function unitsByDays<Unit, Outcome>(
  kind: GroupKind<Unit, Outcome>,
  units: readonly Unit[],
): readonly DayGroup<Unit>[] {
  const groups = new Map<string, DayGroup<Unit>>();
  for (const [place, unit] of units.entries()) {
    const dates = datesOf(kind.eventsOf([unit]));
    const key = dates.join();
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { dates, units: [{ unit, place }] });
    else group.units.push({ unit, place });
  }
  return [...groups.values()];
}

function daysForLog<Unit, Outcome>(kind: GroupKind<Unit, Outcome>, units: readonly Unit[]): string[] {
  return datesOf(kind.eventsOf(units)).slice(0, MOST_DAYS_LOGGED);
}
