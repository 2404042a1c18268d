/** One request and its one response, over either transport. */
import { decode } from '../base/utf8.ts';
import { Rejection } from '../errors.ts';
import type { LimitDecision } from '../limits/limiter.ts';
import type { ArrivingLines } from './arriving-lines.ts';
import type { BodyRoom } from './body-room.ts';
import type { ListMember } from './intrusive-list.ts';
import {
  type BodyBeginning,
  type BodyOptions,
  type BodyOwner,
  type ReceivedBody,
  RequestBody,
} from './request-body.ts';
import { AnswerStream, type StreamAnswer, type StreamWire } from './stream.ts';

export interface Answer {
  readonly status: number;
  readonly body: string | Buffer;
  /** The body's length in bytes, if known. */
  readonly bytes?: number;
  /** Called once the body has been sent, and its memory is free. Not called where the connection ends before. */
  readonly onSent?: () => void;
  /** Default: JSON. */
  readonly contentType?: string;
  /** Default: `no-store`. */
  readonly cacheControl?: string;
  /** Further headers. Values must not contain text from a request: a transport does not filter CR and LF. */
  readonly headers?: AnswerHeaders;
}

/** Headers by name; a list makes a line of each value, as several Set-Cookie headers need. */
export type AnswerHeaders = Readonly<Record<string, string | readonly string[]>>;

/** The result of a handler: the response, or a refusal, which becomes one. */
export type Outcome = Answer | StreamAnswer | Rejection;

/** What the headers of a response are made of. */
interface AnswerHead {
  readonly contentType?: string | undefined;
  readonly cacheControl?: string;
  readonly headers?: AnswerHeaders | undefined;
}

/** A transport's side of one request. */
export interface Wire {
  readonly method: string;
  /** The path as sent, without the query. */
  readonly path: string;
  /** The query as sent, without the question mark; empty if there is none, or the route does not ask for it. */
  readonly query: string;
  /** The peer address of the connection; empty if the route does not ask for it. */
  readonly remoteAddress: string;
  /** A request header by its lower-case name, empty if absent. May be called at any time. */
  header(name: string): string;
  /** The request headers with the route's `headerPrefix`, by their lower-case names. */
  prefixedHeaders?(): ReadonlyMap<string, string>;
  /** Starts to receive the body. A chunk's memory is only valid during the call. Called at most once. */
  readBody(onChunk: (chunk: Buffer, last: boolean) => void): void;
  /** Stops reading the body, and continues. What the transport has read already still arrives. */
  pauseBody(): void;
  resumeBody(): void;
  /**
   * Writes the whole response.
   * @param headers complete header lines, `Name: value`, joined by CR LF
   * @param bytes   the body's length
   * @param close   whether to close the connection after the response
   * @param onSent  see {@link Answer}
   */
  respond(
    status: number,
    headers: string,
    body: string | Buffer,
    bytes: number,
    close: boolean,
    onSent?: () => void,
  ): void;
  /**
   * Writes the head of a streaming response.
   * @param filler   see {@link StreamAnswer}
   * @param onClosed called once when the connection is closed, unless the stream was ended or destroyed before
   */
  stream(status: number, headers: string, filler: string, onClosed: () => void): StreamWire;
}

/** State and limits that all exchanges of a server share. */
export interface ExchangeLimits {
  readonly maxBodyBytes: number;
  /** Memory of all bodies, each held from its first chunk until the response. */
  readonly bodies: BodyRoom;
  /** The key under which a client is counted. */
  readonly addressOf: (exchange: Exchange) => string;
  /** Header lines of every response, each ended by CR LF; may be empty. */
  readonly everyAnswer: string;
  /** Bytes of responses that wait for slow readers. */
  unsentBytes: number;
  /** Open streaming responses. They have no deadline; a stop ends them. */
  readonly openStreams: Set<AnswerStream>;
}

/** Limit of the unsent bytes of all responses: beyond it reads are refused and streams that wait for readers are closed. */
export const MAX_UNSENT_BYTES = 64 * 1_048_576;
export const TOO_MANY_UNSENT = new Rejection(
  'unavailable',
  'Too many large responses wait for slow readers; try again shortly.',
);

const COMMON_HEADERS =
  'Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n';

