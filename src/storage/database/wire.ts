/**
 * Follows PostgreSQL's protocol on one connection, below the clients: it knows whether a response is outstanding, and sends
 * statements of its own between those of the client. Neither client can do this: one has no deadlines, and neither can ping
 * its idle connections.
 * Source: https://www.postgresql.org/docs/current/protocol-message-formats.html
 */
import type { Socket } from 'node:net';
import { HEAD_BYTES } from './copy-tap.ts';

/** The response to a statement of the service's own. */
export interface OwnAnswer {
  readonly rows: readonly (readonly (string | null)[])[];
  /** SQLSTATE and message if the server refused. */
  readonly error: { readonly code: string; readonly message: string } | null;
}

export interface WireOptions {
  /** Statements that a new connection runs before the client's first one; their responses go to {@link onHandshake}. */
  readonly handshakeQueries: readonly string[];
  /** @returns why the connection must not be used: the client gets this error and the connection ends; null if it may */
  readonly onHandshake: (answers: readonly OwnAnswer[]) => Error | null;
  readonly onClosed: () => void;
}

const type = (letter: string): number => letter.charCodeAt(0);
/** Messages that the server answers with ReadyForQuery. */
const QUERY = type('Q');
const ENDS = new Set([QUERY, type('S'), type('F')]);
/** Messages of a client before a Sync: Parse, Bind, Describe, Execute, Close, Flush. */
const BEGINNINGS = new Set([...'PBDECH'].map(type));
const [READY, ERROR, DATA_ROW] = [type('Z'), type('E'), type('D')];
/** Messages that the server sends at any time: NotificationResponse, NoticeResponse, ParameterStatus. */
const ASYNCHRONOUS = new Set([type('A'), type('N'), type('S')]);
/** The code of a CancelRequest, which comes in the place of a protocol version (PostgreSQL's documentation, 54.7). */
export const CANCEL_REQUEST = 80_877_102;
/** An empty query: the server answers it at once, also inside of a transaction. */
const NOTHING = '';

export class Wire {
  readonly #socket: Socket;
  readonly #options: WireOptions;
  readonly #write: Socket['write'];
  readonly #emit: (event: string, ...values: unknown[]) => boolean;
  /** `passive`: a request to cancel, which has no session. */
  #phase: 'new' | 'starting' | 'handshake' | 'open' | 'passive' = 'new';
  readonly #sent = new MessageWalk();
  readonly #received = new MessageWalk();
  /** The beginning of an incomplete message, while messages are handled one by one. */
  #rest: Buffer = Buffer.alloc(0);
  /** Incomplete responses to the client, and to own statements; the own ones arrive first. */
  #pendingResponses = 0;
  #pendingOwnResponses = 0;
  /** The client has sent messages that it will end with a Sync. */
  #isUnfinished = false;
  #answers: OwnAnswer[] = [];
  #rows: (readonly (string | null)[])[] = [];
  #error: OwnAnswer['error'] = null;
  /** The end of the startup, which the client receives after the own statements. */
  #ready: Buffer = Buffer.alloc(0);
  chunksReceived = 0;

  /** @param socket connected, and not used yet */
  constructor(socket: Socket, options: WireOptions) {
    this.#socket = socket;
    this.#options = options;
    this.#write = socket.write;
    // The class has a signature for each event; any event passes through here.
    this.#emit = socket.emit as (event: string, ...values: unknown[]) => boolean;
    const write = (chunk: Buffer, ...rest: []): boolean => {
      this.#note(chunk);
      return this.#write.call(socket, chunk, ...rest);
    };
    const emit = (event: string, ...values: unknown[]): boolean => {
      if (event === 'data') {
        this.#receive(values[0] as Buffer); // Nobody has set an encoding.
        return true;
      }
      if (event === 'close') options.onClosed();
      return this.#emit.call(socket, event, ...values);
    };
    Object.assign(socket, { write, emit });
  }

  /** True while the server owes a response. */
  get isWaiting(): boolean {
    return (
      this.#phase !== 'passive' &&
      (this.#pendingResponses + this.#pendingOwnResponses > 0 || this.#isUnfinished)
    );
  }

  /** Pings the server unless it owes a response. */
  ping(): void {
    const isIdle = this.#phase === 'open' && !this.isWaiting && this.#received.isBetween;
    if (isIdle && this.#socket.writable) this.#ask(NOTHING);
  }

  #ask(statement: string): void {
    this.#pendingOwnResponses += 1;
    const text = Buffer.from(`${statement}\0`);
    const message = Buffer.alloc(HEAD_BYTES + text.length);
    message[0] = QUERY;
    message.writeInt32BE(4 + text.length, 1);
    text.copy(message, HEAD_BYTES);
    this.#write.call(this.#socket, message);
  }

  /** Follows what the client sends. */
  #note(chunk: Buffer): void {
    let from = 0;
    if (this.#phase === 'new') {
      // The first message has no type, and arrives in one chunk.
      const isCancel = chunk.length >= 8 && chunk.readInt32BE(4) === CANCEL_REQUEST;
      this.#phase = isCancel ? 'passive' : 'starting';
      from = chunk.readInt32BE(0);
    }
    if (this.#phase === 'passive') return;
    // Messages during the startup belong to it; its end answers all of them.
    this.#sent.walk(chunk.subarray(from), (message) => {
      if (this.#phase === 'starting') return;
      if (ENDS.has(message)) {
        this.#pendingResponses += 1;
        this.#isUnfinished = false;
      } else if (BEGINNINGS.has(message)) {
        this.#isUnfinished = true;
      }
    });
  }

