/** Amounts of a UTC day in memory, such as bytes: each is counted whole or not at all. */

import { DAY_MS } from '../base/time-units.ts';

export interface DayDecision {
  readonly accepted: boolean;
  readonly limit: number;
  /** Seconds until the next UTC day begins (rounded up, at least 1). */
  readonly resetSeconds: number;
}

export interface DayLimiter {
  /**
   * Counts an amount of `key` on this day, if the limit leaves room for all of it.
   * @returns null if the key has no limit
   */
  take(key: number, amount: number): DayDecision | null | Promise<DayDecision | null>;
}

export interface DayCountsOptions {
  /** The limit of a key, which may change at any time; null: none. */
  readonly limitOf: (key: number) => number | null;
  /** What is known of the day otherwise, such as from before a restart. @param day its number since 1970 */
  readonly usedOf: (key: number, day: number) => number;
  readonly wall: () => number;
}

export class DayCounts implements DayLimiter {
  readonly #options: DayCountsOptions;
  readonly #counts = new Map<number, number>();
  #day = Number.NaN;

  constructor(options: DayCountsOptions) {
    this.#options = options;
  }

  limitOf(key: number): number | null {
    return this.#options.limitOf(key);
  }

  take(key: number, amount: number): DayDecision | null {
    const limit = this.limitOf(key);
    if (limit === null) return null;
    const used = this.used(key);
    const accepted = used + amount <= limit;
    if (accepted) this.#counts.set(key, used + amount);
    return { accepted, limit, resetSeconds: this.resetSeconds };
  }

  /** Counts what was accepted elsewhere, such as by Redis. */
  note(key: number, amount: number): void {
    this.#counts.set(key, this.used(key) + amount);
  }

  /** What is known of this day. */
  used(key: number): number {
    const { day } = this;
    if (day !== this.#day) this.#counts.clear();
    this.#day = day;
    return Math.max(this.#counts.get(key) ?? 0, this.#options.usedOf(key, day));
  }

  /** The number of this day since 1970. */
  get day(): number {
    return Math.floor(this.#options.wall() / DAY_MS);
  }

  get resetSeconds(): number {
    return Math.max(1, Math.ceil(((this.day + 1) * DAY_MS - this.#options.wall()) / 1_000));
  }
}
