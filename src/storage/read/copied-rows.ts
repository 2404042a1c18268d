/**
 * Events as COPY sends them in its binary format: for the database the cheapest way to send many rows, and for the service
 * to read few of them. The payload's bytes are its text in UTF-8.
 * Source: https://www.postgresql.org/docs/current/sql-copy.html#SQL-COPY-FILE-FORMATS
 */
import { Readable } from 'node:stream';
import { errorCode, type Fragment, SQLSTATE, type Transaction } from '../database/connect.ts';
import { HEAD_BYTES } from '../database/copy-tap.ts';
import { uuidAt } from '../write/copy-messages.ts';

/** Starts the first row. */
const SIGNATURE_BYTES = 19;
/** The type of messages with rows. */
const COPY_DATA = 0x64;
/** The format's signature, no flags, no extension. */
const SIGNATURE = Buffer.from('PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0', 'latin1');
const NOTHING = Buffer.alloc(0);
/** Offsets in a row of `id uuid, created_at timestamptz, type_id integer, payload json or text`. */
const ID = 6;
const CREATED_AT = 26;
const TYPE_ID = 38;
const PAYLOAD_BYTES = 42;
const PAYLOAD = 46;
/** 2000-01-01, from which PostgreSQL counts microseconds. */
const EPOCH_MS = Date.UTC(2000, 0, 1);
/** 2^32 microseconds. */
const HIGH = { seconds: 4_294, micros: 967_296 };

/** A cursor over rows; before the first one to begin with. */
export class CopiedRows {
  readonly bytes: Buffer;
  readonly length: number;
  /** The last one; null where there is none. */
  readonly last: { readonly at: number; readonly id: string } | null;
  /** Where the row's fields begin; -1 before the first row. */
  #row = -1;
  /** Where the row is, for {@link seek}. */
  place = 0;
  #next = 0;
  /** The payload's text in {@link bytes}; both 0 for a null. */
  start = 0;
  end = 0;

  /** @param bytes messages of rows, of which the last one may be incomplete: it is left out */
  constructor(bytes: Buffer) {
    this.bytes = bytes;
    let length = 0;
    let last = 0;
    for (let at = 0; ; length += 1) {
      const end = endOfMessage(bytes, at);
      // The trailer has no fields.
      if (end > bytes.length || end - at < HEAD_BYTES + PAYLOAD) break;
      last = at;
      at = end;
    }
    this.length = length;
    this.#next = last;
    this.last = this.next() ? { at: this.at, id: this.id } : null;
    this.rewind();
  }

  rewind(): void {
    this.#row = -1;
    this.#next = 0;
  }

  /** Where each row is, for {@link seek}. */
  places(): number[] {
    const places: number[] = [];
    this.rewind();
    while (this.next()) places.push(this.place);
    return places;
  }

  /** Moves to the row of a place. */
  seek(place: number): void {
    this.#next = place;
    this.next();
  }

