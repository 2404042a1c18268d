/**
 * Rows that a COPY sends, several at a time: the pool's client takes each row for a message of its own, which costs it more
 * than the row costs the database. So the rows of a chunk reach it as one message, whose content is their messages
 * (copied-rows.ts reads them). All other messages pass unchanged.
 * Source: https://www.postgresql.org/docs/current/protocol-message-formats.html
 */
import type { Socket } from 'node:net';

/** The type of a message, and its length, which counts itself and not the type. */
export const HEAD_BYTES = 5;
const COPY_DATA = 'd'.charCodeAt(0);
const EMPTY: Buffer = Buffer.alloc(0);

/** @param socket of a session, encrypted already where it is to be, and not used yet */
export function withRowsTogether(socket: Socket): Socket {
  const emit = socket.emit as (event: string, ...values: unknown[]) => boolean; // Any event passes through.
  const tap = new CopyTap((bytes) => emit.call(socket, 'data', bytes));
  const tapped = (event: string, ...values: unknown[]): boolean => {
    if (event !== 'data') return emit.call(socket, event, ...values);
    tap.receive(values[0] as Buffer); // Nobody has set an encoding.
    return true;
  };
  return Object.assign(socket, { emit: tapped });
}

/** What a server sends, in chunks cut anywhere. */
export class CopyTap {
  readonly #deliver: (bytes: Buffer) => void;
  /** The message of rows, replaced for each chunk: a buffer for each row would keep the garbage collector busy. */
  #message: Buffer = EMPTY;
  /** Bytes of the message that have not arrived. */
  #left = 0;
  /** Whether that message has rows. */
  #isCopy = false;
  /** The beginning of a message whose length is not known. */
  #held = EMPTY;

  /** @param deliver takes one message of rows, which is valid during the call, or any number of other bytes */
  constructor(deliver: (bytes: Buffer) => void) {
    this.#deliver = deliver;
  }

  /** @param chunk valid during the call */
  receive(chunk: Buffer): void {
    const bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    this.#held = EMPTY;
    let from = 0;
    for (let at = 0; at < bytes.length; ) {
      if (this.#left === 0) {
        const isCopy = bytes[at] === COPY_DATA;
        if (isCopy !== this.#isCopy || bytes.length - at < HEAD_BYTES) {
          this.#pass(bytes.subarray(from, at));
          from = at;
          this.#isCopy = isCopy;
        }
        if (bytes.length - at < HEAD_BYTES) {
          this.#held = Buffer.from(bytes.subarray(at));
          return;
        }
        this.#left = 1 + bytes.readUInt32BE(at + 1);
      }
      const taken = Math.min(this.#left, bytes.length - at);
      at += taken;
      this.#left -= taken;
    }
    this.#pass(bytes.subarray(from));
  }

  #pass(bytes: Buffer): void {
    if (bytes.length === 0) return;
    if (!this.#isCopy) {
      this.#deliver(Buffer.from(bytes));
      return;
    }
    const length = HEAD_BYTES + bytes.length;
    if (this.#message.length < length) this.#message = Buffer.allocUnsafe(length);
    const message = this.#message.subarray(0, length);
    message[0] = COPY_DATA;
    message.writeUInt32BE(length - 1, 1);
    bytes.copy(message, HEAD_BYTES);
    this.#deliver(message);
  }
}
