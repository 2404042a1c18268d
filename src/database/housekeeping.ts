/** Runs the database's upkeep while the service runs. Several processes may do so: the work itself takes turns. */
import type { Logger } from 'pino';
import { errorCode, isUnavailable } from './connect.ts';

/** What there is to do, which differs between the engines. Any of it may run in several processes and be cut off. */
export interface Upkeep {
  /** Before the first event may come: room for it, and policies as the settings say. */
  readonly prepare: () => Promise<void>;
  /** What keeps reads cheap. */
  readonly everySecond: () => Promise<void>;
  /** Room for the coming days, and retention. @returns the names of what retention has dropped */
  readonly everyTenMinutes: () => Promise<readonly string[]>;
}

export interface HousekeepingOptions {
  readonly upkeep: Upkeep;
  readonly log: Logger;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
}

const OFTEN_MS = 1_000;
const SELDOM_MS = 600_000;
/** A database that is silent for so long counts as gone, as it does for a writer. */
const SILENCE_MS = 10_000;

/** The loop. Failures are logged and tried again in the next round. */
export class Housekeeping {
  readonly #options: HousekeepingOptions;
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> = Promise.resolve();
  #stopped = false;
  #seldomAt = Number.NEGATIVE_INFINITY;
  #failing = false;
  #failures = 0;
  /** What the last round that ended has found. */
  #reachable = true;
  /** When the question was asked that waits for its answer. */
  #askedAt: number | null = null;

  constructor(options: HousekeepingOptions) {
    this.#options = options;
  }

  /** Rounds that failed. */
  get failures(): number {
    return this.#failures;
  }

  /** Whether the database answers, as the last round found it: about a second old, or the wait of this one. */
  get databaseIsUp(): boolean {
    if (!this.#reachable) return false;
    return this.#askedAt === null || this.#options.now() - this.#askedAt < SILENCE_MS;
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
    const { upkeep, log, now } = this.#options;
    try {
      this.#askedAt = now();
      await upkeep.everySecond();
      // What comes seldom may rightly take long.
      this.#askedAt = null;
      this.#reachable = true;
      if (Math.abs(now() - this.#seldomAt) >= SELDOM_MS) {
        const dropped = await upkeep.everyTenMinutes();
        if (dropped.length > 0) log.info({ dropped }, 'Events behind the retention limit were dropped');
        this.#seldomAt = now();
      }
      this.#failing = false;
    } catch (error) {
      this.#failures += 1;
      this.#askedAt = null;
      this.#reachable = !isUnavailable(error);
      const context = { code: errorCode(error), err: error };
      if (!this.#failing) log.warn(context, 'Upkeep of the database failed; it is tried again every second');
      this.#failing = true;
    }
  }
}
