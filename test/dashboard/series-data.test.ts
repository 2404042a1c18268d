import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { curveDrawing, curveRange, emptyCurve, ratioCurve, statCurve } from '../../dashboard/charts/curve.ts';
import {
  linesOf,
  OTHER,
  stackOf,
  summaryOf,
  totalOf,
  valueAt,
  verticalRange,
} from '../../dashboard/charts/series-data.ts';
import {
  ago,
  average,
  change,
  changeText,
  compact,
  counted,
  rangeLabel,
  share,
} from '../../dashboard/format.ts';
import { HIDDEN } from '../../dashboard/url.ts';
import type { NumberStats, Series } from '../../src/api-types/answers.ts';

const series: Series = {
  bucket: '1h',
  timezone: 'UTC',
  starts: [0, 3_600_000, 7_200_000],
  end: 10_800_000,
  by: null,
  lines: [
    { key: 'typ_a', name: 'a', counts: [5, 0, 7], total: 12, number: 0 },
    { key: 'typ_b', name: 'b', counts: [1, 2, 0], total: 3, number: 7 },
  ],
  all: [8, 2, 7],
  other: [2, 0, 0],
  before: { all: 100, byKey: { typ_a: 60, typ_b: 30 } },
  countsOnlyBefore: null,
  interval: { from: 0, until: 10_800_000 },
  compared: null,
};
const all = { hidden: [] };

describe('lines', () => {
  test('are the types and the rest, each with its count before the range', () => {
    expect(linesOf(series, all).map(({ key, total, before }) => [key, total, before])).toEqual([
      ['typ_a', 12, 60],
      ['typ_b', 3, 30],
      [OTHER, 2, 10],
    ]);
  });

  test('never share a color, and keep it when others are hidden', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.string({ minLength: 1 }), { maxLength: 10 }), (keys) => {
        const lines = keys.map((key, index) => ({
          key,
          name: key,
          counts: [1],
          total: 1,
          number: index * 7,
        }));
        const wide = { ...series, lines, other: null };
        const colors = linesOf(wide, all).map(({ color }) => color);
        expect(new Set(colors).size).toBe(keys.length);
        expect(linesOf(wide, { hidden: keys.slice(1) }).map(({ color }) => color)).toEqual(colors);
      }),
    );
  });

  test('of hidden types are one line, shown where a view names it, and counted neither twice nor as others', () => {
    const hidden = { typeIds: ['h1', 'h2'], counts: [1, 0, 0], before: 4, compared: null };
    const lines = linesOf({ ...series, hidden }, all);
    expect(lines.map(({ key, total, before, shown }) => [key, total, before, shown])).toEqual([
      ['typ_a', 12, 60, true],
      ['typ_b', 3, 30, true],
      [OTHER, 2, 10, true],
      [HIDDEN, 1, 4, false],
    ]);
    const asked = linesOf({ ...series, hidden }, { hidden: [HIDDEN, 'typ_a'] });
    expect(asked.filter(({ shown }) => shown).map(({ key }) => key)).toEqual(['typ_b', OTHER, HIDDEN]);
    const alone = linesOf({ ...series, lines: [], other: null, hidden }, all);
    expect(alone.map(({ shown }) => shown)).toEqual([true]);
  });

  test('are all shown where a link would leave none', () => {
    expect(linesOf(series, { hidden: ['typ_a', 'typ_b', OTHER] }).every(({ shown }) => shown)).toBe(true);
  });
});

