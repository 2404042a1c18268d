import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { Window } from '../../src/base/window.ts';
import { limiterContract } from '../limits/limiter-suite.ts';
import { sized } from '../support/fuzz.ts';

limiterContract(
  'the sliding log in memory',
  async (limit) => {
    const clock = { ms: 0 };
    return { limiter: new Window<number>({ limit, now: () => clock.ms }), clock };
  },
  { runs: sized(100, 300) },
);

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
  const limiter = new Window<number>({ limit: 1_000, now: () => clock.ms });
  const keys = sized(100, 1_000);
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
  const limiter = new Window<number>({ limit: 2, now: () => clock.ms });
  limiter.take(1);
  clock.ms += 30_000;
  limiter.take(1);
  clock.ms += 30_001;
  limiter.take(2);
  expect(limiter.take(1)).toMatchObject({ accepted: true, remaining: 0 });
  expect(limiter.take(1)).toMatchObject({ accepted: false });
});

test('what was accepted elsewhere counts, and never for more than the limit', () => {
  const clock = { ms: 0 };
  const limiter = new Window<number>({ limit: 3, now: () => clock.ms });
  expect(limiter.refusal(1)).toBeNull();
  limiter.note(1);
  clock.ms = 10_000;
  limiter.note(1);
  expect(limiter.refusal(1)).toBeNull();
  limiter.note(1);
  expect(limiter.refusal(1)).toEqual({ accepted: false, limit: 3, remaining: 0, resetSeconds: 50 });
  // One more: the clocks of two places differ. The oldest makes room for it.
  limiter.note(1);
  expect(limiter.refusal(1)).toEqual({ accepted: false, limit: 3, remaining: 0, resetSeconds: 60 });
  clock.ms = 69_999;
  expect(limiter.refusal(1)).toMatchObject({ resetSeconds: 1 });
  clock.ms = 70_000;
  expect(limiter.refusal(1)).toBeNull();
  // To ask counts nothing.
  for (const remaining of [2, 1, 0]) {
    expect(limiter.refusal(1)).toBeNull();
    expect(limiter.take(1)).toMatchObject({ accepted: true, remaining });
  }
  expect(limiter.take(1)).toMatchObject({ accepted: false, remaining: 0 });
});

test('a window that grows keeps the order of its times, wherever it begins in its memory', () => {
  const clock = { ms: 0 };
  const limiter = new Window<number>({ limit: 40, now: () => clock.ms });
  for (let index = 0; index < 16; index += 1) {
    clock.ms = index * 1_000;
    limiter.take(1);
  }
  // Ten have left the window, and twenty come: the ring grows while its head is in the middle.
  clock.ms = 69_999;
  for (let index = 0; index < 20; index += 1) limiter.take(1);
  expect(limiter.take(1)).toMatchObject({ accepted: true, remaining: 40 - 6 - 21, resetSeconds: 1 });
  for (const second of [70, 71, 72, 73, 74, 75]) {
    clock.ms = second * 1_000;
    expect(limiter.take(1)?.resetSeconds).toBe(second === 75 ? 55 : 1);
  }
  expect(limiter.take(1)).toMatchObject({ remaining: 40 - 21 - 7 });
});