/** A proxy that compresses what passes would keep the lines of a stream back. */
const OF_STREAMS = 'no-store, no-transform';

/** Never with Access-Control-Allow-Credentials: a page gets only what anybody could get. */
const CROSS_ORIGIN =
  'Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: Retry-After, X-Request-Id\r\nCross-Origin-Resource-Policy: cross-origin\r\n';

const NO_HEADERS: ReadonlyMap<string, string> = new Map();
const NO_BODY = { body: '', bytes: 0 };
const UNKNOWN_CODING = new Rejection('invalidParameters', 'The only supported Transfer-Encoding is chunked.');
const TOO_LATE = new Rejection('unavailable', 'The request took too long.');
const STOPPING = new Rejection('unavailable', 'The service is stopping; send the rest again.');

export class Exchange implements ListMember<Exchange>, BodyOwner {
  /** Unique in the logs of the installation; returned as X-Request-Id. */
  readonly id: string;
  /** When the request arrived, in milliseconds of the server's monotonic clock. */
  readonly startedAt: number;
  /** The values of the `:name` segments of the route's path, in order. */
  readonly parameters: readonly string[];
  /** The route's path as declared, set by the server; `other` without a route. */
  route = 'other';
  /** Whether pages of every origin may read the response, set by the server. */
  isCrossOrigin = false;
  /** Internal id of the app whose logging token was accepted; null: none. */
  writerAppId: number | null = null;
  /** Internal id of the producer that the logging token is of; 0: the app's first one; null: none. */
  producerId: number | null = null;
  /** Events of a batch that were stored; null: it is no batch. */
  storedEvents: number | null = null;
  /** Internal id of the resource token that was accepted; null: none. */
  readerTokenId: number | null = null;
  /** The first event that was refused by itself, and its place from 0 on; null: none was. */
  refusedEvent: { readonly place: number; readonly refusal: Rejection } | null = null;
  /** The body of a request that was refused, or an event of it, or the beginning. Null: it was not read, or is accepted. */
  refusedBody: BodyBeginning | null = null;
  /** Set by the step that asks the limiter; sent as RateLimit headers from then on. */
  rateLimit: LimitDecision | null = null;
  /** The response if the deadline passes now. A step after which the outcome may be unknown replaces it. */
  late: Rejection = TOO_LATE;
  /** True once the response is written or the client has disconnected. */
  settled = false;
  /** False if a proxy may see another end of the request: then data after it must not be read as a request. */
  readonly isFramed: boolean;
  /** Neighbors in the server's list of pending requests. */
  before: Exchange | null = null;
  after: Exchange | null = null;

  readonly #wire: Wire;
  readonly #limits: ExchangeLimits;
  readonly #onSettled: (exchange: Exchange, outcome: Outcome | null) => void;
  #body: RequestBody | null = null;
  #mustClose = false;
  /** The response, if it was begun before the end of the request. */
  #begun: AnswerStream | null = null;
  /** Whether something came of the request since the last check of its deadline, and from when that counts. */
  #hasProgressed = false;
  #deadlineFrom: number;
  /** Made where somebody listens. */
  #listeners: Set<() => void> | null = null;

  /** @param onSettled called once at the end with the response, or null if the client disconnected before it */
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
    this.#deadlineFrom = startedAt;
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

  /** A request header by its lower-case name, empty if absent. */
  header(name: string): string {
    return this.#wire.header(name);
  }

  /** The request headers with the route's `headerPrefix`, by their lower-case names. */
  prefixedHeaders(): ReadonlyMap<string, string> {
    return this.#wire.prefixedHeaders?.() ?? NO_HEADERS;
  }

  /** The peer address of the connection; empty if the route does not ask for it. */
  get remoteAddress(): string {
    return this.#wire.remoteAddress;
  }

  /**
   * Starts to receive the body, within the limit of one body and the memory of all. Must be called before the first await:
   * a transport drops a body that is not read.
   */
  receive(options: BodyOptions = {}): void {
    const { bodies, maxBodyBytes } = this.#limits;
    this.#body = new RequestBody(this, bodies, options.maxBytes ?? maxBodyBytes, options, this.startedAt);
  }

