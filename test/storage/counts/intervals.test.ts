import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type LevelInterval, splitByLevel } from '../../../src/storage/counts/intervals.ts';
import { DAY_MS, DAYS, floorTo, LEVELS, MINUTE_MS, MINUTES } from '../../../src/storage/counts/levels.ts';
import {
  coarseSourcesOf,
  MAX_INTERVALS,
  type StaleBucket,
  splitExactly,
} from '../../../src/storage/counts/stale.ts';

const START = Date.UTC(2026, 0, 1);
const END = Date.UTC(2026, 3, 1);

/** Often at the edge of a bucket. */
const instants = fc
  .tuple(fc.integer({ min: START, max: END }), fc.constantFrom(1, MINUTE_MS, ...LEVELS.map(({ ms }) => ms)))
  .map(([ms, unit]) => floorTo(ms, unit));
const intervals = fc
  .tuple(instants, instants)
  .map(([a, b]) => ({ from: Math.min(a, b), until: Math.max(a, b) }))
  .filter(({ from, until }) => from < until);
const staleBuckets = fc.array(
  fc
    .tuple(fc.integer({ min: START, max: END }), fc.constantFrom(...LEVELS))
    .map(([ms, level]): StaleBucket => ({ level, start: floorTo(ms, level.ms) })),
  { maxLength: 6 },
);

/** In order of time, without a gap or an overlap, each of whole buckets. */
function expectWhole(
  parts: readonly LevelInterval[],
  { from, until }: { from: number; until: number },
): void {
  expect(parts.map((part) => part.from)).toEqual([from, ...parts.slice(0, -1).map((part) => part.until)]);
  expect(parts.at(-1)?.until).toBe(until);
  for (const { level, ...part } of parts) {
    expect(part.from).toBeLessThan(part.until);
    if (level !== null) expect([part.from % level.ms, part.until % level.ms]).toEqual([0, 0]);
  }
}

/** Whether a part is read from a count that a stale bucket makes inexact: its own, a coarser one's, or a finer one's. */
function isInexact({ level, from, until }: LevelInterval, stale: StaleBucket): boolean {
  return level !== null && stale.level.ms <= level.ms && stale.start >= from && stale.start < until;
}

describe('an interval', () => {
  test('consists of whole buckets and of rows at its ends, without a gap, in at most nine parts', () => {
    fc.assert(
      fc.property(intervals, (interval) => {
        const parts = splitByLevel(interval);
        expectWhole(parts, interval);
        expect(parts.length).toBeLessThanOrEqual(9);
        // Rows of less than a minute at either end, unless there is no whole minute.
        for (const { level, from, until } of parts)
          if (level === null) expect(until - from).toBeLessThan(2 * MINUTE_MS);
      }),
    );
  });

  test('with too many stale buckets is read from rows where they are, in few parts', () => {
    const month = { from: START, until: Date.UTC(2026, 1, 1) };
    // Each one alone makes four parts of its day.
    const stale = Array.from({ length: 25 }, (_, day) => ({
      level: MINUTES,
      start: START + day * DAY_MS + MINUTE_MS,
    }));
    const few = splitExactly(month, stale.slice(0, 5));
    expect(few.length).toBeGreaterThan(5);
    expect(few.some(({ level }) => level === MINUTES)).toBe(true);
    const many = splitExactly(month, stale);
    expectWhole(many, month);
    expect(many.map(({ level, from, until }) => [level?.name ?? null, (until - from) / DAY_MS])).toEqual([
      [null, 25],
      ['day', 6],
    ]);
    expect(few.length).toBeLessThanOrEqual(MAX_INTERVALS);
  });
});

describe('an interval from as few counts as there are', () => {
  test('covers the same time, and reads no month with a stale bucket', () => {
    fc.assert(
      fc.property(intervals, staleBuckets, (interval, stale) => {
        const sources = coarseSourcesOf(interval, stale);
        expect(sources.map(({ from }) => from)).toEqual([
          interval.from,
          ...sources.slice(0, -1).map(({ until }) => until),
        ]);
        expect(sources.at(-1)?.until).toBe(interval.until);
        for (const { view, from, until } of sources) {
          const level = LEVELS.find((one) => one.view === view) ?? (view === null ? null : DAYS);
          for (const bucket of stale) expect(isInexact({ level, from, until }, bucket)).toBe(false);
        }
      }),
    );
  });

  test('with stale buckets in many months is not split into more parts than a statement can be planned for', () => {
    const year = { from: START, until: Date.UTC(2027, 0, 1) };
    const stale = Array.from({ length: 12 }, (_, month) => ({
      level: MINUTES,
      start: Date.UTC(2026, month, 10, 5, 20),
    }));
    expect(coarseSourcesOf(year, stale.slice(0, 1)).map(({ view }) => view)).toContain('events_per_month');
    const sources = coarseSourcesOf(year, stale);
    expect(sources.length).toBeLessThanOrEqual(MAX_INTERVALS);
    for (const { start } of stale)
      expect(sources.find(({ from, until }) => from <= start && start < until)?.view).toBeNull();
  });
});
