/** Runs the database's maintenance while the service runs. Several processes may do so: the work itself takes turns. */
import type { Logger } from 'pino';
import { errorCode, type Sql } from './connect.ts';
import { applyRetention, ensurePartitions, foldCounts } from './maintenance.ts';

export interface HousekeepingOptions {
  /** A pool of its own: a fold must not wait for reads. */
  readonly sql: Sql;
  readonly retentionDays: number;
  readonly log: Logger;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
}

/** Pending deltas cost every read a little: a second's worth at full load is some 25,000 rows, 2 ms of a read. */
const FOLD_EVERY_MS = 1_000;
const UPKEEP_EVERY_MS = 600_000;
/** Folded deltas after which their dead rows are vacuumed away. */
const VACUUM_AFTER_DELTAS = 2_000;

const DAY_MS = 86_400_000;
/** Partitions are made for yesterday, for a clock that was ahead, and a week ahead, for a service that is down then. */
const DAYS_BEHIND = 1;
const DAYS_AHEAD = 7;

/** Makes the partitions that the coming days need. Called before the first event may come. */
export function prepareDays(sql: Sql, now: number): Promise<void> {
  return ensurePartitions(sql, now - DAYS_BEHIND * DAY_MS, now + DAYS_AHEAD * DAY_MS);
}

/** The loop. Failures are logged and tried again in the next round. */
export class Housekeeping {
  readonly #options: HousekeepingOptions;
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> = Promise.resolve();
  #stopped = false;
  #upkeepAt = Number.NEGATIVE_INFINITY;
  #foldedSinceVacuum = 0;
  #failing = false;

  constructor(options: HousekeepingOptions) {
    this.#options = options;
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
      this.#round = this.#work().finally(() => this.#schedule(FOLD_EVERY_MS));
    }, delay);
  }

  async #work(): Promise<void> {
    try {
      await this.#fold();
      await this.#keepUp();
      this.#failing = false;
    } catch (error) {
      const context = { code: errorCode(error), err: error };
      if (!this.#failing)
        this.#options.log.warn(context, 'Maintenance failed; it is tried again every second');
      this.#failing = true;
    }
  }

  async #fold(): Promise<void> {
    const { sql } = this.#options;
    this.#foldedSinceVacuum += await foldCounts(sql);
    if (this.#foldedSinceVacuum < VACUUM_AFTER_DELTAS) return;
    this.#foldedSinceVacuum = 0;
    await sql`VACUUM count_deltas`;
  }

  async #keepUp(): Promise<void> {
    const { sql, retentionDays, now } = this.#options;
    if (now() - this.#upkeepAt < UPKEEP_EVERY_MS) return;
    await prepareDays(sql, now());
    const { dropped } = await applyRetention(sql, { days: retentionDays, now: now() });
    if (dropped.length > 0)
      this.#options.log.info({ dropped }, 'Partitions behind the retention limit were dropped');
    this.#upkeepAt = now();
  }
}
