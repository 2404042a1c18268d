/** Search for events whose payload passes a filter: SQL narrows, the service decides. */
import type { Sql, Transaction } from './connect.ts';
import type { StoredEvent } from './event-page.ts';
import {
  EventScan,
  type Position,
  passes,
  type RowFilter,
  type ScanRequest,
  type StepEnd,
  type StepRows,
} from './event-scan.ts';

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

export function openSearch(sql: Sql, request: ScanRequest, filter: RowFilter): EventSearch {
  const scan = new EventScan(sql, request);
  return {
    step: async (mostRows) => {
      const found = await scan.step({ rows: mostRows, bytes: STEP_BYTES }, (tx, rows) =>
        readCandidates(tx, rows, request, filter),
      );
      if (found === null) return { events: [], looked: 0, position: null };
      const rows = matchingRows(found.candidates, filter);
      const position = scan.isAtEnd ? null : scan.position;
      return { events: await withTypes(sql, request.appId, rows), looked: found.looked, position };
    },
  };
}

/** Most bytes of payloads that a step reads, if it reads more than one row. */
const STEP_BYTES = 8 * 1_048_576;

/** Stands between rows: JSON text has no such character. */
const SEPARATOR = '\x1e';

interface Candidates extends StepEnd {
  /** Separator, id, space, milliseconds, space, internal type, space, payload; for each row. */
  readonly candidates: string;
}

/** One text for all rows: several times faster to transfer than rows. */
async function readCandidates(
  tx: Transaction,
  { page, fits }: StepRows,
  { typeIds, order }: ScanRequest,
  { contains }: RowFilter,
): Promise<Candidates | null> {
  const isOfType = typeIds === null ? tx`true` : tx`type_id = ANY(${[...typeIds]}::integer[])`;
  // Without OFFSET 0 each use of the text would be a conversion of its own.
  const [row] = await tx<(Candidates & { fits: boolean })[]>`
    SELECT bool_and(fits) AS fits, count(id)::integer AS looked, (array_agg(id))[count(id)] AS "lastId",
           ${order === 'asc' ? tx`max` : tx`min`}(created_at) AS "lastAt",
           coalesce(string_agg(${SEPARATOR}::text || id || ' ' || (extract(epoch FROM created_at) * 1000)::bigint || ' '
                                 || type_id || ' ' || text, '')
                      FILTER (WHERE text IS NOT NULL AND ${passes(tx, tx`text`, contains)}), '') AS candidates
      FROM (SELECT ${fits} AS fits OFFSET 0) gate
      LEFT JOIN LATERAL (
             SELECT id, type_id, created_at, CASE WHEN ${isOfType} THEN payload::text END AS text
               FROM (${page}) page WHERE gate.fits OFFSET 0) texts ON true`;
  return row?.fits === true ? row : null;
}

interface FoundRow {
  readonly id: string;
  readonly createdAt: Date;
  /** Internal. */
  readonly typeId: number;
  readonly payload: string;
}

function matchingRows(candidates: string, { matches }: RowFilter): FoundRow[] {
  const rows: FoundRow[] = [];
  for (let start = 1; start < candidates.length; ) {
    const next = candidates.indexOf(SEPARATOR, start);
    const end = next === -1 ? candidates.length : next;
    const idEnd = candidates.indexOf(' ', start);
    const timeEnd = candidates.indexOf(' ', idEnd + 1);
    const typeEnd = candidates.indexOf(' ', timeEnd + 1);
    const payload = candidates.slice(typeEnd + 1, end);
    if (matches(payload)) {
      rows.push({
        id: candidates.slice(start, idEnd),
        createdAt: new Date(Number(candidates.slice(idEnd + 1, timeEnd))),
        typeId: Number(candidates.slice(timeEnd + 1, typeEnd)),
        payload,
      });
    }
    start = end + 1;
  }
  return rows;
}

async function withTypes(sql: Sql, appId: number, rows: readonly FoundRow[]): Promise<StoredEvent[]> {
  if (rows.length === 0) return [];
  const types = await sql<{ id: number; publicId: string }[]>`
    SELECT id, public_id AS "publicId" FROM type_names
     WHERE app_id = ${appId} AND id = ANY(${[...new Set(rows.map(({ typeId }) => typeId))]})`;
  const publicIds = new Map(types.map(({ id, publicId }) => [id, publicId]));
  return rows.map(({ id, createdAt, typeId, payload }) => ({
    id,
    createdAt,
    payload,
    typeId: publicIds.get(typeId) ?? '',
  }));
}
