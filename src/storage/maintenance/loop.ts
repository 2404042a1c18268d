/** Runs the database's upkeep while the service runs, in one process at a time. */
import type { Logger } from 'pino';
import { errorCode } from '../connect.ts';

/** What there is to do, which differs between the engines. Any of it may run in several processes and be cut off. */
export interface Upkeep {
  /** Before the first event may come: room for it, and policies as the settings say. */
  readonly prepare: () => Promise<void>;
  /** What keeps reads cheap. */
  readonly everySecond: () => Promise<void>;
  /** Room for the coming days, and retention. @returns the names of what retention has dropped */
  readonly everyTenMinutes: () => Promise<readonly string[]>;
}

export interface MaintenanceLoopOptions {
  readonly upkeep: Upkeep;
  /** Whether the next round is this process's to do. */
  readonly takeTurn: () => Promise<boolean>;
  readonly log: Logger;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
}

const OFTEN_MS = 1_000;
const SELDOM_MS = 600_000;

/** The loop. Failures are logged and tried again in the next round. */
export class MaintenanceLoop {
  readonly #options: MaintenanceLoopOptions;
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> = Promise.resolve();
  #stopped = false;
  #seldomAt = Number.NEGATIVE_INFINITY;
  #failing = false;
  #failures = 0;

  constructor(options: MaintenanceLoopOptions) {
    this.#options = options;
  }

  /** Rounds that failed. */
  get failures(): number {
    return this.#failures;
  }

  start(): void {
    this.#schedule(0);
  }

  /** Waits for the round that is under way; no other follows. */
  async stop(): Promise<void> {
    this.#stopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#round;
  }

  #schedule(delay: number): void {
    if (this.#stopped) return;
    this.#timer = setTimeout(() => {
      this.#round = this.#work().finally(() => this.#schedule(OFTEN_MS));
    }, delay);
  }

  async #work(): Promise<void> {
    const { upkeep, takeTurn, log, now } = this.#options;
    try {
      if (!(await takeTurn())) return;
      await upkeep.everySecond();
      if (Math.abs(now() - this.#seldomAt) >= SELDOM_MS) {
        const dropped = await upkeep.everyTenMinutes();
        if (dropped.length > 0) log.info({ dropped }, 'Events behind the retention limit were dropped');
        this.#seldomAt = now();
      }
      this.#failing = false;
    } catch (error) {
      this.#failures += 1;
      const context = { code: errorCode(error), err: error };
      if (!this.#failing) log.warn(context, 'Upkeep of the database failed; it is tried again every second');
      this.#failing = true;
    }
  }
}
