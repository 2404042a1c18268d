/** Search for events whose payload passes a filter: SQL narrows, the service decides. */
import type { SearchedBy } from '../../base/searched-by.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import type { Path } from '../../base/turns.ts';
import type { TextPart } from '../../json/path-walk.ts';
import type { Sql } from '../database/connect.ts';
import type { MatchingRow } from '../fields/matching-rows.ts';
import type { RowFilter } from '../fields/row-filter.ts';
import type { CopiedRows } from './copied-rows.ts';
import { EventScan, type ScanRequest, type ScanStep } from './event-scan.ts';
import { withTypes } from './filtered-page.ts';
import type { StoredEvent } from './page-request.ts';
import type { Position } from './positions.ts';
import { eachWanted } from './wanted-rows.ts';

export interface SearchStep extends SearchProgress {
  /** Events that match, in order. */
  readonly events: readonly StoredEvent[];
}

export interface SearchProgress {
  /** Rows that were looked at. */
  readonly looked: number;
  /** Up to where everything has been looked at; null at the end of the scope. */
  readonly position: Position | null;
  /** Null where there was nothing to look at, or there are no conditions. */
  readonly searchedBy: SearchedBy | null;
}

/** A search that goes on step by step. */
export interface EventSearch {
  /** @param mostRows most rows to look at, at least 1 */
  step(mostRows: number): Promise<SearchStep>;
  /**
   * A step in which each event that matches is shown to a visitor, valid during the call, and other work of the event loop comes between them.
   * @param holder whose computation it is
   * @param isOver whether nobody waits any more: then it ends early, and its outcome says nothing
   */
  visit(
    mostRows: number,
    onEvent: (event: { at: number; payload: TextPart }) => void,
    holder: Path,
    isOver: () => boolean,
  ): Promise<SearchProgress>;
}

/** Most bytes of payloads that a step reads, if it reads more than one row. */
const STEP_BYTES = 8 * 1_048_576;
/** Where the database lets more of the rows through, its test costs more than it saves. */
const MOST_CANDIDATES = 0.25;

const AT_END = { looked: 0, position: null, searchedBy: null };

/** @param filter null: every event */
export function openSearch(sql: Sql, request: ScanRequest, filter: RowFilter | null): EventSearch {
  const scan = new EventScan(sql, request, filter?.words);
  let narrows = filter !== null;
  const read = async (mostRows: number): Promise<ScanStep | null> => {
    const limits = { rows: mostRows, bytes: STEP_BYTES };
    const step = await scan.step(limits, narrows ? (filter?.contains ?? []) : []);
    if (step !== null && !step.isArchived && step.rows.length > step.looked * MOST_CANDIDATES)
      narrows = false;
    return step;
  };
  const progress = ({ looked, searchedBy }: ScanStep): SearchProgress => ({
    looked,
    position: scan.isAtEnd ? null : scan.position,
    searchedBy: filter === null ? null : searchedBy,
  });
  /** Calls back with the cursor on each row that matches, in slices of time. */
  const each = async (
    mostRows: number,
    onRow: (row: CopiedRows, payload: TextPart) => void,
    {
      holder = sql.pool.archive?.turns,
      isOver = () => false,
    }: { readonly holder?: Path; readonly isOver?: () => boolean } = {},
  ): Promise<SearchProgress> => {
    const step = await read(mostRows);
    if (step === null) return AT_END;
    await eachWanted(step.rows, filter, onRow, { slices: new TimeSlice(holder), isOver });
    step.buffer.release();
    return progress(step);
  };
  return {
    step: async (mostRows) => {
      const found: MatchingRow[] = [];
      const searched = await each(mostRows, ({ id, at, typeId }, payload) => {
        found.push({ id, at, typeId, payload: payload.whole() });
      });
      return { ...searched, events: await withTypes(sql, request.appId, found) };
    },
    visit: (mostRows, onEvent, holder, isOver) =>
      each(mostRows, ({ at }, payload) => onEvent({ at, payload }), { holder, isOver }),
  };
}
