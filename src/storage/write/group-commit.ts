/**
 * The one way into the events table, but for restores, copies into another database and days back from the archive. Single events, batches, idempotent
 * requests, replays and imports differ in the unit that is stored as a whole and in its outcome. Failures are handled in the same
 * way for all of them.
 */
import { grouped } from '../../base/grouped.ts';
import { utcDay } from '../../base/time-units.ts';
import type { Rejection } from '../../errors.ts';
import type { WriteConnection } from '../database/copy-connection.ts';
import { isDiskFull } from '../database/error-codes.ts';
import { datesOf, type EventContent, type EventRow } from './accepted-event.ts';
import { daysAwayOf, wantDaysBack } from './days-away.ts';
import type { EngineWrites } from './engine-writes.ts';
import {
  backOff,
  classify,
  DAY_AWAY,
  DISK_FULL,
  FAULT,
  type Failure,
  NO_PARTITION,
  OUTCOME_UNKNOWN,
  timeoutMs,
  UNAVAILABLE,
  type WriteTimeouts,
} from './failures.ts';

type PlacedEvent = EventContent & Pick<EventRow, 'appId'>;

/** State of a group over its tries. */
export interface Attempt {
  /** Milliseconds of a monotonic clock. */
  readonly startedAt: number;
  /** Some of the group may be stored already: then only missing rows are inserted. */
  uncertain: boolean;
  retries: number;
  /** Partitions were created for it. If one is missing nevertheless, creating them again would not help. */
  hasPartition: boolean;
  /** They could not be created once. Another session may have been at work on the same rows of the catalog: a second try shows it. */
  lacksPartition: boolean;
}

/**
 * A kind of group: units that are stored together and refused one by one. There is one outcome for each unit, in order, or
 * one for all of a transaction if the caller needs no more.
 */
export interface GroupKind<Unit, Outcome> {
  /** Name of the units in the log. */
  readonly name: string;
  /**
   * Stores units in one transaction, or throws.
   * @returns their outcomes
   */
  readonly store: (
    connection: WriteConnection,
    units: readonly Unit[],
    attempt: Attempt,
  ) => Promise<readonly Outcome[]>;
  /** The events of units, for creating partitions. */
  readonly eventsOf: (units: readonly Unit[]) => readonly PlacedEvent[];
  /** Called for the unit of a group whose data the database refuses. */
  readonly refuse: (
    connection: WriteConnection,
    unit: Unit,
    attempt: Attempt,
    error: unknown,
  ) => Promise<Outcome> | Outcome;
  /**
   * Called for units that could not be stored in time. If the cause is their days (no partition, a lock), each call has the
   * units of the same days. May throw if the caller needs no single outcomes.
   */
  readonly onExhausted: (
    units: readonly Unit[],
    end: FinalFailure,
  ) => Promise<readonly Outcome[]> | readonly Outcome[];
}

/** Why a group was given up. */
export interface FinalFailure {
  /** The refusal of its units. */
  readonly refusal: Rejection;
  /** What the failure of the last try means. */
  readonly failure: Failure;
  readonly error: unknown;
  readonly attempt: Attempt;
}

/** The methods of a logger that the writer uses. */
export interface WriteLog {
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Of commands: failures are thrown, and reported by them. */
export const NO_LOG: WriteLog = { warn: () => undefined, error: () => undefined };

export interface GroupCommitOptions {
  readonly engine: EngineWrites;
  readonly timeouts: WriteTimeouts;
  /** True if events are of past days, whose partitions may be missing. */
  readonly past?: boolean;
  /** Whether it is known that the server does not answer: then nothing is tried again. */
  readonly isUnreachable?: (() => boolean) | undefined;
  readonly log: WriteLog;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** Limit of days for which partitions are created in one transaction; each costs some five locks until its end. */
const DAYS_AT_ONCE = 32;
/** After this many locked days in a row the whole table is probably locked: the other days are not tried. */
const MOST_BLOCKED_DAYS = 3;

/** Limit of the cache of days that have room. */
const MOST_REMEMBERED_DAYS = 50_000;

/** Limit of days in a log line. */
const MOST_DAYS_LOGGED = 5;

export class GroupCommit {
  readonly #options: GroupCommitOptions;
  /** Past days for which room was made ahead; null if that is not needed. */
  readonly #daysWithPartitions: Set<string> | null;
  #retries = 0;

