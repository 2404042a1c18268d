/**
 * Messages of PostgreSQL's protocol (documentation, 55.7) that copy rows into tables, built into one buffer: statements and
 * rows leave in one write to the socket.
 *
 * The protocol has a client wait for CopyInResponse before it sends rows. Here they follow at once, which saves a round
 * trip. Where the statement itself fails, the server is documented to discard copy messages that arrive outside of a COPY,
 * so the connection stays usable.
 *
 * Rows are in COPY's binary format: it costs PostgreSQL and this process less than the text format.
 */
import { BufferPool } from '../../base/buffer-pool.ts';
import type { EventRow } from './accepted-event.ts';

/** Signature, flags and length of the header's extension, of which there is none. */
const COPY_HEADER = Buffer.from('PGCOPY\n\u00ff\r\n\0\0\0\0\0\0\0\0\0', 'latin1');
const COPY_TRAILER = -1;
/** 2000-01-01, from which PostgreSQL counts microseconds. */
const EPOCH_MS = 946_684_800_000;
/** Values of 32 bits. */
const WORD = 0x1_0000_0000;
/** Size of an id. */
export const UUID_BYTES = 16;
const UUID_CHARACTERS = 36;
/** Size of an event's row without the payload's own bytes: the number of fields, and five lengths with four values. */
const EVENT_BYTES = 2 + 5 * 4 + UUID_BYTES + 4 + 4 + 8;
/** UTF-8 takes at most three bytes for a UTF-16 unit. */
export const BYTES_PER_UNIT = 3;
/** Size of an integer[] without its elements, with its length; and the type of these. */
const ARRAY_BYTES = 4 + 5 * 4;
const INT4_OID = 23;
/** Message type and length, and what begins and ends rows. */
const MESSAGE_BYTES = 64;

/** The values of hexadecimal digits by their character codes. */
const DIGITS = new Uint8Array(128);
for (const [value, digit] of [...'0123456789abcdef'].entries()) {
  DIGITS[digit.charCodeAt(0)] = value;
  DIGITS[digit.toUpperCase().charCodeAt(0)] = value;
}

/** What events of one type of an app add to the count of a minute. */
export interface Delta {
  readonly appId: number;
  readonly typeId: number;
  /** The minute's start, milliseconds since 1970. */
  readonly bucket: number;
  readonly count: number;
}

/** Text in UTF-8, in a part of a buffer. */
export interface TextBytes {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
}

/** Buffers of groups that are stored, to be used again. */
const BUFFERS = new BufferPool();
const NOTHING = Buffer.alloc(0);

export class CopyMessages {
  #bytes: Buffer;
  #at = 0;
  /** Where the length of the CopyData message that is being filled stands. */
  #lengthAt = 0;
  /** The time that was last written, and the two halves of what stands for it. */
  #time = Number.NaN;
  #high = 0;
  #low = 0;

  /** @param bytes of all messages together, about; more room is made where they need it */
  constructor(bytes: number) {
    this.#bytes = BUFFERS.take(bytes + MESSAGE_BYTES);
  }

  /** Query: one statement, or several that are one implicit transaction. */
  query(statement: string): void {
    const bytes = Buffer.byteLength(statement) + 1;
    this.#reserve(bytes + MESSAGE_BYTES);
    this.#type('Q');
    this.#int4(bytes + 4);
    this.#at += this.#bytes.write(statement, this.#at);
    this.#bytes[this.#at++] = 0;
  }

  /** CopyData: begins the rows of the query's next COPY. */
  beginRows(): void {
    this.#reserve(MESSAGE_BYTES);
    this.#type('d');
    this.#lengthAt = this.#at;
    this.#at += 4;
    this.#at += COPY_HEADER.copy(this.#bytes, this.#at);
  }

  /** CopyDone. */
  endRows(): void {
    this.#reserve(MESSAGE_BYTES);
    this.#int2(COPY_TRAILER);
    this.#bytes.writeInt32BE(this.#at - this.#lengthAt, this.#lengthAt);
    this.#type('c');
    this.#int4(4);
  }

