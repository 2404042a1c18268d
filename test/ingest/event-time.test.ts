/** Times are read and written without a Date where they are usual: as a Date would. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { NOT_A_TIME, notThis, parseEventTime } from '../../src/ingest/event-time.ts';
import { NOT_ISO, parseBound } from '../../src/read/iso-date.ts';
import { timestamp } from '../../src/storage/write/accepted-event.ts';
import { runs, sized } from '../support/fuzz.ts';

/** By the parser of bounds alone. */
function atLength(text: string): number | string {
  if (!/[Tt ]/.test(text)) return notThis(NOT_A_TIME, text);
  const time = parseBound(text, 'end');
  if (time === NOT_ISO) return notThis(NOT_A_TIME, text);
  return typeof time === 'number' && time < 0 ? 'is before 1970' : time;
}

const moment = fc.date({ min: new Date(0), max: new Date('9999-12-31'), noInvalidDate: true });

test('what JSON.stringify makes of a Date is read as that Date', () => {
  fc.assert(
    fc.property(moment, (date) => {
      expect(parseEventTime(date.toISOString())).toBe(date.getTime());
    }),
    runs(2_000),
  );
});

test('every day of a leap year and of one that is none is read, and no other', () => {
  for (const year of ['2000', '2026', '2028', '2100']) {
    for (let month = 0; month <= 13; month += 1) {
      for (let day = 0; day <= 32; day += 1) {
        const text = `${year}-${String(month).padStart(2, '0')}-${String(day).padStart(2, '0')}T23:59:59.999Z`;
        expect(parseEventTime(text), text).toEqual(atLength(text));
      }
    }
  }
});

test('a time with any character changed is read, or refused, as at length', () => {
  const change = fc.tuple(fc.nat(23), fc.constantFrom(...'0123456789-+:.TtZz /é'));
  fc.assert(
    fc.property(moment, fc.array(change, { minLength: 1, maxLength: 3 }), (date, changes) => {
      const characters = [...date.toISOString()];
      for (const [at, character] of changes) characters[at] = character;
      const text = characters.join('');
      expect(parseEventTime(text)).toEqual(atLength(text));
    }),
    runs(sized(1_500, 5_000)),
  );
});

test('a time is written as a Date writes it, whichever was written before', () => {
  const time = fc.oneof(
    fc.integer({ min: -62_198_755_200_000, max: 253_402_300_799_999 }),
    fc.integer({ min: 1_790_000_000_000, max: 1_790_000_100_000 }),
  );
  fc.assert(
    fc.property(fc.array(time, { minLength: 1, maxLength: 5 }), (times) => {
      expect(times.map(timestamp)).toEqual(times.map((one) => new Date(one).toISOString()));
    }),
    runs(sized(1_000, 3_000)),
  );
});
