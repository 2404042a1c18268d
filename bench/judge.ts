/** The arithmetic of judging: medians, spreads, and ratios of interleaved rounds. */

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
