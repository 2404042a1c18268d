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

/** An estimate with the bounds that hold it with a stated confidence. */
export interface Interval {
  readonly estimate: number;
  readonly low: number;
  readonly high: number;
}

/**
 * The interval of a ratio from ratios of paired rounds: Hodges and Lehmann's estimate and the bounds of Wilcoxon's
 * signed-rank test, both on logarithms (M. Hollander, D. Wolfe: Nonparametric Statistical Methods, 3.2 and 3.3). It asks for
 * no normal distribution, and a round that a neighbor on the machine has spoilt moves it little.
 * @param ratios more than none, each above 0
 * @param confidence below 1; too few rounds for it (below 6 for 0.95) give bounds of 0 and infinity
 */
export function intervalOf(ratios: readonly number[], confidence = 0.95): Interval {
  const logs = ratios.map(Math.log);
  const walsh = logs
    .flatMap((first, index) => logs.slice(index).map((second) => (first + second) / 2))
    .sort((a, b) => a - b);
  const estimate = Math.exp(spreadOf(walsh).median);
  const cut = signedRankQuantile(logs.length, (1 - confidence) / 2);
  const low = walsh[cut - 1];
  const high = walsh[walsh.length - cut];
  if (cut === 0 || low === undefined || high === undefined)
    return { estimate, low: 0, high: Number.POSITIVE_INFINITY };
  return { estimate, low: Math.exp(low), high: Math.exp(high) };
}

/** How many Walsh averages may be left out at either end: the most sums of ranks with at most this tail probability. */
function signedRankQuantile(count: number, tail: number): number {
  const sums = [1];
  for (let rank = 1; rank <= count; rank += 1) {
    for (let sum = (rank * (rank + 1)) / 2; sum >= rank; sum -= 1) {
      sums[sum] = (sums[sum] ?? 0) + (sums[sum - rank] ?? 0);
    }
  }
  let probability = 0;
  let cut = 0;
  for (const ways of sums) {
    probability += ways / 2 ** count;
    if (probability > tail) break;
    cut += 1;
  }
  return cut;
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

/** How many runs a threshold is made of. */
export const RECORDED_RUNS = 10;
/**
 * For ten values of a normal distribution: 99 % of all that follow lie above the mean less so many standard deviations, with a
 * confidence of 95 % (one-sided tolerance factor; NIST/SEMATECH e-Handbook of Statistical Methods, 7.2.6.3).
 */
const TOLERANCE_FACTOR = 3.981;
/** What runs on one machine do not show: another disk or kernel moved ratios of ours by 7 %. */
const LEAST_MARGIN = 0.15;

/**
 * A threshold that a further run of the same code misses once in a hundred times.
 * @param medians of {@link RECORDED_RUNS} runs; with any that was not measured the threshold stays as it is
 */
export function thresholdOf(before: Threshold, medians: readonly number[]): Threshold {
  if (medians.length !== RECORDED_RUNS || !medians.every((median) => median > 0)) return before;
  const logs = medians.map(Math.log);
  const mean = logs.reduce((sum, log) => sum + log, 0) / logs.length;
  const deviation = Math.sqrt(logs.reduce((sum, log) => sum + (log - mean) ** 2, 0) / (logs.length - 1));
  const most = Math.exp(TOLERANCE_FACTOR * deviation);
  const margin = Math.max(LEAST_MARGIN, before.better === 'more' ? 1 - 1 / most : most - 1);
  return {
    ...before,
    recorded: Number(Math.exp(mean).toPrecision(3)),
    margin: Math.ceil(margin * 100) / 100,
  };
}

export interface Verdict {
  readonly threshold: Threshold;
  /** The bound that the recorded ratio and its margin make. */
  readonly bound: number;
  /** Undefined where the run has no such ratio. */
  readonly measured: Spread | undefined;
  /** What the commit of the thresholds came to on the same machine; undefined where that was not asked. */
  readonly control: Spread | undefined;
  readonly passed: boolean;
}

/**
 * A ratio that was not measured fails: a guard that lost its eyes must not say that all is well.
 * @param control what the commit that the threshold was recorded with has come to on this machine. Where that is worse than what
 *                was recorded, the machine is another one, and the margin counts from there
 */
export function judge(threshold: Threshold, measured: Spread | undefined, control?: Spread): Verdict {
  const { better, margin } = threshold;
  const [least, most] = [threshold.recorded, control?.median ?? threshold.recorded].sort((a, b) => a - b);
  const recorded = (better === 'more' ? least : most) ?? Number.NaN;
  const bound = better === 'more' ? recorded * (1 - margin) : recorded * (1 + margin);
  const passed =
    measured !== undefined &&
    keeps(measured.median, better === 'more' ? { atLeast: bound } : { atMost: bound });
  return { threshold, bound, measured, control, passed };
}
