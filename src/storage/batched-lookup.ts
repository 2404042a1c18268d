/** Batches lookups by key: those that arrive during a statement share the next one. */

import { answerInTime } from './lookup-cache.ts';

/** Timeout of a statement. The next one uses another connection of the pool. */
export const LOOKUP_STATEMENT_TIMEOUT_MS = 3_000;
/** Limit of keys in one statement. */
const MAX_KEYS = 1_000;
/** A pause for lookups of tokens, nearly all of which exist in normal use. */
export const MADE_UP_PAUSE_MS = 10;
/** From this many keys on, a statement that finds less than half of them is taken for one of made-up keys. */
const MANY_KEYS = 16;

/**
 * Queries the database for these keys.
 * @returns the found values; a key that is missing does not exist
 */
export type LoadMany<V> = (keys: readonly string[]) => Promise<ReadonlyMap<string, V>>;

interface Waiting<V> {
  readonly key: string;
  readonly resolve: (value: V | null) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Runs one statement at a time: a client that sends made-up keys costs the database a limited number of statements, and
 * delays the lookup of an existing key by at most two of them.
 */
export class BatchedLookup<V extends NonNullable<unknown>> {
  readonly #loadMany: LoadMany<V>;
  readonly #timeoutMs: number;
  readonly #pauseMs: number;
  #waiting: Waiting<V>[] = [];
  #isAsking = false;

  /**
   * @param timeoutMs timeout of a statement, after which the next one is sent
   * @param pauseMs   delay of the next statement after one of made-up keys, so that it serves more keys; 0 if keys that do
   *                  not exist are normal
   */
  constructor(loadMany: LoadMany<V>, timeoutMs = LOOKUP_STATEMENT_TIMEOUT_MS, pauseMs = 0) {
    this.#loadMany = loadMany;
    this.#timeoutMs = timeoutMs;
    this.#pauseMs = pauseMs;
  }

  /** @returns null if the key does not exist; rejects if the statement does */
  get(key: string): Promise<V | null> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ key, resolve, reject });
      if (!this.#isAsking) void this.#askForAll();
    });
  }

  async #askForAll(): Promise<void> {
    this.#isAsking = true;
    while (this.#waiting.length > 0) {
      const asked = this.#waiting.splice(0, MAX_KEYS);
      try {
        const answer = this.#loadMany([...new Set(asked.map(({ key }) => key))]);
        const found = await answerInTime(answer, this.#timeoutMs);
        for (const { key, resolve } of asked) resolve(found.get(key) ?? null);
        if (this.#pauseMs > 0 && asked.length >= MANY_KEYS && found.size < asked.length / 2)
          await new Promise((resolve) => setTimeout(resolve, this.#pauseMs));
      } catch (error) {
        for (const { reject } of asked) reject(error);
      }
    }
    this.#isAsking = false;
  }
}
