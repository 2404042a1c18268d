/** What the chart shows in place of numbers of events: a ratio of two counts, or a statistic of a field. */
import { HISTOGRAM, type MeasureStat, STATS as NUMBER_STATS, type ShownStat } from '../src/base/measures.ts';
import { type Part, parsePart, partText } from '../src/base/view.ts';

/** The statistics of a field, in the order of the menu: the first is of its different values, the others of its numbers. */
export const STATS: readonly MeasureStat[] = ['distinct', ...NUMBER_STATS];
/** What a chart may show of a field. */
export const SHOWN_STATS: readonly ShownStat[] = [...STATS, HISTOGRAM];

export { HISTOGRAM, isQuantile, measureLabel, type ShownStat, singleStat } from '../src/base/measures.ts';
export { type Part, partText } from '../src/base/view.ts';

export type Measure =
  | { readonly kind: 'ratio'; readonly part: Part }
  /** @prop of the path of the field */
  | { readonly kind: 'stat'; readonly of: string; readonly stat: ShownStat };

/** Reads a measure from an address; null if it has none or an invalid one. */
export function parseMeasure(query: URLSearchParams): Measure | null {
  const part = parsePart(query);
  if (part !== null) return { kind: 'ratio', part };
  const stat = SHOWN_STATS.find((one) => one === query.get('stat'));
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
