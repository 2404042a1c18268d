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

/** The greatest number of a bin of positive numbers: the double of which the next one is in the next bin. */
function greatestOf(bin: number): number {
  const power = GAMMA ** (bin - OFFSET);
  // A power is as inexact as the logarithm that numbers were counted by.
  let [low, high] = [power * (1 - 1e-9), power * (1 + 1e-9)];
  for (;;) {
    const middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return low;
    if (binOf(middle) > bin) high = middle;
    else low = middle;
  }
}

/** The numbers of a bin of a histogram: of its two ends the one nearer to 0 is exclusive. The bin of 0 has 0 as both. */
export interface HistogramBin {
  readonly from: number;
  readonly to: number;
}

/** Bins of some numbers, ascending, as wide as 1, 2, 4 … of those of a sketch: the edges of wide ones are edges of narrow ones. */
export interface Histogram {
  readonly bins: readonly HistogramBin[];
  /** Counts by these bins. @param bins of some of the numbers */
  countsOf(bins: Bins): number[];
}

/** @param all the bins of all numbers @param most how many bins it may have, at least 5 */
export function histogramOf(all: Bins, most: number): Histogram {
  /** By sign, the first and the last bin in the order of sizes. */
  const ends = new Map<number, [first: number, last: number]>();
  all.forEach((bin) => {
    const [first = Infinity, last = -Infinity] = ends.get(Math.sign(bin)) ?? [];
    ends.set(Math.sign(bin), [Math.min(first, Math.abs(bin)), Math.max(last, Math.abs(bin))]);
  });
  let width = 1;
  const wide = (bin: number): number => (bin === 0 ? 0 : Math.ceil((bin - OFFSET) / width));
  const lengthOf = ([first, last]: [number, number]): number => wide(last) - wide(first) + 1;
  while ([...ends.values()].reduce((sum, one) => sum + lengthOf(one), 0) > most) width *= 2;
  const bins: HistogramBin[] = [];
  const places = new Map<number, (bin: number) => number>();
  for (const sign of [-1, 0, 1]) {
    const own = ends.get(sign);
    if (own === undefined) continue;
    const [before, length, first] = [bins.length, lengthOf(own), wide(own[0])];
    places.set(sign, (bin) => {
      const place = wide(Math.abs(bin)) - first;
      return before + (sign < 0 ? length - 1 - place : place);
    });
    for (let at = 0; at < length; at += 1) {
      const size = (sign < 0 ? length - 1 - at : at) + first;
      const [near, far] =
        sign === 0 ? [0, 0] : [size - 1, size].map((edge) => greatestOf(edge * width + OFFSET));
      bins.push(sign < 0 ? { from: -(far ?? 0), to: -(near ?? 0) } : { from: near ?? 0, to: far ?? 0 });
    }
  }
  return {
    bins,
    countsOf: (some) => {
      const counts = bins.map(() => 0);
      some.forEach((bin, count) => {
        const at = places.get(Math.sign(bin))?.(bin) ?? 0;
        counts[at] = (counts[at] ?? 0) + count;
      });
      return counts;
    },
  };
}

/** As many bins as are merged with one of their number by a search for each rather than by a walk through all. */
const SEARCHED = 8;

/** Counts by bin, in the order of the bins, which is that of their numbers. No count is 0. */
export class Bins {
  #bins: number[] = [];
  #counts: number[] = [];

  get size(): number {
    return this.#bins.length;
  }

  /** Calls with each bin and its count, in order. */
  forEach(use: (bin: number, count: number) => void): void {
    for (let at = 0; at < this.#bins.length; at += 1) use(this.#bins[at] ?? 0, this.#counts[at] ?? 0);
  }

  /** @param count may be negative */
  add(bin: number, count: number): void {
    const at = this.#placeOf(bin);
    if (this.#bins[at] !== bin) {
      this.#bins.splice(at, 0, bin);
      this.#counts.splice(at, 0, count);
      return;
    }
    const sum = (this.#counts[at] ?? 0) + count;
    this.#counts[at] = sum;
    if (sum !== 0) return;
    this.#bins.splice(at, 1);
    this.#counts.splice(at, 1);
  }

  addBins(other: Bins): void {
    this.addSorted(other.#bins, other.#counts, other.size);
  }

  /** @param bins ascending, each once @param counts of each, none of them 0 @param size how many there are of both */
  addSorted(bins: readonly number[], counts: readonly number[], size: number): void {
    if (this.#bins.length === 0) {
      this.#bins = bins.slice(0, size);
      this.#counts = counts.slice(0, size);
    } else if (size * SEARCHED < this.#bins.length) {
      for (let at = 0; at < size; at += 1) this.add(bins[at] ?? 0, counts[at] ?? 0);
    } else {
      this.#merge(bins, counts, size);
    }
  }

  /**
   * The quantiles of what is counted, by nearest rank: of n numbers in order the one at ⌈q n⌉, as SQL's `percentile_disc`.
   * @param quantiles ascending, from 0 to 1
   * @returns null for each where nothing is counted
   */
  quantiles(quantiles: readonly number[]): (number | null)[] {
    const total = this.#counts.reduce((sum, count) => sum + count, 0);
    let place = 0;
    let below = 0;
    return quantiles.map((quantile) => {
      if (total <= 0) return null;
      const rank = Math.max(1, Math.ceil(quantile * total));
      for (; place < this.#bins.length - 1; place += 1) {
        const count = this.#counts[place] ?? 0;
        if (below + count >= rank) break;
        below += count;
      }
      return middleOf(this.#bins[place] ?? 0);
    });
  }

  /** Index of a bin, or where it belongs. */
  #placeOf(bin: number): number {
    let [low, high] = [0, this.#bins.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#bins[middle] ?? 0) < bin) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** From the last bin on, in place: most bins are there already. */
  #merge(bins: readonly number[], counts: readonly number[], size: number): void {
    const [ownBins, ownCounts] = [this.#bins, this.#counts];
    let own = ownBins.length - 1;
    for (let [at, other] = [0, 0]; other < size; other += 1) {
      const bin = bins[other] ?? 0;
      while (at <= own && (ownBins[at] ?? 0) < bin) at += 1;
      if (at > own || ownBins[at] !== bin) ownCounts[ownBins.push(0) - 1] = 0;
    }
    let hasEmpty = false;
    for (let [at, other] = [ownBins.length - 1, size - 1]; other >= 0; at -= 1) {
      const ownBin = own < 0 ? -Infinity : (ownBins[own] ?? 0);
      const bin = bins[other] ?? 0;
      let count = 0;
      if (ownBin >= bin) count += ownCounts[own--] ?? 0;
      if (bin >= ownBin) count += counts[other--] ?? 0;
      ownBins[at] = Math.max(ownBin, bin);
      ownCounts[at] = count;
      hasEmpty ||= count === 0;
    }
    if (!hasEmpty) return;
    this.#bins = ownBins.filter((_, at) => ownCounts[at] !== 0);
    this.#counts = ownCounts.filter((count) => count !== 0);
  }
}
