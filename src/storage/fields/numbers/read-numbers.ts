/** Reads summaries of numbers: stored and pending ones, and those of rows. */

import type { Interval } from '../../counts/intervals.ts';
import { type Level, MINUTES } from '../../counts/levels.ts';
import type { Transaction } from '../../database/connect.ts';
import { type MatchingRow, matchingRows } from '../matching-rows.ts';
import { PayloadValues } from '../payload-values.ts';
import { MANY } from '../value-text.ts';
import type { NumberSummary } from './number-summary.ts';
import { numbersView } from './number-tables.ts';

/** Rows of summaries that are in memory at once. */
const ROWS_AT_ONCE = 200;

/** Whose numbers are read. */
export interface NumberScope {
  /** Internal ids. */
  readonly appId: number;
  readonly fieldId: number;
  readonly path: readonly string[];
  /** Types of the summaries: those of single types, or that of all. */
  readonly summaryTypes: readonly number[];
  /** Types of the rows; null: all. */
  readonly typeIds: readonly number[] | null;
}

/** Summaries of whole buckets of a level, in order of time; of a bucket there may be several. */
export async function* readSummaries(
  tx: Transaction,
  { appId, fieldId, summaryTypes }: NumberScope,
  level: Pick<Level, 'name'>,
  { from, until }: Interval,
): AsyncGenerator<{ readonly at: number; readonly numbers: Uint8Array }> {
  const rows = tx<{ at: number; numbers: Uint8Array }[]>`
    SELECT (extract(epoch FROM bucket) * 1000)::float8 AS at, numbers FROM ${tx(numbersView(level))}
     WHERE app_id = ${appId} AND field_id = ${fieldId} AND type_id = ANY(${[...summaryTypes]}::integer[])
       AND bucket >= ${new Date(from)} AND bucket < ${new Date(until)}
     ORDER BY bucket`;
  for await (const some of rows.cursor(ROWS_AT_ONCE)) yield* some;
}

/** The same of single minutes. @param minutes milliseconds since 1970 */
export async function* readMinuteSummaries(
  tx: Transaction,
  { appId, fieldId, summaryTypes }: NumberScope,
  minutes: readonly number[],
): AsyncGenerator<{ readonly at: number; readonly numbers: Uint8Array }> {
  const rows = tx<{ at: number; numbers: Uint8Array }[]>`
    SELECT (extract(epoch FROM bucket) * 1000)::float8 AS at, numbers FROM ${tx(numbersView(MINUTES))}
     WHERE app_id = ${appId} AND field_id = ${fieldId} AND type_id = ANY(${[...summaryTypes]}::integer[])
       AND bucket = ANY(${minutes.map((at) => new Date(at).toISOString())}::timestamptz[])`;
  for await (const some of rows.cursor(ROWS_AT_ONCE)) yield* some;
}

const EVERY_ROW = { contains: [], matches: () => true };

/**
 * Adds the numbers of rows to summaries.
 * @param intervals in order of time
 * @param summaryOf the summary that the number of a row belongs to
 */
export async function addRowNumbers(
  tx: Transaction,
  { appId, path, typeIds }: Pick<NumberScope, 'appId' | 'path' | 'typeIds'>,
  intervals: readonly Interval[],
  summaryOf: (row: MatchingRow) => NumberSummary,
): Promise<void> {
  if (intervals.length === 0) return;
  const values = new PayloadValues([path], ['number']);
  for await (const rows of matchingRows(tx, { appId, typeIds, filter: EVERY_ROW }, intervals, 'asc')) {
    for (const row of rows) addNumberOf(values, row.payload, () => summaryOf(row));
  }
}

/** Adds the number of a payload, if there is one. @param values reads one path, for its numbers */
export function addNumberOf(values: PayloadValues, payload: string, into: () => NumberSummary): void {
  const value = values.read(payload)[0] ?? null;
  if (value === MANY) into().addSeveral();
  else if (value !== null) into().addNumber(value);
}
