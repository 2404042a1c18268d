/** What is made of the rows of committed events: objects, or what the answer to a consumer has of them. */
import { type CopiedRows, RowBuffer } from '../read/copied-rows.ts';
import { ID_LENGTH, NO_ID, writeId } from '../read/event-lines.ts';
import type { StoredEvent } from '../read/page-request.ts';
import { type EventKey, encodePosition, type FeedPosition } from './position.ts';

export interface CommittedEvent extends Omit<StoredEvent, 'createdAt'> {
  readonly typeName: string;
  /** ISO 8601 in UTC, with milliseconds. */
  readonly createdAt: string;
  /** The position behind this event. */
  readonly position: FeedPosition;
}

export interface EventType {
  readonly publicId: string;
  readonly name: string;
}

/** Takes the events of a page, some rows at a time. */
export interface EventTaker {
  /** @param rows valid until {@link end}, as is what is behind them in their buffer */
  begin(rows: CopiedRows, buffer: RowBuffer): void;
  /**
   * Takes the event that the cursor of the rows has come to.
   * @param tick and `by`: those of the position behind it
   */
  add(type: EventType, tick: string, by: EventKey['by']): void;
  end(): void;
}

export class EventObjects implements EventTaker {
  readonly events: CommittedEvent[] = [];
  #rows: CopiedRows | null = null;

  begin(rows: CopiedRows): void {
    this.#rows = rows;
  }

  add({ publicId, name }: EventType, tick: string, by: EventKey['by']): void {
    const rows = this.#rows;
    if (rows === null) return;
    const { id, payload } = rows;
    const at = timeOf(rows);
    const createdAt = isoOf(at);
    const position = { tick, after: { by, createdAt: at, id } };
    this.events.push({ id, typeId: publicId, typeName: name, createdAt, payload, position });
  }

  end(): void {
    this.#rows = null;
  }
}

/** An event as {@link EventTexts} has it. */
export function textOf({ id, typeId, typeName, payload, createdAt, position }: CommittedEvent): string {
  return (
    `{"id":"${id}",${typeMembers({ publicId: typeId, name: typeName })},"payload":${payload},` +
    `"createdAt":"${createdAt}","position":"${encodePosition(position)}"}`
  );
}

function typeMembers({ publicId, name }: EventType): string {
  return JSON.stringify({ typeId: publicId, typeName: name }).slice(1, -1);
}

/** A time in UTC as PostgreSQL writes it. */
export function timeOf({ seconds, micros }: Pick<CopiedRows, 'seconds' | 'micros'>): string {
  let fraction = micros === 0 ? '' : `.${String(micros).padStart(6, '0')}`;
  while (fraction.endsWith('0')) fraction = fraction.slice(0, -1);
  return `${minuteOf(seconds)}${String(seconds % 60).padStart(2, '0')}${fraction}+00`;
}

/** Up to the seconds. A year of more than four digits has no sign. */
function minuteOf(seconds: number): string {
  return new Date(seconds * 1_000).toISOString().replace(/^\+0?/, '').replace('T', ' ').slice(0, -7);
}

/** A time in UTC as PostgreSQL writes it, as answers do. */
function isoOf(at: string): string {
  const time = at.indexOf(' ') + 1;
  const milliseconds = at
    .slice(time + 9, -3)
    .slice(0, 3)
    .padEnd(3, '0');
  return `${at.slice(0, time - 1)}T${at.slice(time, time + 8)}.${milliseconds}Z`;
}

const QUOTE = 0x22;
const PLUS = 0x2b;
const COMMA = 0x2c;
const POINT = 0x2e;
const ZERO = 0x30;
const CLOSE_BRACKET = 0x5d;
const CLOSE_BRACE = 0x7d;
const LETTER_T = 0x54;
const LETTER_Z = 0x5a;
const SPACE = 0x20;

const ID_START = '{"id":"'.length;
const BEFORE_TIME = Buffer.from(',"createdAt":"');
const BEFORE_POSITION = Buffer.from('","position":"');
/** `HH:MM:` */
const AFTER_DATE = 6;
/** Text of an event beside its head and its payload, at most; and beside its row, usually. */
const MOST_BESIDE = 400;
const USUALLY_BESIDE = 260;

/** The digits of 12 bits in base64url, the first one in the lower byte. */
const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const TWO_DIGITS = Uint16Array.from(
  { length: 4_096 },
  (_, bits) => DIGITS.charCodeAt(bits >> 6) | (DIGITS.charCodeAt(bits & 63) << 8),
);

/**
 * The events of an answer, `{"id":…,"typeId":…,"typeName":…,"payload":…,"createdAt":…,"position":…}` each, with commas between them.
 * They are made of the bytes of rows, behind these: an object or a text for each would cost more than all of the rest.
 */
export class EventTexts implements EventTaker {
  readonly #answer: RowBuffer;
  length = 0;
  readonly #heads = new Map<EventType, Buffer>();
  #rows: CopiedRows | null = null;
  #buffer = new RowBuffer();
  #bytes: Buffer = Buffer.alloc(0);
  #start = 0;
  #at = 0;
  /** Start of the minute whose text is known. */
  #minute = Number.NaN;
  #minuteText: Buffer = Buffer.alloc(0);
  /** The JSON of a position, up to the time where `tick` and `by` are those of the event before. */
  readonly #position = Buffer.alloc(MOST_BESIDE);
  #tick = '';
  #by: EventKey['by'] = 0;
  #timeStart = 0;

  constructor(answer: RowBuffer) {
    this.#answer = answer;
  }