  #receive(chunk: Buffer): void {
    this.chunksReceived += 1;
    if (this.#isPlain) {
      this.#forward(chunk);
      return;
    }
    let bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    while (!this.#isPlain && bytes.length >= HEAD_BYTES) {
      const length = 1 + bytes.readInt32BE(1);
      if (bytes.length < length) break;
      const message = bytes.subarray(0, length);
      bytes = bytes.subarray(length);
      if (this.#isForClient(message)) this.#deliver(message);
    }
    this.#rest = this.#isPlain ? Buffer.alloc(0) : Buffer.from(bytes);
    if (this.#isPlain && bytes.length > 0) this.#forward(bytes);
  }

  /** True if all received messages are for the client. */
  get #isPlain(): boolean {
    return this.#phase === 'passive' || (this.#phase === 'open' && this.#pendingOwnResponses === 0);
  }

  #forward(chunk: Buffer): void {
    this.#received.walk(chunk, (message) => {
      if (message === READY && this.#pendingResponses > 0) this.#pendingResponses -= 1;
    });
    this.#deliver(chunk);
  }

  #deliver(bytes: Buffer): void {
    this.#emit.call(this.#socket, 'data', bytes);
  }

  /** Removes the responses to own statements from the received messages. */
  #isForClient(message: Buffer): boolean {
    const [kind = 0] = message;
    if (this.#phase === 'starting') {
      if (kind !== READY) return true;
      this.#sendHandshake(message);
      return this.#options.handshakeQueries.length === 0;
    }
    if (ASYNCHRONOUS.has(kind)) return true;
    if (kind === DATA_ROW) this.#rows.push(readRow(message));
    if (kind === ERROR) {
      const { severity, ...error } = readError(message);
      // The session ends, whatever was outstanding.
      if (severity !== 'ERROR') return true;
      this.#error = error;
    }
    if (kind === READY) this.#endAnswer();
    return false;
  }

  #sendHandshake(ready: Buffer): void {
    const { handshakeQueries } = this.#options;
    this.#phase = handshakeQueries.length === 0 ? 'open' : 'handshake';
    this.#ready = Buffer.from(ready);
    for (const statement of handshakeQueries) this.#ask(statement);
  }

  #endAnswer(): void {
    this.#answers.push({ rows: this.#rows, error: this.#error });
    this.#rows = [];
    this.#error = null;
    this.#pendingOwnResponses -= 1;
    if (this.#pendingOwnResponses > 0) return;
    const answers = this.#answers;
    this.#answers = [];
    if (this.#phase !== 'handshake') return;
    const refusal = this.#options.onHandshake(answers);
    if (refusal !== null) {
      this.#socket.destroy(refusal);
      return;
    }
    this.#phase = 'open';
    this.#deliver(this.#ready);
  }
}

/** Walks over messages that arrive in chunks of any size. */
class MessageWalk {
  readonly #head = Buffer.alloc(HEAD_BYTES);
  #headBytes = 0;
  /** Bytes of the message that have not arrived. */
  #left = 0;

  /** False in the middle of a message. */
  get isBetween(): boolean {
    return this.#left === 0 && this.#headBytes === 0;
  }

  /** @param onMessage called with the type of each complete message */
  walk(chunk: Buffer, onMessage: (type: number) => void): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.#headBytes === 0 && chunk.length - at >= HEAD_BYTES) {
        const end = at + 1 + chunk.readInt32BE(at + 1);
        if (end <= chunk.length) {
          // Usually the whole message is there.
          onMessage(chunk[at] ?? 0);
          at = end;
          continue;
        }
      }
      if (this.#headBytes < HEAD_BYTES) {
        const taken = chunk.copy(this.#head, this.#headBytes, at, at + HEAD_BYTES - this.#headBytes);
        this.#headBytes += taken;
        at += taken;
        if (this.#headBytes < HEAD_BYTES) return;
        this.#left = this.#head.readInt32BE(1) - 4;
      }
      const skipped = Math.min(this.#left, chunk.length - at);
      this.#left -= skipped;
      at += skipped;
      if (this.#left > 0) return;
      this.#headBytes = 0;
      onMessage(this.#head[0] ?? 0);
    }
  }
}

function readRow(message: Buffer): (string | null)[] {
  const values: (string | null)[] = [];
  let at = HEAD_BYTES + 2;
  for (let left = message.readInt16BE(HEAD_BYTES); left > 0; left -= 1) {
    const length = message.readInt32BE(at);
    at += 4;
    values.push(length < 0 ? null : message.toString('utf8', at, at + length));
    at += Math.max(0, length);
  }
  return values;
}

function readError(message: Buffer): { severity: string; code: string; message: string } {
  const fields = new Map(
    message
      .toString('utf8', HEAD_BYTES)
      .split('\0')
      .map((field) => [field.slice(0, 1), field.slice(1)]),
  );
  const text = (name: string): string => fields.get(name) ?? '';
  // The field V is never translated; S may be.
  return { severity: text('V'), code: text('C'), message: text('M') };
}