  /**
   * The whole body: text if it is small or ASCII, else bytes for `decode`.
   * @param options used if {@link receive} was not called before
   * @returns the body, or a refusal: too large, wrong encoding, no memory now, or (of a small body) not UTF-8
   */
  body(options?: BodyOptions): Promise<ReceivedBody | Rejection> {
    // Lines are only given with the option.
    return this.bodyOrLines(options) as Promise<ReceivedBody | Rejection>;
  }

  /** The body as {@link body} has it; with the option `lines` its lines, if it is larger than `maxBytes`. */
  bodyOrLines(options?: BodyOptions): Promise<ReceivedBody | ArrivingLines | Rejection> {
    if (this.#body === null) this.receive(options);
    // Set by the line above, or before.
    return (this.#body as RequestBody).read();
  }

  /** A part of a long request is done: its deadline begins again. */
  progressed(): void {
    this.#hasProgressed = true;
  }

  /** The whole body as text. A compressed one is only decompressed after this call. */
  async text(options?: BodyOptions): Promise<string | Rejection> {
    const body = await this.body(options);
    return Buffer.isBuffer(body) ? decode(body) : body;
  }

  /** Counts memory of the request beside its body until the response. @returns the refusal if there is none */
  hold(bytes: number): Rejection | null {
    return this.#body?.holdMore(bytes) ?? null;
  }

  readBody(onChunk: (chunk: Buffer, last: boolean) => void): void {
    this.#wire.readBody(onChunk);
  }

  pauseBody(): void {
    this.#wire.pauseBody();
  }

  resumeBody(): void {
    this.#wire.resumeBody();
  }

  address(): string {
    return this.#limits.addressOf(this);
  }

  refuse(refusal: Rejection): void {
    this.answer(refusal);
  }

  /** Writes the response; further calls and calls after an abort do nothing. */
  answer(outcome: Outcome): void {
    if (this.settled) return;
    if (this.#begun !== null) {
      this.#finish(this.#begun, outcome);
      return;
    }
    const headers = this.#headersOf(outcome);
    if ('open' in outcome && this.method !== 'HEAD') this.#stream(outcome, headers);
    else this.#respond(outcome, headers);
  }

  /**
   * Begins a response with the status 200, which is written while the request still arrives. The outcome of the handler ends
   * it: a refusal, whose status cannot be sent any more, by closing the connection.
   * @returns null if the client has disconnected
   */
  begin(contentType: string): AnswerStream | null {
    if (this.settled) return null;
    let isClosed = false;
    const head = { contentType, cacheControl: OF_STREAMS };
    const wire = this.#wire.stream(200, this.#headersOf(head), '', () => {
      isClosed = true;
      this.#begun?.closed();
    });
    if (isClosed) return null;
    this.#begun = new AnswerStream(wire, { hasRoom: () => true, onClosed: () => undefined, isFinite: true });
    return this.#begun;
  }

