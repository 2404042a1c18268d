/** Writes commit groups: rows and counts by COPY, and by INSERT if some rows may be stored already. */
import type { Rejection } from '../../errors.ts';
import { Histogram, SECONDS_BOUNDS } from '../../metrics/histogram.ts';
import type { WriteConnection } from '../database/copy-connection.ts';
import { isDiskFull } from '../database/error-codes.ts';
import { type DataNode, nodeUnreachable } from '../database/nodes.ts';
import { type AcceptedEvent, datesOf, epochOf, isKeyed, sizeOf } from './accepted-event.ts';
import { copyGroup, type EngineWrites } from './engine-writes.ts';
import {
  classify,
  NODE_UNREACHABLE,
  OUTCOME_UNKNOWN,
  POISON,
  REFUSING,
  type WriteTimeouts,
} from './failures.ts';
import {
  type Attempt,
  type FinalFailure,
  GroupCommit,
  type GroupCommitOptions,
  type GroupKind,
} from './group-commit.ts';
import { columns, Inserts, keyedOutcomes } from './inserts.ts';

/** null once an event is durable, or why it is not; `repeated` where an event with its key was durable before. */
export type WriteOutcome = Rejection | 'repeated' | null;

/** For each event of a group, in order. */
export type Outcomes = readonly WriteOutcome[];

export interface EventWriterOptions extends Pick<GroupCommitOptions, 'engine' | 'past' | 'log' | 'now'> {
  /** The server that it writes to. */
  readonly node: DataNode;
  readonly connections: number;
  /** Shown in pg_stat_activity. */
  readonly name?: string;
  /** {@link REFUSING} unless given. */
  readonly timeouts?: WriteTimeouts;
  /**
   * Called for a group that could not be stored in time. Never rejects.
   * @param end the refusal that applies otherwise, and its cause
   */
  readonly onExhausted?:
    | ((events: readonly AcceptedEvent[], end: FinalFailure) => Promise<Outcomes>)
    | undefined;
  /** Where groups are counted, if not in histograms of its own. */
  readonly counts?: GroupCounts;
}

/** Up to the largest group that the commit buffer makes. */
const GROUP_BOUNDS: readonly number[] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 4_000];

/** The id of the event of a trial, which is never committed. */
const TRIAL_ID = '00000000-0000-0000-0000-000000000000';
/** How long a trial waits for a lock: short, as it is repeated until it succeeds. */
const TRIAL_LOCK_MS = 200;

/** The tables into which events, keys and new types are inserted. */
export function tablesOfWrites(engine: EngineWrites): readonly string[] {
  return ['events', ...engine.changeTables, 'idempotency_keys', 'event_types'];
}

/**
 * How long the phases of a commit take: what tells an operator the disk from the service. In order: single events wait for their group, the group for a connection, the database stores the rows, then it stores their
 * counts and commits, which is mostly the sync of its log, and the process answers.
 */
const PHASES = ['queue', 'connection', 'rows', 'commit', 'answer'] as const;

export type CommitPhase = (typeof PHASES)[number];

export class CommitPhases {
  /** In seconds. */
  readonly histograms: ReadonlyMap<CommitPhase, Histogram>;
  readonly #now: () => number;

  /** @param now milliseconds of a monotonic clock */
  constructor(now: () => number) {
    this.#now = now;
    this.histograms = new Map(PHASES.map((phase) => [phase, new Histogram(SECONDS_BOUNDS)]));
  }

  /** Begins a phase. @returns what ends it, and begins the next one */
  begin(): (ended: CommitPhase) => void {
    let begunAt = this.#now();
    return (ended) => {
      const now = this.#now();
      this.histograms.get(ended)?.observe((now - begunAt) / 1_000);
      begunAt = now;
    };
  }
}

/** Counts of commit groups, for metrics. */
export interface GroupCounts {
  readonly groupEvents: Histogram;
  /** Seconds from a group's arrival to its outcome, retries included. */
  readonly groupSeconds: Histogram;
  /** The phases of groups that are copied. */
  readonly phases: CommitPhases;
}

/** @param now milliseconds of a monotonic clock */
export function newGroupCounts(now: () => number): GroupCounts {
  return {
    groupEvents: new Histogram(GROUP_BOUNDS),
    groupSeconds: new Histogram(SECONDS_BOUNDS),
    phases: new CommitPhases(now),
  };
}

export class EventWriter implements GroupCounts {
  readonly groupEvents: Histogram;
  readonly groupSeconds: Histogram;
  readonly phases: CommitPhases;
  readonly #options: EventWriterOptions;
  readonly #commit: GroupCommit;
  /** Whether the last failure was for want of disk. */
  isDiskFull = false;
  readonly #kind: GroupKind<AcceptedEvent, WriteOutcome>;
  /** Events with keys, which may be stored already. */
  readonly #keyedKind: GroupKind<AcceptedEvent, WriteOutcome>;
  readonly #idle: WriteConnection[];
  readonly #all: readonly WriteConnection[];
  readonly #inserts: Inserts;
  /** When a group last ended, or began while none was in flight. */
  #movedAt = 0;
  #groups = 0;