describe('stacks', () => {
  test('of a histogram end at the sum of what is shown', () => {
    expect([...stackOf(linesOf(series, all), 'histogram').total]).toEqual(series.all);
    const some = stackOf(linesOf(series, { hidden: ['typ_a'] }), 'histogram');
    expect([...some.total]).toEqual([3, 2, 0]);
  });

  test('that accumulate begin at 0 and end at what the legend says', () => {
    const lines = linesOf(series, all);
    expect([...stackOf(lines, 'accumulated').total]).toEqual([0, 8, 10, 17]);
    expect(lines.map((line) => valueAt(line, 2, 'accumulated'))).toEqual([12, 3, 2]);
    expect(lines.map((line) => totalOf(line, 'accumulated'))).toEqual([12, 3, 2]);
  });

  test('of a running total begin at the true count before the range and end at the true count after it', () => {
    const stack = stackOf(linesOf(series, all), 'running');
    expect(stack.base).toBe(100);
    expect([...stack.total]).toEqual([100, 108, 110, 117]);
    expect(linesOf(series, all).map((line) => valueAt(line, 2, 'running'))).toEqual([72, 33, 12]);
    expect(linesOf(series, all).map((line) => totalOf(line, 'running'))).toEqual([72, 33, 12]);
  });

  test('have an axis from zero unless that would squash them', () => {
    expect(verticalRange(stackOf(linesOf(series, all), 'histogram'))[0]).toBe(0);
    expect(verticalRange(stackOf(linesOf(series, all), 'running'))[0]).toBe(100);
    const empty = { ...series, lines: [], other: null };
    expect(verticalRange(stackOf(linesOf(empty, all), 'histogram'))).toEqual([0, 1]);
  });

  test('are summed up by total and fullest bucket', () => {
    expect(summaryOf(linesOf(series, all), 3)).toMatchObject({
      total: 17,
      running: 117,
      compared: null,
      peak: 0,
      peakCount: 8,
    });
    // Lines that are not drawn are in the list all the same.
    expect(summaryOf(linesOf(series, { hidden: ['typ_a', OTHER] }), 3)).toMatchObject({
      total: 17,
      peak: 0,
      peakCount: 8,
    });
  });
});

describe('a line of a measure', () => {
  const part: Series = { ...series, all: [2, 0, 7] };
  const names = { part: 'errors', whole: 'all events' };

  test('is the ratio of each bucket, and of the whole interval; nothing by nothing is no number', () => {
    const curve = ratioCurve({ ...series, all: [8, 0, 7] }, part, false, names);
    expect(curve).toMatchObject({ values: [0.25, null, 1], overall: 0.6, compared: null });
    expect([0.25, 0.6, 0.001234, 12.5, 0].map(curve.text)).toEqual(['25%', '60%', '0.123%', '1250%', '0%']);
  });

  test('has hidden types in it where these are asked for', () => {
    const hidden = { typeIds: ['h1'], counts: [2, 1, 3], before: 0, compared: null };
    const whole = { ...series, all: [8, 0, 7], hidden };
    const values = (withHidden: boolean) => ratioCurve(whole, { ...part, hidden }, withHidden, names).values;
    expect(values(false)).toEqual([0.25, null, 1]);
    expect(values(true)).toEqual([0.4, 1, 1]);
  });

  test('is compared at the same time of the clock', () => {
    const starts = [-86_400_000, -82_800_000, -79_200_000];
    const earlier = (all: number[]): Series['compared'] => ({ interval: null, starts, all, byKey: {} });
    const curve = ratioCurve(
      { ...series, compared: earlier([4, 0, 10]) },
      { ...part, compared: earlier([1, 0, 5]) },
      false,
      names,
    );
    expect(curve.compared).toEqual({ interval: null, values: [0.25, null, 0.5], overall: 6 / 14 });
  });

  test('has an axis with 0 in it, also for numbers below it', () => {
    const range = (values: (number | null)[]) => curveRange({ ...emptyCurve(series, '', null), values });
    expect(range([null, 5, 100])).toEqual([0, 106]);
    expect(range([-50, null, 100])).toEqual([-53, 106]);
    expect(range([null])).toEqual([0, 1]);
  });
});

