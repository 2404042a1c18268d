/** One request and its one answer, whichever transport carries them. Only this file writes answers. */
import { Rejection } from '../errors.ts';
import type { LimitDecision } from '../limits/limiter.ts';
import type { BodyRoom } from './body-room.ts';
import type { Pending } from './intrusive-list.ts';
import { type BodyOptions, type BodyOwner, decode, type ReceivedBody, RequestBody } from './request-body.ts';
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

/** What all exchanges of a server share. */
export interface ExchangeLimits {
  readonly maxBodyBytes: number;
  /** Memory of all bodies together, from their first chunk until their answer. */
  readonly bodies: BodyRoom;
  /** What counts as one client. */
  readonly addressOf: (exchange: Exchange) => string;
  /** Header lines of every answer, each ended by CR LF; empty where there are none. */
  readonly everyAnswer: string;
  /** Bytes of answers that wait for slow readers. */
  unsentBytes: number;
  /** Answers that go on. They have left the exchanges, and with them the deadline; a stop ends them. */
  readonly openStreams: Set<AnswerStream>;
}

/** Ceiling of answers that wait for slow readers: beyond it reads are refused, and streams closed, until some are taken. */
export const MAX_UNSENT_BYTES = 64 * 1_048_576;

const COMMON_HEADERS =
  'Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n';

const NO_BODY = { body: '', bytes: 0 };
const UNKNOWN_CODING = new Rejection('invalidParameters', 'The only Transfer-Encoding taken is chunked.');
const TOO_LATE = new Rejection('unavailable', 'The request took too long.');

export class Exchange implements Pending<Exchange>, BodyOwner {
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
  /** Neighbors in the server's list of requests without an answer. */
  before: Exchange | null = null;
  after: Exchange | null = null;

  readonly #wire: Wire;
  readonly #limits: ExchangeLimits;
  readonly #onSettled: (exchange: Exchange, outcome: Outcome | null) => void;
  #body: RequestBody | null = null;
  #mustClose = false;

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
   * Starts to receive the body, within the limit of one body and the room of all. To be called before anything is waited
   * for: a transport does not keep a body that nobody takes.
   */
  receive(options: BodyOptions = {}): void {
    const { bodies, maxBodyBytes } = this.#limits;
    this.#body = new RequestBody(this, bodies, options.maxBytes ?? maxBodyBytes, options, this.startedAt);
  }

  /**
   * The whole body: text where it is small or ASCII, else bytes that `decode` makes text of.
   * @param options where {@link receive} was not called before
   * @returns the body, or a refusal: too large, encoded, or no room now; other than UTF-8 where it is small
   */
  body(options?: BodyOptions): Promise<ReceivedBody | Rejection> {
    if (this.#body === null) this.receive(options);
    // It was made by the line above, or before.
    return (this.#body as RequestBody).read();
  }

  /** The same as text, whatever its size. One that came compressed is inflated from here on, and not before. */
  async text(options?: BodyOptions): Promise<string | Rejection> {
    const body = await this.body(options);
    return Buffer.isBuffer(body) ? decode(body) : body;
  }

  readBody(onChunk: (chunk: Buffer, last: boolean) => void): void {
    this.#wire.readBody(onChunk);
  }

  address(): string {
    return this.#limits.addressOf(this);
  }

  refuse(refusal: Rejection): void {
    this.answer(refusal);
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
    if (this.#body?.isArriving === true) {
      this.#mustClose = true;
      this.answer(this.#body.late);
    } else {
      this.answer(this.late);
    }
  }

  /** Refuses a body that comes too slowly. @returns true where it did */
  checkPace(now: number): boolean {
    return this.#body?.checkPace(now) === true;
  }

  /** False while so many answers wait for slow readers that a large one more is not to be made. */
  get hasRoomForLargeAnswer(): boolean {
    return this.#limits.unsentBytes <= MAX_UNSENT_BYTES;
  }

  /** True while the body has not come in full. */
  get isReceiving(): boolean {
    return this.#body?.isArriving === true;
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
    this.#body?.release();
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
