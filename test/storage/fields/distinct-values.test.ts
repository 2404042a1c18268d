/** Sketches of different values against sets. */
import { expect, test } from 'vitest';
import { DistinctValues, MOST_EXACT } from '../../../src/storage/fields/distinct-values.ts';

function sketchOf(values: Iterable<string>): DistinctValues {
  const sketch = new DistinctValues();
  for (const value of values) sketch.addValue(value);
  return sketch;
}

const valuesOf = (seed: number, from: number, until: number): string[] =>
  Array.from({ length: until - from }, (_, n) => `"${seed}-${from + n}"`);

test('counts up to 1,024 different values exactly, however often they come', () => {
  for (const count of [0, 1, 7, 500, MOST_EXACT]) {
    const values = valuesOf(count, 0, count);
    const sketch = sketchOf([...values, ...values]);
    expect([sketch.count, sketch.isExact]).toEqual([count, true]);
  }
  expect(sketchOf(valuesOf(1, 0, MOST_EXACT + 1)).isExact).toBe(false);
});

test('is within 2.5 % in 997 of 1,000 seeds beyond that', () => {
  let within = 0;
  let bias = 0;
  for (let seed = 0; seed < 1_000; seed += 1) {
    const count = [1_025, 1_500, 3_000, 8_000][seed % 4] ?? 1_025;
    const error = sketchOf(valuesOf(seed, 0, count)).count / count - 1;
    if (Math.abs(error) <= 0.025) within += 1;
    bias += error / 1_000;
  }
  expect(within).toBeGreaterThanOrEqual(997);
  expect(Math.abs(bias)).toBeLessThan(0.001);
});

test('has the same bytes for the same values, in whatever order and parts they were united', () => {
  for (const count of [0, 1, 900, MOST_EXACT, 1_025, 5_000]) {
    const values = valuesOf(9, 0, count);
    const whole = sketchOf(values).toBytes();
    const parts = [values.slice(0, 700), values.slice(300), values.filter((_, n) => n % 3 === 0)].map(
      sketchOf,
    );
    const united = new DistinctValues();
    for (const part of parts.toReversed()) united.addBytes(part.toBytes());
    const added = new DistinctValues();
    for (const part of parts) added.add(part);
    expect(united.toBytes().equals(whole)).toBe(true);
    expect(added.toBytes().equals(whole)).toBe(true);
    expect(sketchOf(values.toReversed()).toBytes().equals(whole)).toBe(true);
  }
});

test('is the same set as its bytes, and stays so when others are added to it or it to others', () => {
  for (const count of [0, 1, 900, MOST_EXACT, 1_025, 5_000]) {
    const whole = sketchOf(valuesOf(3, 0, count));
    const more = sketchOf(valuesOf(3, Math.min(count, 500), 1_500));
    const both = sketchOf(valuesOf(3, 0, Math.max(count, 1_500)));
    const [read, added, united] = [new DistinctValues(), new DistinctValues(), new DistinctValues()];
    read.addBytes(whole.toBytes());
    added.add(read);
    expect([read.count, read.isExact, added.count]).toEqual([whole.count, whole.isExact, whole.count]);
    united.add(read);
    united.add(more);
    read.add(more);
    for (const set of [united, read])
      expect([set.count, set.toBytes().equals(both.toBytes())]).toEqual([both.count, true]);
    expect(added.toBytes().equals(whole.toBytes())).toBe(true);
  }
});
