/** Runs the database's maintenance while the service runs, in one process at a time. */
import type { Logger } from 'pino';
import { Rounds } from '../../base/rounds.ts';
import { DAY_MS } from '../../base/time-units.ts';
import { errorCode } from '../database/connect.ts';
import type { ConsumerNotice, ConsumerStats } from '../feed/upkeep.ts';
import type { FieldStats } from '../fields/upkeep.ts';
import type { MaintenanceLeader } from './leader.ts';
import type { SnapshotWatch } from './oldest-snapshot.ts';

/** A step of a round, by the name that a failure is logged with. */
export type Steps = Readonly<Record<string, () => Promise<unknown>>>;

/** Steps of a round that failed, by name. The others were run. */
export class StepsFailed extends AggregateError {
  readonly byStep: ReadonlyMap<string, unknown>;
  /** Code of the first failure. */
  readonly code: string;

  constructor(byStep: ReadonlyMap<string, unknown>) {
    super([...byStep.values()], `Maintenance failed: ${[...byStep.keys()].join(', ')}`);
    this.byStep = byStep;
    this.code = errorCode(this.errors[0]);
  }
}

/**
 * Runs steps one after the other. One that fails keeps no other from running.
 * @throws StepsFailed once all have been run
 */
export async function runSteps(steps: Steps): Promise<void> {
  const failed = new Map<string, unknown>();
  for (const [name, run] of Object.entries(steps)) {
    try {
      await run();
    } catch (error) {
      failed.set(name, error);
    }
  }
  if (failed.size > 0) throw new StepsFailed(failed);
}

/** The tasks of an engine. Each may run in several processes and be interrupted. */
export interface MaintenanceTasks {
  /** Before the first event is stored: creates partitions, and policies that follow the settings. */
  readonly prepare: () => Promise<void>;
  /** Keeps reads cheap. @param oldestSnapshotSeconds age of the oldest snapshot in use; by default there is none */
  readonly everySecond: (oldestSnapshotSeconds?: number) => Promise<void>;
  /** Creates partitions of the coming days, and applies retention. @returns the names of dropped partitions or chunks */
  readonly everyTenMinutes: () => Promise<readonly string[]>;
  /** Stats of declared fields, by the rounds of this process. */
  readonly fields: FieldStats;
  /** Stats of consumers, by the rounds of this process. */
  readonly consumers: ConsumerStats;
}

export interface MaintenanceLoopOptions {
  readonly tasks: MaintenanceTasks;
  /** The oldest snapshot in use is looked for in each round. */
  readonly snapshots: SnapshotWatch;
  /** Whether this process does the rounds. */
  readonly leader: Pick<MaintenanceLeader, 'take' | 'isOurs' | 'start' | 'stop'>;
  readonly log: Logger;
  readonly now: () => number;
}

const ROUND_MS = 1_000;
const TEN_MINUTES_MS = 600_000;
/** After work of ten minutes has failed, it is due again this much later. */
const RETRY_MS = 60_000;

/** Limit of the time per ten minutes for removing deleted apps. */
export const REMOVE_APPS_MS = 5_000;

/**
 * The loop. A step that fails is logged by its name when it begins to fail and when it works again; the others go on. Steps of a
 * second are retried by the next round, those of ten minutes after a minute.
 */
export class MaintenanceLoop {
  readonly #options: MaintenanceLoopOptions;
  readonly #rounds: Rounds;
  #tenMinutesAt = Number.NEGATIVE_INFINITY;
  /** The UTC day of that, since 1970. */
  #day = Number.NEGATIVE_INFINITY;
  /** Names of the steps that failed when they were run last. */
  readonly #failing = new Set<string>();
  #failures = 0;
  /** Is called after each round of a second of this process. */
  onRound: () => void = () => undefined;

