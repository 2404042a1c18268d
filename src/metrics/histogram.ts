/** A histogram as plain numbers: an observation costs tens of nanoseconds. */

/** Upper bounds in seconds, from a microsecond to the longest request, three per decade. */
export const SECONDS_BOUNDS: readonly number[] = [
  0.000001, 0.0000025, 0.000005, 0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
  0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25,
];

export interface Bucket {
  /** Inclusive upper bound; infinite for the last bucket. */
  readonly bound: number;
  /** Observations up to the bound, including those of smaller buckets. */
  readonly count: number;
}

/** Fixed buckets and the sum of all observations. Cumulative for the life of the process. */
export class Histogram {
  readonly #bounds: Float64Array;
  /** Per bucket, not cumulative; the last one counts values above every bound. */
  readonly #counts: Float64Array;
  #sum = 0;

  /** @param bounds inclusive upper bounds, ascending */
  constructor(bounds: readonly number[]) {
    this.#bounds = Float64Array.from(bounds);
    this.#counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    const bounds = this.#bounds;
    let bucket = 0;
    while (bucket < bounds.length && value > (bounds[bucket] ?? 0)) bucket += 1;
    this.#counts[bucket] = (this.#counts[bucket] ?? 0) + 1;
    this.#sum += value;
  }

  get sum(): number {
    return this.#sum;
  }

  /** All buckets, the infinite one last: its count is the total. */
  buckets(): readonly Bucket[] {
    let count = 0;
    return Array.from(this.#counts, (own, index) => {
      count += own;
      return { bound: this.#bounds[index] ?? Number.POSITIVE_INFINITY, count };
    });
  }
}
