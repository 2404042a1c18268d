/** One request and its one answer, whichever transport carries them. Only this file writes answers. */
import { isAscii, isUtf8 } from 'node:buffer';
import { Rejection } from '../errors.ts';
import type { LimitDecision } from '../limits/limiter.ts';
import { GzipBody } from './gzip-body.ts';
import type { Pending } from './intrusive-list.ts';
import { AnswerStream, type StreamAnswer, type StreamWire } from './stream.ts';

export interface Answer {
  readonly status: number;
  readonly body: string | Buffer;
  /** The body's length, where it is known without looking. */
  readonly bytes?: number;
  /** What the body is, where it is not JSON. */
  readonly contentType?: string;
  /** How long the answer may be kept, where that is not "not at all". */
  readonly cacheControl?: string;
  /** Further headers. Values must not contain text from a request: a transport does not filter CR and LF. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** What a handler gives back: the answer, or the refusal that becomes one. */
export type Outcome = Answer | StreamAnswer | Rejection;

/** The part of a transport that one request needs. */
export interface Wire {
  readonly method: string;
  /** The path as sent, without the query. */
  readonly path: string;
  /** The query as sent, without the question mark; empty where there is none. */
  readonly query: string;
  /** The address at the other end of the connection, as text; empty where the route does not ask for it. */
  readonly remoteAddress: string;
  /** A request header by its lower-case name, empty where absent. May be called at any time. */
  header(name: string): string;
  /** Starts the body. A chunk's memory is only valid during the call. Called at most once. */
  readBody(onChunk: (chunk: Buffer, last: boolean) => void): void;
  /**
   * Writes the whole answer at once.
   * @param headers complete header lines, `Name: value`, joined by CR LF
   * @param bytes   the body's length
   * @param close   true where the connection is of no further use
   */
  respond(status: number, headers: string, body: string | Buffer, bytes: number, close: boolean): void;
  /**
   * Writes the head of an answer that goes on.
   * @param filler   see {@link StreamAnswer}
   * @param onClosed called once when the connection is gone, unless the stream was ended or destroyed before
   */
  stream(status: number, headers: string, filler: string, onClosed: () => void): StreamWire;
}

/** How a route takes its body, where that is not as the server's settings say. */
export interface BodyOptions {
  /** Most bytes of the text; of one that came compressed, after inflation. */
  readonly maxBytes?: number;
  /** Whether the body may come as gzip. */
  readonly gzip?: boolean;
}

/** What all exchanges of a server share. */
export interface ExchangeLimits {
  readonly maxBodyBytes: number;
  /** Ceiling of all bodies in memory together, from their first chunk until their answer. */
  readonly maxBodiesBytes: number;
  /** Bodies in memory now. */
  bodiesBytes: number;
  /** Header lines of every answer, each ended by CR LF; empty where there are none. */
  readonly everyAnswer: string;
  /** Bytes of answers that wait for slow readers. */
  unsentBytes: number;
  /** Answers that go on. They have left the exchanges, and with them the deadline; a stop ends them. */
  readonly openStreams: Set<AnswerStream>;
}

/** Ceiling of answers that wait for slow readers: beyond it reads are refused, and streams closed, until some are taken. */
export const MAX_UNSENT_BYTES = 64 * 1_048_576;

/** How much of an over-long body is read and thrown away so that its sender can still read the refusal. */
const DRAIN_BYTES = 16 * 1_048_576;

const COMMON_HEADERS =
  'Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n';

const NO_BODY = { body: '', bytes: 0 };
const UNKNOWN_CODING = new Rejection('invalidParameters', 'The only Transfer-Encoding taken is chunked.');
const TOO_LATE = new Rejection('unavailable', 'The request took too long.');
const ABORTED = new Rejection('unavailable', 'The client closed the connection.');

export class Exchange implements Pending<Exchange> {
  /** Unique within the installation's logs; returned as X-Request-Id. */
  readonly id: string;
  /** When the request arrived, in milliseconds of the server's monotonic clock. */
  readonly startedAt: number;
  /** The values of `:name` segments of the route's path, in their order. */
  readonly parameters: readonly string[];
  /** The route's path as it is declared, set by the server; until then, and where there is none, `other`. */
  route = 'other';
  /** Set by the step that asks the limiter; shown as RateLimit headers in every answer from then on. */
  rateLimit: LimitDecision | null = null;
  /** The refusal that answers if the deadline passes now. A step that can no longer say "not stored" replaces it. */
  late: Rejection = TOO_LATE;
  /** True once the answer is written or the client is gone. */
  settled = false;
  /** Whether the request's end is where the transport sees it. Where it may not be, nothing behind it can be believed. */
  readonly isFramed: boolean;
  /** Neighbours in the server's list of requests without an answer. */
  before: Exchange | null = null;
  after: Exchange | null = null;

