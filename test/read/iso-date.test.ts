import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseBound } from '../../src/read/iso-date.ts';
import { anyText, runs } from '../support/fuzz.ts';

/** The two bounds that a text stands for, as ISO texts. */
function bounds(text: string): [string, string] {
  return [iso(parseBound(text, 'start')), iso(parseBound(text, 'end'))];
}

function iso(bound: number | string): string {
  return typeof bound === 'number' ? new Date(bound).toISOString() : bound;
}

const INSTANTS: readonly [text: string, instant: string][] = [
  ['2026-01-31T08:30:15.123Z', '2026-01-31T08:30:15.123Z'],
  ['2026-01-31T08:30:15Z', '2026-01-31T08:30:15.000Z'],
  ['2026-01-31T08:30Z', '2026-01-31T08:30:00.000Z'],
  ['2026-01-31T08Z', '2026-01-31T08:00:00.000Z'],
  ['2026-01-31t08:30:15z', '2026-01-31T08:30:15.000Z'],
  ['2026-01-31 08:30:15', '2026-01-31T08:30:15.000Z'],
  ['2026-01-31T08:30:15', '2026-01-31T08:30:15.000Z'],
  ['20260131T083015Z', '2026-01-31T08:30:15.000Z'],
  ['20260131T0830', '2026-01-31T08:30:00.000Z'],
  ['2026-01-31T083015,5Z', '2026-01-31T08:30:15.500Z'],
  ['2026-01-31T08:30:15.1Z', '2026-01-31T08:30:15.100Z'],
  ['2026-01-31T08:30:15.123000Z', '2026-01-31T08:30:15.123Z'],
  ['2026-01-31T08:30:15+02:00', '2026-01-31T06:30:15.000Z'],
  ['2026-01-31T08:30:15+0530', '2026-01-31T03:00:15.000Z'],
  ['2026-01-31T08:30:15-03', '2026-01-31T11:30:15.000Z'],
  ['2026-01-31T08:30:15\u221203:00', '2026-01-31T11:30:15.000Z'],
  ['2026-01-31T08:30:15 02:00', '2026-01-31T06:30:15.000Z'],
  ['2026-01-31 08:30:15 0200', '2026-01-31T06:30:15.000Z'],
  ['2026-01-31T00:30+01:00', '2026-01-30T23:30:00.000Z'],
  ['2026-01-31T24:00:00Z', '2026-02-01T00:00:00.000Z'],
  ['2026-01-31T24:00+02:00', '2026-01-31T22:00:00.000Z'],
  ['2016-12-31T23:59:60Z', '2017-01-01T00:00:00.000Z'],
  ['2017-01-01T08:59:60+09:00', '2017-01-01T00:00:00.000Z'],
  ['2024-02-29T00:00Z', '2024-02-29T00:00:00.000Z'],
  ['2000-02-29T00:00Z', '2000-02-29T00:00:00.000Z'],
  ['1969-12-31T23:59:59.999Z', '1969-12-31T23:59:59.999Z'],
  ['0000-01-01T00:00Z', '0000-01-01T00:00:00.000Z'],
  ['0099-01-01T00:00Z', '0099-01-01T00:00:00.000Z'],
  ['9999-12-31T23:59:59.999Z', '9999-12-31T23:59:59.999Z'],
  ['9999-12-31T23:59:59-23:59', '+010000-01-01T23:58:59.000Z'],
];

test.each(INSTANTS)('%s is the same instant at both ends of a range', (text, instant) => {
  expect(bounds(text)).toEqual([instant, instant]);
});

test.each(['2026-01-31', '20260131'])('%s without a time is the whole day in UTC', (text) => {
  expect(bounds(text)).toEqual(['2026-01-31T00:00:00.000Z', '2026-01-31T23:59:59.999Z']);
});

test('fractions of a millisecond are rounded up in a start and down in an end', () => {
  const up = '2026-01-31T08:30:15.124Z';
  const cut = '2026-01-31T08:30:15.123Z';
  expect(bounds('2026-01-31T08:30:15.1230001Z')).toEqual([up, cut]);
  expect(bounds('2026-01-31T08:30:15.123999999Z')).toEqual([up, cut]);
  expect(bounds('2026-12-31T23:59:59.9999Z')).toEqual([
    '2027-01-01T00:00:00.000Z',
    '2026-12-31T23:59:59.999Z',
  ]);
});

test.each([
  '2026-02-30',
  '2026-02-29',
  '1900-02-29',
  '2026-04-31T10:00Z',
  '2026-13-01',
  '2026-00-10',
  '2026-01-00',
  '2026-01-32',
  '20260230',
])('%s is a date that does not exist', (text) => {
  expect(bounds(text)).toEqual(Array(2).fill('is a date that does not exist'));
});

test.each([
  '2026-01-31T25:00Z',
  '2026-01-31T24:01Z',
  '2026-01-31T24:00:00.001Z',
  '2026-01-31T10:60Z',
  '2026-01-31T10:00:61Z',
  '2026-01-31T10:15:60Z',
  '2026-01-31T23:59:60+01:00',
])('%s is a time that does not exist', (text) => {
  expect(bounds(text)).toEqual(Array(2).fill('is a time that does not exist'));
});

test.each(['2026-01-31T10:00+24:00', '2026-01-31T10:00-01:60'])('%s has an impossible offset', (text) => {
  expect(parseBound(text, 'start')).toMatch(/offset/);
});

describe('what Date.parse would accept is refused', () => {
  test.each([
    '',
    'now',
    '0',
    '2026-01',
    '2026-1-31',
    '2026-01-31T',
    '2026-01-31+02:00',
    '2026-01-31T8:30',
    '2026-01-31T08:30:15.Z',
    '2026-01-31T08:3015Z',
    '2026-01-31T08:30:15 Z',
    '2026-01-31T08:30:15  02:00',
    '2026-01-31 ',
    '2026-01-31\n',
    '2026-W05-6',
    '26-01-31',
    '+275760-09-13T00:00:00.000Z',
    '-000001-01-01',
    '31.01.2026',
    'Sat, 31 Jan 2026 08:30:15 GMT',
    '1769848215123',
    '2026-01-31\0',
    '٢٠٢٦-٠١-٣١',
  ])('%j', (text) => {
    expect(bounds(text)).toEqual(Array(2).fill(expect.stringMatching(/^must be an ISO 8601/)));
  });
});

test('every instant of the years 0000 to 9999 is the same after formatting and parsing', () => {
  const instants = fc.date({
    min: new Date('0000-01-01T00:00:00.000Z'),
    max: new Date('9999-12-31T23:59:59.999Z'),
    noInvalidDate: true,
  });
  fc.assert(
    fc.property(instants, (instant) => {
      expect(parseBound(instant.toISOString(), 'start')).toBe(instant.getTime());
      expect(parseBound(instant.toISOString(), 'end')).toBe(instant.getTime());
    }),
  );
});

test('no text makes it throw, and a number is a whole one that a Date can hold', () => {
  const nearly = fc.stringMatching(
    /^\d{0,5}-?\d{0,3}-?\d{0,3}[Tt ]?\d{0,3}:?\d{0,3}:?\d{0,3}[.,]?\d{0,12}[Z+ -]?\d{0,5}$/,
  );
  fc.assert(
    fc.property(fc.oneof(anyText(), nearly), fc.constantFrom('start', 'end'), (text, edge) => {
      const bound = parseBound(text, edge);
      if (typeof bound === 'number')
        expect(Number.isNaN(new Date(bound).getTime()) || !Number.isInteger(bound)).toBe(false);
    }),
    runs(2_000),
  );
});
