/** How often something may happen in any stretch of time: an exact sliding window. In memory and per process. */
import { MINUTE_MS } from './time-units.ts';

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

  /** Drops those at a time or before it: what happens at t and at t + the window's length never shares a window. */
  expire(until: number): void {
    while (this.count > 0 && this.oldest() <= until) this.shift();
  }

  /** Drops the oldest. */
  shift(): void {
    this.#head = (this.#head + 1) % this.#times.length;
    this.count -= 1;
  }

  /** Drops the newest. */
  pop(): void {
    if (this.count > 0) this.count -= 1;
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

/** Limit of keys that clients choose, such as addresses: see {@link WindowOptions.maxKeys}. */
export const MOST_CLIENTS = 10_000;

export interface WindowOptions<Key extends number | string = string> {
  /** Times per key in any `ms` milliseconds; 0 lifts the limit. */
  readonly limit: number;
  /** The limit of a key that has one of its own; null: it has none. It may change at any time. */
  readonly limitOf?: ((key: Key) => number | null) | undefined;
  /** Milliseconds; a minute by default. */
  readonly ms?: number;
  /** Beyond so many keys the one that was used longest ago is forgotten. No limit by default. */
  readonly maxKeys?: number;
  /** Milliseconds of a monotonic clock: a wall clock that jumps must not move the window. */
  readonly now: () => number;
}

/** Whether something may happen, and how much of its limit is left. */
export interface WindowDecision {
  readonly accepted: boolean;
  /** Times allowed in any window. */
  readonly limit: number;
  /** Further times that would be accepted now. */
  readonly remaining: number;
  /** Seconds until the oldest leaves the window (rounded up, at least 1); 0 if the window is empty. */
  readonly resetSeconds: number;
}

/**
 * Keeps the times of each key: accepts one exactly when fewer than `limit` were accepted in the window before it. Takes at most
 * 8 bytes for each time in the window and O(1) amortized time.
 */
export class Window<Key extends number | string = string> {
  readonly #options: WindowOptions<Key>;
  readonly #ms: number;
  readonly #maxKeys: number;
  /** With a limit of keys the one that was used longest ago is the first. */
  readonly #rings = new Map<Key, Ring>();
  #sweptAt: number;

  constructor(options: WindowOptions<Key>) {
    this.#options = options;
    this.#ms = options.ms ?? MINUTE_MS;
    this.#maxKeys = options.maxKeys ?? Number.POSITIVE_INFINITY;
    this.#sweptAt = options.now();
  }

  /** The limit of a key now; 0: none. */
  limitOf(key: Key): number {
    return this.#options.limitOf?.(key) ?? this.#options.limit;
  }

  /** Counts one more of a key if it may happen. @returns null without a limit */
  take(key: Key): WindowDecision | null {
    const limit = this.limitOf(key);
    if (limit === 0) return null;
    const now = this.#options.now();
    const ring = this.#ring(key, now);
    const accepted = ring.count < limit;
    if (accepted) ring.push(now, limit);
    const resetSeconds = Math.max(1, Math.ceil(this.#waitMs(ring, limit, now) / 1_000));
    return { accepted, limit, remaining: Math.max(0, limit - ring.count), resetSeconds };
  }

  /** Counts one more of a key if it may happen. @returns 0 if it may, or without a limit; else milliseconds until it may */
  wait(key: Key): number {
    const limit = this.limitOf(key);
    if (limit === 0) return 0;
    const now = this.#options.now();
    const ring = this.#ring(key, now);
    if (ring.count >= limit) return this.#waitMs(ring, limit, now);
    ring.push(now, limit);
    return 0;
  }

  /** The refusal that `key` would get now; null if it would be accepted. Does not count. */
  refusal(key: Key): WindowDecision | null {
    const ring = this.#rings.get(key);
    ring?.expire(this.#options.now() - this.#ms);
    const limit = this.limitOf(key);
    return ring === undefined || limit === 0 || ring.count < limit ? null : this.take(key);
  }

  /** Counts one of `key` that was accepted elsewhere. */
  note(key: Key): void {
    const limit = this.limitOf(key);
    if (limit === 0) return;
    const now = this.#options.now();
    const ring = this.#ring(key, now);
    // Clocks differ slightly: in Redis the oldest may have left the window already.
    if (ring.count >= limit) ring.shift();
    ring.push(now, limit);
  }

  /** Undoes the last count of a key: it did not happen. */
  giveBack(key: Key): void {
    this.#rings.get(key)?.pop();
  }

  /** A limit that was lowered since may be exceeded: then more than the oldest must leave before one is accepted. */
  #waitMs(ring: Ring, limit: number, now: number): number {
    return ring.at(Math.max(0, ring.count - limit)) + this.#ms - now;
  }

  /** The times of a key in the window. */
  #ring(key: Key, now: number): Ring {
    if (now - this.#sweptAt > this.#ms) this.#sweep(now);
    let ring = this.#rings.get(key);
    if (ring === undefined) {
      ring = new Ring();
      this.#rings.set(key, ring);
      if (this.#rings.size > this.#maxKeys) this.#forgetFirst();
    } else if (this.#maxKeys !== Number.POSITIVE_INFINITY) {
      this.#rings.delete(key);
      this.#rings.set(key, ring);
    }
    ring.expire(now - this.#ms);
    return ring;
  }

  #forgetFirst(): void {
    const [first] = this.#rings.keys();
    if (first !== undefined) this.#rings.delete(first);
  }

  /** Runs once a window: frees the memory of keys without times in it. */
  #sweep(now: number): void {
    this.#sweptAt = now;
    for (const [key, ring] of this.#rings) {
      if (ring.count === 0 || ring.newest() <= now - this.#ms) this.#rings.delete(key);
    }
  }
}
