import { describe, expect, test } from 'vitest';
import { judge, keeps, pairwise, spreadOf, type Threshold } from '../../bench/judge.ts';

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

  test('the median decides, not the best round', () => {
    expect(judge(more, { median: 0.2, min: 0.1, max: 0.9 }).passed).toBe(false);
  });

  test('a ratio that was not measured fails', () => {
    expect(judge(more, undefined).passed).toBe(false);
    expect(judge(less, at(Number.NaN)).passed).toBe(false);
  });
});
