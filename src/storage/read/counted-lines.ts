/** Events with a value of a declared field as lines of JSON: through the counts of the field, where that is the shorter way. */
import type { AppSpan } from '../counts/app-stats.ts';
import type { Sql } from '../database/connect.ts';
import type { FieldFilter, NotCounted } from '../fields/field-scope.ts';
import type { RowFilter } from '../fields/row-filter.ts';
import type { EventLines, LineReader } from './event-lines.ts';
import type { EventList, EventListRequest } from './event-list.ts';
import type { Position, ScanRequest } from './event-scan.ts';
import type { StoredEvent } from './page-request.ts';

const PAGE = { limit: 4_000, maxBytes: 2 * 1_048_576 };
/** Of values with more events than one in so many, looking through all rows finds more in the same time. */
const RARE_ONE_IN = 20;

/** What reads the events of an app. */
interface Events {
  appSpan(appId: number): Promise<AppSpan>;
  filteredList(request: EventListRequest, filter: FieldFilter): Promise<EventList | NotCounted>;
  lines(request: ScanRequest, filter: RowFilter | null): LineReader;
}

/**
 * The lines of events that pass a filter. Of rare values only minutes that have them are looked at. From where the counts do
 * not answer it, all rows are looked through.
 * @param sql knows the types
 */
export function openCountedLines(
  sql: Sql,
  reader: Events,
  request: ScanRequest,
  filter: FieldFilter,
): LineReader {
  const pages = new CountedPages(reader, request, filter);
  let search: LineReader | null = null;
  return {
    next: async () => {
      if (search !== null) return await search.next();
      const page = await pages.next();
      if (page === 'to search') {
        search = reader.lines(pages.rest, filter.rows);
        return await search.next();
      }
      return page === null ? null : await linesOf(sql, page);
    },
  };
}

class CountedPages {
  readonly #reader: Events;
  readonly #request: ScanRequest;
  readonly #filter: FieldFilter;
  #until: number | null;
  #after: Position | null;
  /** Events of a value that is too frequent; null before the first page. */
  #most: number | null = null;
  #isOver = false;

  constructor(reader: Events, request: ScanRequest, filter: FieldFilter) {
    this.#reader = reader;
    this.#request = request;
    this.#filter = filter;
    this.#until = request.until;
    this.#after = request.after;
  }

  /** What has not been read. */
  get rest(): ScanRequest {
    return { ...this.#request, until: this.#until, after: this.#after };
  }

  async next(): Promise<readonly StoredEvent[] | 'to search' | null> {
    if (this.#isOver) return null;
    const page = await this.#read();
    if (typeof page === 'string' || (page.total ?? 0) > (this.#most ?? 0)) return 'to search';
    this.#isOver = page.next === null;
    const last = page.events.at(-1);
    if (last === undefined) return null;
    this.#after = { at: last.createdAt.getTime(), id: last.id };
    return page.events;
  }

  async #read(): Promise<EventList | NotCounted> {
    const isFirst = this.#most === null;
    if (isFirst) {
      const { total, lastEventAt } = await this.#reader.appSpan(this.#request.appId);
      this.#most = total / RARE_ONE_IN;
      // An end that is left open is that of the events that there are now.
      this.#until ??= (lastEventAt?.getTime() ?? -1) + 1;
    }
    const { order } = this.#request;
    const after = this.#after && { ...this.#after, order };
    const asked = { ...this.#request, ...PAGE, until: this.#until, after, withTotal: isFirst };
    return await this.#reader.filteredList(asked, this.#filter);
  }
}

async function linesOf(sql: Sql, events: readonly StoredEvent[]): Promise<EventLines | null> {
  const last = events.at(-1);
  if (last === undefined) return null;
  const types = await sql<{ typeId: string; name: string }[]>`
    SELECT public_id AS "typeId", name FROM event_types
     WHERE public_id = ANY(${[...new Set(events.map(({ typeId }) => typeId))]})`;
  const names = new Map(types.map(({ typeId, name }) => [typeId, name]));
  const texts = events.map(({ id, typeId, createdAt, payload }) => {
    const type = `"typeId":${JSON.stringify(typeId)},"type":${JSON.stringify(names.get(typeId) ?? '')}`;
    // A line break in JSON text is white space between two tokens.
    const line = payload.replaceAll('\n', ' ').replaceAll('\r', ' ');
    return `{"id":"${id}",${type},"createdAt":"${createdAt.toISOString()}","payload":${line}}\n`;
  });
  const position = { at: last.createdAt.getTime(), id: last.id };
  return { lines: Buffer.from(texts.join('')), events: events.length, position };
}
