/** Selects the requests that are measured, where measuring all costs too much. */

/**
 * One request in this many is measured, starting with the first. A prime: connections and batches often come in powers of
 * two and ten, and a common divisor would always sample the same position of a batch.
 */
export const SAMPLED_ONE_IN = 17;

/** Decides for each request in sequence whether it is measured. */
export class Sampling {
  #next = 0;

  isDue(): boolean {
    const due = this.#next === 0;
    this.#next = due ? SAMPLED_ONE_IN - 1 : this.#next - 1;
    return due;
  }
}
