/** Durations of the stages of a write, measured on a sample of the requests. */
import { Histogram, SECONDS_BOUNDS } from '../metrics/histogram.ts';
import { Sampling } from '../metrics/sampling.ts';

/** The stages of a write after its body has arrived, in order. */
const STAGES = ['validate', 'token', 'limit', 'type', 'commit'] as const;

export type Stage = (typeof STAGES)[number];

export interface Stopwatch {
  /** Ends a stage, whatever its outcome, and begins the next one. */
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

  /** Begins the first stage of a request. @returns null if the request is not in the sample */
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