  constructor(options: GroupCommitOptions) {
    this.#options = options;
    this.#daysWithPartitions =
      options.past === true && options.engine.createsPartitionsAhead ? new Set() : null;
  }

  /** Tries of groups after their first one. */
  get retries(): number {
    return this.#retries;
  }

  /** Begins the tries of a group. @param uncertain whether some of it may be stored already */
  begin(uncertain: boolean): Attempt {
    return {
      startedAt: this.#options.now(),
      uncertain,
      retries: 0,
      hasPartition: false,
      lacksPartition: false,
    };
  }

  /**
   * Stores a group, with retries until its timeout.
   * @returns the outcomes of its units
   */
  async run<Unit, Outcome>(
    kind: GroupKind<Unit, Outcome>,
    connection: WriteConnection,
    units: readonly Unit[],
    attempt: Attempt,
  ): Promise<readonly Outcome[]> {
    for (;;) {
      try {
        if (this.#daysWithPartitions !== null)
          await this.#createPartitionsAhead(connection, kind.eventsOf(units), this.#daysWithPartitions);
        return await kind.store(connection, units, attempt);
      } catch (error) {
        const outcomes = await this.#recover(kind, connection, units, attempt, error);
        if (outcomes !== null) return outcomes;
      }
    }
  }

  /** Makes room for events of these days. @param dates ISO 8601 */
  async createPartitions(connection: WriteConnection, dates: readonly string[]): Promise<void> {
    const { createPartitions } = this.#options.engine;
    for (let from = 0; from < dates.length; from += DAYS_AT_ONCE)
      await connection.query(createPartitions, [dates.slice(from, from + DAYS_AT_ONCE)]);
  }

  async #createPartitionsAhead(
    connection: WriteConnection,
    events: readonly EventContent[],
    daysWithPartitions: Set<string>,
  ): Promise<void> {
    const dates = datesOf(events).filter((date) => !daysWithPartitions.has(date));
    if (dates.length === 0) return;
    try {
      await this.createPartitions(connection, dates);
    } catch (error) {
      if (meaningOf(error) !== 'no-partition') throw error;
      // The insert creates a chunk of the default width.
      this.#options.log.warn(
        { err: error, days: dates.slice(0, MOST_DAYS_LOGGED) },
        'timescale: could not create chunk',
      );
    }
    if (daysWithPartitions.size + dates.length > MOST_REMEMBERED_DAYS) daysWithPartitions.clear();
    for (const date of dates) daysWithPartitions.add(date);
  }

