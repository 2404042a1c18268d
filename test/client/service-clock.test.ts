/** What the Node client makes of the time that a response has: its clock is corrected where it must be wrong, and only there. */
import { afterEach, describe, expect, test, vi } from 'vitest';
import { ServiceClock } from '../../client/src/service-clock.ts';
import { sharedService } from '../support/service.ts';

const HOUR_MS = 3_600_000;
const YEAR_MS = 365 * 24 * HOUR_MS;
/** A moment of the service, in the middle of a second. */
const REAL = Date.parse('2026-05-06T07:08:09.500Z');
const HEADER = 'Wed, 06 May 2026 07:08:09 GMT';

afterEach(() => {
  vi.restoreAllMocks();
});

/** A clock that is ahead by so much, and has asked the service 40 ms ago. */
function asked(aheadMs: number, date: string | null): { clock: ServiceClock; now: number } {
  const now = REAL + aheadMs;
  vi.spyOn(Date, 'now').mockReturnValue(now);
  const clock = new ServiceClock();
  expect(clock.isKnown).toBe(false);
  clock.compare(date, now - 40, now);
  expect(clock.isKnown).toBe(true);
  return { clock, now };
}

test.each([HOUR_MS, -HOUR_MS, YEAR_MS, -YEAR_MS, 1_700, -1_700])(
  'a clock that is ahead by %i ms is corrected to a second, never beyond the time of the service',
  (aheadMs) => {
    const { clock, now } = asked(aheadMs, HEADER);
    for (const agoMs of [0, 10, 60_000]) {
      const error = clock.timeOf(now - agoMs) - (REAL - agoMs);
      expect(error).toBeLessThanOrEqual(0);
      expect(error).toBeGreaterThanOrEqual(-1_000);
    }
  },
);

test.each([
  ['which may be right', 0, HEADER],
  ['which may be right, by 450 ms', 450, HEADER],
  ['which may be right, by -450 ms', -450, HEADER],
  ['which is right, beside a header that is a second old', 0, 'Wed, 06 May 2026 07:08:08 GMT'],
  ['of which nothing is said', HOUR_MS, null],
  ['of which nothing can be read', HOUR_MS, 'Wed, 06 May 2026, Wed, 06 May 2026'],
])('a clock %s stays', (_, aheadMs, date) => {
  const { clock, now } = asked(aheadMs, date);
  expect(clock.timeOf(now - 5)).toBe(now - 5);
});

test('what was learned is void once somebody has set the clock', () => {
  const { clock, now } = asked(-HOUR_MS, HEADER);
  vi.spyOn(Date, 'now').mockReturnValue(now + 2_000);
  expect(clock.isKnown).toBe(false);
  expect(clock.timeOf(now)).toBe(now);
});

describe('over HTTP', () => {
  test('a response has the time, once', async () => {
    const service = await sharedService();
    try {
      const { headers } = await fetch(`${service.url}/livez`);
      expect(Math.abs(Date.parse(headers.get('date') ?? '') - Date.now())).toBeLessThan(60_000);
    } finally {
      await service.stop();
    }
  });
});
