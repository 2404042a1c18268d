/** Results of a search, by bucket of the chart. */
import type { Series } from '../answers.ts';
import { allOf, countedPart } from '../charts/series-data.ts';
import { valueText } from '../filter-text.ts';
import { type EventPages, searchedUntil } from './event-pages.ts';
import { valuesAt } from './fields.ts';

export interface Found {
  readonly counts: readonly number[];
  readonly total: number;
  /** Events of the list's interval before the filter, whichever lines are shown. */
  readonly searched: number;
  /** Everything newer has been looked at, in milliseconds since the Unix epoch. */
  readonly until: number;
  readonly complete: boolean;
}

/** @param withHidden whether the events of hidden types are searched, too */
export function foundIn(series: Series, list: EventPages, withHidden: boolean): Found {
  const { starts, end } = series;
  const until = searchedUntil(list) ?? end;
  const counts = starts.map(() => 0);
  let total = 0;
  for (const { events } of list.pages) {
    for (const { createdAt } of events) {
      const index = bucketOf(starts, Date.parse(createdAt));
      total += 1;
      if (index >= 0) counts[index] = (counts[index] ?? 0) + 1;
    }
  }
  // An event may have been found before it is counted.
  const searched = Math.max(total, Math.round(searchedOf(series, list, withHidden).all));
  return { counts, total, searched, until, complete: list.complete };
}

/** How many events the interval of a list has, and of how many it has been searched: about, by the counts of the chart. */
export function searchedOf(
  series: Series,
  list: EventPages,
  withHidden: boolean,
): { readonly looked: number; readonly all: number } {
  const { from, until } = series.interval;
  const [first, last] = [Math.max(list.scope.from ?? from, from), Math.min(list.scope.to ?? until, until)];
  const searched = searchedUntil(list) ?? last;
  const between = (start: number): number =>
    allOf(series, withHidden).all.reduce((sum, count, index) => {
      const part = countedPart(series, index);
      const shared = Math.min(part.to, last) - Math.max(part.from, start);
      // Of a bucket that lies partly in between, the same part of its events.
      return shared <= 0 ? sum : sum + (count * shared) / (part.to - part.from);
    }, 0);
  return { looked: between(searched), all: between(first) };
}

/** Values that are told apart. */
const MOST_VALUES = 6;

/** The events of a list by their values at a path, the most frequent first, and those with none of these values last. */
export function foundBy({ pages }: EventPages, path: string): [value: string, events: number][] {
  const counts = new Map<string, number>();
  const all = pages.flatMap(({ events }) =>
    events.map(({ payload }) => valuesAt(payload, path).map(valueText)),
  );
  for (const values of all)
    for (const value of new Set(values)) counts.set(value, (counts.get(value) ?? 0) + 1);
  const most = [...counts].sort((a, b) => b[1] - a[1]).slice(0, MOST_VALUES);
  const others = all.filter((values) => !most.some(([value]) => values.includes(value))).length;
  return others === 0 ? most : [...most, ['other or none', others]];
}

/** The last start that is not after an instant; -1 where all are. */
function bucketOf(starts: readonly number[], instant: number): number {
  let [low, high] = [0, starts.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((starts[middle] ?? 0) <= instant) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
