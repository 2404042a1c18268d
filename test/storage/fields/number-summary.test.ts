/** Summaries of numbers are exact, but for quantiles, whose error is bounded; and they can be added in any order. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { statsOf } from '../../../src/storage/counts/summary-series.ts';
import { decimalText, parseText } from '../../../src/storage/fields/decimal-sum.ts';
import { NumberSummary } from '../../../src/storage/fields/number-summary.ts';
import { Bins, binOf, histogramOf, MOST_BINS, MOST_ERROR } from '../../../src/storage/fields/sketch.ts';
import { seededRandom } from '../../support/field-oracle.ts';
import { runs, sized } from '../../support/fuzz.ts';

function summaryOf(...literals: string[]): NumberSummary {
  const summary = new NumberSummary();
  for (const literal of literals) summary.addNumber(literal);
  return summary;
}

const shown = ({ count, sum, min, max, leftOut }: NumberSummary) => ({
  ...{ count, sum: decimalText(sum), min, max },
  unrepresentable: leftOut.unrepresentable,
});

test.each([
  ['0.1 0.2', { count: 2, sum: '0.3', min: '0.1', max: '0.2' }],
  ['1e2 -2.50E1', { count: 2, sum: '75', min: '-25', max: '100' }],
  ['-0 0.0', { count: 2, sum: '0', min: '0', max: '0' }],
  // Both are the same double.
  ['9007199254740993 9007199254740992', { count: 2, min: '9007199254740992', max: '9007199254740993' }],
  ['9007199254740993 9007199254740992', { sum: '18014398509481985' }],
  ['99999999999999999999 1', { sum: '100000000000000000000' }],
  ['1e-60 1e-61', { count: 1, min: `0.${'0'.repeat(59)}1`, unrepresentable: 1 }],
  ['1e29 1e30', { count: 1, max: `1${'0'.repeat(29)}`, unrepresentable: 1 }],
  ['1e400 -1e400 1e-400 7', { count: 1, sum: '7', unrepresentable: 3 }],
  [`0.${'3'.repeat(60)} 0.${'3'.repeat(61)}`, { count: 1, sum: `0.${'3'.repeat(60)}`, unrepresentable: 1 }],
  [`1e${'9'.repeat(3_000)}`, { count: 0, sum: '0', min: null, max: null, unrepresentable: 1 }],
])('the numbers %s', (literals, expected) => {
  expect(shown(summaryOf(...literals.split(' ')))).toMatchObject(expected);
});

/** A number by its digits and the place of its point, spelled in one of several ways. */
const spelled = fc
  .tuple(
    fc.bigInt({ min: -(10n ** 25n), max: 10n ** 25n }),
    fc.integer({ min: 0, max: 40 }),
    fc.integer({ min: 0, max: 2 }),
  )
  .map(([units, scale, spelling]) => {
    const plain = decimalText({ units, scale });
    const literal = spelling === 0 ? plain : spelling === 1 ? `${units}e-${scale}` : `${units}.000E-${scale}`;
    return { literal, units: units * 10n ** BigInt(40 - scale), double: Number(plain) };
  });

test('sums, minima, maxima and counts are exact, and quantiles within their error', () => {
  fc.assert(
    fc.property(fc.array(spelled, { minLength: 1, maxLength: 60 }), (numbers) => {
      const summary = summaryOf(...numbers.map(({ literal }) => literal));
      const inOrder = numbers.toSorted((a, b) => (a.units < b.units ? -1 : Number(a.units > b.units)));
      const sum = numbers.reduce((total, { units }) => total + units, 0n);
      const at40 = ({ units, scale }: { units: bigint; scale: number }): bigint =>
        units * 10n ** BigInt(40 - scale);
      expect(summary.count).toBe(numbers.length);
      expect(at40(summary.sum)).toBe(sum);
      const { units, scale } = summary.squares ?? { units: -1n, scale: 0 };
      expect(units * 10n ** BigInt(80 - scale)).toBe(
        numbers.reduce((total, one) => total + one.units ** 2n, 0n),
      );
      expect(at40(parseText(summary.min ?? ''))).toBe(inOrder[0]?.units);
      expect(at40(parseText(summary.max ?? ''))).toBe(inOrder.at(-1)?.units);
      const quantiles = [0, 0.01, 0.5, 0.9, 0.99, 1];
      for (const [index, found] of summary.bins.quantiles(quantiles).entries()) {
        const right =
          inOrder[Math.max(1, Math.ceil((quantiles[index] ?? 0) * numbers.length)) - 1]?.double ?? 0;
        expect(Math.abs((found ?? Number.NaN) - right)).toBeLessThanOrEqual(MOST_ERROR * Math.abs(right));
      }
    }),
    runs(sized(70, 200)),
  );
});

