/** How often something may happen in any stretch of time. In memory and per process. */
import { LRUCache } from 'lru-cache';

export interface WindowOptions {
  /** Times per key in any `ms` milliseconds; 0 lifts the limit. */
  readonly limit: number;
  readonly ms: number;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** Beyond so many keys the one that was used longest ago is forgotten. */
const MAX_KEYS = 10_000;

/** For small limits: it keeps a list of times for each key. */
export class Window {
  readonly #options: WindowOptions;
  /** Times by key, the oldest first. By sizes, because `max` would allocate memory for all keys at once. */
  readonly #times = new LRUCache<string, number[]>({ maxSize: MAX_KEYS, sizeCalculation: () => 1 });

  constructor(options: WindowOptions) {
    this.#options = options;
  }

  /** Counts one more of a key. @returns 0 if it may happen; else it is not counted, and these are the milliseconds until it may */
  take(key = ''): number {
    const { limit, ms } = this.#options;
    if (limit === 0) return 0;
    const now = this.#options.now();
    const recent = (this.#times.get(key) ?? []).filter((at) => at > now - ms);
    const [oldest = now] = recent;
    if (recent.length >= limit) return oldest + ms - now;
    this.#times.set(key, [...recent, now]);
    return 0;
  }

  /** Undoes the last count of a key: it did not happen. */
  giveBack(key = ''): void {
    this.#times.get(key)?.pop();
  }
}
