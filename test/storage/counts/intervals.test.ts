import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type LevelInterval, splitByLevel } from '../../../src/storage/counts/intervals.ts';
import {
  DAY_MS,
  DAYS,
  floorTo,
  HOURS,
  LEVELS,
  MINUTE_MS,
  MINUTES,
} from '../../../src/storage/counts/levels.ts';
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

  // [level, from, until] in minutes after a midnight; the level of rows is ''.
  test.each<[string, number, number, [string, number, number][]]>([
    ['that is empty has no parts', 5, 5, []],
    ['within a minute is rows', 0.2, 0.8, [['', 0.2, 0.8]]],
    ['over the start of a minute is one part of rows', 0.5, 1.5, [['', 0.5, 1.5]]],
    ['of a whole minute is that minute', 7, 8, [['minute', 7, 8]]],
    ['over the start of an hour is one part of minutes', 55, 65, [['minute', 55, 65]]],
    ['of a whole quarter-hour is that', 15, 30, [['quarter_hour', 15, 30]]],
    [
      'of hours and days has each level once at either end',
      22 * 60 + 44.5,
      3 * 1_440 + 61,
      [
        ['', 1_364.5, 1_365],
        ['quarter_hour', 1_365, 1_380],
        ['hour', 1_380, 1_440],
        ['day', 1_440, 4_320],
        ['hour', 4_320, 4_380],
        ['minute', 4_380, 4_381],
      ],
    ],
  ])('%s', (_, from, until, expected) => {
    const at = (minutes: number): number => START + minutes * MINUTE_MS;
    expect(splitByLevel({ from: at(from), until: at(until) })).toEqual(
      expected.map(([name, start, end]) => ({
        level: LEVELS.find((level) => level.name === name) ?? null,
        from: at(start),
        until: at(end),
      })),
    );
  });

  test('is split at no stale bucket, and reads none of them from counts', () => {
    fc.assert(
      fc.property(intervals, staleBuckets, (interval, stale) => {
        const parts = splitExactly(interval, stale);
        expectWhole(parts, interval);
        for (const part of parts) for (const bucket of stale) expect(isInexact(part, bucket)).toBe(false);
      }),
    );
  });

  test('replaces a stale bucket by finer ones, and a stale minute by rows', () => {
    const day = { from: START, until: START + DAY_MS };
    const minute = { level: MINUTES, start: START + 5 * 60 * MINUTE_MS + 20 * MINUTE_MS };
    const parts = splitExactly(day, [minute]);
    expect(parts.map(({ level, from, until }) => [level?.name ?? null, (until - from) / MINUTE_MS])).toEqual([
      ['hour', 5 * 60],
      ['quarter_hour', 15],
      ['minute', 5],
      [null, 1],
      ['minute', 9],
      ['quarter_hour', 30],
      ['hour', 18 * 60],
    ]);
    const hour = { level: HOURS, start: START };
    expect(splitExactly(day, [hour])[0]).toMatchObject({ level: { name: 'quarter_hour' } });
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

test('up to as many parts as a statement may have, stale minutes leave the counts around them in use', () => {
  const interval = { from: START, until: START + 5 * DAY_MS };
  /** A stale minute in the middle of each of so many hours. */
  const staleMinutes = (count: number): StaleBucket[] =>
    Array.from({ length: count }, (_, n) => ({ level: MINUTES, start: START + (n * 60 + 31) * MINUTE_MS }));
  const counts = Array.from({ length: 73 }, (_, stale) => splitExactly(interval, staleMinutes(stale)).length);
  expect(Math.max(...counts)).toBeLessThanOrEqual(MAX_INTERVALS);
  expect(counts[5]).toBeGreaterThan(counts[4] ?? 0);
  expect(counts[39]).toBe(2);
  expect(splitExactly(interval, staleMinutes(72))).toEqual([
    { level: null, from: START, until: START + 3 * DAY_MS },
    { level: DAYS, from: START + 3 * DAY_MS, until: START + 5 * DAY_MS },
  ]);
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

  test('reads whole months from the counts by month', () => {
    const sources = coarseSourcesOf({ from: START - DAY_MS, until: END + DAY_MS }, []);
    expect(sources.map(({ view }) => view)).toEqual(['events_per_day', 'events_per_month', 'events_per_day']);
  });

  test('of whole months reads nothing else, from the first instant of one to that of another', () => {
    for (const [from, until] of [
      [START, Date.UTC(2026, 1, 1)],
      [START, END],
    ])
      expect(coarseSourcesOf({ from: from ?? 0, until: until ?? 0 }, [])).toEqual([
        { view: 'events_per_month', from, until },
      ]);
    expect(coarseSourcesOf({ from: START + 1, until: END - 1 }, []).map(({ view }) => view)).toContain(
      'events_per_month',
    );
  });

  test('without a whole month is not cut at the start of one', () => {
    const februaryTo = (until: number) => ({ from: Date.UTC(2026, 1, 1) + DAY_MS, until });
    for (const interval of [februaryTo(Date.UTC(2026, 1, 20)), februaryTo(Date.UTC(2026, 2, 20))])
      expect(coarseSourcesOf(interval, [])).toEqual([{ view: DAYS.view, ...interval }]);
  });

  test('reads a month with a stale bucket from finer counts, and the months beside it whole', () => {
    const stale = { level: DAYS, start: Date.UTC(2026, 1, 28) };
    const sources = coarseSourcesOf({ from: START, until: END }, [stale]);
    const [february, march] = [Date.UTC(2026, 1, 1), Date.UTC(2026, 2, 1)];
    expect(sources).toEqual([
      { view: 'events_per_month', from: START, until: february },
      { view: DAYS.view, from: february, until: stale.start },
      { view: HOURS.view, from: stale.start, until: march },
      { view: 'events_per_month', from: march, until: END },
    ]);
  });

  test('with several months that have stale buckets, in whatever order these are known, has each part once', () => {
    const stale = [2, 0].map((month) => ({ level: MINUTES, start: Date.UTC(2026, month, 10, 5, 20) }));
    const interval = { from: START, until: END };
    const sources = coarseSourcesOf(interval, stale);
    expectWhole(
      sources.map(({ from, until }) => ({ level: null, from, until })),
      interval,
    );
    expect(sources.filter(({ view }) => view === 'events_per_month')).toEqual([
      { view: 'events_per_month', from: Date.UTC(2026, 1, 1), until: Date.UTC(2026, 2, 1) },
    ]);
  });

  test('takes no part from a month that it does not have whole, where its first bucket is stale', () => {
    const interval = { from: START, until: END + DAY_MS };
    const sources = coarseSourcesOf(interval, [{ level: HOURS, start: END }]);
    expectWhole(
      sources.map(({ from, until }) => ({ level: null, from, until })),
      interval,
    );
    expect(sources[0]).toEqual({ view: 'events_per_month', from: START, until: END });
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
