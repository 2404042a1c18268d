/** Events as lines of JSON, as many as a scope has, for exports. */
import type { Sql, Transaction } from './connect.ts';
import { readAppSpan } from './counts/app-stats.ts';
import { readFilteredList } from './event-list.ts';
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
import type { FieldFilter } from './fields/field-scope.ts';

export interface EventLines {
  /**
   * `{"id":…,"typeId":…,"type":…,"createdAt":…,"payload":…}`, each ended by a line feed. Line breaks between the tokens
   * of a payload have become spaces.
   */
  readonly lines: Buffer;
  readonly events: number;
  /** Where the next part begins. */
  readonly position: Position;
}

export interface LineReader {
  /** Whether there is nothing to come is only known when null is returned. A part may be empty. */
  next(): Promise<EventLines | null>;
}

export function openLines(sql: Sql, request: ScanRequest, filter: RowFilter | null): LineReader {
  const scan = new EventScan(sql, request);
  return {
    next: async () => {
      const found = await scan.step(PART, (tx, rows) => readLines(tx, rows, request, filter));
      const { position } = scan;
      if (found === null || position === null) return null;
      const { lines, events } = filter === null ? found : filterLines(found.lines, filter);
      breakLines(lines);
      return { lines, events, position };
    },
  };
}

/**
 * The same of events that the counts of a declared field find: only minutes that have them are looked at, however rare they
 * are. From where the counts do not answer it all rows are looked through.
 */
export function openFilteredLines(sql: Sql, request: ScanRequest, filter: FieldFilter): LineReader {
  let after = request.after;
  let until = request.until;
  let isOver = false;
  let search: LineReader | null = null;
  return {
    next: async () => {
      if (search !== null) return await search.next();
      if (isOver) return null;
      // An end that is left open is that of the events that there are now.
      until ??= ((await readAppSpan(sql, request.appId)).lastEventAt?.getTime() ?? -1) + 1;
      const { order } = request;
      const asked = { ...request, until, after: after && { ...after, order } };
      const page = await readFilteredList(sql, { ...asked, limit: PART.rows, maxBytes: PART.bytes }, filter);
      if (page === null) {
        search = openLines(sql, { ...request, until, after }, filter.rows);
        return await search.next();
      }
      const last = page.events.at(-1);
      isOver = page.next === null;
      if (last === undefined) return null;
      after = { at: last.createdAt.getTime(), id: last.id };
      return { lines: await linesOf(sql, page.events), events: page.events.length, position: after };
    },
  };
}

async function linesOf(sql: Sql, events: readonly StoredEvent[]): Promise<Buffer> {
  const types = await sql<{ typeId: string; name: string }[]>`
    SELECT public_id AS "typeId", name FROM event_types WHERE public_id = ANY(${[...new Set(events.map(({ typeId }) => typeId))]})`;
  const names = new Map(types.map(({ typeId, name }) => [typeId, name]));
  const texts = events.map(({ id, typeId, createdAt, payload }) => {
    const type = `"typeId":${JSON.stringify(typeId)},"type":${JSON.stringify(names.get(typeId) ?? '')}`;
    return `{"id":"${id}",${type},"createdAt":"${createdAt.toISOString()}","payload":${payload}}\x1e`;
  });
  const lines = Buffer.from(texts.join(''));
  breakLines(lines);
  return lines;
}

/** About a megabyte of usual events; and the most that a part takes of memory, if it has more than one event. */
const PART = { rows: 4_000, bytes: 2 * 1_048_576 };

/** Ends each line until line breaks within payloads are gone: JSON text has no such character. */
const SEPARATOR = 0x1e;
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const SPACE = 0x20;

interface Lines extends StepEnd {
  readonly lines: Buffer;
  readonly events: number;
}

/** The database writes the lines: their bytes go out as they come. */
async function readLines(
  tx: Transaction,
  { page, fits }: StepRows,
  { typeIds, order }: ScanRequest,
  filter: RowFilter | null,
): Promise<Lines | null> {
  const isOfType = typeIds === null ? tx`true` : tx`type_id = ANY(${[...typeIds]}::integer[])`;
  const isWanted =
    filter === null
      ? tx`text IS NOT NULL`
      : tx`text IS NOT NULL AND (${passes(tx, tx`text`, filter.contains)})`;
  // A time with a microsecond more has six digits, of which the first three are wanted. A lateral join keeps the order.
  const [row] = await tx`
    SELECT bool_and(fits), count(texts.id), (array_agg(texts.id))[count(texts.id)],
           (extract(epoch FROM ${order === 'asc' ? tx`max` : tx`min`}(created_at)) * 1000)::bigint,
           count(*) FILTER (WHERE ${isWanted}),
           string_agg('{"id":"' || texts.id || head || left(to_json(created_at + interval '1 microsecond')::text, 24)
                        || 'Z","payload":' || text || E'}\\x1e', '')
             FILTER (WHERE ${isWanted})
      FROM (SELECT ${fits} AS fits OFFSET 0) gate
      LEFT JOIN LATERAL (
             SELECT id, type_id, created_at, CASE WHEN ${isOfType} THEN payload::text END AS text
               FROM (${page}) page WHERE gate.fits OFFSET 0) texts ON true
      LEFT JOIN LATERAL (
             SELECT '","typeId":' || to_json(public_id)::text || ',"type":' || to_json(name)::text || ',"createdAt":' AS head
               FROM event_types WHERE event_types.id = texts.type_id OFFSET 0) types ON true`.raw();
  const [isFitting, looked, lastId, lastAt, events, lines] = (row ?? []) as (Buffer | null)[];
  if (isFitting?.toString() !== 't') return null;
  return {
    looked: Number(looked),
    lastId: lastId?.toString() ?? null,
    lastAt: lastAt == null ? null : new Date(Number(lastAt)),
    events: Number(events),
    lines: lines ?? Buffer.alloc(0),
  };
}

const PAYLOAD = ',"payload":';

/** The lines whose payload matches; each still ends with the separator. */
function filterLines(lines: Buffer, { matches }: RowFilter): { lines: Buffer; events: number } {
  const kept: string[] = [];
  // The members before the payload are ours: their texts have no unescaped quotes.
  for (const line of lines.toString().split('\x1e')) {
    const start = line.indexOf(PAYLOAD) + PAYLOAD.length;
    if (line !== '' && matches(line.slice(start, -1))) kept.push(`${line}\x1e`);
  }
  return { lines: Buffer.from(kept.join('')), events: kept.length };
}

/** Ends lines by line feeds, and no line before its end: a line break in JSON text is white space between two tokens. */
function breakLines(lines: Buffer): void {
  replaceByte(lines, LINE_FEED, SPACE);
  replaceByte(lines, CARRIAGE_RETURN, SPACE);
  replaceByte(lines, SEPARATOR, LINE_FEED);
}

function replaceByte(bytes: Buffer, from: number, to: number): void {
  for (let at = bytes.indexOf(from); at !== -1; at = bytes.indexOf(from, at + 1)) bytes[at] = to;
}
