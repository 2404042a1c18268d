/** Lookups by key that come while others are on their way go together in the next statement. */

import { answerInTime } from './lookup-cache.ts';

/** One statement that stays without an answer must not hold up the others: the pool has further connections. */
export const LOOKUP_TIMEOUT_MS = 3_000;
/** Most keys of one statement. */
const MAX_KEYS = 1_000;
/** For tokens, of which nearly all that are sent exist. */
export const MADE_UP_PAUSE_MS = 10;
/** From this many keys on, a statement that finds less than half of them is one of keys that somebody makes up. */
const MANY_KEYS = 16;

/**
 * Asks the database for what is there under these keys.
 * @returns what was found; a key that is not in it does not exist
 */
export type LoadMany<V> = (keys: readonly string[]) => Promise<ReadonlyMap<string, V>>;

interface Waiting<V> {
  readonly key: string;
  readonly resolve: (value: V | null) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * One statement at a time, whatever is asked: who makes up keys that do not exist costs the database a bounded number of
 * statements, and delays the lookup of a good one by two of them, not by a queue of thousands.
 */
export class BatchedLookup<V extends NonNullable<unknown>> {
  readonly #loadMany: LoadMany<V>;
  readonly #timeoutMs: number;
  readonly #pauseMs: number;
  #waiting: Waiting<V>[] = [];
  #isAsking = false;

  /**
   * @param timeoutMs longest wait for a statement, after which the next one is sent
   * @param pauseMs   how long keys are gathered for the next statement after one of made-up keys, most of whose cost is
   *                  its own and not its keys'; 0 where keys that do not exist are usual
   */
  constructor(loadMany: LoadMany<V>, timeoutMs = LOOKUP_TIMEOUT_MS, pauseMs = 0) {
    this.#loadMany = loadMany;
    this.#timeoutMs = timeoutMs;
    this.#pauseMs = pauseMs;
  }

  /** @returns null where there is no such thing; rejects as the statement does */
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
