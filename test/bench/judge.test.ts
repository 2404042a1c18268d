import { describe, expect, test } from 'vitest';
import {
  intervalOf,
  judge,
  keeps,
  pairwise,
  spreadOf,
  type Threshold,
  thresholdOf,
} from '../../bench/judge.ts';

describe('medians and spreads', () => {
  test('the median of an odd number is the middle one, of an even one the mean of both', () => {
    expect(spreadOf([9, 1, 5])).toEqual({ median: 5, min: 1, max: 9 });
    expect(spreadOf([4, 1, 2, 100])).toEqual({ median: 3, min: 1, max: 100 });
  });

  test('nothing measured is not zero', () => {
    expect(spreadOf([])).toEqual({ median: Number.NaN, min: Number.NaN, max: Number.NaN });
  });
});

test('ratios are made round by round, so that a slow minute of the machine cancels out', () => {
  expect(pairwise([10, 1, 20], [20, 2, 40])).toEqual([0.5, 0.5, 0.5]);
  expect(pairwise([10, 20], [5])).toEqual([2]);
});

describe('the interval of a ratio', () => {
  test('has the ranks of the published table: 6 rounds reach 95 % with the extremes alone, 10 leave out 8 averages', () => {
    // Wilcoxon's signed-rank test, two-sided 5 %: critical values 0 for n = 6, 8 for n = 10.
    const six = [1, 2, 4, 8, 16, 32];
    expect(intervalOf(six).low).toBeCloseTo(1);
    expect(intervalOf(six).high).toBeCloseTo(32);
    const ten = Array.from({ length: 10 }, (_, n) => 2 ** n);
    const averages = Array.from({ length: 10 }, (_, a) =>
      Array.from({ length: 10 - a }, (_, b) => a + b / 2),
    ).flat();
    averages.sort((a, b) => a - b);
    expect(Math.log2(intervalOf(ten).low)).toBeCloseTo(averages[8] ?? Number.NaN);
    expect(Math.log2(intervalOf(ten).high)).toBeCloseTo(averages[averages.length - 9] ?? Number.NaN);
  });

  test('five rounds are too few, and say so', () => {
    expect(intervalOf([1, 1.1, 1.2, 1.1, 1])).toMatchObject({ low: 0, high: Number.POSITIVE_INFINITY });
  });

  test('one spoilt round of twelve moves neither the estimate nor the bounds by much', () => {
    const calm = [1.19, 1.2, 1.21, 1.2, 1.2, 1.22, 1.18, 1.2, 1.21, 1.19, 1.2];
    const { estimate, low, high } = intervalOf([...calm, 9]);
    expect(estimate).toBeGreaterThan(1.19);
    expect(estimate).toBeLessThan(1.22);
    expect(low).toBeGreaterThan(1.1);
    expect(high).toBeLessThan(1.3);
  });
});

test('a bound is kept on its edge, and never by what is no number', () => {
  expect(keeps(1.5, { atMost: 1.5 })).toBe(true);
  expect(keeps(1.51, { atMost: 1.5 })).toBe(false);
  expect(keeps(0.44, { atLeast: 0.45 })).toBe(false);
  expect(keeps(Number.NaN, { atMost: 1 })).toBe(false);
});

describe('thresholds', () => {
  const more: Threshold = { scenario: 's', ratio: 'r', recorded: 0.4, better: 'more', margin: 0.25 };
  const less: Threshold = { ...more, recorded: 3, better: 'less', margin: 1 };
  const at = (median: number) => ({ median, min: median, max: median });

  test('what should be more may fall by the margin and no further', () => {
    expect(judge(more, at(0.301)).passed).toBe(true);
    expect(judge(more, at(0.299)).passed).toBe(false);
    expect(judge(more, at(0.299)).bound).toBeCloseTo(0.3);
  });

  test('what should be less may grow by the margin: a margin of 1 is twice', () => {
    expect(judge(less, at(5.9)).passed).toBe(true);
    expect(judge(less, at(6.1)).passed).toBe(false);
  });

  test('where the recorded commit is worse on this machine, the margin counts from there; where it is better, it changes nothing', () => {
    expect(judge(less, at(6.1), at(3.1))).toMatchObject({ passed: true, control: at(3.1) });
    expect(judge(less, at(6.3), at(3.1)).passed).toBe(false);
    expect(judge(less, at(5.9), at(2)).passed).toBe(true);
    expect(judge(more, at(0.29), at(0.38)).passed).toBe(true);
    expect(judge(more, at(0.28), at(0.38)).passed).toBe(false);
    expect(judge(more, at(0.301), at(0.5)).passed).toBe(true);
    expect(judge(more, undefined, at(0.38)).passed).toBe(false);
  });

  test('the median decides, not the best round', () => {
    expect(judge(more, { median: 0.2, min: 0.1, max: 0.9 }).passed).toBe(false);
  });

  test('a ratio that was not measured fails', () => {
    expect(judge(more, undefined).passed).toBe(false);
    expect(judge(less, at(Number.NaN)).passed).toBe(false);
  });

  test('ten runs make a margin of their spread, and leave room for other machines where they are alike', () => {
    const medians = Array.from({ length: 10 }, (_, run) => 2 * (run % 2 === 0 ? 1.01 : 0.99));
    const calm = thresholdOf(less, medians);
    expect(calm.recorded).toBeCloseTo(2);
    expect(calm.margin).toBe(0.15);
    expect(thresholdOf(more, medians).margin).toBe(0.15);
    const wild = thresholdOf(
      more,
      medians.map((median, run) => median * (run % 2 === 0 ? 1.1 : 0.9)),
    );
    expect(wild.margin).toBeGreaterThan(0.3);
    expect(wild.margin).toBeLessThan(0.4);
    for (const median of medians) expect(judge(calm, at(median)).passed).toBe(true);
    expect(judge(calm, at(2.4)).passed).toBe(false);
  });

  test('equal runs leave the least margin, and a ratio that was not measured in every run stays as it is', () => {
    expect(thresholdOf(less, Array(10).fill(3)).margin).toBe(0.15);
    expect(thresholdOf(less, [...Array(9).fill(3), Number.NaN])).toBe(less);
    expect(thresholdOf(less, Array(9).fill(3))).toBe(less);
  });
});
