/** The lines of a chart, and those of the values of a declared field. */
import type {
  EventReader,
  FieldFilter,
  FieldLine,
  FieldSeries,
  SeriesFrame,
  SeriesRequest,
} from '../storage/storage.ts';

/** A line of a chart. */
export interface ChartLine {
  /** A type's public id, or a value as JSON. */
  readonly key: string;
  readonly name: string;
  readonly counts: readonly number[];
  readonly total: number;
  /** A number that the line keeps, for its color: types and values are numbered in the order in which they came. */
  readonly number: number;
}

/** Columns: every array of counts has one number per start. */
export interface Chart extends SeriesFrame {
  /** Those with the most events first. */
  readonly lines: readonly ChartLine[];
  readonly all: readonly number[];
  /** Counts of `all` without those of `lines`; null where there are no others. */
  readonly other: readonly number[] | null;
  /** Events before the interval. */
  readonly before: { readonly all: number; readonly byKey: Readonly<Record<string, number>> };
  /** An earlier interval in buckets of the same width; null: none, or such buckets are not kept. */
  readonly compared: ComparedChart | null;
}

/** The types that a chart leaves out until it is asked for them, as one line; they are in none of its other numbers. */
export interface HiddenLine {
  readonly types: number;
  readonly counts: readonly number[];
  readonly before: number;
  /** Of the interval that is compared with; null: none. */
  readonly compared: readonly number[] | null;
}

export interface ComparedChart {
  readonly starts: readonly number[];
  readonly all: readonly number[];
  readonly byKey: Readonly<Record<string, readonly number[]>>;
}

export interface ValueQuery {
  /** An earlier interval to count as well; null: none. */
  readonly compared: { readonly from: number; readonly until: number } | null;
  /** The path of the field. */
  readonly by: readonly string[];
  /** A filter on the same field; null: none. */
  readonly filter: FieldFilter | null;
}

/** @returns null where the counts of declared fields do not answer it */
export async function readValueLines(
  events: EventReader,
  request: SeriesRequest,
  { compared, by, filter }: ValueQuery,
): Promise<Chart | null> {
  const asked = { ...request, withNumbers: true };
  const whole = await events.valueSeries({ ...asked, withBefore: true }, by, filter);
  const series =
    whole === 'not counted' ? await events.valueSeries({ ...asked, withBefore: false }, by, filter) : whole;
  if (typeof series === 'string') return null;
  const valued = series.lines.filter(hasValue).map(({ value, counts, before, number = 0 }) => ({
    line: { key: value, name: nameOf(value), counts, total: sum(counts), number },
    before,
  }));
  valued.sort((a, b) => b.line.total - a.line.total);
  const lines = valued.map(({ line }) => line);
  const earlier = compared && {
    ...{ ...request, ...compared, buckets: series.bucket, withBefore: false },
    values: lines.map(({ key }) => key),
    topTypes: lines.length,
  };
  const before = earlier && (await events.valueSeries(earlier, by, filter));
  const { bucket, timezone, starts, end, interval, countsOnlyBefore } = series;
  const rest = series.lines.find(({ value }) => value === null);
  return {
    ...{ bucket, timezone, starts, end, interval, countsOnlyBefore, lines },
    all: totals(series),
    other: rest?.counts.some((count) => count > 0) ? rest.counts : null,
    before: {
      all: series.lines.reduce((all, line) => all + line.before, 0),
      byKey: Object.fromEntries(valued.map(({ line, before: own }) => [line.key, own])),
    },
    compared: before === null || typeof before === 'string' ? null : comparedOf(before),
  };
}

function hasValue(line: FieldLine): line is FieldLine & { readonly value: string } {
  return line.value !== null;
}

function comparedOf(series: FieldSeries): ComparedChart {
  const byKey = Object.fromEntries(series.lines.filter(hasValue).map(({ value, counts }) => [value, counts]));
  return { starts: series.starts, all: totals(series), byKey };
}

/** The counts of all lines together. */
export function totals({ starts, lines }: FieldSeries): number[] {
  return starts.map((_, index) => sum(lines.map(({ counts }) => counts[index] ?? 0)));
}

/** A value for display: a text without quotes, unless it would look like something else. */
export function nameOf(value: string): string {
  const parsed: unknown = JSON.parse(value);
  const isPlain = typeof parsed === 'string' && parsed.trim() !== '' && !isScalar(parsed);
  return isPlain ? parsed : value;
}

function isScalar(text: string): boolean {
  return ['true', 'false', 'null'].includes(text) || /^-?\d+(?:\.\d+)?(?:e[+-]?\d+)?$/i.test(text);
}

export function sum(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}
