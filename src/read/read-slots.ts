/** Who reads from the database now, and who waits for that: no more at once than there are connections. */

import { Rejection } from '../errors.ts';
import type { Exchange } from '../http/exchange.ts';

const FULL = new Rejection('unavailable', 'Too many reads wait already; try again shortly.');
const NO_ROOM = new Rejection(
  'unavailable',
  'Too many large answers wait for slow readers; try again shortly.',
);
/** For nobody: its exchange has its answer, or no client. */
const GONE = new Rejection('unavailable', 'The request took too long.');

/**
 * Slots for reads, given in the order of asking. A read whose client has left or whose deadline has passed gives its turn
 * away: else a few hundred impatient readers would keep the database busy for long after they are gone.
 */
export class ReadSlots {
  readonly #maxWaiting: number;
  readonly #waiting: (() => void)[] = [];
  #free: number;

  /**
   * @param slots      reads at once: as many as there are connections for them
   * @param maxWaiting beyond it a read is refused at once
   */
  constructor(slots: number, maxWaiting: number) {
    this.#free = slots;
    this.#maxWaiting = maxWaiting;
  }

  /** Runs the read when its turn comes. @returns what it gives, or why it is not to run; rejects as it does */
  async run<T>(exchange: Exchange, read: () => Promise<T>): Promise<T | Rejection> {
    if (this.#free === 0 && this.#waiting.length >= this.#maxWaiting) return FULL;
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      if (exchange.settled) return GONE;
      return exchange.hasRoomForLargeAnswer ? await read() : NO_ROOM;
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free += 1;
      else next();
    }
  }
}