  constructor(options: EventWriterOptions) {
    this.#options = options;
    const { node, engine, name = 'tidemark writer', timeouts = REFUSING, log } = options;
    const counts = options.counts ?? newGroupCounts(options.now);
    ({ groupEvents: this.groupEvents, groupSeconds: this.groupSeconds, phases: this.phases } = counts);
    this.#commit = new GroupCommit({ ...options, timeouts, isUnreachable: () => node.isUnreachable });
    this.#inserts = new Inserts(engine);
    const insert = (connection: WriteConnection, events: readonly AcceptedEvent[]) =>
      this.#inserts.missing(connection, columns(events), { bytes: sizeOf(events), epoch: epochOf(events) });
    this.#kind = {
      name: 'events',
      store: async (connection, events, { uncertain }) => {
        if (uncertain) await insert(connection, events);
        else await connection.copy(copyGroup(engine, events), epochOf(events), this.phases.begin());
        return events.map(() => null);
      },
      eventsOf: (events) => events,
      refuse: (_, { id }, __, error) => {
        log.error({ err: error, eventId: id }, 'write: the database refuses an event');
        return POISON;
      },
      onExhausted: async (events, end) => {
        this.isDiskFull = isDiskFull(end.error);
        if (end.failure === 'unreachable' || end.failure === 'lost') node.suspect(end.error);
        // A replay of the journal could not store it either.
        const kept = end.failure === 'fault' ? undefined : await options.onExhausted?.(events, end);
        return kept ?? events.map(() => end.refusal);
      },
    };
    this.#keyedKind = {
      ...this.#kind,
      store: async (connection, events, { uncertain }) =>
        keyedOutcomes(events, await insert(connection, events), uncertain),
    };
    this.#all = Array.from({ length: options.connections }, (_, index) =>
      node.connect(`${name} ${index + 1}`, timeouts, engine.session),
    );
    this.#idle = [...this.#all];
  }

  /** Tries of groups after their first one. */
  get retries(): number {
    return this.#commit.retries;
  }

  /** Number of the groups that it was given. */
  get groups(): number {
    return this.#groups;
  }

  /**
   * Commits events together; at most `connections` calls may be in progress. All events have keys, or none. Events for a node that is
   * known not to answer are given up at once.
   * @param uncertain true if some of them may be stored already: then only missing ones are inserted
   */
  async write(events: readonly AcceptedEvent[], uncertain = false): Promise<Outcomes> {
    const isFirst = this.#idle.length === this.#all.length;
    const connection = this.#idle.pop();
    if (connection === undefined) throw new Error('More groups at once than connections.');
    const attempt = this.#commit.begin(uncertain);
    this.#groups += 1;
    if (isFirst) this.#movedAt = attempt.startedAt;
    try {
      if (this.#options.node.isUnreachable) return await this.#giveUp(events, attempt);
      const kind = events[0] !== undefined && isKeyed(events[0]) ? this.#keyedKind : this.#kind;
      return await this.#commit.run(kind, connection, events, attempt);
    } catch (error) {
      // Nothing is known to throw here. If it does, it is unknown whether the events are durable.
      this.#options.log.error({ err: error, events: events.length }, 'write: unexpected error');
      return events.map(() => OUTCOME_UNKNOWN);
    } finally {
      this.#idle.push(connection);
      this.#movedAt = this.#options.now();
      this.groupEvents.observe(events.length);
      this.groupSeconds.observe((this.#movedAt - attempt.startedAt) / 1_000);
    }
  }

  async #giveUp(events: readonly AcceptedEvent[], attempt: Attempt): Promise<Outcomes> {
    const { node, onExhausted } = this.#options;
    const error = nodeUnreachable(node);
    const end = { refusal: NODE_UNREACHABLE, failure: 'unreachable', error, attempt } as const;
    return (await onExhausted?.(events, end)) ?? events.map(() => NODE_UNREACHABLE);
  }

  /** Milliseconds for which groups have been in flight and none has ended. */
  get stillMs(): number {
    return this.#idle.length === this.#all.length ? 0 : this.#options.now() - this.#movedAt;
  }

  /**
   * Whether the database takes events of a time now: inserts one and rolls it back, which needs the same locks, privileges
   * and disk space as a real one. False if all connections are busy, because then it is unknown.
   * @param appId any app, also one that does not exist
   */
  async canWrite(createdAt: number, appId = 0): Promise<boolean> {
    const connection = this.#idle.pop();
    if (connection === undefined) return false;
    try {
      return await this.#try(connection, createdAt, appId);
    } finally {
      this.#idle.push(connection);
    }
  }

  async #try(connection: WriteConnection, createdAt: number, appId: number): Promise<boolean> {
    const event = { id: TRIAL_ID, appId, typeId: 0, createdAt, payload: '{}' };
    try {
      await this.#inserts.attempt(connection, columns([event]), { bytes: 0, lockMs: TRIAL_LOCK_MS });
      this.isDiskFull = false;
      return true;
    } catch (error) {
      this.isDiskFull = isDiskFull(error);
      // Not logged: the failures of groups are in the log already.
      const hasPartition = classify(error) !== 'missing-partition';
      // The next trial shows whether it was made.
      if (!hasPartition)
        await this.#commit.createPartitions(connection, datesOf([event])).catch(() => undefined);
      return false;
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#all.map((connection) => connection.close()));
  }
}
