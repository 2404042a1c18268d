/** What every limiter promises, whatever keeps its log. Not a test file: each implementation's test calls it. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { LimitDecision, Limiter } from '../../src/limits/limiter.ts';

const WINDOW_MS = 60_000;

export interface LimiterSetup {
  readonly limiter: Limiter;
  /** Milliseconds of a monotonic clock, moved by the tests. */
  readonly clock: { ms: number };
}

/** The definition: a request is accepted where fewer than `limit` were accepted in the 60 seconds before it. */
class ExactLog {
  readonly #accepted: number[] = [];
  readonly #limit: number;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Times of requests that count at this moment, oldest first. */
  within(now: number): number[] {
    return this.#accepted.filter((time) => time > now - WINDOW_MS);
  }

  take(now: number): boolean {
    const accepted = this.within(now).length < this.#limit;
    if (accepted) this.#accepted.push(now);
    return accepted;
  }
}

/**
 * @param make a limiter of this limit at a clock of its own; called once a test, or once a run of a property
 */
export function limiterContract(
  name: string,
  make: (limit: number) => Promise<LimiterSetup>,
  options: { readonly runs?: number } = {},
): void {
  const take = async ({ limiter }: LimiterSetup, key = 1): Promise<LimitDecision> => {
    const decision = await limiter.take(key);
    if (decision === null) throw new Error('There is no limit.');
    return decision;
  };

  describe(name, () => {
    test('accepts as many requests as the limit, and refuses the next', async () => {
      const setup = await make(3);
      const accepted = [];
      for (let index = 0; index < 5; index += 1) accepted.push((await take(setup)).accepted);
      expect(accepted).toEqual([true, true, true, false, false]);
    });

    test('frees a place exactly 60 s after the request that took it', async () => {
      const setup = await make(1);
      await take(setup);
      setup.clock.ms += WINDOW_MS - 1;
      expect((await take(setup)).accepted).toBe(false);
      setup.clock.ms += 1;
      expect((await take(setup)).accepted).toBe(true);
    });

    test('counts down what remains, and says when a place becomes free', async () => {
      const setup = await make(2);
      expect(await take(setup)).toEqual({ accepted: true, limit: 2, remaining: 1, resetSeconds: 60 });
      setup.clock.ms += 10_001;
      expect(await take(setup)).toEqual({ accepted: true, limit: 2, remaining: 0, resetSeconds: 50 });
      setup.clock.ms += 49_998;
      expect(await take(setup)).toEqual({ accepted: false, limit: 2, remaining: 0, resetSeconds: 1 });
      setup.clock.ms += 1;
      expect(await take(setup)).toEqual({ accepted: true, limit: 2, remaining: 0, resetSeconds: 11 });
    });

    test('does not count what it refuses', async () => {
      const setup = await make(1);
      await take(setup);
      for (let index = 0; index < 10; index += 1) {
        setup.clock.ms += 5_000;
        await take(setup);
      }
      setup.clock.ms += 10_000;
      expect((await take(setup)).accepted).toBe(true);
    });

    test('keeps a window for each key', async () => {
      const setup = await make(1);
      expect((await take(setup, 1)).accepted).toBe(true);
      expect((await take(setup, 2)).accepted).toBe(true);
      expect((await take(setup, 1)).accepted).toBe(false);
    });

    test('never refuses a client that sends evenly at the limit', async () => {
      const setup = await make(100);
      for (let index = 0; index < 1_000; index += 1) {
        expect((await take(setup)).accepted).toBe(true);
        setup.clock.ms += WINDOW_MS / 100;
      }
    });

    test('has no limit where it is 0', async () => {
      const { limiter } = await make(0);
      expect(await limiter.take(1)).toBeNull();
    });

    test('accepts exactly what an exact log would, at any times, for any keys', async () => {
      const gap = fc.oneof(
        { weight: 3, arbitrary: fc.nat(20) },
        { weight: 3, arbitrary: fc.nat(5_000) },
        { weight: 2, arbitrary: fc.constantFrom(WINDOW_MS - 1, WINDOW_MS, WINDOW_MS + 1, WINDOW_MS / 2) },
        { weight: 1, arbitrary: fc.nat(200_000) },
        // The clock of a process has fractions of a millisecond; in binary, so that sums are exact.
        { weight: 2, arbitrary: fc.nat(4_096).map((part) => part / 64) },
      );
      const request = fc.record({
        gap,
        key: fc.integer({ min: 1, max: 3 }),
        times: fc.integer({ min: 1, max: 12 }),
      });
      await fc.assert(
        fc.asyncProperty(
          fc.integer({ min: 1, max: 40 }),
          fc.array(request, { minLength: 1, maxLength: 80, size: 'max' }),
          async (limit, requests) => {
            const setup = await make(limit);
            const logs = new Map<number, ExactLog>();
            for (const { gap: waited, key, times } of requests) {
              setup.clock.ms += waited;
              const log = logs.get(key) ?? new ExactLog(limit);
              logs.set(key, log);
              for (let index = 0; index < times; index += 1) {
                const accepted = log.take(setup.clock.ms);
                const [oldest = 0, ...others] = log.within(setup.clock.ms);
                expect(await take(setup, key)).toEqual({
                  accepted,
                  limit,
                  remaining: limit - others.length - 1,
                  resetSeconds: Math.max(1, Math.ceil((oldest + WINDOW_MS - setup.clock.ms) / 1_000)),
                });
              }
            }
          },
        ),
        { numRuns: options.runs ?? 300 },
      );
    });

    test('a client that waits as long as Retry-After says is accepted', async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.nat(30_000), { minLength: 1, maxLength: 60 }),
          fc.integer({ min: 1, max: 5 }),
          async (gaps, limit) => {
            const setup = await make(limit);
            for (const waited of gaps) {
              setup.clock.ms += waited;
              const decision = await take(setup);
              if (decision.accepted) continue;
              setup.clock.ms += decision.resetSeconds * 1_000;
              expect((await take(setup)).accepted).toBe(true);
            }
          },
        ),
        { numRuns: options.runs ?? 300 },
      );
    });
  });
}
