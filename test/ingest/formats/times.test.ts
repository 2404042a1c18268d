/** Times of records, in the units that their digits tell. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { NOT_A_RECORD_TIME, parseRecordTime } from '../../../src/ingest/formats/times.ts';
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

test.each<[string, number | string]>([
  ['0', 0],
  ['1769848200', 1_769_848_200_000],
  ['1.7698482e9', 1_769_848_200_000],
  ['001769848200', 1_769_848_200_000],
  ['1769848200.5', 1_769_848_200_500],
  ['1e400', NOT_A_RECORD_TIME],
  ['-1', NOT_A_RECORD_TIME],
  ['2026-01-31', NOT_A_RECORD_TIME],
  ['', NOT_A_RECORD_TIME],
  ['1969-12-31T23:59:59Z', 'is before 1970'],
])('%j is %j', (text, time) => {
  expect(parseRecordTime(text)).toBe(time);
});