test('short numbers, which are added as doubles, are as exact', () => {
  const digits = fc.stringMatching(/^(0|[1-9][0-9]{0,14})$/);
  const short = fc
    .tuple(fc.constantFrom('', '-'), digits, fc.option(fc.stringMatching(/^[0-9]{1,14}$/)))
    .map(([minus, whole, fraction]) => minus + whole + (fraction === null ? '' : `.${fraction}`));
  fc.assert(
    fc.property(fc.array(short, { minLength: 1, maxLength: 40 }), (literals) => {
      const summary = summaryOf(...literals);
      const units = literals.map((literal) => {
        const [whole = '', fraction = ''] = literal.split('.');
        return (
          BigInt(whole.replace('-', '') + fraction.padEnd(14, '0')) * (literal.startsWith('-') ? -1n : 1n)
        );
      });
      const at = (scale: number, one = { units: 0n, scale: 0 }) =>
        one.units * 10n ** BigInt(scale - one.scale);
      expect(at(14, summary.sum)).toBe(units.reduce((sum, one) => sum + one, 0n));
      expect(at(28, summary.squares ?? undefined)).toBe(units.reduce((sum, one) => sum + one ** 2n, 0n));
      const numbers = literals.map(Number);
      expect(Number(summary.min)).toBe(Math.min(...numbers) + 0);
      expect(Number(summary.max)).toBe(Math.max(...numbers) + 0);
      const places: number[] = [];
      summary.bins.forEach((bin, count) => {
        places.push(...new Array<number>(count).fill(bin));
      });
      expect(places).toEqual(numbers.map(binOf).toSorted((a, b) => a - b));
    }),
    runs(sized(200, 2_000)),
  );
});

test('a sum of squares of short numbers stays exact beyond what a double holds', () => {
  const summary = new NumberSummary();
  for (let n = 0; n < 1_000; n += 1) summary.addNumber(String(2 ** 26 - (n % 3)));
  const squares = [0n, 1n, 2n].map((n) => (2n ** 26n - n) ** 2n);
  const [zero = 0n, one = 0n, two = 0n] = squares;
  expect(summary.squares).toEqual({ units: 334n * zero + 333n * one + 333n * two, scale: 0 });
});

/** By the edges that are told, each number for itself. */
const isIn = ({ from, to }: { from: number; to: number }, number: number): boolean =>
  from === to ? number === 0 : from < 0 ? from <= number && number < to : from < number && number <= to;

test('a histogram has every number once, in the bin whose edges say so, in as few bins as asked for', () => {
  const edges = fc
    .tuple(fc.constantFrom(-1, 1), fc.integer({ min: -60, max: 29 }), fc.constantFrom('1', '1.02', '9.99'))
    .map(([sign, exponent, digits]) => `${sign < 0 ? '-' : ''}${digits}e${exponent}`);
  const literal = fc.oneof(
    spelled.map((one) => one.literal),
    edges,
    fc.constant('0'),
    fc.constant('-0.0'),
  );
  const [parts, most] = [
    fc.array(fc.array(literal, { maxLength: 30 }), { minLength: 1, maxLength: 4 }),
    fc.integer({ min: 5, max: 200 }),
  ];
  fc.assert(
    fc.property(parts, most, (literals, limit) => {
      const summaries = literals.map((some) => summaryOf(...some));
      const all = new NumberSummary();
      for (const one of summaries) all.add(one);
      const { bins, countsOf } = histogramOf(all.bins, limit);
      expect(bins.length).toBeLessThanOrEqual(limit);
      for (const [at, { from, to }] of bins.entries()) {
        expect(from).toBeLessThanOrEqual(to);
        const next = bins[at + 1]?.from ?? Infinity;
        // There are gaps beside 0 alone.
        if (Math.sign(to) === Math.sign(next) && next < Infinity) expect(next).toBe(to);
        else expect(next).toBeGreaterThanOrEqual(to);
      }
      for (const [index, summary] of summaries.entries()) {
        const numbers = (literals[index] ?? []).filter((one) => summaryOf(one).count === 1).map(Number);
        const counts = countsOf(summary.bins);
        expect(counts).toEqual(bins.map((bin) => numbers.filter((number) => isIn(bin, number)).length));
        expect(counts.reduce((sum, count) => sum + count, 0)).toBe(summary.count);
      }
    }),
    runs(sized(70, 200)),
  );
});

test('the edges of a histogram are exact: the next double is in the next bin', () => {
  const beside = (number: number, step: bigint): number => {
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, number);
    view.setBigInt64(0, view.getBigInt64(0) + step);
    return view.getFloat64(0);
  };
  for (const bin of histogramOf(summaryOf('0.001', '1', '12345.6').bins, 200).bins) {
    expect(binOf(beside(bin.to, 1n))).toBe(binOf(bin.to) + 1);
    expect(binOf(-beside(bin.to, 1n))).toBe(binOf(-bin.to) - 1);
  }
  expect(histogramOf(summaryOf('0.001', '1', '12345.6').bins, 200).bins).toContainEqual(
    expect.objectContaining({ to: 1 }),
  );
  expect(histogramOf(summaryOf('-1e-60', '0', '-1e29', '1e-60', '1e29').bins, 5).bins).toHaveLength(5);
  expect(histogramOf(summaryOf().bins, 40).bins).toEqual([]);
});

