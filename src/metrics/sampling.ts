/** Which requests are measured, where measuring every one would cost more than it tells. */

/**
 * One in this many, the first among them. It is a prime: connections and batches like to come in powers of two and
 * in tens, and a divisor of theirs would measure the same place of every batch.
 */
export const SAMPLED_ONE_IN = 17;

/** Says of each of a row of requests whether it is measured. */
export class Sampling {
  #next = 0;

  isDue(): boolean {
    const due = this.#next === 0;
    this.#next = due ? SAMPLED_ONE_IN - 1 : this.#next - 1;
    return due;
  }
}
