/**
 * Slows down who tries again and again, by key (an account, an address): some attempts are free, then each has to wait
 * twice as long as the one before, up to a bound. Never a lock-out: the wait is bounded, and forgotten after a while.
 *
 * In memory and per process: with several processes behind one address a guesser has that many times the attempts.
 */
import { LRUCache } from 'lru-cache';

export interface SlowDownOptions {
  /** Attempts before the first wait. */
  readonly free: number;
  /** Longest wait between two attempts. */
  readonly longestMs: number;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

interface Attempts {
  readonly count: number;
  readonly last: number;
}

const FIRST_WAIT_MS = 1_000;
/** An account or address that was quiet for this long starts afresh. */
const FORGET_AFTER_MS = 3_600_000;
const MAX_KEYS = 50_000;

export class SlowDown {
  readonly #options: SlowDownOptions;
  readonly #attempts = new LRUCache<string, Attempts>({ max: MAX_KEYS });

  constructor(options: SlowDownOptions) {
    this.#options = options;
  }

  /** Milliseconds until the next attempt of this key may come; 0 where it may come now. */
  wait(key: string): number {
    const attempts = this.#recent(key);
    if (attempts === undefined || attempts.count < this.#options.free) return 0;
    const wait = Math.min(
      FIRST_WAIT_MS * 2 ** (attempts.count - this.#options.free),
      this.#options.longestMs,
    );
    return Math.max(0, attempts.last + wait - this.#options.now());
  }

  /** Counts an attempt when it begins: of many at once only the first ones are free. */
  begin(key: string): void {
    this.#attempts.set(key, { count: (this.#recent(key)?.count ?? 0) + 1, last: this.#options.now() });
  }

  /** The attempt was a good one: earlier ones of this key count no more. */
  forget(key: string): void {
    this.#attempts.delete(key);
  }

  /** The attempt was a good one: it does not count, earlier ones still do. */
  takeBack(key: string): void {
    const attempts = this.#attempts.get(key);
    if (attempts !== undefined) this.#attempts.set(key, { ...attempts, count: attempts.count - 1 });
  }

  #recent(key: string): Attempts | undefined {
    const attempts = this.#attempts.get(key);
    return attempts !== undefined && this.#options.now() - attempts.last < FORGET_AFTER_MS
      ? attempts
      : undefined;
  }
}
