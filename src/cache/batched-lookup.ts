/** Batches lookups by key: those that arrive during a statement share the next one. */

import { deadline } from '../base/timeout.ts';
import { type Path, Turns } from '../base/turns.ts';
import {
  answerInTime,
  LOOKUP_STATEMENT_TIMEOUT_MS,
  LookupBusy,
  LookupCache,
  type LookupCacheOptions,
  type LookupOptions,
  type LookupOutage,
  LookupUnavailable,
} from './lookup-cache.ts';

/** Limit of keys in one statement, unless values are large. */
const MAX_KEYS = 1_000;
/** Limit of waiting keys: about 10 MB. */
const MAX_WAITING = 20_000;
/** Limit of the time that a key waits for its statement. */
export const MAX_QUEUED_MS = 10_000;
/** A pause for lookups of tokens, nearly all of which exist in normal use. */
export const UNKNOWN_KEYS_DELAY_MS = 10;
/** Tokens and keys that do not exist, of which as many are remembered. */
const MAX_UNKNOWN = 10_000;
/** From this many keys on, a statement that finds less than half of them is taken for one of forged keys. */
const MANY_KEYS = 16;

const NO_HOLDER: Path = [''];

/**
 * Queries the database for these keys.
 * @returns the found values; a key that is missing does not exist
 */
export type LoadMany<V> = (keys: readonly string[]) => Promise<ReadonlyMap<string, V>>;

export interface BatchedLookupOptions {
  readonly outage?: LookupOutage | undefined;
  /** Timeout of a statement in milliseconds, after which the next one is sent. */
  readonly timeoutMs?: number;
  /**
   * Delay of the next statement in milliseconds after one of forged keys, so that it serves more keys; 0 if keys that do not exist
   * are normal.
   */
  readonly pauseMs?: number;
  /** Limit of keys in one statement. */
  readonly maxKeys?: number;
}

/** What waits for lookups, for metrics. */
export interface LookupQueue {
  /** Lookups that wait for their statement. */
  readonly waiting: number;
  /** Lookups that were refused since the start because too many waited, or because they had waited too long. */
  readonly refused: number;
}

/** Something that waits for its turn, and for a limited time. */
export interface Queued {
  readonly path: Path;
  readonly reject: (error: unknown) => void;
  /** Ends its wait for its turn. */
  endWait?: () => void;
}

/**
 * Holders wait in turns for lookups, at most {@link MAX_WAITING} of them and none for longer than {@link MAX_QUEUED_MS}. In a full
 * queue the latest one of the holder with most of them is refused.
 */
export class LookupTurns<Item extends Queued> implements LookupQueue {
  readonly #turns = new Turns<Item>();
  #refused = 0;

  get waiting(): number {
    return this.#turns.size;
  }

  get refused(): number {
    return this.#refused;
  }

  push(item: Item): void {
    item.endWait = deadline(MAX_QUEUED_MS, () => {
      if (!this.#turns.remove(item.path, item)) return;
      this.#refused += 1;
      item.reject(new LookupBusy('The lookup has waited too long'));
    });
    this.#turns.push(item.path, item);
    if (this.#turns.size <= MAX_WAITING) return;
    const evicted = this.#turns.evict();
    if (evicted === null) return;
    evicted.endWait?.();
    this.#refused += 1;
    evicted.reject(new LookupBusy('Too many lookups wait'));
  }

  /** Takes up to so many, in turns. */
  take(most: number): Item[] {
    const items: Item[] = [];
    while (items.length < most) {
      const item = this.#turns.take();
      if (item === null) break;
      item.endWait?.();
      items.push(item);
    }
    return items;
  }

  /** Refuses all that wait: the database does not respond. */
  refuseAll(error: LookupUnavailable): void {
    for (const { endWait, reject } of this.#turns.drain()) {
      endWait?.();
      reject(error);
    }
  }
}

interface Waiting<V> extends Queued {
  readonly key: string;
  readonly resolve: (value: V | null) => void;
}

/**
 * Runs one statement at a time: a client that sends forged keys costs the database a limited number of statements, and
 * delays the lookup of an existing key by at most two of them.
 */
export class BatchedLookup<V extends NonNullable<unknown>> {
  readonly #loadMany: LoadMany<V>;
  readonly #options: BatchedLookupOptions;
  readonly #queue = new LookupTurns<Waiting<V>>();
  #isAsking = false;

  constructor(loadMany: LoadMany<V>, options: BatchedLookupOptions = {}) {
    this.#loadMany = loadMany;
    this.#options = options;
  }

  get queue(): LookupQueue {
    return this.#queue;
  }

  /**
   * @param holder in whose turn the key is looked up
   * @returns null if the key does not exist; rejects if the statement does, or with LookupBusy or LookupUnavailable
   */
  get(key: string, holder: Path = NO_HOLDER): Promise<V | null> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ key, path: holder, resolve, reject });
      if (!this.#isAsking) void this.#askForAll();
    });
  }

  async #askForAll(): Promise<void> {
    const {
      outage,
      timeoutMs = LOOKUP_STATEMENT_TIMEOUT_MS,
      pauseMs = 0,
      maxKeys = MAX_KEYS,
    } = this.#options;
    this.#isAsking = true;
    for (let asked = this.#queue.take(maxKeys); asked.length > 0; asked = this.#queue.take(maxKeys)) {
      try {
        const answer = this.#loadMany([...new Set(asked.map(({ key }) => key))]);
        const found = await answerInTime(answer, outage, timeoutMs);
        for (const { key, resolve } of asked) resolve(found.get(key) ?? null);
        if (pauseMs > 0 && asked.length >= MANY_KEYS && found.size < asked.length / 2) {
          await new Promise((resolve) => setTimeout(resolve, pauseMs));
        }
      } catch (error) {
        for (const { reject } of asked) reject(error);
        // None of the others would get an answer sooner.
        if (error instanceof LookupUnavailable) this.#queue.refuseAll(error);
      }
    }
    this.#isAsking = false;
  }
}

export interface BatchedCacheOptions<V extends NonNullable<unknown>>
  extends Omit<LookupCacheOptions<V>, 'load'>,
    Omit<BatchedLookupOptions, 'outage'> {
  /** In whose turn a key is looked up. */
  readonly holderOf?: (key: string) => Path;
}

/** A cache of what batched lookups find. */
export class BatchedCache<V extends NonNullable<unknown>> extends LookupCache<V> {
  readonly queue: LookupQueue;

  constructor(loadMany: LoadMany<V>, { holderOf, ...options }: BatchedCacheOptions<V>) {
    const lookup = new BatchedLookup(loadMany, options);
    super({ ...options, load: (key) => lookup.get(key, holderOf?.(key)) });
    this.queue = lookup.queue;
  }
}

/** A cache of tokens or keys. Clients can make up any number of them: after a statement for such the next one is delayed. */
export function cacheOfKeys<V extends NonNullable<unknown>>(
  loadMany: LoadMany<V>,
  max: number,
  { cacheMs: ttlMs, now, outage }: Omit<LookupOptions, 'sql'>,
): BatchedCache<V> {
  return new BatchedCache(loadMany, {
    ...{ max, maxNegatives: MAX_UNKNOWN, ttlMs, now, outage },
    pauseMs: UNKNOWN_KEYS_DELAY_MS,
  });
}
