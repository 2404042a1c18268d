/** The rows of a scan whose payload passes a filter: what the database has let through, the service decides. */

import type { Prefilter, RowFilter } from '../fields/row-filter.ts';
import type { CopiedRows } from './copied-rows.ts';

/** Goes from one wanted row to the next: between two of them its owner may pause. */
export class WantedRows {
  readonly #rows: CopiedRows;
  readonly #filter: RowFilter | null;
  readonly #window: Window | null;
  /** The payload of the row; null where there is no filter, and {@link CopiedRows.payload} reads it. */
  payload: string | null = null;

  /** @param filter null: every row that has its payload */
  constructor(rows: CopiedRows, filter: RowFilter | null) {
    this.#rows = rows;
    this.#filter = filter;
    this.#window = filter?.prefilter == null ? null : new Window(rows.bytes, filter.prefilter);
    rows.rewind();
  }

  /** Moves the cursor of the rows to the next wanted one, but looks at so many rows at most. @returns what it has come to */
  next(most = Number.POSITIVE_INFINITY): 'wanted' | 'more' | 'end' {
    const [rows, filter, window] = [this.#rows, this.#filter, this.#window];
    for (let left = most; left > 0; left -= 1) {
      if (!rows.next()) return 'end';
      if (!rows.hasPayload) continue;
      if (filter === null) return 'wanted';
      if (window !== null && !window.mayMatch(rows.start, rows.end)) continue;
      const { payload } = rows;
      if (!filter.matches(payload)) continue;
      this.payload = payload;
      return 'wanted';
    }
    return 'more';
  }
}

/**
 * Calls back with the cursor on each wanted row.
 * @param filter null: every row that has its payload
 */
export function eachWanted(
  rows: CopiedRows,
  filter: RowFilter | null,
  onWanted: (row: CopiedRows, payload: string | null) => void,
): void {
  const wanted = new WantedRows(rows, filter);
  while (wanted.next() === 'wanted') onWanted(rows, wanted.payload);
}

/** As much of the rows as is made a text at once: garbage of this size is cheap. */
const WINDOW_BYTES = 32_768;

/** Rows as a text of one byte for each character, which is searched through faster than bytes are. */
class Window {
  readonly #bytes: Buffer;
  readonly #prefilter: NonNullable<RowFilter['prefilter']>;
  #start = 0;
  #end = 0;
  #mayMatch: Prefilter = () => true;

  constructor(bytes: Buffer, prefilter: NonNullable<RowFilter['prefilter']>) {
    this.#bytes = bytes;
    this.#prefilter = prefilter;
  }

  mayMatch(start: number, end: number): boolean {
    if (end > this.#end) {
      this.#start = start;
      this.#end = Math.max(end, Math.min(start + WINDOW_BYTES, this.#bytes.length));
      this.#mayMatch = this.#prefilter(this.#bytes.toString('latin1', this.#start, this.#end));
    }
    return this.#mayMatch(start - this.#start, end - this.#start);
  }
}
