/** Times of records, in the units that their digits tell. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { parseNanoseconds, parseRecordTime } from '../../../src/ingest/formats/times.ts';
import { runs } from '../../support/fuzz.ts';

test('a Unix time has the same milliseconds in each unit', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1_000_000_000_000, max: 4_000_000_000_000 }),
      fc.nat(999_999),
      (ms, rest) => {
        const nanoseconds = `${ms}${String(rest).padStart(6, '0')}`;
        const seconds = `${Math.floor(ms / 1_000)}.${String(ms % 1_000).padStart(3, '0')}${rest}`;
        const forms = [
          seconds,
          String(ms),
          nanoseconds.slice(0, -3),
          nanoseconds,
          new Date(ms).toISOString(),
        ];
        for (const form of forms) expect(parseRecordTime(form), form).toBe(ms);
      },
    ),
    runs(500),
  );
});

const notATime = (told: string): string =>
  `must be a time: RFC 3339, such as 2026-01-31T08:30:00.123Z, or Unix time in s, ms, µs or ns, not ${JSON.stringify(told)}`;

test.each<[string, number | null]>([
  ['1767225600123456789', 1_767_225_600_123],
  ['1.767225600123e18', 1_767_225_600_123],
  ['1767225600123456789.0', 1_767_225_600_123],
  ['18446744073709551615', 18_446_744_073_709],
  ['18446744073709551616', null],
  ['176722560012345678901', null],
  ['1.5', null],
  ['0', 0],
  ['-1', null],
  ['abc', null],
  ['2026-01-01T00:00:00Z', null],
])('%j is %j as nanoseconds', (text, time) => {
  expect(parseNanoseconds(text)).toBe(time);
});

test.each<[string, number | string]>([
  ['0', 0],
  ['1769848200', 1_769_848_200_000],
  ['1.7698482e9', 1_769_848_200_000],
  ['001769848200', 1_769_848_200_000],
  ['1769848200.5', 1_769_848_200_500],
  ['1.767225600123e9', 1_767_225_600_123],
  ['1.767225600123456e12', 1_767_225_600_123],
  ['1e400', notATime('1e400')],
  ['-1', notATime('-1')],
  ['2026-01-31', notATime('2026-01-31')],
  ['', notATime('')],
  ['soon T', notATime('soon T')],
  ['x'.repeat(41), notATime(`${'x'.repeat(40)}…`)],
  ['1969-12-31T23:59:59Z', 'is before 1970'],
])('%j is %j', (text, time) => {
  expect(parseRecordTime(text)).toBe(time);
});
