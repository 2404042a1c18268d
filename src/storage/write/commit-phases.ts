/** How long the phases of a commit take: what tells an operator the disk from the service. */
import { Histogram, SECONDS_BOUNDS } from '../../metrics/histogram.ts';

/**
 * In order: single events wait for their group, the group for a connection, the database stores the rows, then it stores their
 * counts and commits, which is mostly the sync of its log, and the process answers.
 */
const PHASES = ['queue', 'connection', 'rows', 'commit', 'answer'] as const;

export type CommitPhase = (typeof PHASES)[number];

export class CommitPhases {
  /** In seconds. */
  readonly histograms: ReadonlyMap<CommitPhase, Histogram>;
  readonly #now: () => number;

  /** @param now milliseconds of a monotonic clock */
  constructor(now: () => number) {
    this.#now = now;
    this.histograms = new Map(PHASES.map((phase) => [phase, new Histogram(SECONDS_BOUNDS)]));
  }

  /** Begins a phase. @returns what ends it, and begins the next one */
  begin(): (ended: CommitPhase) => void {
    let begunAt = this.#now();
    return (ended) => {
      const now = this.#now();
      this.histograms.get(ended)?.observe((now - begunAt) / 1_000);
      begunAt = now;
    };
  }
}
