/** The interface of a rate limiter: an exact sliding window of one minute per key. */
import type { WindowDecision } from '../base/window.ts';

export type LimitDecision = WindowDecision;

export interface Limiter {
  /**
   * Decides one request of `key` now and, if accepted, counts it.
   * @returns null if there is no limit
   */
  take(key: number): LimitDecision | null | Promise<LimitDecision | null>;
}
