/** Compares summaries of numbers with rows, and coarser summaries with finer ones, in one snapshot; and makes them right. */

import type { Interval } from '../../counts/intervals.ts';
import {
  ALL_TYPES,
  DAY_MS,
  finerThan,
  floorTo,
  HOUR_MS,
  LEVELS,
  type Level,
  MINUTE_MS,
  MINUTES,
} from '../../counts/levels.ts';
import type { Transaction } from '../../database/connect.ts';
import type { FieldState } from '../compare.ts';
import { decimalText } from './decimal-sum.ts';
import { NumberSummary } from './number-summary.ts';
import {
  type NumberRow,
  NumberRows,
  numbersTable,
  numbersView,
  readRows,
  writeToTable,
} from './number-tables.ts';
import { addRowNumbers } from './read-numbers.ts';
import { Bins } from './sketch.ts';

/** Summaries of so much of a day are in memory at once. */
const STEP_MS = 6 * HOUR_MS;

/** A summary that is not what it should be. */
export interface NumberDifference {
  readonly level: Level['name'];
  readonly fieldId: number;
  readonly typeId: number;
  readonly bucket: number;
  readonly counted: NumberSummary;
  readonly expected: NumberSummary;
}

/** The part of a summary that differs, and its two values. For a sketch: in how many places numbers lie in other bins. */
export function differingPart({ counted, expected }: Pick<NumberDifference, 'counted' | 'expected'>): {
  readonly value: string;
  readonly counted: number;
  readonly expected: number;
} {
  const parts = [
    ['count', counted.count, expected.count],
    ['sum', decimalText(counted.sum), decimalText(expected.sum)],
    ['min', counted.min, expected.min],
    ['max', counted.max, expected.max],
    ['several', counted.leftOut.several, expected.leftOut.several],
    ['unrepresentable', counted.leftOut.unrepresentable, expected.leftOut.unrepresentable],
  ] as const;
  const part = parts.find(([, a, b]) => a !== b);
  if (part !== undefined) return { value: part[0], counted: Number(part[1]), expected: Number(part[2]) };
  const moved = new Bins();
  moved.addBins(counted.bins, 1);
  moved.addBins(expected.bins, -1);
  return { value: 'sketch', counted: moved.size, expected: 0 };
}

/**
 * Minutes, pending deltas included, that are not what their rows say.
 * @param isCompared of the start of a minute
 */
export async function differencesOfMinutes(
  tx: Transaction,
  field: FieldState,
  interval: Interval,
  isCompared: (minute: number) => boolean,
): Promise<NumberDifference[]> {
  const expected = await minutesOfRows(tx, field, interval);
  const counted = await readRows(tx, numbersView(MINUTES), field, interval);
  return differences(MINUTES, counted, expected).filter(({ bucket }) => isCompared(bucket));
}

/** Coarser summaries of a UTC day that are not those of the finer level, without what is pending. */
export async function differencesOfLevels(
  tx: Transaction,
  field: FieldState,
  day: number,
): Promise<NumberDifference[]> {
  const found: NumberDifference[] = [];
  for (const level of LEVELS) found.push(...(await differencesOfLevel(tx, field, level, day)));
  return found;
}

async function differencesOfLevel(
  tx: Transaction,
  field: FieldState,
  level: Level,
  day: number,
): Promise<NumberDifference[]> {
  const finer = finerThan(level);
  if (finer === null) return [];
  const found: NumberDifference[] = [];
  for (let from = day; from < day + DAY_MS; from += Math.max(STEP_MS, level.ms)) {
    const interval = { from, until: from + Math.max(STEP_MS, level.ms) };
    const sums = (await readRows(tx, numbersTable(finer), field, interval)).coarser(level);
    found.push(...differences(level, await readRows(tx, numbersTable(level), field, interval), sums));
  }
  return found;
}

/** Makes the minutes of an interval what their rows say, without what pending deltas will add. */
export async function rebuildMinutes(tx: Transaction, field: FieldState, interval: Interval): Promise<void> {
  const expected = await minutesOfRows(tx, field, interval);
  const pending = await readRows(tx, 'pending_field_numbers', field, interval);
  for (const { numbers, ...row } of pending.list()) expected.of(row).subtract(numbers);
  const stored = await readRows(tx, numbersTable(MINUTES), field, interval);
  await correct(tx, differences(MINUTES, stored, expected), field);
}

/** Makes the coarser summaries of a UTC day those of the finer ones. */
export async function rebuildLevels(tx: Transaction, field: FieldState, day: number): Promise<void> {
  for (const level of LEVELS) await correct(tx, await differencesOfLevel(tx, field, level, day), field);
}

async function correct(
  tx: Transaction,
  found: readonly NumberDifference[],
  { appId }: FieldState,
): Promise<void> {
  const [first] = found;
  if (first === undefined) return;
  const rows = found.map(({ fieldId, typeId, bucket, expected }) => ({
    ...{ appId, fieldId, typeId, bucket },
    numbers: expected,
  }));
  await writeToTable(tx, { name: first.level }, rows);
}

/** What the rows of an interval say, by minute and type; of a field for all types also for all of them together. */
async function minutesOfRows(
  tx: Transaction,
  { id: fieldId, appId, path, typeId }: FieldState,
  interval: Interval,
): Promise<NumberRows> {
  const found = new NumberRows();
  const typeIds = typeId === null ? null : [typeId];
  await addRowNumbers(tx, { appId, path, typeIds }, [interval], (row) =>
    found.of({
      ...{ appId, fieldId, typeId: typeId === null ? row.typeId : ALL_TYPES },
      bucket: floorTo(row.at, MINUTE_MS),
    }),
  );
  if (typeId === null)
    for (const { numbers, ...row } of found.ofAllTypes().list()) found.of(row).add(numbers);
  return found;
}

function differences(level: Level, counted: NumberRows, expected: NumberRows): NumberDifference[] {
  const none = new NumberSummary();
  const of = ({ numbers: _, ...key }: NumberRow): NumberDifference[] => {
    const [known = none, right = none] = [counted.get(key), expected.get(key)];
    if (known.toBytes().equals(right.toBytes())) return [];
    const { fieldId, typeId, bucket } = key;
    return [{ level: level.name, fieldId, typeId, bucket, counted: known, expected: right }];
  };
  const others = counted.list().filter((row) => expected.get(row) === undefined);
  return [...expected.list(), ...others].flatMap(of).sort((a, b) => a.bucket - b.bucket);
}
