/** What keys have taken beyond their due, forgiven at a constant rate: a leaky bucket for each. In memory and per process. */
import { LRUCache } from 'lru-cache';

export interface DebtsOptions {
  /** Beyond so many keys the one that was used longest ago is forgotten. */
  readonly maxKeys: number;
  readonly forgivenPerSecond: number;
  /** Milliseconds of a monotonic clock: set back, a wall clock would forgive nothing until it is there again. */
  readonly now: () => number;
}

export class Debts {
  readonly #options: DebtsOptions;
  readonly #debts: LRUCache<string, { readonly amount: number; readonly at: number }>;

  constructor(options: DebtsOptions) {
    this.#options = options;
    this.#debts = new LRUCache({ max: options.maxKeys });
  }

  of(key: string): number {
    const known = this.#debts.get(key);
    if (known === undefined) return 0;
    const seconds = Math.max(0, this.#options.now() - known.at) / 1_000;
    return Math.max(0, known.amount - seconds * this.#options.forgivenPerSecond);
  }

  /** Forgives what is beyond a limit. */
  limit(key: string, most: number): void {
    if (this.of(key) > most) this.#debts.set(key, { amount: most, at: this.#options.now() });
  }

  /** @param most what is remembered at most. @returns the debt */
  add(key: string, amount: number, most = Number.POSITIVE_INFINITY): number {
    const sum = Math.min(most, this.of(key) + amount);
    this.#debts.set(key, { amount: sum, at: this.#options.now() });
    return sum;
  }
}