  /** The row's bytes, as {@link RowBuffer.addRow} takes them. */
  get tuple(): Buffer {
    return this.bytes.subarray(this.#row, this.#next);
  }

  /** @returns false after the last row */
  next(): boolean {
    const { bytes } = this;
    const at = this.#next;
    const end = endOfMessage(bytes, at);
    if (end > bytes.length) return false;
    const row = at + HEAD_BYTES + (at === 0 ? SIGNATURE_BYTES : 0);
    // The trailer has no fields.
    if (end - row < PAYLOAD) return false;
    this.#row = row;
    this.place = at;
    this.#next = end;
    const payloadBytes = bytes.readInt32BE(row + PAYLOAD_BYTES);
    this.start = payloadBytes < 0 ? 0 : row + PAYLOAD;
    this.end = payloadBytes < 0 ? 0 : this.start + payloadBytes;
    return true;
  }

  get hasPayload(): boolean {
    return this.end > 0;
  }

  /** Where the 16 bytes of the id begin. */
  get idStart(): number {
    return this.#row + ID;
  }

  get id(): string {
    return uuidAt(this.bytes, this.idStart);
  }

  /** Milliseconds since 1970. */
  get at(): number {
    const at = this.#row + CREATED_AT;
    const micros = this.bytes.readInt32BE(at) * 2 ** 32 + this.bytes.readUInt32BE(at + 4);
    return EPOCH_MS + Math.floor(micros / 1_000);
  }

  /** Whole seconds since 1970, and the microseconds beyond them: exact for every time of PostgreSQL. */
  get seconds(): number {
    const high = this.bytes.readInt32BE(this.#row + CREATED_AT);
    return EPOCH_MS / 1_000 + high * HIGH.seconds + Math.floor(this.#lowMicros(high) / 1e6);
  }

  get micros(): number {
    const low = this.#lowMicros(this.bytes.readInt32BE(this.#row + CREATED_AT));
    return low - Math.floor(low / 1e6) * 1e6;
  }

  #lowMicros(high: number): number {
    return high * HIGH.micros + this.bytes.readUInt32BE(this.#row + CREATED_AT + 4);
  }

  /** Internal. */
  get typeId(): number {
    return this.bytes.readInt32BE(this.#row + TYPE_ID);
  }

  /** What a row has in place of its type: the lower 32 bits of a transaction. */
  get xid(): number {
    return this.bytes.readUInt32BE(this.#row + TYPE_ID);
  }

  get payload(): string {
    return this.bytes.toString('utf8', this.start, this.end);
  }
}

/** @returns a number beyond the bytes where the message that begins there is not whole */
function endOfMessage(bytes: Buffer, at: number): number {
  return at + HEAD_BYTES > bytes.length ? Number.POSITIVE_INFINITY : at + 1 + bytes.readUInt32BE(at + 1);
}

export interface Copied {
  /** Valid until the buffer takes others. */
  readonly rows: CopiedRows;
  /** False where there were more: beyond the limit of bytes, or when the time was over. */
  readonly isWhole: boolean;
}

/** Memory that is between two owners: at most so many bytes, and so many of one. */
const MOST_SPARE_BYTES = 32 * 1_048_576;
const MOST_OF_ONE = 16 * 1_048_576;
const spare: Buffer[] = [];
let spareBytes = 0;

/** Room for the rows of one statement after the other, and for what is made of them. */
export class RowBuffer {
  #bytes: Buffer = NOTHING;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  clear(): void {
    this.#length = 0;
  }

  /** Gives its memory to the next buffer that needs some: V8 would go through the whole heap for what lies outside of it. */
  release(): void {
    const { length } = this.#bytes;
    if (length > 0 && length <= MOST_OF_ONE && spareBytes + length <= MOST_SPARE_BYTES) {
      spare.push(this.#bytes);
      spareBytes += length;
    }
    this.#bytes = NOTHING;
    this.#length = 0;
  }

  add(chunk: Buffer): void {
    const length = this.#length + chunk.length;
    if (length > this.#bytes.length) this.#grow(length * 2);
    chunk.copy(this.#bytes, this.#length);
    this.#length = length;
  }

  /** Counts bytes as added that were written into {@link withRoom}. */
  added(bytes: number): void {
    this.#length += bytes;
  }

  /** @param tuple of {@link CopiedRows.tuple} */
  addRow(tuple: Buffer): void {
    const signature = this.#length === 0 ? SIGNATURE : NOTHING;
    const length = HEAD_BYTES + signature.length + tuple.length;
    const bytes = this.withRoom(length);
    bytes[this.#length] = COPY_DATA;
    bytes.writeUInt32BE(length - 1, this.#length + 1);
    signature.copy(bytes, this.#length + HEAD_BYTES);
    tuple.copy(bytes, this.#length + HEAD_BYTES + signature.length);
    this.#length += length;
  }

  /** What has been added; valid until more is. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  /** @returns all of the buffer, with at least so many bytes behind what has been added; the one before is out of use */
  withRoom(bytes: number): Buffer {
    const length = this.#length + bytes;
    if (length > this.#bytes.length) this.#grow(length + (length >> 2));
    return this.#bytes;
  }

  #grow(length: number): void {
    const given = this.#bytes.length === 0 ? spare.pop() : undefined;
    spareBytes -= given?.length ?? 0;
    const larger = given !== undefined && given.length >= length ? given : Buffer.allocUnsafe(length);
    this.#bytes.copy(larger);
    this.#bytes = larger;
  }
}

/**
 * Reads rows of a query. Those beyond a limit are received and forgotten: a statement that sends cannot be left, and the
 * next one asks for fewer.
 * @param query  `SELECT id, created_at, type_id, payload …`, without parameters
 * @param most   bytes that are kept, if it is more than one row
 * @param buffer takes the rows, in place of what it had
 * @throws with the code 57014 where the time was over before the first row, or without a limit before the last one
 */
export async function copyRows(
  tx: Pick<Transaction, 'unsafe'>,
  query: string,
  { most, buffer }: { most: number; buffer: RowBuffer },
): Promise<Copied> {
  buffer.clear();
  let limit = most;
  let isWhole = true;
  const failure = await received(tx.unsafe(`COPY (${query}) TO STDOUT (FORMAT binary)`), (chunk) => {
    if (buffer.length === 0) limit = Math.max(most, 1 + chunk.readUInt32BE(1));
    if (buffer.length < limit) buffer.add(chunk);
    else isWhole = false;
  });
  const rows = new CopiedRows(buffer.bytes);
  const isOfUse = rows.length > 0 && most < Number.POSITIVE_INFINITY;
  if (failure !== null && (errorCode(failure) !== SQLSTATE.queryCanceled || !isOfUse)) throw failure;
  return { rows, isWhole: isWhole && failure === null };
}

/**
 * Receives what a COPY sends.
 * @returns how it has failed in the middle; null where it has not
 * @throws where it has sent nothing
 */
async function received(copy: Fragment, onData: (chunk: Buffer) => void): Promise<unknown> {
  // The client settles the query with a stream, which may fail in the same turn: before the promise's reader comes to listen.
  // Rows are taken as they come, past the stream's buffer: they are valid for that long only (copy-tap.ts).
  const query = copy as unknown as { resolve: (result: unknown) => void };
  const { resolve } = query;
  const ended = new Promise<unknown>((settle) => {
    query.resolve = (result) => {
      if (result instanceof Readable) {
        const push = (chunk: Buffer | null): boolean => {
          if (chunk === null) settle(null);
          else onData(chunk);
          return true;
        };
        Object.assign(result, { push }).on('error', settle);
      }
      resolve(result);
    };
  });
  await copy;
  return await ended;
}
