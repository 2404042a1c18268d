/** Events in groups keep what they are made of, and nothing of the texts that they were read from. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { atOnce } from '../../../src/base/time-slice.ts';
import { statsOf } from '../../../src/storage/counts/summary-series.ts';
import { MinuteCells, type Summary } from '../../../src/storage/fields/count-minutes.ts';
import type { DeclaredField } from '../../../src/storage/fields/declared-fields.ts';
import { EventGroups, type Measure } from '../../../src/storage/fields/event-groups.ts';
import { NumberSummary } from '../../../src/storage/fields/number-summary.ts';

const collect = (): void => {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
};

const heap = (): number => {
  collect();
  return process.memoryUsage().heapUsed;
};

/** A payload within a longer text, as a scan of rows shows it. */
const within = (payload: string) => {
  const before = 'x'.repeat(32_768);
  const text = Buffer.from(before + payload).toString('latin1');
  return { text, start: before.length, end: text.length, whole: () => payload };
};

test('a group, its minimum and its maximum keep no text that the event lay in', () => {
  const measures: Measure[] = [{ path: ['amount'], kind: 'number' }];
  const groups = new EventGroups({ by: [['user']], measures, starts: [], maxBytes: 64 * 1_048_576 });
  const before = heap();
  for (let n = 0; n < 2_000; n += 1)
    groups.add({ at: n, payload: within(`{"user":"user-with-a-name-${n}","amount":${n}.12345678901234}`) });
  // The texts are 66 MB.
  expect(heap() - before).toBeLessThan(10_000_000);
  const [first] = atOnce(groups.top(1));
  expect(first).toMatchObject({ count: 1, values: ['"user-with-a-name-0"'] });
});

test('a number of any number of zeros takes no more room than its digits', () => {
  const measures: Measure[] = [{ path: ['amount'], kind: 'number' }];
  const groups = new EventGroups({ by: [['user']], measures, starts: [0], maxBytes: 64 * 1_048_576 });
  const before = heap();
  for (let n = 0; n < 1_000; n += 1)
    groups.add({ at: n, payload: `{"user":"${n}","amount":${n}.5${'0'.repeat(50_000 + n)}}` });
  expect(heap() - before).toBeLessThan(10_000_000);
  const [first] = atOnce(groups.top(1));
  const [summary] = first?.summaries ?? [];
  expect(summary).toMatchObject({ min: '0.5', max: '0.5', count: 1 });
});

test('counts by minute keep no payload that a value lay in', () => {
  const field: DeclaredField = { id: 1, typeId: null, path: ['user'], kind: 'value', by: null };
  const minutes = new MinuteCells([field]);
  const before = heap();
  for (let n = 0; n < 2_000; n += 1) {
    const payload = Buffer.from(`{"user":"user-with-a-name-${n}","x":"${'x'.repeat(32_768)}"}`).toString(
      'latin1',
    );
    minutes.addRow({ typeId: 1, at: 0, payload });
  }
  expect(heap() - before).toBeLessThan(10_000_000);
  expect(minutes.list()).toHaveLength(4_000);
});

test('of a summary only the parts that are asked for are kept, and all else is the same, counted or read from bytes', () => {
  const numbers = ['1', '2.5', '1e3', '-7', '99999999999999999999'];
  const counted = (parts: Measure['parts']): Summary | undefined => {
    const measure: Measure = { path: ['n'], kind: 'number', ...(parts && { parts }) };
    const groups = new EventGroups({ by: [], measures: [measure], starts: [], maxBytes: 1_048_576 });
    for (const n of numbers) groups.add({ at: 0, payload: `{"n":${n}}` });
    return atOnce(groups.top(1))[0]?.summaries[0];
  };
  const bytes = counted(undefined)?.toBytes() ?? Buffer.alloc(0);
  const read = (parts: Measure['parts']): Summary => {
    const [first, second] = [new NumberSummary(parts), new NumberSummary(parts)];
    first.addBytes(Buffer.concat([bytes, bytes]));
    second.addBytes(bytes);
    first.add(second);
    return first;
  };
  for (const made of [counted, read]) {
    const stats = (parts?: Measure['parts']) => {
      const { bins: _, ...shown } = { bins: null, ...statsOf(made(parts) ?? null, 0) };
      return shown;
    };
    const whole = stats();
    expect(whole).toHaveProperty('p50', expect.closeTo(2.5, 1));
    const quantiles = { p50: null, p90: null, p95: null, p99: null };
    expect(stats({ squares: true, bins: true })).toEqual(whole);
    expect(stats({ squares: false, bins: true })).toEqual({ ...whole, stddev: null });
    expect(stats({ squares: true, bins: false })).toEqual({ ...whole, ...quantiles });
  }
});
