/** Events as lines of JSON, as many as a scope has, for exports. */

import type { SearchedBy } from '../../base/searched-by.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import { MINUTE_MS } from '../../base/time-units.ts';
import type { AppSpan } from '../counts/app-stats.ts';
import type { Sql } from '../database/connect.ts';
import type { FieldFilter, NotCounted } from '../fields/field-scope.ts';
import type { RowFilter } from '../fields/row-filter.ts';
import { type CopiedRows, RowBuffer } from './copied-rows.ts';
import type { EventList, EventListRequest } from './event-list.ts';
import { EventScan, type ScanRequest } from './event-scan.ts';
import { newTypesOf } from './filtered-page.ts';
import type { StoredEvent } from './page-request.ts';
import type { Position } from './positions.ts';
import { eachWanted } from './wanted-rows.ts';

export interface EventLines {
  /**
   * `{"id":…,"typeId":…,"type":…,"createdAt":…,"payload":…}`, each ended by a line feed. Line breaks between the tokens
   * of a payload have become spaces.
   */
  readonly lines: Buffer;
  readonly events: number;
  /** Where the next part begins. */
  readonly position: Position;
  /** Absent where there are no conditions, or counts have found the events. */
  readonly searchedBy?: SearchedBy;
}

export interface LineReader {
  /** Whether what has been asked for last was searched for by conditions, and not found by counts. */
  readonly isSearch: boolean;
  /**
   * Whether there is nothing to come is only known when null is returned. A part may be empty.
   * The lines of a part are valid until the next but one is asked for: one is sent while the next is read.
   */
  next(): Promise<EventLines | null>;
}

/** About two megabytes of usual events; and the most that a part takes of memory, if it has more than one event. */
const PART = { rows: 8_000, bytes: 2 * 1_048_576 };

export function openLines(sql: Sql, request: ScanRequest, filter: RowFilter | null): LineReader {
  // Two in turn, each for the rows and the lines of a part: new room for each part would keep the garbage collector busy.
  const scan = new EventScan(sql, request, filter?.words, [new RowBuffer(), new RowBuffer()]);
  /** What lines begin with, by the internal types of their events. */
  const heads = new Map<number, Buffer>();
  return {
    isSearch: filter !== null,
    next: async () => {
      const step = await scan.step(PART, filter?.contains ?? []);
      const { position } = scan;
      if (step === null || position === null) return null;
      const { rows, buffer } = step;
      for (const [id, { publicId, name }] of await newTypesOf(sql, request.appId, rows, heads))
        heads.set(id, lineHead({ typeId: publicId, type: name }));
      const writer = new LineWriter(buffer, rows.bytes.length + rows.length * ADDED_BYTES);
      // A type without a head was removed meanwhile, with its app.
      const add = (row: CopiedRows): void => {
        const head = heads.get(row.typeId);
        if (head !== undefined) writer.add(row, head);
      };
      await eachWanted(rows, filter, add, { slices: new TimeSlice(sql.pool.archive?.turns) });
      const lines = writer.end();
      const isShared = lines.length >= SHARED_BYTES;
      return {
        lines: isShared ? lines : Buffer.from(lines),
        events: writer.events,
        position,
        ...(filter !== null && { searchedBy: step.searchedBy }),
      };
    },
  };
}

/** By how much a line is usually longer than its row. */
const ADDED_BYTES = 120;

/**
 * Shorter parts have bytes of their own: the sender waits until a stream has taken a part only if it is longer than the
 * stream's buffer.
 */
const SHARED_BYTES = 262_144;

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const SPACE = 0x20;
const ZERO = 0x30;
const CLOSE_BRACE = 0x7d;

const ID_START = '{"id":"'.length;
export const ID_LENGTH = 36;
export const NO_ID = '00000000-0000-0000-0000-000000000000';
/** Where the two digits of each byte of an id are. */
const ID_DIGITS = [...NO_ID.matchAll(/00/g)].map(({ index }) => index);
const HEX = Buffer.from('0123456789abcdef');

const NO_TIME = '2000-01-01T00:00:00.000Z';
const BEFORE_PAYLOAD = '","payload":';
/** From where the time begins to the payload. */
const TIME_TO_PAYLOAD = NO_TIME.length + BEFORE_PAYLOAD.length;
/** `2026-01-31T08:30:`, before the seconds. */
const MINUTE_LENGTH = 17;

