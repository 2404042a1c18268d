import { expect, test } from 'vitest';
import { LatencyHistogram } from '../../bench/load/latency.ts';

test('percentiles are within a tenth of a per cent of the sorted values', () => {
  const histogram = new LatencyHistogram();
  for (let value = 1; value <= 10_000; value += 1) histogram.record(value / 10);
  const { p50, p99, p999, max } = histogram.summary() ?? {};
  expect(p50).toBeGreaterThan(499);
  expect(p50).toBeLessThan(501.5);
  expect(p99).toBeGreaterThan(989);
  expect(p99).toBeLessThan(992);
  expect(p999).toBeGreaterThan(998);
  expect(p999).toBeLessThan(1_001);
  expect(max).toBeGreaterThanOrEqual(1_000);
});

test('one slow request in fifty is the 99th percentile and not the median', () => {
  const histogram = new LatencyHistogram();
  for (let index = 0; index < 98; index += 1) histogram.record(0.25);
  histogram.record(80);
  histogram.record(80);
  const { p50, p99 } = histogram.summary() ?? {};
  expect(p50).toBeCloseTo(0.25, 2);
  expect(p99).toBeGreaterThan(79);
});

test('nothing recorded has no percentiles', () => {
  expect(new LatencyHistogram().summary()).toBeNull();
});
