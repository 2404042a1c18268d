/** The transport on node:http, for Node versions and platforms without a binary of uWebSockets.js. */
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, Server as NetServer, type Socket } from 'node:net';
import { Rejection } from '../errors.ts';
import type { Exchange, Wire } from './exchange.ts';
import type { SlowPeer } from './slow-peers.ts';
import { statusLine } from './status.ts';
import type { StreamWire } from './stream.ts';
import { listenError, type Transport, type TransportOptions } from './transport.ts';

class NodeWire implements Wire {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly remoteAddress: string;
  exchange: Exchange | null = null;
  readonly #req: IncomingMessage;
  readonly #res: ServerResponse;
  readonly #options: TransportOptions;
  #unsent = 0;
  #moved = 0;

  constructor(req: IncomingMessage, res: ServerResponse, options: TransportOptions) {
    this.#req = req;
    this.#res = res;
    this.#options = options;
    const url = req.url ?? '/';
    const mark = url.indexOf('?');
    this.remoteAddress = req.socket.remoteAddress ?? '';
    this.method = req.method ?? 'GET';
    this.path = mark < 0 ? url : url.slice(0, mark);
    this.query = mark < 0 ? '' : url.slice(mark + 1);
  }

  header(name: string): string {
    const value = this.#req.headers[name];
    return value === undefined ? '' : String(value);
  }

  prefixedHeaders(): ReadonlyMap<string, string> {
    const match = this.#options.router.match(this.method, this.path);
    const prefix = 'route' in match ? match.route.headerPrefix : undefined;
    if (prefix === undefined) return new Map();
    const names = Object.keys(this.#req.headers).filter((name) => name.startsWith(prefix));
    // Node gives each byte as a character.
    const text = (value: string): string => Buffer.from(value, 'latin1').toString('utf8');
    return new Map(names.map((name) => [name, text(this.header(name))]));
  }

  readBody(onChunk: (chunk: Buffer, last: boolean) => void): void {
    const req = this.#req;
    // With Content-Length the last chunk is known at once: most bodies are one chunk.
    let missing = Number(req.headers['content-length']);
    let hasEnded = false;
    req.on('data', (chunk: Buffer) => {
      missing -= chunk.length;
      hasEnded = missing === 0;
      onChunk(chunk, hasEnded);
    });
    req.on('end', () => {
      if (!hasEnded) onChunk(EMPTY, true);
    });
  }

  pauseBody(): void {
    this.#req.pause();
  }

  resumeBody(): void {
    this.#req.resume();
  }

  respond(
    status: number,
    headers: string,
    body: string | Buffer,
    bytes: number,
    close: boolean,
    onSent?: () => void,
  ): void {
    const req = this.#req;
    const res = this.#res;
    const lines = headerList(headers);
    if (close) lines.push('Connection', 'close');
    lines.push('Content-Length', String(bytes));
    res.writeHead(status, lines);
    if (onSent !== undefined) res.once('finish', onSent);
    if (this.method === 'HEAD') res.end();
    else if (bytes > CHUNK_BYTES) this.#send(typeof body === 'string' ? Buffer.from(body) : body, 0);
    // Text joins the head in one write. As many bytes as characters: it is ASCII.
    else res.end(body, bytes === body.length ? 'latin1' : 'utf8');
    if (close) res.once('finish', () => req.destroy());
    else if (!req.complete) req.resume();
    if (res.writableLength === 0 && req.complete) return;
    if (bytes <= CHUNK_BYTES) this.#countUnsent(res.writableLength);
    this.#waitForPeer();
  }

  /** In chunks, each after the last was sent, so that unsent bytes and the reader's pace are known. */
  #send(body: Buffer, from: number): void {
    const res = this.#res;
    for (let start = from; ; start += CHUNK_BYTES) {
      if (start + CHUNK_BYTES >= body.length) {
        this.#countUnsent(body.length - start);
        res.end(body.subarray(start));
        return;
      }
      if (!res.write(body.subarray(start, start + CHUNK_BYTES))) {
        this.#countUnsent(body.length - start);
        res.once('drain', () => this.#send(body, start + CHUNK_BYTES));
        return;
      }
    }
  }

  #countUnsent(bytes: number): void {
    this.#moved += Math.max(0, this.#unsent - bytes);
    this.#options.onUnsentBytes(bytes - this.#unsent);
    this.#unsent = bytes;
  }

