/** Bounded caches of database lookups, for values that nearly every request needs and that rarely change. */
import { LRUCache } from 'lru-cache';
import { deadline } from '../base/timeout.ts';
import { Rejection } from '../errors.ts';
import { errorCode, isUnavailable, SQLSTATE, type Sql } from '../storage/database/connect.ts';

export interface LookupCacheOptions<V extends NonNullable<unknown>> {
  /**
   * Queries the database, and gives it up after a time. Null means that the key does not exist, which is cached too. A rejection
   * reaches all callers that wait for this lookup, and is not cached.
   */
  readonly load: (key: string) => Promise<V | null>;
  /** Limit of cached values; the least recently used is evicted. */
  readonly max: number;
  /** Limit of keys cached as absent. They have their own cache, so that forged keys never evict values. */
  readonly maxNegatives: number;
  /** Time in milliseconds, from the start of its lookup, for which a result is fresh. */
  readonly ttlMs: number;
  /** Clock in milliseconds. If it is set back, values are looked up again, never kept for longer. */
  readonly now: () => number;
  /** How lookups behave during an outage of the database. */
  readonly outage?: LookupOutage | undefined;
}

/** The behavior of lookups during an outage. */
export interface LookupOutage {
  /** True while the database is known to be unreachable: then it is not queried. */
  readonly isUnreachable: () => boolean;
  /** True while the database may be gone. One that answers others is only busy, and its answer is waited for. */
  readonly isSuspect: () => boolean;
  /** Milliseconds after which a statement without a response is given up if the database is suspect. */
  readonly timeoutMs: number;
  /** Whether stale values are served during an outage, unless they were dropped. */
  readonly serveStale: boolean;
}

/** What every lookup of rows that are cached is given. */
export interface LookupOptions {
  readonly sql: Sql;
  /** Longest time in milliseconds that a cached answer is used without a query. */
  readonly cacheMs: number;
  readonly now: () => number;
  readonly outage?: LookupOutage | undefined;
}

/** The database was not queried, or did not respond in time. */
export class LookupUnavailable extends Error {
  /** The code of a socket's timeout. */
  readonly code = 'ETIMEDOUT';
}

/** The database responds, but not to all lookups in time: too many wait, one has waited too long, or a lock is in the way. */
export class LookupBusy extends Error {
  /** For the client. */
  readonly rejection = TOO_BUSY;
}

const TOO_BUSY = new Rejection(
  'unavailable',
  'The service is busy: too many lookups wait; try again shortly.',
  {
    retryAfterSeconds: 2,
  },
);

/** Milliseconds without a response after which a statement is given up, however busy the database is. */
export const LOOKUP_STATEMENT_TIMEOUT_MS = 3_000;
/** Milliseconds between two looks at a statement that takes long. */
const LOOK_MS = 100;
/** What ends a statement whose database responds: `lock_timeout`, and `statement_timeout` or an operator. */
const ENDED_BY_SERVER: ReadonlySet<string> = new Set([SQLSTATE.lockNotAvailable, SQLSTATE.queryCanceled]);

/**
 * Waits for the response to a statement that has just been sent.
 * @param mostMs milliseconds after which it is given up in any case
 * @throws LookupUnavailable if the database is away, or is suspect and has not responded in `outage.timeoutMs`; LookupBusy if
 *   it has not responded in `mostMs`, or has ended the statement because of a lock or its time
 */
export function answerInTime<T>(
  answer: Promise<T>,
  outage?: LookupOutage,
  mostMs: number = LOOKUP_STATEMENT_TIMEOUT_MS,
): Promise<T> {
  // Not Promise.race: with a rejecting promise it costs as much as the rest of a lookup.
  return new Promise((resolve, reject) => {
    let waitedMs = 0;
    let end: () => void;
    const wait = (ms: number): void => {
      end = deadline(ms, look);
      waitedMs += ms;
    };
    const look = (): void => {
      if (
        outage !== undefined &&
        waitedMs >= outage.timeoutMs &&
        (outage.isUnreachable() || outage.isSuspect())
      )
        reject(new LookupUnavailable('The database did not answer in time'));
      else if (waitedMs >= mostMs) reject(new LookupBusy('The database did not answer in time'));
      else wait(Math.min(LOOK_MS, mostMs - waitedMs));
    };
    wait(Math.min(outage?.timeoutMs ?? mostMs, mostMs));
    answer.then(
      (value) => {
        end();
        resolve(value);
      },
      (error: unknown) => {
        end();
        reject(lookupFailure(error));
      },
    );
  });
}

/** The failure of a lookup: LookupBusy where the server has ended its statement. */
export function lookupFailure(error: unknown): Error {
  if (ENDED_BY_SERVER.has(errorCode(error)))
    return new LookupBusy('The statement was ended', { cause: error });
  return error instanceof Error ? error : new Error(String(error));
}

