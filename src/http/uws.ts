/** The transport on uWebSockets.js. No other file uses the package. */

import type { HttpRequest, HttpResponse, TemplatedApp, us_listen_socket } from 'uWebSockets.js';
import type { OperatorError } from '../errors.ts';
import type { Exchange, Wire } from './exchange.ts';
import { isFixed, type Match, type Route } from './route.ts';
import type { SlowPeer } from './slow-peers.ts';
import { statusLine } from './status.ts';
import type { StreamWire } from './stream.ts';
import { listenError, listenProblem, type Transport, type TransportOptions } from './transport.ts';

type Uws = typeof import('uWebSockets.js');

/** Loads the native module. Rejects if the package has no binary for this Node version and platform. */
export function loadUws(): Promise<Uws> {
  return import('uWebSockets.js');
}

/** Headers that are read of every request, and of those with a body. Routes add theirs. Each costs a native call. */
const FRAMING_HEADERS = ['transfer-encoding'] as const;
const BODY_HEADERS = ['content-encoding', 'content-length', ...FRAMING_HEADERS] as const;
/** A browser that opens a page without a route is answered with one. */
const NO_ROUTE_HEADERS = ['accept', 'accept-encoding', 'content-type', ...BODY_HEADERS] as const;

const FORWARDED = 'x-forwarded-for';
/** X-Forwarded-For is read for bodies with a Content-Length above this, or without one. */
const FORWARDED_FROM_BYTES = 16_384;

/**
 * One in this many responses without a body closes its connection. uWebSockets.js buffers heads for clients that do not
 * read them and does not report how many; this limits them.
 */
const BODILESS_PER_CONNECTION = 256;

/**
 * uWebSockets.js closes an idle connection after 8 to 10 seconds. Clients that read this header leave it before, and send no POST into
 * a closing one.
 */
const KEEP_ALIVE = '\r\nKeep-Alive: timeout=7';

/** LIBUS_LISTEN_DEFAULT and LIBUS_LISTEN_EXCLUSIVE_PORT, which the package's types lack. */
const SHARED_PORT = 0;
const EXCLUSIVE_PORT = 1;

/** Texts are written as they are, and half a character is not UTF-8: it becomes U+FFFD, which has as many bytes. */
const wellFormed = (body: string | Buffer, bytes: number): string | Buffer =>
  typeof body === 'string' && bytes !== body.length ? Buffer.from(body) : body;

class UwsWire implements Wire {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  exchange: Exchange | null = null;
  readonly #res: HttpResponse;
  /** Undefined until it is read; a route with `remoteAddress` reads it at the start. */
  #remoteAddress: string | undefined;
  /** Names of the copied headers, and their values in the same order. */
  readonly #headerNames: readonly string[];
  readonly #headerValues: string[] = [];
  /** Null where the route asks for none. */
  #prefixed: ReadonlyMap<string, string> | null = null;
  readonly #options: TransportOptions;
  #forwarded = '';
  #isAborted = false;
  #isPaused = false;
  #unsent = 0;
  #stream: UwsStream | null = null;
  #slowReader: SlowPeer | null = null;