  /** Prepares a retry and returns null, or returns the outcomes of the units. */
  async #recover<Unit, Outcome>(
    kind: GroupKind<Unit, Outcome>,
    connection: WriteConnection,
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
      return await kind.onExhausted(units, { refusal, failure, error, attempt });
    }
    if (failure === 'data') return await this.#isolate(kind, connection, units, attempt, error);
    if (failure === 'away')
      return await this.#withoutAway(kind, connection, units, { failure, error, attempt });
    if (failure === 'lost' || failure === 'duplicate') attempt.uncertain = true;
    if (connection.hasLeft || this.#options.isUnreachable?.() === true || this.#isOver(attempt, failure)) {
      const days = BY_DAY.has(failure) && !connection.hasLeft ? unitsByDays(kind, units) : [];
      if (days.length > 1) return await this.#runByDays(kind, connection, days, { failure, error, attempt });
      const logged = datesOf(kind.eventsOf(units)).slice(0, MOST_DAYS_LOGGED);
      log.warn({ ...context, days: logged }, 'write: gave up after retries');
      return await kind.onExhausted(units, {
        refusal: refusalOf(failure, attempt, error),
        failure,
        error,
        attempt,
      });
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
   * What a failure means. Creates a missing partition: after `missing-partition` there is room, and a partition that could
   * not be created is another failure, with its own cause.
   */
  async #diagnose<Unit, Outcome>(
    kind: GroupKind<Unit, Outcome>,
    connection: WriteConnection,
    units: readonly Unit[],
    attempt: Attempt,
    error: unknown,
  ): Promise<{ readonly failure: Failure; readonly error: unknown }> {
    const failure = classify(error);
    // The retry inserts, and an INSERT reports the cause that COPY hides.
    if (failure === 'fault' && !attempt.uncertain && this.#options.engine.hidesFailure?.(error) === true)
      return { failure: 'lost', error };
    if (failure !== 'missing-partition') return { failure, error };
    if (attempt.hasPartition) return { failure: 'no-partition', error };
    try {
      await this.createPartitions(connection, datesOf(kind.eventsOf(units)));
      attempt.hasPartition = true;
      return { failure, error };
    } catch (obstacle) {
      const meaning = meaningOf(obstacle);
      if (meaning !== 'no-partition' || attempt.lacksPartition) return { failure: meaning, error: obstacle };
      attempt.lacksPartition = true;
      return { failure, error: obstacle };
    }
  }

  /**
   * Gives up the days of a group that another session has locked, and tries the others once. If the locked days are unknown,
   * or the partitions of some days could not be created, each day is tried alone.
   */
  async #runByDays<Unit, Outcome>(
    kind: GroupKind<Unit, Outcome>,
    connection: WriteConnection,
    groups: readonly DayGroup<Unit>[],
    end: Omit<FinalFailure, 'refusal'>,
  ): Promise<readonly Outcome[]> {
    const { attempt, failure } = end;
    const locked = failure === 'blocked' ? await this.#lockedAmong(connection, groups) : NO_DAYS;
    const isLocked = ({ dates }: DayGroup<Unit>): boolean => dates.some((date) => locked.has(date));
    const outcomes: IndexedOutcome<Outcome>[] = [];
    for (const group of groups.filter(isLocked)) {
      const units = group.units.map(({ unit }) => unit);
      const given = await kind.onExhausted(units, {
        ...end,
        refusal: refusalOf(failure, attempt, end.error),
      });
      outcomes.push(...withIndex(group, given));
    }
    const others = groups.filter((group) => !isLocked(group));
    if (locked.size === 0) return outcomesInOrder(await this.#runEach(kind, connection, others, attempt));
    if (others.length > 0) {
      const rest = { dates: [], units: others.flatMap(({ units }) => units) };
      const units = rest.units.map(({ unit }) => unit);
      outcomes.push(
        ...withIndex(rest, await this.run(kind, connection, units, { ...attempt, hasPartition: false })),
      );
    }
    return outcomesInOrder(outcomes);
  }

  /** Gives up the units whose days are in the archive, has these brought back, and tries the others. */
  async #withoutAway<Unit, Outcome>(
    kind: GroupKind<Unit, Outcome>,
    connection: WriteConnection,
    units: readonly Unit[],
    end: Omit<FinalFailure, 'refusal'>,
  ): Promise<readonly Outcome[]> {
    const { attempt, error } = end;
    const days = daysAwayOf(error) ?? [];
    const known = new Set(days.map(({ appId, day }) => `${appId} ${day}`));
    const indexed = units.map((unit, index) => ({ unit, index }));
    const isAway = ({ unit }: { readonly unit: Unit }): boolean =>
      kind.eventsOf([unit]).some(({ appId, createdAt }) => known.has(`${appId} ${utcDay(createdAt)}`));
    const away = { dates: [], units: indexed.filter(isAway) };
    const others = { dates: [], units: indexed.filter((one) => !isAway(one)) };
    const { log } = this.#options;
    try {
      // Clients try again until the day is back: it is logged once.
      const asked = await wantDaysBack(connection, days);
      if (asked.length > 0)
        log.warn(
          { days: asked.slice(0, MOST_DAYS_LOGGED), [kind.name]: away.units.length },
          'write: days are away, and are brought back',
        );
    } catch (obstacle) {
      log.warn({ err: obstacle }, 'write: days could not be asked back');
    }
    const refusal = attempt.uncertain ? OUTCOME_UNKNOWN : DAY_AWAY;
    const given = await kind.onExhausted(
      away.units.map(({ unit }) => unit),
      { ...end, refusal },
    );
    if (others.units.length === 0) return given;
    const rest = others.units.map(({ unit }) => unit);
    const stored = await this.run(kind, connection, rest, { ...attempt });
    return outcomesInOrder([...withIndex(away, given), ...withIndex(others, stored)]);
  }

