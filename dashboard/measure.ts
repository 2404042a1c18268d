/** What the chart shows in place of numbers of events, as menus offer it and addresses say it. */
import { type MeasureStat, STATS as NUMBER_STATS } from '../src/base/measures.ts';
import { type Measure, partText } from '../src/base/view.ts';

/** The statistics of a field, in the order of the menu: the first is of its different values, the others of its numbers. */
export const STATS: readonly MeasureStat[] = ['distinct', ...NUMBER_STATS];

export {
  HISTOGRAM,
  isQuantile,
  measureLabel,
  SHOWN_STATS,
  type ShownStat,
  singleStat,
} from '../src/base/measures.ts';
export { type Measure, type Part, partText } from '../src/base/view.ts';

/** Puts a measure into an address. */
export function writeMeasure(measure: Measure | null, query: URLSearchParams): void {
  if (measure === null) return;
  if (measure.kind === 'stat') {
    query.set('of', measure.of);
    query.set('stat', measure.stat);
  } else query.set('part', partText(measure.part));
}
