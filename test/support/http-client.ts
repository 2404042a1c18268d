/** HTTP by the byte: what a polite client would never send, cut wherever a test wants it cut. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { checkAnswer } from './described.ts';

export interface HttpResponse {
  readonly status: number;
  /** By lower-case name; the values of a repeated header are joined by a comma. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface HttpRequest {
  readonly method?: string;
  readonly path?: string;
  /** In place of the usual ones where a name is given again; null leaves one out. */
  readonly headers?: Readonly<Record<string, string | null>>;
  readonly body?: string | Buffer;
  /** How long the response may take, in milliseconds. */
  readonly timeoutMs?: number;
}

/** The server ended the connection before a whole response had come. */
class ConnectionEnded extends Error {
  /** What had come until then. */
  readonly received: string;

  constructor(received: Buffer) {
    super(`The server ended the connection after ${received.length} bytes of a response.`);
    this.received = received.toString('latin1');
  }
}

/** How long a response may take before the test fails. */
const TIMEOUT_MS = 20_000;

/** One connection. Responses are read in their order, one call each. */
export class HttpConnection {
  readonly #socket: Socket;
  #received = Buffer.alloc(0);
  #over = false;
  #wake: (() => void) | null = null;
  /** Requests without their response yet, as far as they are known; null from the first bytes on that may be anything. */
  #sent: HttpRequest[] | null = [];

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on('data', (chunk) => {
      this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
      this.#wake?.();
    });
    socket.on('error', () => undefined); // 'close' follows; what had come before stays readable.
    socket.on('close', () => this.#end());
    socket.on('end', () => this.#end());
  }

  /** @param from the address of this end: all of 127.0.0.0/8 are this machine's */
  static async open(port: number, from = '127.0.0.1'): Promise<HttpConnection> {
    // Half-open: the server's end must not end what we are still sending.
    const socket = connect({ host: '127.0.0.1', port, localAddress: from, allowHalfOpen: true });
    await once(socket, 'connect');
    return new HttpConnection(socket);
  }

  /** Resolves when the bytes have been handed to the system, or the connection has ended. */
  write(bytes: string | Uint8Array): Promise<void> {
    this.#sent = null;
    return this.#write(bytes);
  }

  #write(bytes: string | Uint8Array): Promise<void> {
    return new Promise((resolve) => {
      this.#socket.write(bytes, () => resolve());
    });
  }

  /** Sends pieces one after the other, each in a packet of its own as far as the system lets us. */
  async writePieces(pieces: Iterable<Uint8Array>): Promise<void> {
    for (const piece of pieces) {
      await this.write(piece);
      await new Promise(setImmediate);
    }
  }

  /** Sends a request; {@link response} gives its answer, and holds it to the API's description. */
  send(request: HttpRequest): Promise<void> {
    this.#sent?.push(request);
    return this.#write(requestBytes(request));
  }

  /**
   * The next response.
   * @param toHead the request was HEAD: its response has no body whatever its Content-Length says
   * @throws ConnectionEnded
   */
  async response(toHead = false, timeoutMs = TIMEOUT_MS): Promise<HttpResponse> {
    const deadline = Date.now() + timeoutMs;
    for (;;) {
      const parsed = parseResponse(this.#received, toHead, this.#over);
      if (parsed !== null) {
        this.#received = this.#received.subarray(parsed.bytes);
        if (parsed.response.status < 200) continue;
        const request = this.#sent?.shift();
        if (request !== undefined) checkAnswer(request, parsed.response);
        return parsed.response;
      }
      if (this.#over) throw new ConnectionEnded(this.#received);
      await this.#news(deadline);
    }
  }

  /** Resolves with what came since the last response once the server has ended the connection. */
  async ended(): Promise<string> {
    const deadline = Date.now() + TIMEOUT_MS;
    while (!this.#over) await this.#news(deadline);
    return this.#received.toString('latin1');
  }

  get isOver(): boolean {
    return this.#over;
  }

  /** Says that no more will be sent. */
  end(): void {
    this.#socket.end();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  /** Ends the connection as a crashed client's would: with a reset. */
  reset(): void {
    this.#socket.resetAndDestroy();
  }

  #end(): void {
    this.#over = true;
    this.#wake?.();
  }

  async #news(deadline: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve, reject) => {
      timer = setTimeout(
        () => reject(new Error('The server did not answer in time.')),
        deadline - Date.now(),
      );
      this.#wake = resolve;
    }).finally(() => clearTimeout(timer));
    this.#wake = null;
  }
}

/** Sends one request on a connection of its own. */
export async function request(port: number, options: HttpRequest): Promise<HttpResponse> {
  const connection = await HttpConnection.open(port);
  try {
    await connection.send(options);
    return await connection.response(options.method === 'HEAD', options.timeoutMs);
  } finally {
    connection.destroy();
  }
}

/** A request as bytes. With a body it has a Content-Length unless the headers leave it out. */
export function requestBytes({ method = 'GET', path = '/', headers = {}, body }: HttpRequest): Buffer {
  const bytes = Buffer.from(body ?? '');
  const usual: Record<string, string | null> = { Host: '127.0.0.1' };
  if (body !== undefined) {
    usual['Content-Type'] = 'application/json';
    usual['Content-Length'] = String(bytes.length);
  }
  const lines = Object.entries({ ...usual, ...headers })
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.concat([Buffer.from(`${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`), bytes]);
}

/** One chunk of a chunked body; of no bytes it is the last one. */
export function chunk(bytes: Uint8Array | string): Buffer {
  const data = Buffer.from(bytes as Uint8Array);
  return Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n')]);
}

/** What a response in chunks ends with. */
const LAST_CHUNK = Buffer.from('\r\n0\r\n\r\n');

/** The first response in the bytes, null where more must come. One in chunks, which are not put together, must be the last. */
function parseResponse(
  bytes: Buffer,
  toHead: boolean,
  over: boolean,
): { response: HttpResponse; bytes: number } | null {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd < 0) return null;
  const [statusLine = '', ...lines] = bytes.toString('latin1', 0, headEnd).split('\r\n');
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    headers[name] = headers[name] === undefined ? value : `${headers[name]}, ${value}`;
  }
  const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(statusLine)?.[1]);
  const start = headEnd + 4;
  const bodiless = toHead || status < 200 || status === 204 || status === 304;
  const announced = headers['content-length'];
  const isWhole = over || bytes.subarray(-LAST_CHUNK.length).equals(LAST_CHUNK);
  if (!bodiless && announced === undefined && !isWhole) return null;
  const length = bodiless ? 0 : announced === undefined ? bytes.length - start : Number(announced);
  if (bytes.length < start + length) return null;
  const body = bytes.toString('utf8', start, start + length);
  return { response: { status, headers, body }, bytes: start + length };
}