export interface CacheStats {
  /** Lookups served from memory. */
  readonly hits: number;
  /** Lookups that waited for the database; all that share one query are counted. */
  readonly misses: number;
}

interface Cached<V> {
  readonly value: V;
  readonly askedAt: number;
  /** Number of invalidations before its lookup. */
  readonly generation: number;
}

/**
 * Key → value or null. Concurrent lookups of a key share one query, and the result is cached.
 *
 * A change of the data that `load` reads must call {@link dropAll}, as the listener for change notifications does. It calls
 * {@link invalidateAll} after it was disconnected. A result is only cached if neither happened during its lookup, which may
 * have read the data before the change.
 */
export class LookupCache<V extends NonNullable<unknown>> implements CacheStats {
  readonly #options: LookupCacheOptions<V>;
  readonly #positives: LRUCache<string, Cached<V>>;
  readonly #negatives: LRUCache<string, Cached<null>>;
  #generation = 0;
  /** Running lookups whose result may be cached and shared. A drop removes them. */
  readonly #inFlight = new Map<string, Promise<V | null>>();
  #hits = 0;
  #misses = 0;

  constructor(options: LookupCacheOptions<V>) {
    this.#options = options;
    this.#positives = new LRUCache(atMost(options.max));
    this.#negatives = new LRUCache(atMost(options.maxNegatives));
  }

  /** The cached fresh result; undefined if there is none. */
  peek(key: string): V | null | undefined {
    const cached = this.#positives.get(key) ?? this.#negatives.get(key);
    if (cached === undefined || !this.#isFresh(cached)) return undefined;
    this.#hits += 1;
    return cached.value;
  }

  /** @returns the cached result, else a promise of it, which rejects if `load` does */
  get(key: string): V | null | Promise<V | null> {
    const cached = this.peek(key);
    if (cached !== undefined) return cached;
    const { outage } = this.#options;
    if (outage?.isUnreachable() === true) {
      const stale = this.#stale(key);
      if (stale === null) return Promise.reject(new LookupUnavailable('The database is unreachable'));
      this.#hits += 1;
      return stale;
    }
    this.#misses += 1;
    const answer = this.#inFlight.get(key) ?? this.#ask(key);
    return outage?.serveStale === true ? this.#answerOrStale(key, answer) : answer;
  }

  /** A stale value, if these are served. Not for absent keys, which may have been created since. */
  #stale(key: string): V | null {
    return this.#options.outage?.serveStale === true ? (this.#positives.get(key)?.value ?? null) : null;
  }

  async #answerOrStale(key: string, answer: Promise<V | null>): Promise<V | null> {
    try {
      return await answer;
    } catch (error) {
      const stale = isUnavailable(error) || error instanceof LookupBusy ? this.#stale(key) : null;
      if (stale === null) throw error;
      return stale;
    }
  }

  get hits(): number {
    return this.#hits;
  }

  get misses(): number {
    return this.#misses;
  }

  /** Drops everything. Later calls get the result of a lookup that begins after this one. */
  dropAll(): void {
    this.#inFlight.clear();
    this.#positives.clear();
    this.#negatives.clear();
  }

  /**
   * Makes all values stale, because notifications of changes may have been missed. They are looked up again, and only served
   * during an outage if stale values are.
   */
  invalidateAll(): void {
    this.#inFlight.clear();
    this.#negatives.clear();
    this.#generation += 1;
  }

  #isFresh(cached: Cached<V | null>): boolean {
    const age = this.#options.now() - cached.askedAt;
    return age >= 0 && age < this.#options.ttlMs && cached.generation === this.#generation;
  }

  #ask(key: string): Promise<V | null> {
    const askedAt = this.#options.now();
    const asking = this.#options.load(key).then(
      (value) => {
        if (this.#finish(key, asking)) this.#keep(key, value, askedAt);
        return value;
      },
      (error: unknown) => {
        this.#finish(key, asking);
        throw error;
      },
    );
    this.#inFlight.set(key, asking);
    return asking;
  }

  /** Ends a lookup. @returns false if a drop happened during it */
  #finish(key: string, asking: Promise<V | null>): boolean {
    if (this.#inFlight.get(key) !== asking) return false;
    this.#inFlight.delete(key);
    return true;
  }

  #keep(key: string, value: V | null, askedAt: number): void {
    if (value === null) {
      this.#positives.delete(key);
      this.#negatives.set(key, { value, askedAt, generation: this.#generation });
    } else {
      this.#negatives.delete(key);
      this.#positives.set(key, { value, askedAt, generation: this.#generation });
    }
  }
}

/**
 * The limit of an `lru-cache` of so many entries, by sizes of 1: `max` would allocate memory for all entries at once, and most
 * caches stay nearly empty.
 */
export function atMost(entries: number): { maxSize: number; sizeCalculation: () => number } {
  return { maxSize: entries, sizeCalculation: () => 1 };
}