  constructor(res: HttpResponse, req: HttpRequest, match: Match | null, options: TransportOptions) {
    this.#res = res;
    this.#options = options;
    this.method = match === null ? req.getCaseSensitiveMethod() : match.route.method;
    this.path = match === null ? req.getUrl() : match.route.path;
    // The request object is invalid after the first await, so everything that may be needed is copied now.
    const found = match ?? options.router.match(this.method, this.path);
    const route = 'route' in found ? found.route : null;
    const hasQuery = this.method !== 'POST' || route?.operation?.query !== undefined;
    this.query = hasQuery ? (req.getQuery() ?? '') : '';
    this.#headerNames = headersOf(route);
    for (const name of this.#headerNames) this.#headerValues.push(readHeader(req, name));
    if (route?.headerPrefix !== undefined) this.#prefixed = headersWith(req, route.headerPrefix);
    if (route?.remoteAddress === true) this.#remoteAddress = latin1(res.getRemoteAddressAsText());
    if (options.trustsProxies) this.#keepForwarded(req);
  }

  /**
   * The client's address is needed for bodies that are large or arrive in several chunks. A body that is announced as small
   * nearly always arrives in one chunk, and reading this header costs a loop over all headers.
   */
  #keepForwarded(req: HttpRequest): void {
    const announced = Number(this.header('content-length'));
    if (this.#headerNames.includes(FORWARDED) || (announced > 0 && announced <= FORWARDED_FROM_BYTES)) return;
    this.#forwarded = readHeader(req, FORWARDED);
  }

  /** The peer address of the connection; empty after the connection is closed, unless it was read before. */
  get remoteAddress(): string {
    if (this.#remoteAddress === undefined && !this.#isAborted)
      this.#remoteAddress = latin1(this.#res.getRemoteAddressAsText());
    return this.#remoteAddress ?? '';
  }

  header(name: string): string {
    const value = this.#headerValues[this.#headerNames.indexOf(name)];
    return value ?? (name === FORWARDED ? this.#forwarded : '');
  }

  prefixedHeaders(): ReadonlyMap<string, string> {
    return this.#prefixed ?? NO_HEADERS;
  }

  readBody(onChunk: (chunk: Buffer, last: boolean) => void): void {
    this.#res.onData((chunk, last) => onChunk(Buffer.from(chunk), last));
  }

  pauseBody(): void {
    if (this.#isAborted || this.#isPaused) return;
    this.#isPaused = true;
    this.#res.pause();
  }

  resumeBody(): void {
    if (this.#isAborted || !this.#isPaused) return;
    this.#isPaused = false;
    this.#res.resume();
  }

  respond(
    status: number,
    headers: string,
    body: string | Buffer,
    bytes: number,
    close: boolean,
    onSent: () => void = () => undefined,
  ): void {
    this.resumeBody();
    const res = this.#res;
    res.cork(() => {
      this.#writeHead(status, close ? headers : headers + KEEP_ALIVE);
      if (this.method === 'HEAD' || bytes === 0) this.#endWithoutBody(bytes, close);
      // A response that closes the connection need not wait for its reader: no request follows.
      else if (close) res.end(wellFormed(body, bytes), true);
      else this.#end(wellFormed(body, bytes), bytes, onSent);
    });
  }

  /** In one call: uWebSockets.js writes the text unchanged, and a native call costs as much as the whole text. */
  #writeHead(status: number, headers: string): void {
    this.#res.writeStatus(`${statusLine(status)}\r\n${headers}`);
  }

  stream(status: number, headers: string, filler: string, onClosed: () => void): StreamWire {
    const res = this.#res;
    const stream = new UwsStream(res, filler, onClosed, (bytes) => this.#countUnsent(bytes));
    // First, because an abort may be reported during the write.
    this.#stream = stream;
    res.cork(() => {
      this.#writeHead(status, headers);
      // The head is sent with the first write.
      if (filler !== '') res.write(filler);
    });
    return stream;
  }

  #endWithoutBody(announced: number, close: boolean): void {
    if (close || Math.random() * BODILESS_PER_CONNECTION < 1) {
      this.#res.endWithoutBody(announced, true);
    } else {
      // endWithoutBody(length) would leave the response pending, and the next request would close the connection.
      this.#res.writeHeader('Content-Length', String(announced));
      this.#res.endWithoutBody();
    }
  }

  /**
   * Sends the response as fast as its reader reads it. Until all is sent the request is pending, and a further request
   * closes the connection: a client that sends requests without reading buffers one response, not many.
   */
  #end(body: string | Buffer, bytes: number, onSent: () => void): void {
    const res = this.#res;
    const [, done] = res.tryEnd(body, bytes);
    if (done) {
      onSent();
      return;
    }
    const whole = typeof body === 'string' ? Buffer.from(body) : body;
    this.#slowReader = { moved: () => bytes - this.#unsent, cut: () => res.close() };
    this.#countUnsent(bytes - res.getWriteOffset());
    this.#options.slowPeers.add(this.#slowReader);
    res.onWritable((offset) => {
      const [sent, ended] = res.tryEnd(whole.subarray(offset), bytes);
      if (ended) {
        this.#sent();
        onSent();
      } else this.#countUnsent(bytes - res.getWriteOffset());
      return sent;
    });
  }

  #sent(): void {
    this.#countUnsent(0);
    if (this.#slowReader !== null) this.#options.slowPeers.delete(this.#slowReader);
  }

  #countUnsent(bytes: number): void {
    this.#options.onUnsentBytes(bytes - this.#unsent);
    this.#unsent = bytes;
  }

  aborted(): void {
    this.#isAborted = true;
    this.#sent();
    this.exchange?.abort();
    this.#stream?.aborted();
  }
}

/** Most bytes of one write of a stream, and of one that continues another. */
const WRITE_BYTES = 65_536;
const CONTINUE_BYTES = 4_096;
const EMPTY = Buffer.alloc(0);

/** A streaming response. uWebSockets.js buffers at most one write beyond what the socket takes; later ones wait here. */
class UwsStream implements StreamWire {
  readonly #res: HttpResponse;
  readonly #filler: string;
  readonly #onClosed: () => void;
  readonly #onUnsentBytes: (bytes: number) => void;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  /** What uWebSockets.js may still hold of its last write; 0 if it holds nothing. */
  #heldBytes = 0;
  /** Whether the socket takes nothing now. */
  #isBlocked = false;
  #isOver = false;
  #onTaken: (() => void) | null = null;
  unsentBytes = 0;

  constructor(
    res: HttpResponse,
    filler: string,
    onClosed: () => void,
    onUnsentBytes: (bytes: number) => void,
  ) {
    this.#res = res;
    this.#filler = filler;
    this.#onClosed = onClosed;
    this.#onUnsentBytes = onUnsentBytes;
    res.onWritable(() => {
      this.#isBlocked = false;
      this.#flush();
      return true;
    });
  }

  write(bytes: Buffer): void {
    if (this.#isOver) return;
    this.#waiting.push(bytes);
    this.#waitingBytes += bytes.length;
    if (this.#isBlocked) this.#countUnsent();
    else this.#flush();
  }

  /** What uWebSockets.js holds is less than one write, and is sent during the next one. */
  whenTaken(listener: () => void): void {
    if (this.#waiting.length > 0) this.#onTaken = listener;
    else listener();
  }

  #flush(): void {
    if (this.#isOver) return;
    this.#res.cork(() => {
      if (this.#heldBytes > 0) this.#continueWrite();
      while (!this.#isBlocked && this.#waiting.length > 0) {
        const bytes = this.#take(WRITE_BYTES);
        this.#isBlocked = !this.#res.write(bytes);
        if (this.#isBlocked) this.#heldBytes = bytes.length;
      }
    });
    this.#countUnsent();
    if (this.#waiting.length > 0 || this.#onTaken === null) return;
    const onTaken = this.#onTaken;
    this.#onTaken = null;
    onTaken();
  }

  /**
   * With an onWritable handler uWebSockets.js sends the rest of a write only during the next one, to which it adds all that
   * the socket does not take: a small one, so that it holds less each time.
   */
  #continueWrite(): void {
    const next = this.#waiting.length > 0 ? this.#take(CONTINUE_BYTES) : this.#filler;
    if (next.length === 0) return;
    this.#isBlocked = !this.#res.write(next);
    if (!this.#isBlocked) this.#heldBytes = 0;
  }

  /** The first of the waiting bytes, at most so many. */
  #take(most: number): Buffer {
    const [first = EMPTY] = this.#waiting;
    const bytes = first.subarray(0, most);
    if (bytes.length === first.length) this.#waiting.shift();
    else this.#waiting[0] = first.subarray(most);
    this.#waitingBytes -= bytes.length;
    return bytes;
  }

  #countUnsent(): void {
    this.#setUnsent(this.#waitingBytes + this.#heldBytes);
  }

  #setUnsent(bytes: number): void {
    this.unsentBytes = bytes;
    this.#onUnsentBytes(bytes);
  }

  end(): void {
    if (this.#isOver) return;
    this.#release();
    this.#res.cork(() => this.#res.end());
  }

  destroy(): void {
    if (this.#isOver) return;
    this.#release();
    this.#res.close();
  }

  /** The connection is closed: the native response must not be used any more. */
  aborted(): void {
    if (this.#isOver) return;
    this.#release();
    this.#onClosed();
  }

  #release(): void {
    this.#isOver = true;
    this.#waiting = [];
    this.#onTaken = null;
    this.#setUnsent(0);
  }
}

const NO_HEADERS: ReadonlyMap<string, string> = new Map();

function headersWith(req: HttpRequest, prefix: string): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  req.forEach((name, value) => {
    if (!name.startsWith(prefix)) return;
    const before = found.get(name);
    found.set(name, before === undefined ? value : `${before}, ${value}`);
  });
  return found;
}

const HEADERS_BY_ROUTE = new WeakMap<Route, readonly string[]>();

/** Names of the request headers to copy. */
function headersOf(route: Route | null): readonly string[] {
  if (route === null) return NO_ROUTE_HEADERS;
  let names = HEADERS_BY_ROUTE.get(route);
  if (names === undefined) {
    names = [...(route.method === 'GET' ? FRAMING_HEADERS : BODY_HEADERS), ...route.headers];
    HEADERS_BY_ROUTE.set(route, names);
  }
  return names;
}

/**
 * Reads a header. getHeader only returns the first of several. Three names need all: proxies may append a second
 * X-Forwarded-For, two idempotency keys must not pass as one, and a second transfer coding must not be overlooked.
 */
function readHeader(req: HttpRequest, name: string): string {
  const first = req.getHeader(name);
  const mayBeSeveral =
    name === FORWARDED || (first !== '' && (name === 'idempotency-key' || name === 'transfer-encoding'));
  if (!mayBeSeveral) return first;
  const values: string[] = [];
  req.forEach((key, value) => {
    if (key === name) values.push(value);
  });
  return values.join(', ');
}

function latin1(bytes: ArrayBuffer): string {
  return Buffer.from(bytes).toString('latin1');
}

class UwsTransport implements Transport {
  readonly #uws: Uws;
  readonly #app: TemplatedApp;
  readonly #options: TransportOptions;
  #listening: us_listen_socket | null = null;

  constructor(uws: Uws, options: TransportOptions) {
    this.#uws = uws;
    this.#options = options;
    this.#app = uws.App();
    for (const route of options.routes) {
      if (!isFixed(route) || (route.method !== 'GET' && route.method !== 'POST')) continue;
      const match: Match = { route, parameters: [] };
      const method = route.method === 'GET' ? 'get' : 'post';
      this.#app[method](route.path, (res, req) => this.#accept(res, req, match));
    }
    this.#app.any('/*', (res, req) => this.#accept(res, req, null));
  }

  #accept(res: HttpResponse, req: HttpRequest, match: Match | null): void {
    const wire = new UwsWire(res, req, match, this.#options);
    res.onAborted(() => wire.aborted());
    wire.exchange = this.#options.accept(wire, match);
  }

  async listen(host: string, port: number, shared: boolean): Promise<number> {
    // Without the exclusive option a second process would share the port (SO_REUSEPORT) and get half of the connections.
    const socket = await new Promise<us_listen_socket | false>((resolve) => {
      // The native call takes (host, port, options, callback), which the package's types lack.
      const listen = this.#app.listen.bind(this.#app) as unknown as (
        host: string,
        port: number,
        options: number,
        callback: (socket: us_listen_socket | false) => void,
      ) => void;
      listen(host, port, shared ? SHARED_PORT : EXCLUSIVE_PORT, resolve);
    });
    if (socket === false) throw await whyNot(host, port);
    this.#listening = socket;
    return this.#uws.us_socket_local_port(socket);
  }

  stopListening(): void {
    if (this.#listening !== null) this.#uws.us_listen_socket_close(this.#listening);
    this.#listening = null;
  }

  async close(): Promise<void> {
    this.stopListening();
    this.#app.close();
  }
}

/** The cause of a failed listen, which uWebSockets.js does not report. */
async function whyNot(host: string, port: number): Promise<OperatorError> {
  return listenError(host, port, (await listenProblem(host, port)) ?? 'EADDRINUSE');
}

/** Creates the transport on uWebSockets.js. */
export function createUwsTransport(uws: Uws, options: TransportOptions): Transport {
  return new UwsTransport(uws, options);
}
