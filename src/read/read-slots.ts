/** Limits concurrent reads to the number of database connections; further reads wait in a queue. */

import { Rejection } from '../errors.ts';
import { type Exchange, TOO_MANY_UNSENT } from '../http/exchange.ts';

const QUEUE_FULL = new Rejection('unavailable', 'Too many reads are waiting; try again shortly.');
/** Never sent: the exchange is settled already. */
const SETTLED = new Rejection('unavailable', 'The request took too long.');

/**
 * Slots for reads, assigned in order of arrival. A read whose client has disconnected or whose deadline has passed is
 * skipped: otherwise clients that give up early would keep the database busy with reads that no one receives.
 */
export class ReadSlots {
  readonly #maxWaiting: number;
  readonly #waiting: (() => void)[] = [];
  #free: number;

  /**
   * @param slots      limit of concurrent reads: the number of connections for them
   * @param maxWaiting limit of waiting reads; beyond it a read is refused
   */
  constructor(slots: number, maxWaiting: number) {
    this.#free = slots;
    this.#maxWaiting = maxWaiting;
  }

  /** Runs the read when a slot is free. @returns its result, or why it was not run; rejects if the read does */
  async run<T>(
    exchange: Pick<Exchange, 'settled' | 'hasRoomForLargeAnswer'>,
    read: () => Promise<T>,
  ): Promise<T | Rejection> {
    if (this.#free === 0 && this.#waiting.length >= this.#maxWaiting) return QUEUE_FULL;
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      if (exchange.settled) return SETTLED;
      return exchange.hasRoomForLargeAnswer ? await read() : TOO_MANY_UNSENT;
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free += 1;
      else next();
    }
  }
}
