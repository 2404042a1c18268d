/** Search for events whose payload passes a filter: SQL narrows, the service decides. */
import type { Sql } from '../database/connect.ts';
import type { MatchingRow } from '../fields/matching-rows.ts';
import type { RowFilter } from '../fields/row-filter.ts';
import { EventScan, type Position, type ScanRequest } from './event-scan.ts';
import { withTypes } from './filtered-page.ts';
import type { StoredEvent } from './page-request.ts';
import { eachWanted } from './wanted-rows.ts';

export interface SearchStep {
  /** Events that match, in order. */
  readonly events: readonly StoredEvent[];
  /** Rows that were looked at. */
  readonly looked: number;
  /** Up to where everything has been looked at; null at the end of the scope. */
  readonly position: Position | null;
}

/** A search that goes on step by step. */
export interface EventSearch {
  /** @param mostRows most rows to look at, at least 1 */
  step(mostRows: number): Promise<SearchStep>;
}

/** Most bytes of payloads that a step reads, if it reads more than one row. */
const STEP_BYTES = 8 * 1_048_576;
/** Where the database lets more of the rows through, its test costs more than it saves. */
const MOST_CANDIDATES = 0.25;

export function openSearch(sql: Sql, request: ScanRequest, filter: RowFilter): EventSearch {
  const scan = new EventScan(sql, request);
  let narrows = true;
  return {
    step: async (mostRows) => {
      const limits = { rows: mostRows, bytes: STEP_BYTES };
      const step = await scan.step(limits, narrows ? filter.contains : []);
      if (step === null) return { events: [], looked: 0, position: null };
      const { rows, looked } = step;
      const found: MatchingRow[] = [];
      eachWanted(rows, filter, ({ id, at, typeId }, payload) =>
        found.push({ id, at, typeId, payload: payload ?? '' }),
      );
      if (rows.length > looked * MOST_CANDIDATES) narrows = false;
      const position = scan.isAtEnd ? null : scan.position;
      return { events: await withTypes(sql, request.appId, found), looked, position };
    },
  };
}
