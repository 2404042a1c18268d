/** What of a range is read from which counts, and what from rows. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  exactSegmentsOf,
  LEVELS,
  MAX_SEGMENTS,
  MINUTE_MS,
  type Range,
  refine,
  type Segment,
  type StaleBucket,
  segmentsOf,
} from '../../../src/storage/counts/count-segments.ts';
import { coarseStretchesOf } from '../../../src/storage/counts/exact-counts.ts';

const DAY_MS = 86_400_000;
const START = Date.UTC(2026, 1, 1);
const [DAYS] = LEVELS;

/** A stale minute in the middle of each of so many hours. */
function staleMinutes(count: number): StaleBucket[] {
  return Array.from({ length: count }, (_, n) => ({
    ms: MINUTE_MS,
    start: START + n * 60 * MINUTE_MS + 31 * MINUTE_MS,
  }));
}

/** Segments in order of time, without gap or overlap, none of whose counts may be stale. */
function expectExact(segments: readonly Segment[], range: Range, stale: readonly StaleBucket[]): void {
  let at = range.from;
  for (const { from, until, level } of segments) {
    expect(from).toBe(at);
    expect(until).toBeGreaterThan(from);
    at = until;
    if (level === null) continue;
    expect([from % level.ms, until % level.ms]).toEqual([0, 0]);
    const inside = stale.filter(({ ms, start }) => ms <= level.ms && start >= from && start < until);
    expect(inside).toEqual([]);
  }
  expect(at).toBe(range.until);
}

test('a range is exactly its segments, whatever is stale', () => {
  const minute = fc.integer({ min: 0, max: 4 * 1_440 });
  const drawn = fc.record({
    from: minute,
    length: fc.integer({ min: 1, max: 4 * 1_440 }),
    ragged: fc.integer({ min: 0, max: 59_999 }),
    stale: fc.array(fc.record({ minute, level: fc.integer({ min: 0, max: 3 }) }), { maxLength: 120 }),
  });
  fc.assert(
    fc.property(drawn, ({ from, length, ragged, stale }) => {
      const range = {
        from: START + from * MINUTE_MS + ragged,
        until: START + (from + length) * MINUTE_MS + ragged + 1,
      };
      const buckets = stale.map((one): StaleBucket => {
        const { ms } = LEVELS[one.level] ?? DAYS;
        return { ms, start: Math.floor((START + one.minute * MINUTE_MS) / ms) * ms };
      });
      expectExact(exactSegmentsOf(range, buckets), range, buckets);
    }),
  );
});

test('a few stale minutes are read from rows, and what is around them from finer counts', () => {
  const range = { from: START, until: START + 2 * DAY_MS };
  const segments = exactSegmentsOf(range, staleMinutes(2));
  expectExact(segments, range, staleMinutes(2));
  const rows = segments.filter(({ level }) => level === null);
  expect(rows.map(({ from, until }) => until - from)).toEqual([MINUTE_MS, MINUTE_MS]);
});

test('where stale minutes would cut a range into too many pieces, its stale days are read from rows at once', () => {
  const range = { from: START, until: START + 5 * DAY_MS };
  const stale = staleMinutes(72);
  const segments = exactSegmentsOf(range, stale);
  expectExact(segments, range, stale);
  expect(segments).toEqual([
    { level: null, from: START, until: START + 3 * DAY_MS },
    { level: DAYS, from: START + 3 * DAY_MS, until: START + 5 * DAY_MS },
  ]);
  const [whole] = segmentsOf(range);
  expect(refine(whole as Segment, stale)).toEqual(segments); // There is one.
});

test('up to as many pieces as a statement may have, minutes stay as fine as they are', () => {
  // Each stale minute of another hour adds pieces of hours, quarter-hours, minutes and rows.
  const range = { from: START, until: START + 5 * DAY_MS };
  const counts = Array.from({ length: 40 }, (_, stale) => exactSegmentsOf(range, staleMinutes(stale)).length);
  expect(Math.max(...counts)).toBeLessThanOrEqual(MAX_SEGMENTS);
  expect(counts[5]).toBeGreaterThan(counts[4] ?? 0);
  expect(counts[39]).toBe(2);
});

test('where stale months would cut all of time into too many pieces, no month is read by itself', () => {
  const range = { from: Date.UTC(2020, 0, 1), until: Date.UTC(2026, 0, 1) };
  const stale = Array.from({ length: 36 }, (_, month) => ({
    ms: DAY_MS,
    start: Date.UTC(2020, 2 * month, 15),
  }));
  const few = coarseStretchesOf(range, stale.slice(0, 5));
  expect(few.filter(({ view }) => view === 'events_per_month').length).toBe(5);
  const many = coarseStretchesOf(range, stale);
  expect(many.length).toBeLessThanOrEqual(2 * stale.length + 1);
  expect(many.some(({ view }) => view === 'events_per_month')).toBe(false);
});
