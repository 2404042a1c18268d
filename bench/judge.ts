/** The arithmetic of judging: medians, spreads, ratios of interleaved rounds, and thresholds with their margins. */

/** What several rounds of one measurement come to. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** @returns NaN throughout where there are no values: a figure that was not measured must not pass for zero */
export function spreadOf(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  const lower = sorted.length % 2 === 1 ? upper : (sorted[middle - 1] ?? Number.NaN);
  return {
    median: (lower + upper) / 2,
    min: sorted[0] ?? Number.NaN,
    max: sorted.at(-1) ?? Number.NaN,
  };
}

/**
 * Ratios round by round. Neighboring rounds share the weather of the machine, which the ratio of two medians that were
 * taken at different times would not cancel.
 */
export function pairwise(ours: readonly number[], theirs: readonly number[]): number[] {
  return ours.slice(0, theirs.length).map((value, round) => value / (theirs[round] ?? Number.NaN));
}

/** A bound that a number is held against. */
export interface Bound {
  readonly atLeast?: number;
  readonly atMost?: number;
}

/** NaN keeps no bound. */
export function keeps(value: number, { atLeast, atMost }: Bound): boolean {
  return (
    !Number.isNaN(value) &&
    (atLeast === undefined || value >= atLeast) &&
    (atMost === undefined || value <= atMost)
  );
}

/** One line of thresholds.json. */
export interface Threshold {
  /** The scenario's name and the ratio's, as a result has them. */
  readonly scenario: string;
  readonly ratio: string;
  /** What it was when the threshold was set, and whether more or less of it is better. */
  readonly recorded: number;
  readonly better: 'more' | 'less';
  /** How much worse it may become, as a share of what was recorded: 0.25 is a quarter. */
  readonly margin: number;
}

export interface Verdict {
  readonly threshold: Threshold;
  /** The bound that the recorded ratio and its margin make. */
  readonly bound: number;
  /** Undefined where the run has no such ratio. */
  readonly measured: Spread | undefined;
  readonly passed: boolean;
}

/** A ratio that was not measured fails: a guard that lost its eyes must not say that all is well. */
export function judge(threshold: Threshold, measured: Spread | undefined): Verdict {
  const { recorded, better, margin } = threshold;
  const bound = better === 'more' ? recorded * (1 - margin) : recorded * (1 + margin);
  const passed =
    measured !== undefined &&
    keeps(measured.median, better === 'more' ? { atLeast: bound } : { atMost: bound });
  return { threshold, bound, measured, passed };
}