describe('changes and shares', () => {
  test('know what has no event any more: its own line, or the others', () => {
    const starts = [-10_800_000, -7_200_000, -3_600_000];
    const compared = {
      interval: null,
      starts,
      all: [10, 0, 110],
      byKey: { typ_a: [10, 0, 10], silent: [0, 0, 70] },
    };
    const silent = { key: 'silent', name: 'silent', counts: [0, 0, 0], total: 0, number: 8 };
    const lines = linesOf({ ...series, other: null, lines: [...series.lines, silent], compared }, all);
    expect(lines.map(({ key, total, compared: then }) => [key, total, then?.total])).toEqual([
      ['typ_a', 12, 20],
      ['typ_b', 3, 0],
      ['silent', 0, 70],
      [OTHER, 0, 30],
    ]);
    expect(summaryOf(lines, 3).compared).toBe(120);
    // What was before the range only is in the total until now.
    const before = { all: 100, byKey: { typ_a: 60, typ_b: 30 } };
    const running = linesOf({ ...series, other: null, before }, { hidden: [], mode: 'running' });
    expect(summaryOf(running, 3).running).toBe(115);
  });

  test('say nothing of less than nothing, and no part is the whole', () => {
    expect([changeText(0, 10_000), changeText(0, 3), changeText(5, 0), changeText(0, 0)]).toEqual([
      'from 10,000',
      'from 3',
      'new',
      '',
    ]);
    expect([change(-383, -230), change(5, -3), change(-5, 3)]).toEqual([null, null, null]);
    expect([share(-801, 25_749), share(-1, 25_749), share(1, 25_749), share(30, 40)]).toEqual([
      '−3%',
      '−<1%',
      '<1%',
      '75%',
    ]);
    expect([share(-30, -40), share(30, -40), share(0, 5)]).toEqual(['75%', '', '']);
  });
});

test('numbers and times read as people say them', () => {
  expect([compact(10_234_567), compact(999), average(0.126), average(1234.5)]).toEqual([
    '10.2M',
    '999',
    '0.126',
    '1,235',
  ]);
  expect([counted(1, 'event'), counted(2_000, 'event')]).toEqual(['1 event', '2,000 events']);
  expect([ago(0, 10_000), ago(0, 300_000), ago(0, 7_200_000)]).toEqual([
    'just now',
    '5 minutes ago',
    '2 hours ago',
  ]);
  expect(rangeLabel({ kind: 'last', amount: 24, unit: 'h' }, 'UTC')).toBe('Last 24 hours');
  expect(rangeLabel({ kind: 'all' }, 'UTC')).toBe('All time');
});

test('a unit and decimals are at the headline, the axis, the tooltip, the legend, the table and the file', () => {
  const column = (sum: readonly number[]) => ({
    stats: { count: [1, 1, 1], sum },
    overall: { count: 3, sum: sum.reduce((total, value) => total + value, 0) },
  });
  const numbers: NumberStats = {
    ...{ of: 'amount', format: { unit: '€', decimals: 2 }, counted: true, seconds: null, looked: null },
    ...{ bucket: '1h', timezone: 'UTC', starts: series.starts, end: series.end, interval: series.interval },
    ...{ countsOnlyBefore: null, histogram: null, rest: null, notBy: null, before: null },
    ...{ leftOut: { several: 0, unrepresentable: 0 }, ...column([0.1, 0.2, 12_000]) },
    lines: ['DE', 'FR'].map((name) => ({ key: name, name, ...column([0.05, 0.1, 6_000]) })),
  };
  const asked = {
    stat: 'sum',
    name: 'Sum of amount',
    by: 'country',
    hidden: [],
    mode: 'accumulated',
  } as const;
  const drawing = curveDrawing(series, statCurve(series, numbers, null, asked));
  expect(drawing.text(drawing.overall ?? 0)).toBe('12,000.30\u00a0€');
  const [min = 0, max = 0] = drawing.range('linear');
  expect(drawing.ticks({ min, max, scale: 'linear' }, 3).map(([, text]) => text)).toContain('10K €');
  expect(drawing.rowsAt(2)).toMatchObject({
    whole: ['', 'Sum of amount, accumulated', '12,000.30\u00a0€'],
    lines: [
      [expect.any(Number), 'DE', '6,000.15\u00a0€'],
      [expect.any(Number), 'FR', '6,000.15\u00a0€'],
    ],
  });
  expect(drawing.legend.map(({ value, share: part }) => [value, part])).toEqual([
    ['6,000.15\u00a0€', '50%'],
    ['6,000.15\u00a0€', '50%'],
  ]);
  expect(drawing.columns()[0]?.text(12_000.3)).toBe('12,000.30\u00a0€');
  expect(drawing.columns()[0]?.file).toBe('Sum of amount, accumulated (€)');
  // Where no event has a number, the axis tells none.
  const none = curveDrawing(series, emptyCurve(series, 'Sum of amount', null));
  expect(none.ticks({ min: 0, max: 1, scale: 'linear' }, 3)).toEqual([]);
});