  begin(rows: CopiedRows, buffer: RowBuffer): void {
    this.#rows = rows;
    this.#buffer = buffer;
    this.#start = buffer.length;
    this.#at = buffer.length;
    this.#bytes = buffer.withRoom(rows.bytes.length + rows.length * USUALLY_BESIDE);
  }

  add(type: EventType, tick: string, by: EventKey['by']): void {
    const rows = this.#rows;
    if (rows === null) return;
    const head = this.#headOf(type);
    const { start, end } = rows;
    let at = this.#at;
    const most = at + head.length + end - start + MOST_BESIDE;
    if (most > this.#bytes.length) this.#bytes = this.#buffer.withRoom(most - this.#start);
    const bytes = this.#bytes;
    if (this.length > 0) {
      bytes[at] = COMMA;
      at += 1;
    }
    const idAt = at + ID_START;
    at = put(bytes, at, head);
    writeId(bytes, rows.idStart, idAt);
    bytes.copyWithin(at, start, end);
    at = put(bytes, at + end - start, BEFORE_TIME);
    const { seconds, micros } = rows;
    at = this.#putIso(bytes, at, seconds, micros);
    at = put(bytes, at, BEFORE_POSITION);
    at = this.#putPosition(bytes, at, { tick, by, seconds, micros, idAt });
    bytes[at] = QUOTE;
    bytes[at + 1] = CLOSE_BRACE;
    this.#at = at + 2;
    this.length += 1;
  }

  end(): void {
    this.#answer.add(this.#bytes.subarray(this.#start, this.#at));
    this.#rows = null;
  }

  /** Up to the payload; the id is to be filled in. */
  #headOf(type: EventType): Buffer {
    const known = this.#heads.get(type);
    if (known !== undefined) return known;
    const head = Buffer.from(`{"id":"${NO_ID}",${typeMembers(type)},"payload":`);
    this.#heads.set(type, head);
    return head;
  }

  #putIso(bytes: Buffer, at: number, seconds: number, micros: number): number {
    const end = this.#putMinute(bytes, at, seconds);
    bytes[end - AFTER_DATE - 1] = LETTER_T;
    putDigits(bytes, end, seconds % 60, 2);
    bytes[end + 2] = POINT;
    putDigits(bytes, end + 3, Math.floor(micros / 1_000), 3);
    bytes[end + 6] = LETTER_Z;
    return end + 7;
  }

  #putMinute(bytes: Buffer, at: number, seconds: number): number {
    const minute = Math.floor(seconds / 60);
    if (minute !== this.#minute) {
      this.#minute = minute;
      this.#minuteText = Buffer.from(minuteOf(seconds));
    }
    return put(bytes, at, this.#minuteText);
  }

  /** As {@link encodePosition} has it. @param event.idAt where the text of its id is */
  #putPosition(
    bytes: Buffer,
    to: number,
    event: Pick<CopiedRows, 'seconds' | 'micros'> & Pick<EventKey, 'by'> & { tick: string; idAt: number },
  ): number {
    const { tick, by, seconds, micros, idAt } = event;
    const text = this.#position;
    if (tick !== this.#tick || by !== this.#by) {
      this.#tick = tick;
      this.#by = by;
      this.#timeStart = text.write(`["${tick}",${typeof by === 'number' ? by : `"${by}"`},"`, 'latin1');
    }
    let at = this.#putMinute(text, this.#timeStart, seconds);
    putDigits(text, at, seconds % 60, 2);
    at += 2;
    if (micros > 0) {
      text[at] = POINT;
      putDigits(text, at + 1, micros, 6);
      for (at += 7; text[at - 1] === ZERO; ) at -= 1;
    }
    text[at] = PLUS;
    text[at + 1] = ZERO;
    text[at + 2] = ZERO;
    text[at + 3] = QUOTE;
    text[at + 4] = COMMA;
    text[at + 5] = QUOTE;
    at += 6;
    for (let index = 0; index < ID_LENGTH; index += 1) text[at + index] = bytes[idAt + index] ?? 0;
    at += ID_LENGTH;
    text[at] = QUOTE;
    text[at + 1] = CLOSE_BRACKET;
    text[at + 2] = SPACE;
    text[at + 3] = SPACE;
    return putBase64(bytes, to, text, at + 2);
  }
}

function put(bytes: Buffer, at: number, text: Buffer): number {
  for (let index = 0; index < text.length; index += 1) bytes[at + index] = text[index] ?? 0;
  return at + text.length;
}

function putDigits(bytes: Buffer, at: number, value: number, digits: number): void {
  let left = value;
  for (let place = at + digits - 1; place >= at; place -= 1) {
    const rest = Math.floor(left / 10);
    bytes[place] = ZERO + left - rest * 10;
    left = rest;
  }
}

/** @param text with two spaces behind its length: it is filled up to whole groups of three bytes */
function putBase64(bytes: Buffer, to: number, text: Buffer, length: number): number {
  let at = to;
  for (let index = 0; index < length; index += 3) {
    const first = text[index] ?? 0;
    const second = text[index + 1] ?? 0;
    const third = text[index + 2] ?? 0;
    const high = TWO_DIGITS[(first << 4) | (second >> 4)] ?? 0;
    const low = TWO_DIGITS[((second & 15) << 8) | third] ?? 0;
    bytes[at] = high & 255;
    bytes[at + 1] = high >> 8;
    bytes[at + 2] = low & 255;
    bytes[at + 3] = low >> 8;
    at += 4;
  }
  return at;
}
