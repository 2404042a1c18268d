import { describe, expect, test } from 'vitest';
import { intervalOf, keeps, pairwise } from '../../bench/judge.ts';

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
