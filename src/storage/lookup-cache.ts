/** A bounded memory of lookups in the database, for what nearly every request asks and nearly nobody changes. */
import { LRUCache } from 'lru-cache';
import { isUnavailable } from './connect.ts';

export interface LookupCacheOptions<V extends NonNullable<unknown>> {
  /**
   * Asks the database. Null: there is no such thing, which is remembered too. A rejection reaches everyone who waits
   * for this lookup and is not remembered.
   */
  readonly load: (key: string) => Promise<V | null>;
  /** Most values remembered; the least recently used goes first. */
  readonly max: number;
  /** Most keys remembered as absent. They have their own room: junk keys never push out good ones. */
  readonly maxNegatives: number;
  /** Longest time in milliseconds, from the start of its lookup, that an answer is believed. */
  readonly ttlMs: number;
  /** Clock in milliseconds. One that is set back costs a new lookup, never a longer belief. */
  readonly now: () => number;
  /** How lookups go while the database is away; without it each takes as long as it takes. */
  readonly outage?: LookupOutage | undefined;
}

/** What is done without a database that answers. */
export interface LookupOutage {
  /** True while it is known not to answer: then it is not asked. */
  readonly isAway: () => boolean;
  /** Longest wait for an answer in milliseconds; then it counts as away. */
  readonly timeoutMs: number;
  /** True where a value that is too old goes on being believed meanwhile, unless a drop has taken it. */
  readonly serveStale: boolean;
}

/** The database was not asked, or did not answer in time. */
export class LookupUnavailable extends Error {
  /** As a socket would say it. */
  readonly code = 'ETIMEDOUT';
}

/** Waits for an answer of the database, but not for longer than that; then rejects with LookupUnavailable. */
export function answerInTime<T>(answer: Promise<T>, timeoutMs: number): Promise<T> {
  // By hand, as a race with a promise that rejects costs as much as all the rest of a lookup.
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new LookupUnavailable('The database did not answer in time')),
      timeoutMs,
    );
    answer.then(
      (value) => {
        clearTimeout(timer);
        resolve(value);
      },
      (error: unknown) => {
        clearTimeout(timer);
        reject(error);
      },
    );
  });
}

/** How often a cache was asked. */
export interface CacheStats {
  /** Answered from memory. */
  readonly hits: number;
  /** Answered by the database, each of those who wait for one lookup counted. */
  readonly misses: number;
}

interface Remembered<V> {
  readonly value: V;
  readonly askedAt: number;
  /** How often everything had been doubted when it was asked. */
  readonly generation: number;
}

/**
 * Key → value or null, asked once for all who wait and believed for a while.
 *
 * Whoever changes what `load` reads calls {@link dropAll} (here: the listener for change notifications, which calls
 * {@link invalidateAll} after it has lost its connection for a while). A lookup is remembered only if neither came between its
 * start and its end: it may have read what was there before the change.
 */
export class LookupCache<V extends NonNullable<unknown>> implements CacheStats {
  readonly #options: LookupCacheOptions<V>;
  readonly #positives: LRUCache<string, Remembered<V>>;
  readonly #negatives: LRUCache<string, Remembered<null>>;
  #generation = 0;
  /** Lookups on their way whose answer may be remembered and shared. One that is no longer here may be neither. */
  readonly #inFlight = new Map<string, Promise<V | null>>();
  #hits = 0;
  #misses = 0;

  constructor(options: LookupCacheOptions<V>) {
    this.#options = options;
    this.#positives = new LRUCache(atMost(options.max));
    this.#negatives = new LRUCache(atMost(options.maxNegatives));
  }

  /** What is remembered and believed; undefined where only a lookup can tell. */
  peek(key: string): V | null | undefined {
    const remembered = this.#positives.get(key) ?? this.#negatives.get(key);
    if (remembered === undefined || !this.#isFresh(remembered)) return undefined;
    this.#hits += 1;
    return remembered.value;
  }

  /** @returns the answer at once where it is remembered, else a promise of it that rejects as `load` does */
  get(key: string): V | null | Promise<V | null> {
    const remembered = this.peek(key);
    if (remembered !== undefined) return remembered;
    const { outage } = this.#options;
    if (outage?.isAway() === true) {
      const old = this.#old(key);
      if (old === null) return Promise.reject(new LookupUnavailable('The database is away'));
      this.#hits += 1;
      return old;
    }
    this.#misses += 1;
    const answer = this.#inFlight.get(key) ?? this.#ask(key);
    return outage === undefined ? answer : this.#answerOrOld(key, answer, outage);
  }

  /** A value that is too old, where such ones are believed. What is known to be absent may be there by now. */
  #old(key: string): V | null {
    return this.#options.outage?.serveStale === true ? (this.#positives.get(key)?.value ?? null) : null;
  }

  async #answerOrOld(key: string, answer: Promise<V | null>, outage: LookupOutage): Promise<V | null> {
    try {
      return await answerInTime(answer, outage.timeoutMs);
    } catch (error) {
      const old = isUnavailable(error) ? this.#old(key) : null;
      if (old === null) throw error;
      return old;
    }
  }

  get hits(): number {
    return this.#hits;
  }

  get misses(): number {
    return this.#misses;
  }

  /** Forgets everything. Who asks from now on gets an answer from a lookup that begins from now on. */
  dropAll(): void {
    this.#inFlight.clear();
    this.#positives.clear();
    this.#negatives.clear();
  }

  /**
   * Changes may have been missed: everything is asked again before it is believed. Only where the database goes away once
   * more, and old values are believed, what was known before still counts.
   */
  invalidateAll(): void {
    this.#inFlight.clear();
    this.#negatives.clear();
    this.#generation += 1;
  }

  #isFresh(remembered: Remembered<V | null>): boolean {
    const age = this.#options.now() - remembered.askedAt;
    return age >= 0 && age < this.#options.ttlMs && remembered.generation === this.#generation;
  }

  #ask(key: string): Promise<V | null> {
    const askedAt = this.#options.now();
    const asking = this.#options.load(key).then(
      (value) => {
        if (this.#land(key, asking)) this.#remember(key, value, askedAt);
        return value;
      },
      (error: unknown) => {
        this.#land(key, asking);
        throw error;
      },
    );
    this.#inFlight.set(key, asking);
    return asking;
  }

  /** Ends a lookup. @returns false where a drop has overtaken it */
  #land(key: string, asking: Promise<V | null>): boolean {
    if (this.#inFlight.get(key) !== asking) return false;
    this.#inFlight.delete(key);
    return true;
  }

  #remember(key: string, value: V | null, askedAt: number): void {
    if (value === null) {
      this.#positives.delete(key);
      this.#negatives.set(key, { value, askedAt, generation: this.#generation });
    } else {
      this.#negatives.delete(key);
      this.#positives.set(key, { value, askedAt, generation: this.#generation });
    }
  }
}

/** A limit by sizes of 1: `max` would allocate room for all entries at once, and most caches stay nearly empty. */
function atMost(entries: number): { maxSize: number; sizeCalculation: () => number } {
  return { maxSize: entries, sizeCalculation: () => 1 };
}
