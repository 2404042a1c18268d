/** The interface of a rate limiter: an exact sliding window of one minute per key. */

export interface LimitDecision {
  readonly accepted: boolean;
  /** Accepted requests allowed in any 60 seconds. */
  readonly limit: number;
  /** How many more would be accepted at this moment. */
  readonly remaining: number;
  /** Whole seconds until a place becomes free (rounded up, at least 1); 0 while the window is empty. */
  readonly resetSeconds: number;
}

export interface Limiter {
  /**
   * Decides one request of `key` now and, if accepted, counts it.
   * @returns null where the limit is lifted
   */
  take(key: number): LimitDecision | null | Promise<LimitDecision | null>;
}