  #finish(begun: AnswerStream, outcome: Outcome): void {
    // First, because the transport may report an abort during the calls.
    this.#settle(outcome);
    if (outcome instanceof Rejection) begun.cut();
    else begun.end();
  }

  #headersOf(head: AnswerHead): string {
    const crossOrigin = this.isCrossOrigin ? CROSS_ORIGIN : '';
    return `${commonHeaders(head)}${this.#limits.everyAnswer}${crossOrigin}X-Request-Id: ${this.id}${this.#rateLimitLines()}${headerLines(head.headers)}`;
  }

  #respond(outcome: Outcome, headers: string): void {
    const { body, bytes = Buffer.byteLength(body) } = 'open' in outcome ? NO_BODY : outcome;
    const onSent = 'onSent' in outcome ? outcome.onSent : undefined;
    // First, because the transport may report an abort during the call.
    this.#settle(outcome);
    this.#wire.respond(outcome.status, headers, body, bytes, this.#mustClose, onSent);
  }

  #stream(answer: StreamAnswer, headers: string): void {
    const limits = this.#limits;
    this.#settle(answer);
    let stream: AnswerStream | null = null;
    let isClosed = false;
    const wire = this.#wire.stream(answer.status, headers, answer.filler, () => {
      isClosed = true;
      stream?.closed();
    });
    if (isClosed) return;
    stream = new AnswerStream(wire, {
      hasRoom: () => limits.unsentBytes <= MAX_UNSENT_BYTES,
      onClosed: (closed) => limits.openStreams.delete(closed),
      isFinite: answer.isFinite === true,
    });
    limits.openStreams.add(stream);
    answer.open(stream);
  }

  /**
   * Refuses a request of which a proxy may see another end. In a later turn of the event loop: the rest of the packet is
   * parsed in this turn, and a transport does not execute it while this request is pending.
   */
  refuseFraming(): void {
    this.#mustClose = true;
    setImmediate(() => this.answer(UNKNOWN_CODING));
  }

  /** The deadline has passed: responds with {@link late}, or with 400 if the body is incomplete. */
  expire(): void {
    const body = this.#body;
    if (body?.isArriving === true) this.#mustClose = true;
    this.answer(body?.isArriving === true && !body.isStream ? body.late : this.late);
  }

  /** Whether the deadline has passed. That of a long request begins again with each part. @param now milliseconds of the monotonic clock */
  isOverdue(now: number, timeoutMs: number): boolean {
    if (this.#hasProgressed) this.#deadlineFrom = now;
    this.#hasProgressed = false;
    return now - this.#deadlineFrom >= timeoutMs;
  }

  /** The server stops: the response is the last one of the connection, and lines that have not arrived are refused. */
  prepareToStop(): void {
    // A client that still sends would lose the response with its connection. The server closes that a moment later.
    if (this.#body?.isStream === true) this.#body.stopLines(STOPPING);
    else this.#mustClose = true;
  }

  /** The server stops, and a body takes too long. */
  stopReceiving(): void {
    if (this.#body?.isStream === true) this.#body.stopLines(STOPPING);
    else if (this.isReceiving) this.expire();
  }

  /** Refuses a body that arrives too slowly. @param now milliseconds of the monotonic clock @returns true if it did */
  checkPace(now: number): boolean {
    return this.#body?.checkPace(now) === true;
  }

  /** False while the unsent bytes of all responses exceed their limit. */
  get hasRoomForLargeAnswer(): boolean {
    return this.#limits.unsentBytes <= MAX_UNSENT_BYTES;
  }

  /** True until the whole body has arrived. */
  get isReceiving(): boolean {
    return this.#body?.isArriving === true;
  }

  /** The beginning of a body that was refused while it arrived; empty: none was. */
  get refusedHead(): string {
    return this.#body?.head ?? '';
  }

  /** Closes the connection after the response. */
  closeAfterAnswer(): void {
    this.#mustClose = true;
  }

  /** The client has disconnected: nothing may be written any more. */
  abort(): void {
    if (!this.settled) this.#settle(null);
  }

  #settle(outcome: Outcome | null): void {
    this.settled = true;
    if (this.writerAppId !== null && (outcome instanceof Rejection || this.refusedEvent !== null))
      this.refusedBody = this.#body?.beginning() ?? null;
    this.#body?.release();
    this.#onSettled(this, outcome);
    const listeners = this.#listeners;
    this.#listeners = null;
    for (const listener of listeners ?? []) listener();
  }

  /** Has a listener called once, when the request has its response or its client is gone. @returns takes it back */
  whenSettled(listener: () => void): () => void {
    this.#listeners ??= new Set();
    this.#listeners.add(listener);
    return () => this.#listeners?.delete(listener);
  }

  #rateLimitLines(): string {
    const decision = this.rateLimit;
    if (decision === null) return '';
    return `\r\nRateLimit-Limit: ${decision.limit}\r\nRateLimit-Remaining: ${decision.remaining}\r\nRateLimit-Reset: ${decision.resetSeconds}`;
  }
}

function commonHeaders(head: AnswerHead): string {
  const { contentType } = head;
  if (contentType === undefined) return COMMON_HEADERS;
  const ofStream = 'open' in head ? OF_STREAMS : 'no-store';
  const cacheControl = ('cacheControl' in head && head.cacheControl) || ofStream;
  return `Content-Type: ${contentType}\r\nX-Content-Type-Options: nosniff\r\nCache-Control: ${cacheControl}\r\n`;
}

function headerLines(headers: AnswerHeaders | undefined): string {
  let lines = '';
  for (const name in headers) {
    const value = headers[name] ?? '';
    if (typeof value === 'string') lines += `\r\n${name}: ${value}`;
    else for (const one of value) lines += `\r\n${name}: ${one}`;
  }
  return lines;
}
