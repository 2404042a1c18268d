/** The rows of a scan whose payload passes a filter: what the database has let through, the service decides. */
import type { CopiedRows } from './copied-rows.ts';
import type { RowFilter } from './event-scan.ts';

/**
 * Calls back with the cursor on each wanted row.
 * @param filter null: every row that has its payload
 * @returns how many rows the filter was asked about
 */
export function eachWanted(
  rows: CopiedRows,
  filter: RowFilter | null,
  onWanted: (row: CopiedRows, payload: string | null) => void,
): number {
  let candidates = 0;
  // Characters of one byte each: it is searched through faster than bytes are, and texts for single payloads are not made.
  const mayMatch = filter?.suspicion?.(rows.bytes.toString('latin1')) ?? null;
  rows.rewind();
  while (rows.next()) {
    if (!rows.hasPayload) continue;
    candidates += 1;
    if (filter === null) {
      onWanted(rows, null);
      continue;
    }
    if (mayMatch !== null && !mayMatch(rows.start, rows.end)) continue;
    const { payload } = rows;
    if (filter.matches(payload)) onWanted(rows, payload);
  }
  return candidates;
}
