/** Writes events as lines of JSON, from the bytes of their rows: no text is made of a payload. */
import type { CopiedRows } from './copied-rows.ts';

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const SPACE = 0x20;
const DASH = 0x2d;
const ZERO = 0x30;

const START = Buffer.from('{"id":"');
const BEFORE_PAYLOAD = Buffer.from('","payload":');
const CLOSE_BRACE = 0x7d;
const HEX = Buffer.from('0123456789abcdef');

const MINUTE_MS = 60_000;
/** `2026-01-31T08:30:`, and the rest of it, `00.123Z`. */
const MINUTE_LENGTH = 17;
const SECONDS_LENGTH = 7;

const MOST_SINGLE_BYTES = 400;

/** What a line has beside its payload and the head of its type. */
const FIXED_LENGTH = START.length + 36 + MINUTE_LENGTH + SECONDS_LENGTH + BEFORE_PAYLOAD.length + 2;

export class LineWriter {
  #bytes: Buffer;
  #length = 0;
  /** Where lines end. Their line feeds come last: until then a line feed is one of a payload. */
  readonly #ends: number[] = [];
  /** Start of the minute whose text is known. */
  #minute = Number.NaN;
  readonly #minuteText = Buffer.alloc(MINUTE_LENGTH);

  /** @param bytes room for the lines; others are made where it is too small */
  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get events(): number {
    return this.#ends.length;
  }

  /** @param head what stands between the id and the time */
  add(row: CopiedRows, head: Buffer): void {
    this.#reserve(FIXED_LENGTH + head.length + row.end - row.start);
    this.#copyPart(START, 0, START.length);
    this.#addId(row.bytes, row.idStart);
    this.#copyPart(head, 0, head.length);
    this.#addTime(row.at);
    this.#copyPart(BEFORE_PAYLOAD, 0, BEFORE_PAYLOAD.length);
    this.#copyPart(row.bytes, row.start, row.end);
    this.#bytes[this.#length] = CLOSE_BRACE;
    this.#ends.push(this.#length + 1);
    this.#length += 2;
  }

  /** All lines. A line break in JSON text is white space between two tokens. */
  end(): Buffer {
    const lines = this.#bytes.subarray(0, this.#length);
    for (const end of this.#ends) lines[end] = SPACE;
    replaceByte(lines, LINE_FEED, SPACE);
    replaceByte(lines, CARRIAGE_RETURN, SPACE);
    for (const end of this.#ends) lines[end] = LINE_FEED;
    return lines;
  }

  #reserve(length: number): void {
    if (this.#length + length <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe((this.#length + length) * 2);
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }

  /** A call of the runtime, which makes an object, is only faster for many bytes. */
  #copyPart(from: Buffer, start: number, end: number): void {
    const bytes = this.#bytes;
    let at = this.#length;
    this.#length += end - start;
    if (end - start > MOST_SINGLE_BYTES) from.copy(bytes, at, start, end);
    else for (let i = start; i < end; i += 1) bytes[at++] = from[i] ?? 0;
  }

  #addId(from: Buffer, start: number): void {
    const bytes = this.#bytes;
    let at = this.#length;
    for (let i = 0; i < 16; i += 1) {
      const byte = from[start + i] ?? 0;
      if (i === 4 || i === 6 || i === 8 || i === 10) bytes[at++] = DASH;
      bytes[at++] = HEX[byte >> 4] ?? 0;
      bytes[at++] = HEX[byte & 15] ?? 0;
    }
    this.#length = at;
  }

  /** @param ms since 1970, of a year of four digits */
  #addTime(ms: number): void {
    const minute = Math.floor(ms / MINUTE_MS) * MINUTE_MS;
    if (minute !== this.#minute) {
      this.#minute = minute;
      this.#minuteText.write(new Date(minute).toISOString(), 'latin1');
    }
    this.#copyPart(this.#minuteText, 0, MINUTE_LENGTH);
    const rest = ms - minute;
    const seconds = Math.floor(rest / 1_000);
    const millis = rest % 1_000;
    const bytes = this.#bytes;
    let at = this.#length;
    bytes[at++] = ZERO + Math.floor(seconds / 10);
    bytes[at++] = ZERO + (seconds % 10);
    bytes[at++] = DOT;
    bytes[at++] = ZERO + Math.floor(millis / 100);
    bytes[at++] = ZERO + (Math.floor(millis / 10) % 10);
    bytes[at++] = ZERO + (millis % 10);
    bytes[at++] = Z;
    this.#length = at;
  }
}

const DOT = 0x2e;
const Z = 0x5a;

function replaceByte(bytes: Buffer, from: number, to: number): void {
  for (let at = bytes.indexOf(from); at !== -1; at = bytes.indexOf(from, at + 1)) bytes[at] = to;
}