  /** A row of `events` (id, app_id, type_id, created_at, payload). */
  eventRow(event: EventRow): void {
    const { payload } = event;
    let most = payload.length * BYTES_PER_UNIT;
    if (this.#at + EVENT_BYTES + most > this.#bytes.length) {
      most = Buffer.byteLength(payload);
      this.#reserve(EVENT_BYTES + most + MESSAGE_BYTES);
    }
    this.#int2(5);
    this.#int4(UUID_BYTES);
    writeUuid(event.id, this.#bytes, this.#at);
    this.#at += UUID_BYTES;
    this.#placeFields(event.appId, event.typeId, event.createdAt);
    const written = this.#bytes.write(payload, this.#at + 4);
    this.#int4(written);
    this.#at += written;
  }

  /**
   * Adds a row that is given as bytes.
   * @param id of {@link UUID_BYTES}
   * @returns where it begins in {@link bytes}
   */
  eventRowOfBytes(
    event: Omit<EventRow, 'id' | 'payload'>,
    id: Uint8Array,
    { bytes, start, end }: TextBytes,
  ): number {
    this.#reserve(EVENT_BYTES + end - start + MESSAGE_BYTES);
    const at = this.#at;
    this.#int2(5);
    this.#int4(UUID_BYTES);
    for (let index = 0; index < UUID_BYTES; index += 1) this.#bytes[this.#at + index] = id[index] ?? 0;
    this.#at += UUID_BYTES;
    this.#placeFields(event.appId, event.typeId, event.createdAt);
    this.#int4(end - start);
    this.#at += bytes.copy(this.#bytes, this.#at, start, end);
    return at;
  }

  /** A row of `events` that was built before. @param at where it begins @returns where it begins now */
  sameEventRow(bytes: Buffer, at: number): number {
    const { end } = payloadOf(bytes, at);
    this.#reserve(end - at + MESSAGE_BYTES);
    const start = this.#at;
    this.#at += bytes.copy(this.#bytes, start, at, end);
    return start;
  }

  /** A row of `count_deltas`, or of a table of counts (app_id, type_id, bucket, count). */
  countRow(appId: number, typeId: number, bucket: number, count: number): void {
    this.#reserve(MESSAGE_BYTES);
    this.#int2(4);
    this.#placeFields(appId, typeId, bucket);
    this.#int4(8);
    this.#int4(0);
    this.#int4(count);
  }

  /** A row of `grouped_deltas` (part, bucket, apps, types, counts). */
  groupedDeltasRow(part: number, bucket: number, deltas: readonly Delta[]): void {
    this.#reserve(3 * (ARRAY_BYTES + 8 * deltas.length) + MESSAGE_BYTES);
    this.#int2(5);
    this.#int4(2);
    this.#int2(part);
    this.#timestamp(bucket);
    this.#beginArray(deltas.length);
    for (const { appId } of deltas) this.#element(appId);
    this.#beginArray(deltas.length);
    for (const { typeId } of deltas) this.#element(typeId);
    this.#beginArray(deltas.length);
    for (const { count } of deltas) this.#element(count);
  }

  /** A row of `stale_buckets` (level, bucket). */
  markRow(level: number, bucket: number): void {
    this.#reserve(MESSAGE_BYTES);
    this.#int2(2);
    this.#int4(2);
    this.#int2(level);
    this.#timestamp(bucket);
  }

  /** In bytes. */
  get length(): number {
    return this.#at;
  }

  /** All of it. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#at);
  }

  /** Gives their memory back. Nothing may read it any more, nor be added. */
  release(): void {
    BUFFERS.giveBack(this.#bytes);
    this.#bytes = NOTHING;
    this.#at = 0;
  }

  /** An app, a type and a time: of an event, the fields between its id and its payload. */
  #placeFields(appId: number, typeId: number, time: number): void {
    this.#int4(4);
    this.#int4(appId);
    this.#int4(4);
    this.#int4(typeId);
    this.#timestamp(time);
  }

  #reserve(bytes: number): void {
    if (this.#at + bytes <= this.#bytes.length) return;
    const larger = BUFFERS.take(2 * this.#bytes.length + bytes);
    this.#bytes.copy(larger, 0, 0, this.#at);
    BUFFERS.giveBack(this.#bytes);
    this.#bytes = larger;
  }

  #type(type: string): void {
    this.#bytes[this.#at++] = type.charCodeAt(0);
  }

  /** The head of an integer[]: its length, dimensions, nulls, type, elements and first index. */
  #beginArray(elements: number): void {
    this.#int4(ARRAY_BYTES - 4 + 8 * elements);
    this.#int4(1);
    this.#int4(0);
    this.#int4(INT4_OID);
    this.#int4(elements);
    this.#int4(1);
  }

  #element(value: number): void {
    this.#int4(4);
    this.#int4(value);
  }

  #int2(value: number): void {
    this.#bytes[this.#at] = value >>> 8;
    this.#bytes[this.#at + 1] = value;
    this.#at += 2;
  }

  #int4(value: number): void {
    const bytes = this.#bytes;
    const at = this.#at;
    bytes[at] = value >>> 24;
    bytes[at + 1] = value >>> 16;
    bytes[at + 2] = value >>> 8;
    bytes[at + 3] = value;
    this.#at = at + 4;
  }

  /** A timestamptz with its length. */
  #timestamp(time: number): void {
    if (time !== this.#time) {
      // In two halves: a time after 2255 has more microseconds than a number holds exactly.
      const ms = time - EPOCH_MS;
      const high = Math.floor(ms / WORD);
      const low = (ms - high * WORD) * 1_000;
      const carry = Math.floor(low / WORD);
      this.#high = high * 1_000 + carry;
      this.#low = low - carry * WORD;
      this.#time = time;
    }
    this.#int4(8);
    this.#int4(this.#high);
    this.#int4(this.#low);
  }
}

/** Writes the bytes of a UUID. */
export function writeUuid(text: string, bytes: Uint8Array, start: number): void {
  let at = start;
  for (let index = 0; index < UUID_CHARACTERS; index += 2) {
    if (index === 8 || index === 13 || index === 18 || index === 23) index += 1; // Hyphens.
    const high = DIGITS[text.charCodeAt(index)] ?? 0;
    bytes[at++] = (high << 4) | (DIGITS[text.charCodeAt(index + 1)] ?? 0);
  }
}

/** Offsets in a row of `events`. */
const ID_AT = 2 + 4;
const PAYLOAD_AT = EVENT_BYTES;

/** The id in a row of `events`. @param at where the row begins */
export function idOf(bytes: Buffer, at: number): string {
  return uuidAt(bytes, at + ID_AT);
}

/** The text of a UUID. @param at where its bytes begin */
export function uuidAt(bytes: Buffer, at: number): string {
  const hex = bytes.toString('hex', at, at + UUID_BYTES);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** The payload in a row of `events`. */
export function payloadOf(bytes: Buffer, at: number): TextBytes {
  const start = at + PAYLOAD_AT;
  return { bytes, start, end: start + bytes.readInt32BE(start - 4) };
}
