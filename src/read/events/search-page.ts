/** A page of events whose payload passes a filter: as much of a search as one request may cost. */
import { type SearchedBy, searchedByBoth } from '../../base/searched-by.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import type { RowFilter } from '../../storage/fields/row-filter.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import type { ScanRequest } from '../../storage/read/event-scan.ts';
import type { StoredEvent } from '../../storage/read/page-request.ts';
import type { Position } from '../../storage/read/positions.ts';

/** What one page may look at. */
export interface SearchBudget {
  readonly rows: number;
  /** Milliseconds after which no further step begins. */
  readonly ms: number;
}

/** A fifth of a second of one core, where rows are small and in memory; the time is for those that are not. */
export const SEARCH_BUDGET: SearchBudget = { rows: 200_000, ms: 1_000 };

export interface SearchPageRequest extends ScanRequest {
  /** Most events of the page. */
  readonly limit: number;
  /** The page ends with the event whose payload takes it to this many bytes. */
  readonly maxBytes: number;
}

export interface SearchPage {
  readonly events: readonly StoredEvent[];
  /** Where the next page begins; null where the whole scope has been searched. */
  readonly next: Position | null;
  /** Where the budget has ended the page: everything up to this time has been searched; otherwise null. */
  readonly searchedUntil: Date | null;
  /** Null where there was nothing to search. */
  readonly searchedBy: SearchedBy | null;
}

export interface SearchOptions {
  readonly budget: SearchBudget;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  /** Asked between two steps: lets others in that wait. Where it tells false, no further step begins. */
  readonly pass: () => Promise<boolean>;
}

/** Where a search has ended. */
export type SearchEnd = Pick<SearchPage, 'next' | 'searchedUntil' | 'searchedBy'> & {
  /** Rows that were looked at. */
  readonly looked: number;
};

/**
 * Shows a visitor what passes, one event after the other, until it has enough, the scope ends or the budget does.
 * @param isEnough takes an event and says whether it was the last one wanted
 */
export async function searchThrough(
  reader: EventReader,
  request: ScanRequest,
  filter: RowFilter,
  { budget, now, pass }: SearchOptions,
  isEnough: (event: StoredEvent) => boolean,
): Promise<SearchEnd> {
  const search = reader.search(request, filter);
  const deadline = now() + budget.ms;
  const slices = new TimeSlice();
  let searchedBy: SearchedBy | null = null;
  for (let sum = 0; ; ) {
    const { events, looked, position, searchedBy: by } = await search.step(budget.rows - sum);
    sum += looked;
    if (by !== null) searchedBy = searchedByBoth(searchedBy, by);
    for (const event of events) {
      if (slices.isOverAfter(event.payload.length)) await slices.next();
      if (isEnough(event)) return { next: positionOf(event), searchedUntil: null, searchedBy, looked: sum };
    }
    if (position === null) return { next: null, searchedUntil: null, searchedBy, looked: sum };
    if (sum >= budget.rows || now() >= deadline || !(await pass()) || now() >= deadline)
      return { next: position, searchedUntil: new Date(position.at), searchedBy, looked: sum };
  }
}

export async function readSearchPage(
  reader: EventReader,
  request: SearchPageRequest,
  filter: RowFilter,
  options: SearchOptions,
): Promise<SearchPage> {
  const page = new PageOfFound(request);
  const { looked: _, ...end } = await searchThrough(reader, request, filter, options, (event) => {
    page.add(event);
    return page.isFull;
  });
  return { events: page.events, ...end };
}

class PageOfFound {
  readonly events: StoredEvent[] = [];
  readonly #limits: SearchPageRequest;
  #bytes = 0;

  constructor(limits: SearchPageRequest) {
    this.#limits = limits;
  }

  add(event: StoredEvent): void {
    this.events.push(event);
    this.#bytes += Buffer.byteLength(event.payload);
  }

  get isFull(): boolean {
    return this.events.length >= this.#limits.limit || this.#bytes >= this.#limits.maxBytes;
  }
}

function positionOf({ createdAt, id }: StoredEvent): Position {
  return { at: createdAt.getTime(), id };
}
