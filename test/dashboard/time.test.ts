import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { timeTicks } from '../../dashboard/charts/time-axis.ts';
import { bucketSpan } from '../../dashboard/format.ts';
import { DAY, HOUR, MINUTE, neighbor } from '../../dashboard/range.ts';
import { fromWall, toWall, toWalls } from '../../dashboard/time-zone.ts';

const BERLIN = 'Europe/Berlin';
const NEW_YORK = 'America/New_York';
const at = (text: string): number => Date.parse(text);
const zone = fc.constantFrom(
  BERLIN,
  NEW_YORK,
  'UTC',
  'Asia/Kathmandu',
  'Australia/Lord_Howe',
  'Pacific/Apia',
);
const instant = fc.integer({ min: at('1990-01-01T00:00Z'), max: at('2040-01-01T00:00Z') });

describe('wall clocks', () => {
  test('show what Intl shows', () => {
    expect(new Date(toWall(at('2026-11-20T14:00:00.123Z'), BERLIN)).toISOString()).toBe(
      '2026-11-20T15:00:00.123Z',
    );
    expect(new Date(toWall(at('2026-07-01T03:30:00Z'), NEW_YORK)).toISOString()).toBe(
      '2026-06-30T23:30:00.000Z',
    );
  });

  test('of many instants at once is what it is of each, across every change of the clock', () => {
    const zone = fc.constantFrom(
      BERLIN,
      NEW_YORK,
      'Australia/Lord_Howe',
      'Africa/Casablanca',
      'Asia/Kolkata',
      'UTC',
    );
    const start = fc.integer({ min: Date.UTC(1990, 0), max: Date.UTC(2037, 0) });
    const step = fc.constantFrom(60_000, 900_000, 3_600_000, 6 * 3_600_000, 86_400_000, 30 * 86_400_000);
    fc.assert(
      fc.property(zone, start, step, fc.integer({ min: 0, max: 300 }), (where, from, ms, count) => {
        const instants = Array.from({ length: count }, (_, index) => from + index * ms);
        expect(toWalls(instants, where)).toEqual(instants.map((instant) => toWall(instant, where)));
      }),
      { numRuns: 60 },
    );
  });

  test('lead back to an instant at which they show the same', () => {
    fc.assert(
      fc.property(instant, zone, (ms, where) => {
        const wall = toWall(ms, where);
        const back = fromWall(wall, where);
        expect(toWall(back, where)).toBe(wall);
        expect(back).toBeLessThanOrEqual(ms); // The first of two.
      }),
    );
  });

  test('an hour that comes twice is its first, one that is skipped lies after the gap', () => {
    expect(fromWall(at('2026-10-25T02:30Z'), BERLIN)).toBe(at('2026-10-25T00:30Z'));
    expect(fromWall(at('2026-11-01T01:30Z'), NEW_YORK)).toBe(at('2026-11-01T05:30Z'));
    expect(fromWall(at('2026-03-29T02:30Z'), BERLIN)).toBe(at('2026-03-29T01:30Z'));
    expect(fromWall(at('2026-03-08T02:30Z'), NEW_YORK)).toBe(at('2026-03-08T07:30Z'));
  });
});