test('summaries add up in any order, also as bytes one after the other', () => {
  fc.assert(
    fc.property(fc.array(fc.array(spelled, { maxLength: 20 }), { maxLength: 6 }), (groups) => {
      const parts = groups.map((numbers) => summaryOf(...numbers.map(({ literal }) => literal)));
      const all = summaryOf(...groups.flat().map(({ literal }) => literal));
      const forward = new NumberSummary();
      for (const part of parts) forward.add(part);
      const read = new NumberSummary();
      read.addBytes(Buffer.concat(parts.toReversed().map((part) => part.toBytes())));
      expect(forward.toBytes()).toEqual(all.toBytes());
      expect(read.toBytes()).toEqual(all.toBytes());
    }),
    runs(sized(50, 100)),
  );
});

test('what a release without squares has counted has none, but all else', () => {
  // Version, count 2, none left out, sum 3, minimum 1, maximum 2, no bins.
  const old = Buffer.from([1, 4, 0, 0, 2, 0x33, 2, 0x31, 2, 0x32, 0]);
  const read = new NumberSummary();
  read.addBytes(old);
  expect(shown(read)).toMatchObject({ count: 2, sum: '3', min: '1', max: '2' });
  expect(read.squares).toBeNull();
  const again = new NumberSummary();
  again.addBytes(Buffer.concat([summaryOf('5').toBytes(), read.toBytes()]));
  expect(again.squares).toBeNull();
  expect(shown(again)).toMatchObject({ count: 3, sum: '8' });
  expect(statsOf(again, 0)).toHaveProperty('stddev', null);
  expect(statsOf(summaryOf('2', '4', '4', '4', '5', '5', '7', '9'), 0)).toHaveProperty(
    'stddev',
    Math.sqrt(32 / 7),
  );
  expect(() => read.addBytes(Buffer.from([3]))).toThrow('unknown version');
});

test('events with several numbers and numbers of too many digits are counted apart', () => {
  const summary = summaryOf('1e999');
  summary.addSeveral();
  summary.addSeveral();
  const read = new NumberSummary();
  read.addBytes(summary.toBytes());
  expect(read.leftOut).toEqual({ several: 2, unrepresentable: 1 });
  expect(read.count).toBe(0);
});

test('a sum of more numbers than a double counts exactly stays exact', () => {
  const summary = new NumberSummary();
  for (let n = 0; n < 100; n += 1) summary.addNumber('999999999999999');
  expect(decimalText(summary.sum)).toBe('99999999999999900');
  for (let doubled = 0; doubled < 100; doubled += 1) summary.add(summary);
  const read = new NumberSummary();
  read.addBytes(summary.toBytes());
  expect(decimalText(read.sum)).toBe(String(99_999_999_999_999_900n * 2n ** 100n));
});

describe('the bins', () => {
  test('are bounded by the range of numbers', () => {
    expect(2 * binOf(9.999e29) + 1).toBeLessThanOrEqual(MOST_BINS);
    expect(binOf(1e-60)).toBeGreaterThan(0);
    expect(MOST_BINS).toBeLessThan(22_000);
  });

  test('have the order of their numbers', () => {
    const numbers = [-1e29, -3, -1e-60, 0, 1e-60, 0.5, 3, 1e29];
    expect(numbers.map(binOf).toSorted((a, b) => a - b)).toEqual(numbers.map(binOf));
  });
});

test('bins are merged as a map of counts is, in any order and number, and those without a count are gone', () => {
  const random = seededRandom(9);
  for (let round = 0; round < 300; round += 1) {
    const [bins, expected] = [new Bins(), new Map<number, number>()];
    for (let part = 0; part < 6; part += 1) {
      const some = new Map<number, number>();
      for (let n = random(1 + random(40)); n > 0; n -= 1)
        some.set(random(60) - 30, 1 + random(4) - 3 * random(2));
      const sorted = [...some].filter(([, count]) => count !== 0).sort(([a], [b]) => a - b);
      // What was read before is longer, and none of it may be taken.
      const before = [7, 8, 9];
      const columns = [0, 1].map((at) => [...sorted.map((one) => one[at] ?? 0), ...before]);
      bins.addSorted(columns[0] ?? [], columns[1] ?? [], sorted.length);
      for (const [bin, count] of sorted) expected.set(bin, (expected.get(bin) ?? 0) + count);
    }
    const found: [number, number][] = [];
    bins.forEach((bin, count) => {
      found.push([bin, count]);
    });
    expect(found).toEqual([...expected].filter(([, count]) => count !== 0).sort(([a], [b]) => a - b));
  }
});
