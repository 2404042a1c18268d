/** The rows of a scan whose payload passes a filter: what the database has let through, the service decides. */

import type { TimeSlice } from '../../base/time-slice.ts';
import type { TextPart } from '../../json/path-walk.ts';
import type { Prefilter, RowFilter } from '../fields/row-filter.ts';
import type { CopiedRows } from './copied-rows.ts';

/** As much of the rows as is made a text at once: garbage of this size is cheap. */
const WINDOW_BYTES = 32_768;

const BITS_OF_KILOBYTE = 10;
/** Rows and kilobytes between two looks at the clock. */
const LOOKED_AT_ONCE = 64;

/** Goes from one wanted row to the next: between two of them its owner may pause. It is the payload of the row that it has come to. */
export class WantedRows implements TextPart {
  readonly #rows: CopiedRows;
  readonly #filter: RowFilter | null;
  /** A part of the rows as a text of one byte for each character, which is searched through faster than bytes are. */
  #text = '';
  #textStart = 0;
  #textEnd = 0;
  /** Rows that were looked at, and the kilobytes of their payloads. */
  looked = 0;
  #mayMatch: Prefilter = () => true;
  #whole: string | null = null;

  /** @param filter null: every row that has its payload */
  constructor(rows: CopiedRows, filter: RowFilter | null) {
    this.#rows = rows;
    this.#filter = filter;
    rows.rewind();
  }

  get text(): string {
    if (this.#rows.end > this.#textEnd) this.#readText();
    return this.#text;
  }

  get start(): number {
    if (this.#rows.end > this.#textEnd) this.#readText();
    return this.#rows.start - this.#textStart;
  }

  get end(): number {
    return this.start + this.#rows.end - this.#rows.start;
  }

  whole(): string {
    this.#whole ??= this.#rows.payload;
    return this.#whole;
  }

  /** Moves the cursor of the rows to the next wanted one, but looks on up to so much at most. @returns what it has come to */
  next(most = Number.POSITIVE_INFINITY): 'wanted' | 'more' | 'end' {
    const [rows, filter] = [this.#rows, this.#filter];
    while (this.looked < most) {
      this.#whole = null;
      if (!rows.next()) return 'end';
      this.looked += 1 + ((rows.end - rows.start) >> BITS_OF_KILOBYTE);
      if (!rows.hasPayload) continue;
      if (filter === null) return 'wanted';
      const { start, end } = this;
      if (this.#mayMatch(start, end) && filter.matches(this)) return 'wanted';
    }
    return 'more';
  }

  #readText(): void {
    const { start, end, bytes } = this.#rows;
    this.#textStart = start;
    this.#textEnd = Math.max(end, Math.min(start + WINDOW_BYTES, bytes.length));
    this.#text = bytes.toString('latin1', start, this.#textEnd);
    this.#mayMatch = this.#filter?.prefilter?.(this.#text) ?? this.#mayMatch;
  }
}

/**
 * Calls back with the cursor on each wanted row, in slices of time.
 * @param filter null: every row that has its payload
 * @param isOver whether nobody waits any more: then it ends early
 */
export async function eachWanted(
  rows: CopiedRows,
  filter: RowFilter | null,
  onWanted: (row: CopiedRows, payload: TextPart) => void,
  { slices, isOver = () => false }: { readonly slices: TimeSlice; readonly isOver?: () => boolean },
): Promise<void> {
  const wanted = new WantedRows(rows, filter);
  for (let found = 'more'; found !== 'end' && !isOver(); ) {
    const most = wanted.looked + LOOKED_AT_ONCE;
    for (found = wanted.next(most); found === 'wanted'; found = wanted.next(most)) onWanted(rows, wanted);
    if (slices.isOver) await slices.next();
  }
}