/** What a line of a type has before its payload; the id and the time are to be filled in. */
export function lineHead(type: { readonly typeId: string; readonly type: string }): Buffer {
  const members = JSON.stringify(type).slice(1, -1);
  return Buffer.from(`{"id":"${NO_ID}",${members},"createdAt":"${NO_TIME}${BEFORE_PAYLOAD}`);
}

export class LineWriter {
  readonly #room: RowBuffer;
  #bytes: Buffer;
  readonly #start: number;
  #at: number;
  /** Where lines end. Their line feeds come last: until then a line feed is one of a payload. */
  readonly #ends: number[] = [];
  /** Where a line of each type begins, which the next one is made of. */
  readonly #known = new Map<Buffer, number>();
  /** Start of the minute whose text is known. */
  #minute = Number.NaN;
  readonly #minuteText = Buffer.alloc(MINUTE_LENGTH);

  /**
   * @param room  that of the rows
   * @param bytes of the lines, about
   */
  constructor(room: RowBuffer, bytes: number) {
    this.#room = room;
    this.#bytes = room.withRoom(bytes);
    this.#start = room.length;
    this.#at = room.length;
  }

  get events(): number {
    return this.#ends.length;
  }

  /**
   * @param row  one of those in the room
   * @param head of its type
   */
  add(row: CopiedRows, head: Buffer): void {
    const start = this.#at;
    const payload = start + head.length;
    const end = payload + row.end - row.start;
    if (end + 2 > this.#bytes.length) this.#bytes = this.#room.withRoom(end + 2 - this.#start);
    const bytes = this.#bytes;
    const known = this.#known.get(head);
    if (known === undefined) {
      head.copy(bytes, start);
      this.#known.set(head, start);
    } else {
      bytes.copyWithin(start, known, known + head.length);
    }
    writeId(bytes, row.idStart, start + ID_START);
    this.#writeTime(row.at, payload - TIME_TO_PAYLOAD);
    bytes.copyWithin(payload, row.start, row.end);
    bytes[end] = CLOSE_BRACE;
    this.#ends.push(end + 1);
    this.#at = end + 2;
  }

  /** All lines. A line break in JSON text is white space between two tokens. */
  end(): Buffer {
    for (const end of this.#ends) this.#bytes[end] = SPACE;
    const lines = this.#bytes.subarray(this.#start, this.#at);
    replaceByte(lines, LINE_FEED, SPACE);
    replaceByte(lines, CARRIAGE_RETURN, SPACE);
    for (const end of this.#ends) this.#bytes[end] = LINE_FEED;
    return lines;
  }

  /** @param ms since 1970, of a year of four digits */
  #writeTime(ms: number, start: number): void {
    const minute = Math.floor(ms / MINUTE_MS) * MINUTE_MS;
    if (minute !== this.#minute) {
      this.#minute = minute;
      this.#minuteText.write(new Date(minute).toISOString(), 'latin1');
    }
    const bytes = this.#bytes;
    const text = this.#minuteText;
    for (let at = 0; at < MINUTE_LENGTH; at += 1) bytes[start + at] = text[at] ?? 0;
    const rest = ms - minute;
    const seconds = Math.floor(rest / 1_000);
    const millis = rest % 1_000;
    const at = start + MINUTE_LENGTH;
    bytes[at] = ZERO + Math.floor(seconds / 10);
    bytes[at + 1] = ZERO + (seconds % 10);
    bytes[at + 3] = ZERO + Math.floor(millis / 100);
    bytes[at + 4] = ZERO + (Math.floor(millis / 10) % 10);
    bytes[at + 5] = ZERO + (millis % 10);
  }
}

/** The text of an id. Its dashes are there. */
export function writeId(bytes: Buffer, from: number, to: number): void {
  for (let i = 0; i < 16; i += 1) {
    const byte = bytes[from + i] ?? 0;
    const at = to + (ID_DIGITS[i] ?? ID_LENGTH);
    bytes[at] = HEX[byte >> 4] ?? 0;
    bytes[at + 1] = HEX[byte & 15] ?? 0;
  }
}

function replaceByte(bytes: Buffer, from: number, to: number): void {
  for (let at = bytes.indexOf(from); at !== -1; at = bytes.indexOf(from, at + 1)) bytes[at] = to;
}

const PAGE = { limit: 4_000, maxBytes: 2 * 1_048_576 };
/** For values with more events than one in so many, looking through all rows finds more in the same time. */
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
    get isSearch() {
      return search !== null;
    },
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
