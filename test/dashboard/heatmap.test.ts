/** The levels of a distribution, against the numbers that they are of. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { heatDrawing } from '../../dashboard/charts/heatmap.ts';
import type { NumberStats, Series } from '../../src/api-types/answers.ts';
import { Bins, binOf, histogramOf } from '../../src/storage/fields/sketch.ts';
import { runs, sized } from '../support/fuzz.ts';

/** The drawing of the numbers of some buckets, as the server counts them for a chart. */
function drawingOf(buckets: readonly (readonly number[])[]) {
  const [all, own] = [new Bins(), buckets.map(() => new Bins())];
  for (const [index, numbers] of buckets.entries())
    for (const number of numbers) for (const bins of [all, own[index]]) bins?.add(binOf(number), 1);
  const { bins, countsOf } = histogramOf(all, 200);
  const p50 = own.map((one) => one.quantiles([0.5])[0] ?? null);
  const numbers = {
    of: 'ms',
    format: null,
    histogram: { bins, counts: own.map(countsOf) },
    stats: {
      count: buckets.map(({ length }) => length),
      p50,
      p99: own.map((one) => one.quantiles([0.99])[0]),
    },
    overall: { count: buckets.flat().length, p50: all.quantiles([0.5])[0], p99: all.quantiles([0.99])[0] },
  } as unknown as NumberStats; // What a drawing reads of it.
  const starts = buckets.map((_, index) => index);
  const drawing = heatDrawing({ starts } as unknown as Series, numbers, 'Distribution of ms');
  const columns = drawing.columns().slice(3);
  const edges = columns.map(({ file }) => {
    const [from = Number.NaN, to = Number.NaN] = (file ?? '').replace('ms ', '').split(' to ').map(Number);
    return { from, to };
  });
  const { levels } = drawing;
  if (levels === undefined) throw new Error('There are no levels.');
  return { drawing, columns, edges, levels };
}

const spelled = fc
  .tuple(fc.constantFrom(-1, 1), fc.integer({ min: 1, max: 9_999 }), fc.integer({ min: -20, max: 20 }))
  .map(([sign, digits, exponent]) => Number(`${sign * digits}e${exponent}`));
const near = fc.integer({ min: -300, max: 900 }).map((tenths) => tenths / 10);
const anyNumbers = fc
  .constantFrom(spelled, near, fc.constantFrom(0, 7), spelled.map(Math.abs))
  .chain((one) =>
    fc.array(fc.array(fc.oneof(one, fc.constant(0)), { maxLength: 30 }), { minLength: 1, maxLength: 5 }),
  );

test('every number is in one level, whose edges ascend, whatever numbers there are', () => {
  fc.assert(
    fc.property(anyNumbers, (buckets) => {
      const { drawing, columns, edges, levels } = drawingOf(buckets);
      for (const [index, numbers] of buckets.entries()) {
        const counts = columns.map(({ values }) => values[index] ?? 0);
        expect(counts).toEqual(
          edges.map(
            ({ from, to }, level) =>
              numbers.filter((value) =>
                from < 0
                  ? from <= value && (value < to || (value === to && (to > 0 || level === edges.length - 1)))
                  : (from < value || (from === 0 && value === 0)) && value <= to,
              ).length,
          ),
        );
        expect(counts.reduce((sum, value) => sum + value, 0)).toBe(numbers.length);
      }
      const [min, max] = drawing.range('linear');
      expect(max).toBeGreaterThan(min);
      for (const most of [3, 6, 12]) {
        const ticks = drawing.ticks({ min, max, scale: 'linear' }, most).map(([value]) => value);
        expect(ticks.length).toBeLessThanOrEqual(most + 2);
        expect(ticks.every((value) => value >= min && value <= max)).toBe(true);
        expect(ticks).toEqual(ticks.toSorted((a, b) => a - b));
      }
      for (const level of edges.keys()) {
        const [low, high] = [levels.edge(level), levels.edge(level + 1)];
        expect(low).toBeGreaterThanOrEqual(0);
        expect(high).toBeGreaterThan(low);
        expect(levels.at((low + high) / 2)).toBe(level);
      }
    }),
    runs(sized(100, 300)),
  );
});

test('a box has the numbers of its inner levels, none beyond its outer ones, and ends that read well', () => {
  fc.assert(
    fc.property(anyNumbers, fc.nat(), fc.nat(), (buckets, a, b) => {
      const { edges, levels } = drawingOf(buckets);
      if (edges.length === 0) return;
      const [first, last] = [a % edges.length, b % edges.length].sort((x, y) => x - y) as [number, number];
      const [from, until] = levels.interval(first, last);
      expect(from ?? until).not.toBeNull();
      const isIn = (value: number): boolean => value >= (from ?? -Infinity) && value < (until ?? Infinity);
      for (const number of buckets.flat()) {
        const level = edges.findIndex(({ to, from: low }) =>
          low < 0 ? number < to || (to >= 0 && number <= to) : number <= to,
        );
        if (level > first && level < last) expect(isIn(number)).toBe(true);
        if (level < first - 1 || level > last + 1) expect(isIn(number)).toBe(false);
        if (first === 0 && last === edges.length - 1) expect(isIn(number)).toBe(true);
      }
      const [low, high] = levels.heights([from, until]);
      expect(high).toBeGreaterThan(low);
      for (const end of [from, until])
        if (end !== null)
          expect(
            String(end)
              .replace(/e.*|^-|\./g, '')
              .replace(/^0+|0+$/g, '').length,
          ).toBeLessThanOrEqual(4);
    }),
    runs(sized(100, 300)),
  );
});

test('the axis is logarithmic beyond two decades, and linear where few of both signs are near 0', () => {
  const isLog = (numbers: readonly number[]): boolean => {
    const { drawing, edges } = drawingOf([numbers]);
    return drawing.range('linear')[1] === edges.length;
  };
  const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n + 1);
  expect(isLog(upTo(1_000))).toBe(true);
  expect(isLog(upTo(90))).toBe(false);
  expect(isLog([...upTo(1_000), ...upTo(1_000).map((n) => -n)])).toBe(false);
  expect(isLog([0.001, 0.002, -0.001, 5, -5, 1_000])).toBe(true);
});
