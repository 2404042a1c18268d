/** How long the stages of a write take, measured on some of the requests. */
import { Histogram, SECONDS_BOUNDS } from '../metrics/histogram.ts';
import { Sampling } from '../metrics/sampling.ts';

/** The steps of a write once its body is there, in their order. */
const STAGES = ['validate', 'token', 'limit', 'type', 'commit'] as const;

export type Stage = (typeof STAGES)[number];

export interface Stopwatch {
  /** Ends a stage, whatever its outcome; the next one begins. */
  lap(stage: Stage): void;
}

export class StageTimes {
  /** In seconds. */
  readonly histograms: ReadonlyMap<Stage, Histogram>;
  readonly #now: () => number;
  readonly #sampling = new Sampling();

  /** @param now milliseconds of a monotonic clock */
  constructor(now: () => number) {
    this.#now = now;
    this.histograms = new Map(STAGES.map((stage) => [stage, new Histogram(SECONDS_BOUNDS)]));
  }

  /** Begins the first stage of a request. @returns null for a request that is not measured */
  start(): Stopwatch | null {
    if (!this.#sampling.isDue()) return null;
    let startedAt = this.#now();
    return {
      lap: (stage) => {
        const now = this.#now();
        this.histograms.get(stage)?.observe((now - startedAt) / 1_000);
        startedAt = now;
      },
    };
  }
}