  constructor(options: MaintenanceLoopOptions) {
    this.#options = options;
    this.#rounds = new Rounds({
      work: () => this.#work(),
      pauseMs: () => ROUND_MS,
      // What fails is counted and logged by its step.
      onFailure: (error) => options.log.error({ err: error }, 'maintenance: unexpected error'),
    });
  }

  /** Rounds that failed. */
  get failures(): number {
    return this.#failures;
  }

  /** Age in seconds of the oldest snapshot in use, while this process does the rounds; else 0. */
  get oldestSnapshotSeconds(): number {
    return this.#isOurs ? this.#options.snapshots.seconds : 0;
  }

  /** Stats of declared fields; of the database as it is now only while this process does the rounds. */
  get fields(): FieldStats {
    const { fields } = this.#options.tasks;
    return this.#isOurs ? fields : { waitingSeconds: 0, uncountedMinutes: 0, others: fields.others };
  }

  /** Whether this process does the rounds. */
  get isOurTurn(): boolean {
    return this.#isOurs && !this.#rounds.isStopped;
  }

  /** Stats of consumers; as they are now only while this process does the rounds. */
  get consumers(): Pick<ConsumerStats, 'states' | 'lagSeconds'> {
    if (this.#isOurs) return this.#options.tasks.consumers;
    return { states: { ok: 0, lagging: 0, lost: 0 }, lagSeconds: 0 };
  }

  get #isOurs(): boolean {
    return this.#options.leader.isOurs;
  }

  start(): void {
    this.#options.leader.start();
    this.#rounds.start(0);
  }

  /** Waits for the current round; no other follows. */
  async stop(): Promise<void> {
    await this.#rounds.stop();
    this.#options.leader.stop();
  }

  async #work(): Promise<void> {
    const { tasks, snapshots, leader, log, now } = this.#options;
    const begun = await this.#attempt('turn', async () => {
      if (await leader.take()) await snapshots.look();
    });
    if (!begun || !this.#isOurs) return;
    await this.#attempt('every second', () => tasks.everySecond(snapshots.seconds));
    this.onRound();
    this.#report(tasks.consumers.takeNotices());
    if (!this.#isOurs) return;
    // Boundaries of retention move with the beginning of a UTC day.
    const day = Math.floor(now() / DAY_MS);
    if (Math.abs(now() - this.#tenMinutesAt) < TEN_MINUTES_MS && day === this.#day) return;
    [this.#tenMinutesAt, this.#day] = [now(), day];
    const done = await this.#attempt('every ten minutes', async () => {
      const dropped = await tasks.everyTenMinutes();
      if (dropped.length > 0)
        log.info({ dropped }, 'maintenance: dropped events before the retention boundary');
    });
    if (!done) this.#tenMinutesAt += RETRY_MS - TEN_MINUTES_MS;
  }

  #report(notices: readonly ConsumerNotice[]): void {
    const { log } = this.#options;
    for (const { app, name, state, lagSeconds } of notices) {
      const fields = { app, consumer: name, lagSeconds: Math.round(lagSeconds) };
      if (state === 'ok') log.info(fields, 'consumer: caught up');
      else if (state === 'lagging')
        log.warn(fields, 'consumer: lagging, half of CONSUMER_REACH_HOURS has passed');
      else
        log.error(
          fields,
          'consumer: lost, it lagged longer than CONSUMER_REACH_HOURS; seek tells it where to go on',
        );
    }
  }

  /** @returns false if the work, or a step of it, failed */
  async #attempt(name: string, work: () => Promise<void>): Promise<boolean> {
    try {
      await work();
      this.#note(name, new Map());
      return true;
    } catch (error) {
      this.#failures += 1;
      this.#note(
        name,
        error instanceof StepsFailed ? error.byStep : new Map<string, unknown>([['round', error]]),
      );
      return false;
    }
  }

  #note(work: string, failed: ReadonlyMap<string, unknown>): void {
    const { log } = this.#options;
    for (const [step, error] of failed) {
      const name = `${work}: ${step}`;
      if (!this.#failing.has(name))
        log.warn({ step: name, code: errorCode(error), err: error }, 'maintenance: failed, retrying');
      this.#failing.add(name);
    }
    for (const name of this.#failing) {
      if (!name.startsWith(`${work}: `) || failed.has(name.slice(work.length + 2))) continue;
      this.#failing.delete(name);
      log.info({ step: name }, 'maintenance: works again');
    }
  }
}
