import { expect, test } from 'vitest';
import { Metrics } from '../../src/metrics/metrics.ts';
import { mergeStats } from '../../src/metrics/worker-stats.ts';
import { Exposition } from '../support/exposition.ts';

test('the figures of several workers become one exposition, each sample with its worker', async () => {
  const texts = await Promise.all(
    ['1', '2'].map((worker) => {
      const metrics = new Metrics({ worker });
      metrics.counter('stored_total', 'Stored.', () => 10 * Number(worker));
      metrics.gauge('hits', 'Hits.', () => [{ labels: { cache: 'a' }, value: Number(worker) }]);
      return metrics.text();
    }),
  );
  const all = new Exposition(mergeStats(texts));
  expect(all.families.map(({ name }) => name)).toEqual(['stored_total', 'hits']);
  expect(all.value('stored_total', { worker: '1' })).toBe(10);
  expect(all.value('stored_total', { worker: '2' })).toBe(20);
  expect(all.value('hits', { worker: '2', cache: 'a' })).toBe(2);
});
