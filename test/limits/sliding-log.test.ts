import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { SlidingLog } from '../../src/limits/sliding-log.ts';
import { limiterContract } from './limiter.contract.ts';

limiterContract('the sliding log in memory', async (limit) => {
  const clock = { ms: 0 };
  return { limiter: new SlidingLog({ limit, now: () => clock.ms }), clock };
});

/** Bytes of buffers that are still reachable. */
function bufferBytes(): number {
  setFlagsFromString('--expose-gc');
  const collect: () => void = runInNewContext('gc');
  collect();
  collect();
  return process.memoryUsage().arrayBuffers;
}

test('the sliding log takes 8 bytes a request, and gives them back when a key has been silent for its window', () => {
  const clock = { ms: 0 };
  const limiter = new SlidingLog({ limit: 1_000, now: () => clock.ms });
  const keys = 1_000;
  const before = bufferBytes();
  for (let key = 0; key < keys; key += 1) for (let index = 0; index < 1_000; index += 1) limiter.take(key);
  const full = bufferBytes() - before;
  expect(full).toBeGreaterThan(keys * 1_000 * 7);
  expect(full).toBeLessThan(keys * 1_000 * 9);
  clock.ms += 60_001;
  limiter.take(keys);
  expect(bufferBytes() - before).toBeLessThan(full / 100);
});

test('the sliding log keeps the window of a key that is not silent when others give their memory back', () => {
  const clock = { ms: 0 };
  const limiter = new SlidingLog({ limit: 2, now: () => clock.ms });
  limiter.take(1);
  clock.ms += 30_000;
  limiter.take(1);
  clock.ms += 30_001;
  limiter.take(2);
  expect(limiter.take(1)).toMatchObject({ accepted: true, remaining: 0 });
  expect(limiter.take(1)).toMatchObject({ accepted: false });
});
