/** Which counts tell those of buckets: a model counts events by the minute, and reads from it as the parts say. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { bucketParts, bucketsOfWidth, levelsOf, WIDTHS } from '../../../src/storage/counts/buckets.ts';
import type { LevelInterval } from '../../../src/storage/counts/intervals.ts';
import { DAY_MS, floorTo, HOUR_MS, MINUTE_MS } from '../../../src/storage/counts/levels.ts';

const FROM = Date.UTC(2026, 2, 20);
const ZONES = ['UTC', 'Europe/Berlin', 'America/New_York', 'Asia/Kathmandu', 'Australia/Lord_Howe'];

const cases = fc.record({
  zone: fc.constantFrom(...ZONES),
  width: fc.constantFrom(...WIDTHS.slice(2)),
  from: fc.integer({ min: 0, max: 40 * 96 }).map((quarters) => FROM + quarters * 15 * MINUTE_MS),
  hours: fc.integer({ min: 1, max: 240 }),
  events: fc.array(
    fc.integer({ min: -2 * 96, max: 60 * 96 }).map((quarters) => FROM + quarters * 15 * MINUTE_MS),
    { maxLength: 60 },
  ),
});

test('the parts of buckets have each event in its bucket, and no other', () => {
  fc.assert(
    fc.property(cases, ({ zone, width, from, hours, events }) => {
      const interval = { from, until: from + hours * HOUR_MS };
      const buckets = bucketsOfWidth(interval, width, { zone, finestMs: 0 });
      if (typeof buckets === 'string') return;
      const whole = { from: buckets.starts[0] ?? 0, until: buckets.end };
      const within = events.filter((at) => at >= whole.from && at < whole.until);
      const indexOf = (at: number): number => buckets.starts.findLastIndex((start) => start <= at);
      const expected = buckets.starts.map((_, index) => within.filter((at) => indexOf(at) === index).length);

      /** Adds what a level has for an interval, by its buckets. */
      const added = buckets.starts.map(() => 0);
      const add = ({ level, ...part }: LevelInterval, place: (start: number) => number, sign = 1): void => {
        expect(level).not.toBeNull();
        const ms = level?.ms ?? MINUTE_MS;
        for (const end of [part.from, part.until]) expect(end % ms).toBe(0);
        for (const at of events)
          if (at >= part.from && at < part.until) {
            const index = place(floorTo(at, ms));
            added[index] = (added[index] ?? 0) + sign;
          }
      };
      const { days, atEnd, moved, rest } = bucketParts(buckets, [whole]);
      for (const part of days) add(part, (day) => indexOf(atEnd ? day + DAY_MS - 1 : day));
      for (const part of moved) {
        add(part, indexOf);
        add(part, (start) => indexOf(start) + (atEnd ? 1 : -1), -1);
      }
      for (const part of rest) add(part, indexOf);
      expect(added).toEqual(expected);

      added.fill(0);
      for (const part of levelsOf(buckets, whole)) add(part, indexOf);
      expect(added).toEqual(expected);
    }),
    { numRuns: 300 },
  );
});

test('a year of weeks is read by the day, wherever the clock is', () => {
  const year = { from: Date.UTC(2025, 0, 1), until: Date.UTC(2026, 0, 1) };
  const countsOf = (parts: readonly LevelInterval[]): number =>
    parts.reduce((sum, { level, from, until }) => sum + (until - from) / (level?.ms ?? 1), 0);
  for (const zone of ZONES)
    for (const width of ['1d', '7d', '1mo'] as const) {
      const buckets = bucketsOfWidth(year, width, { zone, finestMs: 0 });
      if (typeof buckets === 'string') throw new Error(buckets);
      const { days, moved, rest } = bucketParts(buckets, [
        { from: buckets.starts[0] ?? 0, until: buckets.end },
      ]);
      // Quarter-hours of Kathmandu are the most: five hours and three of them.
      const most = 400 + buckets.starts.length * 14;
      expect(countsOf([...days, ...moved]), `${zone} ${width}`).toBeLessThan(most);
      expect(countsOf(rest)).toBeLessThan(2 * 96);
    }
});
