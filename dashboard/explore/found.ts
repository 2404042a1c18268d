/** Results of a search, by bucket of the chart. */
import type { Series } from '../answers.ts';
import { type EventPages, searchedUntil } from './event-pages.ts';

export interface Found {
  readonly counts: readonly number[];
  readonly total: number;
  /** Everything newer has been looked at, in milliseconds since the Unix epoch. */
  readonly until: number;
  readonly complete: boolean;
  /** Events that were looked at, by the counts of the chart: a bucket that is looked at in part counts as a whole. */
  readonly looked: number;
}

export function foundIn({ starts, end, all }: Series, list: EventPages): Found {
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
  const looked = all.reduce(
    (sum, value, index) => ((starts[index + 1] ?? end) > until ? sum + value : sum),
    0,
  );
  return { counts, total, until, complete: list.complete, looked };
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
