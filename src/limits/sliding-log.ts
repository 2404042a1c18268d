/** The exact sliding window in memory: the acceptance times of each key, in a ring. */
import type { LimitDecision } from './limiter.ts';

const WINDOW_MS = 60_000;

/** Acceptance times of one key within the window, oldest first, in a ring that grows to the limit. */
class Ring {
  #times = new Float64Array(16);
  #head = 0;
  count = 0;

  oldest(): number {
    return this.at(0);
  }

  /** @param index from the oldest, which has 0 */
  at(index: number): number {
    return this.#times[(this.#head + index) % this.#times.length] ?? 0;
  }

  newest(): number {
    return this.#times[(this.#head + this.count - 1) % this.#times.length] ?? 0;
  }

  /** Drops entries outside the window: requests at t and t + 60 s never share a window. */
  expire(now: number): void {
    while (this.count > 0 && this.oldest() <= now - WINDOW_MS) this.shift();
  }

  /** Drops the oldest. */
  shift(): void {
    this.#head = (this.#head + 1) % this.#times.length;
    this.count -= 1;
  }

  push(time: number, limit: number): void {
    if (this.count === this.#times.length) this.#grow(limit);
    this.#times[(this.#head + this.count) % this.#times.length] = time;
    this.count += 1;
  }

  #grow(limit: number): void {
    const larger = new Float64Array(
      Math.max(this.#times.length + 1, Math.min(limit, this.#times.length * 2)),
    );
    larger.set(this.#times.subarray(this.#head));
    larger.set(this.#times.subarray(0, this.#head), this.#times.length - this.#head);
    this.#times = larger;
    this.#head = 0;
  }
}

export interface SlidingLogOptions<Key extends number | string = number> {
  /** Accepted requests per key in any 60 seconds; 0 lifts the limit. */
  readonly limit: number;
  /** The limit of a key that has one of its own; null: it has none. It may change at any time. */
  readonly limitOf?: ((key: Key) => number | null) | undefined;
  /** Milliseconds of a monotonic clock: a wall clock that jumps must not move the window. */
  readonly now: () => number;
}

/**
 * An exact sliding-window log: accepts a request exactly when fewer than `limit` were accepted in the 60 seconds before
 * it. Takes at most 8 bytes per accepted request of the last minute and O(1) amortized time.
 */
export class SlidingLog<Key extends number | string = number> {
  readonly #limit: number;
  readonly #limitOf: ((key: Key) => number | null) | undefined;
  readonly #now: () => number;
  readonly #rings = new Map<Key, Ring>();
  #sweptAt: number;

  constructor(options: SlidingLogOptions<Key>) {
    this.#limit = options.limit;
    this.#limitOf = options.limitOf;
    this.#now = options.now;
    this.#sweptAt = options.now();
  }

  /** The limit of a key now; 0: none. */
  limitOf(key: Key): number {
    return this.#limitOf?.(key) ?? this.#limit;
  }

  take(key: Key): LimitDecision | null {
    const limit = this.limitOf(key);
    if (limit === 0) return null;
    const now = this.#now();
    if (now - this.#sweptAt > WINDOW_MS) this.#sweep(now);
    const ring = this.#ring(key);
    ring.expire(now);
    const accepted = ring.count < limit;
    if (accepted) ring.push(now, limit);
    // A limit that was lowered since may be exceeded: then more than the oldest must leave before a request is accepted.
    const next = ring.at(Math.max(0, ring.count - limit));
    const resetSeconds = Math.max(1, Math.ceil((next + WINDOW_MS - now) / 1000));
    return { accepted, limit, remaining: Math.max(0, limit - ring.count), resetSeconds };
  }

  /** The refusal that a request of `key` would get now; null if it would be accepted. Does not count. */
  refusal(key: Key): LimitDecision | null {
    const ring = this.#rings.get(key);
    ring?.expire(this.#now());
    const limit = this.limitOf(key);
    return ring === undefined || limit === 0 || ring.count < limit ? null : this.take(key);
  }

  /** Counts a request of `key` that was accepted elsewhere. */
  note(key: Key): void {
    const limit = this.limitOf(key);
    if (limit === 0) return;
    const now = this.#now();
    if (now - this.#sweptAt > WINDOW_MS) this.#sweep(now);
    const ring = this.#ring(key);
    ring.expire(now);
    // Clocks differ slightly: in Redis the oldest may have left the window already.
    if (ring.count >= limit) ring.shift();
    ring.push(now, limit);
  }

  #ring(key: Key): Ring {
    let ring = this.#rings.get(key);
    if (ring === undefined) {
      ring = new Ring();
      this.#rings.set(key, ring);
    }
    return ring;
  }

  /** Runs once a window: frees the memory of keys without requests in it. */
  #sweep(now: number): void {
    this.#sweptAt = now;
    for (const [key, ring] of this.#rings) {
      if (ring.count === 0 || ring.newest() <= now - WINDOW_MS) this.#rings.delete(key);
    }
  }
}