describe('the neighboring period', () => {
  const ALL = { kind: 'all' } as const;

  test('of whole months is as many months, whatever their length, and of a current one the whole one before', () => {
    const november = { from: at('2026-10-31T23:00Z'), to: at('2026-11-30T23:00Z') };
    expect(neighbor(ALL, november, -1, BERLIN)).toMatchObject({
      from: at('2026-09-30T22:00Z'),
      to: november.from,
    });
    expect(neighbor(ALL, november, 1, BERLIN)).toMatchObject({
      from: november.to,
      to: at('2026-12-31T23:00Z'),
    });
    const quarter = { from: at('2026-06-30T22:00Z'), to: at('2026-09-30T22:00Z') };
    expect(neighbor(ALL, quarter, -1, BERLIN)).toMatchObject({ from: at('2026-03-31T22:00Z') });
    const soFar = { from: november.from, to: at('2026-11-28T12:00Z') };
    const month = { kind: 'calendar', period: 'month' } as const;
    expect(neighbor(month, soFar, -1, BERLIN)).toMatchObject({
      from: at('2026-09-30T22:00Z'),
      to: november.from,
    });
    const thisWeek = { from: at('2026-11-22T23:00Z'), to: at('2026-11-24T12:00Z') };
    expect(neighbor({ kind: 'calendar', period: 'week' }, thisWeek, -1, BERLIN)).toMatchObject({
      from: at('2026-11-15T23:00Z'),
      to: thisWeek.from,
    });
  });

  test('of less than a day is as long as it', () => {
    const span = { from: at('2026-10-25T00:00Z'), to: at('2026-10-25T02:00Z') };
    expect(neighbor(ALL, span, 1, BERLIN)).toMatchObject({ from: span.to, to: at('2026-10-25T04:00Z') });
  });
});

describe('ticks', () => {
  const every = (from: string, count: number, step: number): number[] =>
    Array.from({ length: count }, (_, index) => at(from) + index * step);

  test('stand at round times of the zone’s clock, the larger unit below where it changes', () => {
    const day = every('2026-11-19T15:15Z', 97, 15 * MINUTE);
    expect(timeTicks(day, BERLIN, 8).map(({ label }) => label)).toEqual([
      '18:00\n19 Nov',
      '21:00',
      '00:00\n20 Nov',
      '03:00',
      '06:00',
      '09:00',
      '12:00',
      '15:00',
    ]);
  });

  test('name days of a month and months of years', () => {
    const month = every('2026-10-31T23:00Z', 30, DAY);
    expect(timeTicks(month, BERLIN, 6)[0]?.label).toBe('2 Nov\n2026');
    const years = every('2024-12-31T23:00Z', 700, DAY);
    expect(
      timeTicks(years, BERLIN, 8)
        .map(({ label }) => label)
        .slice(0, 3),
    ).toEqual(['Jan\n2025', 'Apr', 'Jul']);
  });

  test('of a week are more than one, however narrow the chart', () => {
    const week = every('2026-11-16T23:00Z', 7, DAY);
    for (const most of [3, 4]) expect(timeTicks(week, BERLIN, most).length, String(most)).toBeGreaterThan(1);
  });

  test('are never more than there is room for', () => {
    fc.assert(
      fc.property(
        instant,
        zone,
        fc.constantFrom(MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY),
        fc.integer({ min: 1, max: 300 }),
        fc.integer({ min: 2, max: 30 }),
        (from, where, step, count, most) => {
          const starts = Array.from({ length: count }, (_, index) => from - (from % MINUTE) + index * step);
          expect(timeTicks(starts, where, most).length).toBeLessThanOrEqual(most);
        },
      ),
    );
  });
});

describe('buckets', () => {
  test('of both hours named two o’clock differ by their offset', () => {
    const first = bucketSpan(at('2026-10-25T00:00Z'), at('2026-10-25T01:00Z'), '1h', BERLIN);
    const second = bucketSpan(at('2026-10-25T01:00Z'), at('2026-10-25T02:00Z'), '1h', BERLIN);
    expect(first).toMatch(/25 Oct 2026, 02:00 GMT\+2 – 02:00 GMT\+1$/);
    expect(second).toMatch(/25 Oct 2026, 02:00 – 03:00 GMT\+1$/);
  });

  test('of days, weeks and months are called by their dates', () => {
    expect(bucketSpan(at('2026-10-24T22:00Z'), at('2026-10-25T23:00Z'), '1d', BERLIN)).toBe(
      'Sun, 25 Oct 2026',
    );
    expect(bucketSpan(at('2026-10-18T22:00Z'), at('2026-10-25T23:00Z'), '7d', BERLIN)).toMatch(
      /19\s–\s25 Oct/,
    );
    expect(bucketSpan(at('2026-09-30T22:00Z'), at('2026-10-31T23:00Z'), '1mo', BERLIN)).toBe('October 2026');
  });
});