  /** Measures the peer until the response is sent and the request's body has ended. */
  #waitForPeer(): void {
    const req = this.#req;
    const res = this.#res;
    const { slowPeers } = this.#options;
    const peer: SlowPeer = {
      moved: () => this.#moved + req.socket.bytesRead,
      cut: () => {
        req.socket.destroy();
        // Node does not report the end of a response that waits for an earlier one of its connection.
        this.closed();
      },
    };
    slowPeers.add(peer);
    const check = (): void => {
      if (req.socket.destroyed || (res.writableFinished && req.complete)) slowPeers.delete(peer);
    };
    for (const emitter of [req, res]) emitter.once('close', check);
    req.once('end', check);
  }

  stream(status: number, headers: string, filler: string, onClosed: () => void): StreamWire {
    const res = this.#res;
    res.writeHead(status, headerList(headers));
    if (filler === '') res.flushHeaders();
    else res.write(filler);
    const stream = new NodeStream(res, this.#options.onUnsentBytes);
    res.once('close', () => {
      stream.countUnsent();
      onClosed();
    });
    res.on('drain', () => stream.drained());
    return stream;
  }

  /** The response has been handed to the system, or the connection is closed. */
  closed(): void {
    if (this.#unsent > 0) this.#countUnsent(0);
    if (!this.#res.writableFinished) this.exchange?.abort();
  }

  /** Refuses a request that is not valid HTTP. */
  refuse(): void {
    this.exchange?.closeAfterAnswer();
    this.exchange?.answer(MALFORMED);
  }

  /**
   * The data after this request's head is not valid HTTP. If its body is incomplete, it is refused; else its response is
   * sent first, or the client would take the refusal for that response.
   */
  breakOff(refuseNext: () => void): void {
    if (this.#res.writableFinished) refuseNext();
    else if (this.#req.complete) this.#res.once('finish', refuseNext);
    else this.refuse();
  }
}

/** Header lines joined by CR LF → alternating names and values. */
function headerList(headers: string): string[] {
  const list: string[] = [];
  for (let start = 0; start < headers.length; ) {
    const colon = headers.indexOf(': ', start);
    const found = headers.indexOf('\r\n', colon);
    const end = found < 0 ? headers.length : found;
    list.push(headers.slice(start, colon), headers.slice(colon + 2, end));
    start = end + 2;
  }
  return list;
}

class NodeStream implements StreamWire {
  readonly #res: ServerResponse;
  readonly #onUnsentBytes: (change: number) => void;
  #counted = 0;
  #onTaken: (() => void) | null = null;

  constructor(res: ServerResponse, onUnsentBytes: (change: number) => void) {
    this.#res = res;
    this.#onUnsentBytes = onUnsentBytes;
  }

  get unsentBytes(): number {
    return this.#res.destroyed ? 0 : this.#res.writableLength;
  }

  countUnsent(): void {
    const bytes = this.unsentBytes;
    this.#onUnsentBytes(bytes - this.#counted);
    this.#counted = bytes;
  }

  write(bytes: Buffer): void {
    if (this.#res.destroyed) return;
    this.#res.write(bytes);
    this.countUnsent();
  }

  whenTaken(listener: () => void): void {
    if (this.#res.writableNeedDrain) this.#onTaken = listener;
    else listener();
  }

  drained(): void {
    this.countUnsent();
    this.#onTaken?.();
    this.#onTaken = null;
  }

  end(): void {
    this.#res.end();
  }

  destroy(): void {
    this.#res.destroy();
  }
}

const EMPTY = Buffer.alloc(0);
const ignore = (): void => undefined;
const CHUNK_BYTES = 32_768;
const MALFORMED = new Rejection('invalidParameters', 'The request is not valid HTTP.');

/** Milliseconds after which an idle connection is closed: longer than usual proxies keep theirs (Caddy: 2 minutes). */
const KEEP_ALIVE_MS = 130_000;

class NodeTransport implements Transport {
  readonly #server: Server;
  /** The latest request of each connection. */
  readonly #newest = new WeakMap<Socket, NodeWire>();

  constructor(options: TransportOptions) {
    // Node's own error responses have no body, so most of its checks are disabled and done below.
    this.#server = createServer({
      keepAliveTimeout: KEEP_ALIVE_MS,
      headersTimeout: 10_000,
      // Interval of the check of headersTimeout; Node's default is 30 seconds.
      connectionsCheckingInterval: 1_000,
      requestTimeout: 0,
      requireHostHeader: false,
    });
    this.#server.on('error', (error) => {
      // Before it listens, `listen` reports the error.
      if (this.#server.listening) options.onAcceptError(error);
    });
    const accept = (req: IncomingMessage, res: ServerResponse): void => {
      // An unhandled 'error' would end the process; the 'close' that follows is handled. A request without a listener has none.
      res.on('error', ignore);
      // Data after a request with an unknown end is not a request; its response closes the connection.
      if (this.#newest.get(req.socket)?.exchange?.isFramed === false) return;
      const wire = new NodeWire(req, res, options);
      this.#newest.set(req.socket, wire);
      res.on('close', () => wire.closed());
      wire.exchange = options.accept(wire, null);
      if (req.headers.host === undefined && req.httpVersion === '1.1') wire.refuse();
    };
    this.#server.on('request', accept);
    this.#server.on('checkExpectation', accept);
    this.#server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
      const newest = this.#newest.get(socket);
      if (error.code === 'ECONNRESET' || !socket.writable) socket.destroy();
      else if (newest === undefined) refuseMalformed(error, socket);
      else newest.breakOff(() => refuseMalformed(error, socket));
    });
  }

  listen(host: string, port: number, shared: boolean): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', (error: NodeJS.ErrnoException) =>
        reject(listenError(host, port, error.code ?? error.message)),
      );
      // In a worker the primary process listens and distributes connections (node:cluster).
      // A listening server's address is an AddressInfo unless it is a pipe, which this one never is.
      this.#server.listen({ port, host, exclusive: !shared }, () =>
        resolve((this.#server.address() as AddressInfo).port),
      );
    });
  }

  stopListening(): void {
    // http.Server.close would also close connections whose next request has arrived and is not read yet.
    NetServer.prototype.close.call(this.#server);
  }

  async close(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

/** Responds with the API's error body to data that is not HTTP. */
function refuseMalformed(error: NodeJS.ErrnoException, socket: Socket): void {
  if (!socket.writable) return;
  const status = error.code === 'HPE_HEADER_OVERFLOW' ? 431 : 400;
  const body = MALFORMED.body;
  socket.end(
    `HTTP/1.1 ${statusLine(status)}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n` +
      `Cache-Control: no-store\r\nX-Request-Id: ${randomUUID()}\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
}

/** Creates the transport on node:http. */
export function createNodeTransport(options: TransportOptions): Transport {
  return new NodeTransport(options);
}