  readonly #wire: Wire;
  readonly #limits: ExchangeLimits;
  readonly #onSettled: (exchange: Exchange, outcome: Outcome | null) => void;
  /** Bytes of this body in memory, as counted against the ceiling of all. */
  #heldBytes = 0;
  #maxBodyBytes = 0;
  /** What has come of a body that comes in several chunks, and how much of it is filled. */
  #body: Buffer | null = null;
  #bodyBytes = 0;
  #gzip: GzipBody | null = null;
  #compressedBytes = 0;
  /** True once the body's last chunk has come. */
  #received = false;
  #bodyRefusal: Rejection | null = null;
  #drained = 0;
  #mustClose = false;
  #resolveBody: ((body: string | Rejection) => void) | null = null;

  /** @param onSettled told once of the end: the answer, or null where the client left before it */
  constructor(
    wire: Wire,
    id: string,
    startedAt: number,
    parameters: readonly string[],
    limits: ExchangeLimits,
    onSettled: (exchange: Exchange, outcome: Outcome | null) => void,
  ) {
    this.#wire = wire;
    this.id = id;
    this.startedAt = startedAt;
    this.parameters = parameters;
    this.#limits = limits;
    this.#onSettled = onSettled;
    const coding = wire.header('transfer-encoding');
    this.isFramed = coding === '' || coding.toLowerCase() === 'chunked';
  }

  get method(): string {
    return this.#wire.method;
  }

  get path(): string {
    return this.#wire.path;
  }

  get query(): string {
    return this.#wire.query;
  }

  /** A request header by its lower-case name, empty where absent. */
  header(name: string): string {
    return this.#wire.header(name);
  }

  /** The address at the other end of the connection; empty where the route does not ask for it. */
  get remoteAddress(): string {
    return this.#wire.remoteAddress;
  }

  /**
   * Reads the whole body as text, within the limit of one body and the ceiling of all.
   * @returns the text, or a refusal: too large, other than UTF-8, encoded, or no room now
   */
  text(options: BodyOptions = {}): Promise<string | Rejection> {
    return new Promise((resolve) => {
      this.#maxBodyBytes = options.maxBytes ?? this.#limits.maxBodyBytes;
      const encoding = this.#wire.header('content-encoding').toLowerCase();
      if (options.gzip === true && (encoding === 'gzip' || encoding === 'x-gzip')) {
        this.#gzip = this.#inflating();
      } else if (encoding !== '' && encoding !== 'identity') {
        this.#bodyRefusal = new Rejection(
          'unsupportedEncoding',
          `Send the body without Content-Encoding${options.gzip === true ? ', or with gzip' : ''}.`,
        );
      }
      this.#resolveBody = resolve;
      this.#wire.readBody((chunk, last) => this.#onChunk(chunk, last));
    });
  }

  #onChunk(chunk: Buffer, last: boolean): void {
    if (this.#resolveBody === null) return;
    this.#received = last;
    const bytes = chunk.byteLength;
    this.#bodyRefusal ??= this.#gzip === null ? this.#admit(bytes) : this.#admitCompressed(bytes);
    if (this.#bodyRefusal !== null) {
      this.#drain(bytes, last, this.#bodyRefusal);
    } else if (this.#gzip !== null) {
      this.#gzip.write(chunk, last);
    } else if (last && this.#body === null) {
      this.#settleBody(decode(chunk));
    } else {
      this.#keep(chunk, Number(this.#wire.header('content-length')) || 0);
      if (last) this.#settleBody(this.#decoded());
    }
  }

