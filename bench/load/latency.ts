/** Latencies in a histogram (HDR, 3 figures), from which percentiles come without keeping every value. */
import { createHistogram, type RecordableHistogram } from 'node:perf_hooks';

/** Milliseconds. */
export interface Latency {
  readonly p50: number;
  readonly p99: number;
  readonly p999: number;
  readonly max: number;
}

const LONGEST_MICROS = 600_000_000;

export class LatencyHistogram {
  readonly #histogram: RecordableHistogram = createHistogram({
    lowest: 1,
    highest: LONGEST_MICROS,
    figures: 3,
  });

  get count(): number {
    return this.#histogram.count;
  }

  /** @param ms longer than ten minutes counts as ten minutes */
  record(ms: number): void {
    this.#histogram.record(Math.min(LONGEST_MICROS, Math.max(1, Math.round(ms * 1_000))));
  }

  /** @returns null where nothing was recorded */
  summary(): Latency | null {
    if (this.#histogram.count === 0) return null;
    const at = (percentile: number): number => this.#histogram.percentile(percentile) / 1_000;
    return { p50: at(50), p99: at(99), p999: at(99.9), max: this.#histogram.max / 1_000 };
  }
}
