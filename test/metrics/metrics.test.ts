import { expect, test } from 'vitest';
import { Histogram } from '../../src/metrics/histogram.ts';
import { Metrics } from '../../src/metrics/metrics.ts';
import { SAMPLED_ONE_IN, Sampling } from '../../src/metrics/sampling.ts';
import { Exposition } from '../support/exposition.ts';

test('a bound belongs to its bucket, and what is above all bounds to the infinite one', () => {
  const histogram = new Histogram([1, 2, 5]);
  for (const value of [0, 1, 1.5, 2, 5, 5.1, 1_000]) histogram.observe(value);
  expect(histogram.buckets()).toEqual([
    { bound: 1, count: 2 },
    { bound: 2, count: 4 },
    { bound: 5, count: 5 },
    { bound: Number.POSITIVE_INFINITY, count: 7 },
  ]);
  expect(histogram.sum).toBeCloseTo(1_014.6);
});

test('the first of each row of requests is measured', () => {
  const sampling = new Sampling();
  const due = Array.from({ length: 3 * SAMPLED_ONE_IN }, () => sampling.isDue());
  expect(due.flatMap((isDue, index) => (isDue ? [index] : []))).toEqual([
    0,
    SAMPLED_ONE_IN,
    2 * SAMPLED_ONE_IN,
  ]);
});

test('figures are read when they are asked for, with the labels that they have then', () => {
  const metrics = new Metrics();
  let depth = 3;
  const jobs = new Map([['a "quoted"\\\nname', 1]]);
  const sizes = new Histogram([1]);
  metrics.gauge('depth', 'Depth.', () => depth);
  metrics.counter('jobs_total', 'Jobs.', () => [...jobs].map(([job, value]) => ({ labels: { job }, value })));
  metrics.histogram('sizes', 'Sizes.', () => sizes);
  const first = new Exposition(metrics.text());
  expect(first.value('depth')).toBe(3);
  expect(first.nonZero('jobs_total')).toEqual({ 'a "quoted"\\\nname': 1 });
  expect(first.value('sizes_count')).toBe(0);

  depth = 0;
  jobs.set('b', 0).set('a "quoted"\\\nname', 7);
  sizes.observe(0.5);
  sizes.observe(8);
  const second = new Exposition(metrics.text());
  expect(second.value('depth')).toBe(0);
  expect(second.value('jobs_total', { job: 'b' })).toBe(0);
  expect(second.nonZero('jobs_total')).toEqual({ 'a "quoted"\\\nname': 7 });
  expect(second.value('sizes_bucket', { le: '1' })).toBe(1);
  expect(second.value('sizes_bucket', { le: '+Inf' })).toBe(2);
  expect(second.value('sizes_sum')).toBe(8.5);
});

test('a name that is taken or not allowed is refused', () => {
  const metrics = new Metrics();
  metrics.gauge('depth', 'Depth.', () => 1);
  expect(() => metrics.counter('depth', 'Depth.', () => 1)).toThrow('There is a metric depth already.');
  expect(() => metrics.histogram('depth', 'Depth.', () => new Histogram([1]))).toThrow(
    'There is a metric depth already.',
  );
  expect(() => metrics.gauge('not a name', 'Bad.', () => 1)).toThrow('not a name is not a name of a metric.');
});
