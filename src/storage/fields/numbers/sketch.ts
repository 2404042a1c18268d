/**
 * Quantiles of numbers with a bounded relative error, from counts that can be added: DDSketch (Masson, Rim, Lee: "DDSketch: a
 * fast and fully-mergeable quantile sketch with relative-error guarantees", VLDB 2019, https://arxiv.org/abs/1908.10693).
 *
 * Numbers are counted in bins whose bounds are powers of γ = (1 + α) / (1 − α): whatever lies in (γ^(i−1), γ^i] is within α of
 * 2γ^i / (γ + 1). Negative numbers have bins of their own, and zero has one. The range of the numbers bounds the bins, so that
 * none are collapsed: the guarantee holds for every quantile.
 */
import { MOST_FRACTION_DIGITS, MOST_WHOLE_DIGITS } from './decimal-sum.ts';

/** The promised error is 1 %; the rest covers the rounding of logarithms at the bounds of bins. */
export const MOST_ERROR = 0.01;
const ALPHA = 0.0099;
const GAMMA = (1 + ALPHA) / (1 - ALPHA);
const LOG_GAMMA = Math.log(GAMMA);

/** Makes the index of the smallest number positive, so that a bin's sign is that of its numbers. */
const OFFSET = Math.ceil((MOST_FRACTION_DIGITS * Math.LN10) / LOG_GAMMA) + 2;

/** The most bins that a sketch can have. */
export const MOST_BINS = 2 * (OFFSET + Math.ceil((MOST_WHOLE_DIGITS * Math.LN10) / LOG_GAMMA) + 1) + 1;

/** Counts by bin. Bins are ordered as their numbers are. */
export type Bins = ReadonlyMap<number, number>;

/** @param number finite, and 0 or within the range of the bins */
export function binOf(number: number): number {
  if (number === 0) return 0;
  const bin = Math.ceil(Math.log(Math.abs(number)) / LOG_GAMMA) + OFFSET;
  return number < 0 ? -bin : bin;
}

/** A number that is within the error of every number of the bin. */
function middleOf(bin: number): number {
  if (bin === 0) return 0;
  const size = (2 * GAMMA ** (Math.abs(bin) - OFFSET)) / (GAMMA + 1);
  return bin < 0 ? -size : size;
}

/**
 * The quantiles of what is counted: of n numbers in order, the one at ⌊q (n − 1)⌋ from 0 on.
 * @param quantiles ascending, from 0 to 1
 * @returns null for each where nothing is counted
 */
export function quantilesOf(bins: Bins, quantiles: readonly number[]): (number | null)[] {
  const inOrder = [...bins].sort(([a], [b]) => a - b);
  const total = inOrder.reduce((sum, [, count]) => sum + count, 0);
  let place = 0;
  let below = 0;
  return quantiles.map((quantile) => {
    if (total <= 0) return null;
    const rank = Math.floor(quantile * (total - 1));
    for (; place < inOrder.length - 1; place += 1) {
      const count = inOrder[place]?.[1] ?? 0;
      if (below + count > rank) break;
      below += count;
    }
    return middleOf(inOrder[place]?.[0] ?? 0);
  });
}
