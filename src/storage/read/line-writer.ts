/**
 * Writes events as lines of JSON, from the bytes of their rows and behind them: no text is made of a payload, and to copy within
 * one buffer takes a third of the time that it takes from one to another.
 */
import { MINUTE_MS } from '../../base/time-units.ts';
import type { CopiedRows, RowBuffer } from './copied-rows.ts';

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const SPACE = 0x20;
const ZERO = 0x30;
const CLOSE_BRACE = 0x7d;

const ID_START = '{"id":"'.length;
const ID_LENGTH = 36;
const NO_ID = '00000000-0000-0000-0000-000000000000';
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
function writeId(bytes: Buffer, from: number, to: number): void {
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