  /** Days whose rows are locked now, as far as known. */
  async #lockedAmong<Unit>(
    connection: WriteConnection,
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

  /** Tries groups one by one, each once, so that a failure of one does not affect the others. */
  async #runEach<Unit, Outcome>(
    kind: GroupKind<Unit, Outcome>,
    connection: WriteConnection,
    groups: readonly DayGroup<Unit>[],
    attempt: Attempt,
  ): Promise<IndexedOutcome<Outcome>[]> {
    const outcomes: IndexedOutcome<Outcome>[] = [];
    let inARow = 0;
    let isBlocked = false;
    const watched: GroupKind<Unit, Outcome> = {
      ...kind,
      onExhausted: (units, end) => {
        isBlocked = end.failure === 'blocked';
        return kind.onExhausted(units, end);
      },
    };
    for (const group of groups) {
      const units = group.units.map(({ unit }) => unit);
      isBlocked = inARow >= MOST_BLOCKED_DAYS;
      const found = isBlocked
        ? await kind.onExhausted(units, { ...NOT_TRIED, refusal: refusalOf('blocked', attempt), attempt })
        : await this.run(watched, connection, units, { ...attempt, hasPartition: false });
      inARow = isBlocked ? inARow + 1 : 0;
      outcomes.push(...withIndex(group, found));
    }
    return outcomes;
  }

  #isOver({ startedAt, uncertain }: Attempt, failure: Failure): boolean {
    const { timeouts, now } = this.#options;
    return now() - startedAt >= timeoutMs(timeouts, failure, uncertain);
  }

  /** Halves the group until the unit that cannot be stored is alone; the others are stored. */
  async #isolate<Unit, Outcome>(
    kind: GroupKind<Unit, Outcome>,
    connection: WriteConnection,
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

function refusalOf(failure: Failure, { uncertain }: Attempt, error: unknown = null): Rejection {
  if (uncertain) return OUTCOME_UNKNOWN;
  if (isDiskFull(error)) return DISK_FULL;
  return failure === 'no-partition' ? NO_PARTITION : UNAVAILABLE;
}

/** Why a partition could not be created: a failure other than of locks or connections will not pass soon. */
function meaningOf(obstacle: unknown): Failure {
  const failure = classify(obstacle);
  // Nothing of the group was sent.
  if (failure === 'lost') return 'unreachable';
  return failure === 'blocked' || failure === 'transient' || failure === 'unreachable'
    ? failure
    : 'no-partition';
}

/** Units of a group that have the same days, with their indexes in it. */
interface DayGroup<Unit> {
  /** ISO 8601. */
  readonly dates: readonly string[];
  readonly units: { readonly unit: Unit; readonly index: number }[];
}

interface IndexedOutcome<Outcome> {
  readonly outcome: Outcome;
  readonly index: number;
}

/** One outcome for all of a transaction has the index of its first unit. */
function withIndex<Unit, Outcome>(
  { units }: DayGroup<Unit>,
  outcomes: readonly Outcome[],
): IndexedOutcome<Outcome>[] {
  return outcomes.map((outcome, at) => ({ outcome, index: units[at]?.index ?? 0 }));
}

function outcomesInOrder<Outcome>(outcomes: readonly IndexedOutcome<Outcome>[]): readonly Outcome[] {
  return outcomes.toSorted((a, b) => a.index - b.index).map(({ outcome }) => outcome);
}

/** Units in groups of the same days, in order of their first ones. */
function unitsByDays<Unit, Outcome>(
  kind: GroupKind<Unit, Outcome>,
  units: readonly Unit[],
): readonly DayGroup<Unit>[] {
  const dated = units.map((unit, index) => ({ unit, index, dates: datesOf(kind.eventsOf([unit])) }));
  const groups = grouped(dated, ({ dates }) => dates.join());
  return [...groups.values()].map((group) => ({ dates: group[0]?.dates ?? [], units: group }));
}