  #inflating(): GzipBody {
    return new GzipBody({
      onTaken: (bytes) => this.#release(bytes),
      onBytes: (bytes) => {
        this.#bodyRefusal ??= this.#admit(bytes.byteLength);
        if (this.#bodyRefusal === null) this.#keep(bytes, 0);
        else this.#drain(0, this.#received, this.#bodyRefusal);
      },
      onEnd: (problem) => {
        if (problem === null) return this.#settleBody(this.#decoded());
        this.#bodyRefusal = new Rejection('invalidBody', problem);
        this.#drain(0, this.#received, this.#bodyRefusal);
      },
    });
  }

  /** Appends admitted bytes. With the length announced there is one buffer; without it grows by doubling. */
  #keep(bytes: Uint8Array, announced: number): void {
    const start = this.#bodyBytes - bytes.byteLength;
    if (this.#body === null || this.#body.length < this.#bodyBytes) {
      const size = Math.min(this.#maxBodyBytes, Math.max(announced, 2 * this.#bodyBytes));
      const larger = Buffer.allocUnsafeSlow(size);
      this.#body?.copy(larger, 0, 0, start);
      this.#body = larger;
    }
    this.#body.set(bytes, start);
  }

  #decoded(): string | Rejection {
    return this.#body === null ? '' : decode(this.#body.subarray(0, this.#bodyBytes));
  }

  /** Counts bytes of the body in, or says why they can not be held. */
  #admit(bytes: number): Rejection | null {
    const isFirst = this.#bodyBytes === 0 && this.#gzip === null;
    if (
      this.#bodyBytes + bytes > this.#maxBodyBytes ||
      (isFirst && Number(this.#wire.header('content-length')) > this.#maxBodyBytes)
    ) {
      return new Rejection('payloadTooLarge', `The body may have at most ${this.#maxBodyBytes} bytes.`);
    }
    const refusal = this.#hold(bytes);
    if (refusal === null) this.#bodyBytes += bytes;
    return refusal;
  }

  /** The same for bytes that are still compressed: what does not shrink may grow by a little. */
  #admitCompressed(bytes: number): Rejection | null {
    this.#compressedBytes += bytes;
    const most = this.#maxBodyBytes + (this.#maxBodyBytes >> 6) + 1_024;
    if (this.#compressedBytes > most || Number(this.#wire.header('content-length')) > most) {
      return new Rejection('payloadTooLarge', `The body may have at most ${this.#maxBodyBytes} bytes.`);
    }
    return this.#hold(bytes);
  }

  #hold(bytes: number): Rejection | null {
    const limits = this.#limits;
    if (limits.bodiesBytes + bytes > limits.maxBodiesBytes) {
      return new Rejection('unavailable', 'Too many request bodies are being held; try again shortly.');
    }
    this.#heldBytes += bytes;
    limits.bodiesBytes += bytes;
    return null;
  }

  #release(bytes: number): void {
    this.#heldBytes -= bytes;
    this.#limits.bodiesBytes -= bytes;
  }

  /**
   * A refused body is still read for a while: a client that goes on sending into a closed socket would lose the answer.
   * Where the end is known to be near, the answer goes out at once; else it waits for the end or the bound.
   */
  #drain(bytes: number, last: boolean, refusal: Rejection): void {
    this.#releaseBody();
    this.#drained += bytes;
    const announced = Number(this.#wire.header('content-length')) || Number.POSITIVE_INFINITY;
    if (last || announced <= DRAIN_BYTES) {
      this.#settleBody(refusal);
    } else if (this.#drained > DRAIN_BYTES) {
      this.#mustClose = true;
      this.#settleBody(refusal);
    }
  }

  #settleBody(body: string | Rejection): void {
    const resolve = this.#resolveBody;
    this.#resolveBody = null;
    this.#body = null;
    this.#gzip?.stop();
    this.#gzip = null;
    resolve?.(body);
  }

  #releaseBody(): void {
    // What is still being inflated reports nothing more.
    this.#gzip?.stop();
    this.#release(this.#heldBytes);
    this.#bodyBytes = 0;
    this.#body = null;
  }

  /** Writes the one answer; further calls and calls after an abort do nothing. */
  answer(outcome: Outcome): void {
    if (this.settled) return;
    const headers = `${commonHeaders(outcome)}${this.#limits.everyAnswer}X-Request-Id: ${this.id}${this.#rateLimitLines()}${headerLines(outcome.headers)}`;
    if ('open' in outcome && this.method !== 'HEAD') this.#stream(outcome, headers);
    else this.#respond(outcome, headers);
  }

  #respond(outcome: Outcome, headers: string): void {
    const { body, bytes = Buffer.byteLength(body) } = 'open' in outcome ? NO_BODY : outcome;
    // Before the transport is called: it may report an abort from within.
    this.#settle(outcome);
    this.#wire.respond(outcome.status, headers, body, bytes, this.#mustClose);
  }

  #stream(answer: StreamAnswer, headers: string): void {
    const limits = this.#limits;
    this.#settle(answer);
    let stream: AnswerStream | null = null;
    let isGone = false;
    const wire = this.#wire.stream(answer.status, headers, answer.filler, () => {
      isGone = true;
      stream?.closed();
    });
    if (isGone) return;
    stream = new AnswerStream(wire, {
      hasRoom: () => limits.unsentBytes <= MAX_UNSENT_BYTES,
      onClosed: (closed) => limits.openStreams.delete(closed),
    });
    limits.openStreams.add(stream);
    answer.open(stream);
  }

  /**
   * Refuses a request of which someone in front may see another end. Not in this turn: while a request has no answer a
   * transport executes none behind it, and what has come in the same packet is parsed in this turn.
   */
  refuseFraming(): void {
    this.#mustClose = true;
    setImmediate(() => this.answer(UNKNOWN_CODING));
  }

  /** The deadline has passed: answers with {@link late}, or with 400 where the body never came in full. */
  expire(): void {
    if (this.#resolveBody !== null && !this.#received) {
      this.#mustClose = true;
      this.answer(this.#bodyRefusal ?? new Rejection('invalidBody', 'The body did not arrive in time.'));
    } else {
      this.answer(this.late);
    }
  }

  /** False while so many answers wait for slow readers that a large one more is not to be made. */
  get hasRoomForLargeAnswer(): boolean {
    return this.#limits.unsentBytes <= MAX_UNSENT_BYTES;
  }

  /** True while the handler waits for the body, and the body for its sender. */
  get isReceiving(): boolean {
    return this.#resolveBody !== null && !this.#received;
  }

  /** Makes this answer the connection's last one. */
  closeAfterAnswer(): void {
    this.#mustClose = true;
  }

  /** The client is gone: nothing may be written any more. */
  abort(): void {
    if (!this.settled) this.#settle(null);
  }

  #settle(outcome: Outcome | null): void {
    this.settled = true;
    this.#releaseBody();
    // What still comes of the body is for nobody: an event that was refused must not be stored after all.
    this.#settleBody(ABORTED);
    this.#onSettled(this, outcome);
  }

  #rateLimitLines(): string {
    const decision = this.rateLimit;
    if (decision === null) return '';
    return `\r\nRateLimit-Limit: ${decision.limit}\r\nRateLimit-Remaining: ${decision.remaining}\r\nRateLimit-Reset: ${decision.resetSeconds}`;
  }
}

function commonHeaders(outcome: Outcome): string {
  if (outcome instanceof Rejection || outcome.contentType === undefined) return COMMON_HEADERS;
  const { contentType } = outcome;
  const cacheControl = ('cacheControl' in outcome && outcome.cacheControl) || 'no-store';
  return `Content-Type: ${contentType}\r\nX-Content-Type-Options: nosniff\r\nCache-Control: ${cacheControl}\r\n`;
}

function headerLines(headers: Readonly<Record<string, string>> | undefined): string {
  let lines = '';
  for (const name in headers) lines += `\r\n${name}: ${headers[name]}`;
  return lines;
}

const BOM = 0xfeff;

/** Bytes to text. Invalid UTF-8 and a byte order mark are refused, as JSON over HTTP has neither (RFC 8259, 8.1). */
function decode(bytes: Buffer): string | Rejection {
  if (isAscii(bytes)) return bytes.toString('latin1');
  if (!isUtf8(bytes)) return new Rejection('invalidBody', 'The body is not valid UTF-8.');
  const text = bytes.toString('utf8');
  if (text.charCodeAt(0) === BOM)
    return new Rejection('invalidBody', 'The body starts with a byte order mark.');
  return text;
}
