/** Time that grows with the size of an input, measured against itself: the same work with eight times as much. */
import { expect } from 'vitest';

const TIMES = 8;
/** Linear work takes 8 times as long, quadratic work 64 times; caches and garbage make it a little more. */
const MOST = 24;
/** Below that, a measurement is noise: microseconds. */
const LEAST_MICROS = 2_000;
const ROUNDS = 3;

/** Processor time of this process for some work, in microseconds: the best of several rounds. */
function micros(work: () => void): number {
  const rounds = Array.from({ length: ROUNDS }, () => {
    const before = process.cpuUsage();
    work();
    const { user, system } = process.cpuUsage(before);
    return user + system;
  });
  return Math.max(LEAST_MICROS, Math.min(...rounds));
}

/**
 * Fails where the work grows faster than its input.
 * @param prepare makes an input of a size, which is not measured, and returns the work on it
 * @param size    so that the work takes some milliseconds
 */
export function expectLinear(prepare: (size: number) => () => void, size: number): void {
  const small = micros(prepare(size));
  const large = micros(prepare(TIMES * size));
  expect(large / small, `${small} µs, and ${large} µs for ${TIMES} times as much`).toBeLessThan(MOST);
}
