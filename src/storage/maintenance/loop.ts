/** Runs the database's maintenance while the service runs, in one process at a time. */
import type { Logger } from 'pino';
import { errorCode } from '../connect.ts';
import type { FieldStats } from '../fields/upkeep.ts';
import type { SnapshotWatch } from './oldest-snapshot.ts';

/** The tasks of an engine. Each may run in several processes and be interrupted. */
export interface MaintenanceTasks {
  /** Before the first event is stored: creates partitions, and policies that follow the settings. */
  readonly prepare: () => Promise<void>;
  /** Keeps reads cheap. @param oldestSnapshotSeconds age of the oldest snapshot in use; by default there is none */
  readonly everySecond: (oldestSnapshotSeconds?: number) => Promise<void>;
  /** Creates partitions of the coming days, and applies retention. @returns the names of dropped partitions or chunks */
  readonly everyTenMinutes: () => Promise<readonly string[]>;
  /** Of declared fields, by the rounds of this process. */
  readonly fields: FieldStats;
}

export interface MaintenanceLoopOptions {
  readonly tasks: MaintenanceTasks;
  /** The oldest snapshot in use is looked for in each round. */
  readonly snapshots: SnapshotWatch;
  /** Whether this process does the next round. */
  readonly takeTurn: () => Promise<boolean>;
  readonly log: Logger;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
}

const ROUND_MS = 1_000;
const TEN_MINUTES_MS = 600_000;

/** Limit of the time per ten minutes for removing deleted apps. */
export const REMOVE_APPS_MS = 5_000;

/** The loop. A failure is logged, and the next round tries again. */
export class MaintenanceLoop {
  readonly #options: MaintenanceLoopOptions;
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> = Promise.resolve();
  #stopped = false;
  #tenMinutesAt = Number.NEGATIVE_INFINITY;
  #failing = false;
  #failures = 0;
  #isOurTurn = false;

  constructor(options: MaintenanceLoopOptions) {
    this.#options = options;
  }

  /** Rounds that failed. */
  get failures(): number {
    return this.#failures;
  }

  /** Age in seconds of the oldest snapshot in use, while this process does the rounds; else 0. */
  get oldestSnapshotSeconds(): number {
    return this.#isOurTurn ? this.#options.snapshots.seconds : 0;
  }

  /** Of declared fields; of the database as it is now only while this process does the rounds. */
  get fields(): FieldStats {
    const { fields } = this.#options.tasks;
    return this.#isOurTurn ? fields : { waitingSeconds: 0, uncountedMinutes: 0, others: fields.others };
  }

  start(): void {
    this.#schedule(0);
  }

  /** Waits for the current round; no other follows. */
  async stop(): Promise<void> {
    this.#stopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#round;
  }

  #schedule(delay: number): void {
    if (this.#stopped) return;
    this.#timer = setTimeout(() => {
      this.#round = this.#work().finally(() => this.#schedule(ROUND_MS));
    }, delay);
  }

  async #work(): Promise<void> {
    const { tasks, snapshots, takeTurn, log, now } = this.#options;
    try {
      this.#isOurTurn = await takeTurn();
      if (!this.#isOurTurn) return;
      await snapshots.look();
      await tasks.everySecond(snapshots.seconds);
      if (Math.abs(now() - this.#tenMinutesAt) >= TEN_MINUTES_MS) {
        const dropped = await tasks.everyTenMinutes();
        if (dropped.length > 0)
          log.info({ dropped }, 'maintenance: dropped events before the retention boundary');
        this.#tenMinutesAt = now();
      }
      this.#failing = false;
    } catch (error) {
      this.#failures += 1;
      const context = { code: errorCode(error), err: error };
      if (!this.#failing) log.warn(context, 'maintenance: failed, retrying every second');
      this.#failing = true;
    }
  }
}
