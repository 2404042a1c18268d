/** The interface of a rate limiter: an exact sliding window of one minute per key. */

export interface LimitDecision {
  readonly accepted: boolean;
  /** Accepted requests allowed in any 60 seconds. */
  readonly limit: number;
  /** Further requests that would be accepted now. */
  readonly remaining: number;
  /** Seconds until the oldest request leaves the window (rounded up, at least 1); 0 if the window is empty. */
  readonly resetSeconds: number;
}

export interface Limiter {
  /**
   * Decides one request of `key` now and, if accepted, counts it.
   * @returns null if there is no limit
   */
  take(key: number): LimitDecision | null | Promise<LimitDecision | null>;
}
