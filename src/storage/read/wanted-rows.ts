/** The rows of a scan whose payload passes a filter: what the database has let through, the service decides. */

import type { Prefilter, RowFilter } from '../fields/row-filter.ts';
import type { CopiedRows } from './copied-rows.ts';

/**
 * Calls back with the cursor on each wanted row.
 * @param filter null: every row that has its payload
 */
export function eachWanted(
  rows: CopiedRows,
  filter: RowFilter | null,
  onWanted: (row: CopiedRows, payload: string | null) => void,
): void {
  const window = filter?.prefilter == null ? null : new Window(rows.bytes, filter.prefilter);
  rows.rewind();
  while (rows.next()) {
    if (!rows.hasPayload) continue;
    if (filter === null) {
      onWanted(rows, null);
      continue;
    }
    if (window !== null && !window.mayMatch(rows.start, rows.end)) continue;
    const { payload } = rows;
    if (filter.matches(payload)) onWanted(rows, payload);
  }
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
