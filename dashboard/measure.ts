/** What the chart shows in place of numbers of events: a ratio of two counts, or a statistic of a field. */
import type { MeasureStat } from '../src/api-types/answers.ts';

/** The statistics of a field, in the order of the menu: the first is of its different values, the others of its numbers. */
export const STATS = [
  'distinct',
  'avg',
  'sum',
  'min',
  'max',
  'p50',
  'p90',
  'p95',
  'p99',
] as const satisfies readonly MeasureStat[];

export const STAT_NAMES: Record<MeasureStat, string> = {
  distinct: 'Unique values',
  avg: 'Average',
  sum: 'Sum',
  min: 'Minimum',
  max: 'Maximum',
  p50: 'Median',
  p90: '90th percentile',
  p95: '95th percentile',
  p99: '99th percentile',
};

/** Which events the ratio is of: those of a type, or those of the view that meet a condition. */
export type Part = { readonly type: string } | { readonly filter: string };

export type Measure =
  | { readonly kind: 'ratio'; readonly part: Part }
  /** @prop of the path of the field */
  | { readonly kind: 'stat'; readonly of: string; readonly stat: MeasureStat };

/** Reads a measure from an address; null if it has none or an invalid one. */
export function parseMeasure(query: URLSearchParams): Measure | null {
  const [, kind, value = ''] = /^(type|filter):(.+)$/s.exec(query.get('part') ?? '') ?? [];
  if (kind !== undefined)
    return { kind: 'ratio', part: kind === 'type' ? { type: value } : { filter: value } };
  const stat = STATS.find((one) => one === query.get('stat'));
  const of = query.get('of') ?? '';
  return stat === undefined || of === '' ? null : { kind: 'stat', of, stat };
}

/** Puts a measure into an address. */
export function writeMeasure(measure: Measure | null, query: URLSearchParams): void {
  if (measure === null) return;
  if (measure.kind === 'stat') {
    query.set('of', measure.of);
    query.set('stat', measure.stat);
  } else query.set('part', partText(measure.part));
}

export const partText = (part: Part): string =>
  'type' in part ? `type:${part.type}` : `filter:${part.filter}`;
