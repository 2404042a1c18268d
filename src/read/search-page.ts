/** A page of events whose payload passes a filter: as much of a search as one request may cost. */
import type { EventReader, Position, RowFilter, ScanRequest, StoredEvent } from '../storage/storage.ts';

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
}

export interface SearchOptions {
  readonly budget: SearchBudget;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  /** Asked between two steps: lets others in that wait. Where it tells false, no further step begins. */
  readonly pass: () => Promise<boolean>;
}

export async function readSearchPage(
  reader: EventReader,
  request: SearchPageRequest,
  filter: RowFilter,
  { budget, now, pass }: SearchOptions,
): Promise<SearchPage> {
  const search = reader.search(request, filter);
  const deadline = now() + budget.ms;
  const page = new PageOfFound(request);
  for (let left = budget.rows; ; ) {
    const { events, looked, position } = await search.step(left);
    for (const event of events) {
      page.add(event);
      if (page.isFull) return { events: page.events, next: positionOf(event), searchedUntil: null };
    }
    if (position === null) return { events: page.events, next: null, searchedUntil: null };
    left -= looked;
    if (left <= 0 || now() >= deadline || !(await pass()) || now() >= deadline)
      return { events: page.events, next: position, searchedUntil: new Date(position.at) };
  }
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
