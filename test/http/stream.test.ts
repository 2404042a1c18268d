/** Streaming responses over both transports: sent as written, limited for slow readers, ended by either side. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import pino from 'pino';
import { afterEach, describe, expect, test } from 'vitest';
import { createServer, type HttpServer } from '../../src/http/server.ts';
import type { AnswerStream } from '../../src/http/stream.ts';
import { request } from '../support/http-client.ts';
import { until } from '../support/service.ts';

const open: { stop(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.stop();
});

describe.each(['uws', 'node'] as const)('over %s,', (transport) => {
  let now = 0;
  let stalled = 0;
  const hang = (): Promise<never> => {
    stalled += 1;
    return new Promise(() => undefined);
  };

  /** A server whose one route streams, and the streams that it has opened. */
  async function start(): Promise<{ server: HttpServer; port: number; streams: AnswerStream[] }> {
    now = 0;
    stalled = 0;
    const streams: AnswerStream[] = [];
    const server = await createServer({
      routes: [
        {
          method: 'GET',
          path: '/stream',
          headers: [],
          handle: async () => {
            await new Promise(setImmediate);
            return {
              status: 200,
              contentType: 'text/event-stream',
              headers: { 'X-Accel-Buffering': 'no' },
              filler: ':\n',
              open: (stream) => streams.push(stream),
            };
          },
        },
        { method: 'GET', path: '/hanging', headers: [], handle: () => hang() },
      ],
      transport,
      maxBodyBytes: 1_000,
      maxBodiesBytes: 10_000,
      trustedProxies: 0,
      requestTimeoutMs: 1_000,
      log: pino({ level: 'silent' }),
      now: () => now,
    });
    open.push(server);
    return { server, port: await server.listen('127.0.0.1', 0), streams };
  }

  async function openStream(port: number, streams: AnswerStream[]): Promise<[Reader, AnswerStream]> {
    const before = streams.length;
    const reader = await Reader.open(port, '/stream');
    await until(() => streams.length > before, 'the stream is open');
    const stream = streams.at(-1);
    if (stream === undefined) throw new Error('no stream');
    return [reader, stream];
  }

  test('writes arrive at once and in order, without a Content-Length', async () => {
    const { port, streams } = await start();
    const [reader, stream] = await openStream(port, streams);
    await reader.has(':\n');
    expect(reader.received).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    expect(reader.received).toMatch(/\r\nContent-Type: text\/event-stream\r\n/i);
    expect(reader.received).toMatch(/\r\nX-Accel-Buffering: no\r\n/i);
    expect(reader.received).toMatch(/\r\nCache-Control: no-store, no-transform\r\n/i);
    expect(reader.received).not.toMatch(/content-length|content-encoding/i);
    for (const piece of ['first ✓\n', 'second\n', 'third\n']) {
      stream.write(Buffer.from(piece));
      await reader.has(piece);
    }
    const closed = new Promise<void>((resolve) => stream.whenClosed(resolve));
    stream.end();
    await closed;
    await reader.has('\r\n0\r\n\r\n');
    stream.write(Buffer.from('too late')); // And does nothing.
  });

  test('the deadline of requests does not apply', async () => {
    const { port, streams } = await start();
    const [reader, stream] = await openStream(port, streams);
    const hanging = request(port, { path: '/hanging' });
    await until(() => stalled > 0, 'the other request has arrived');
    now += 3_600_000;
    expect((await hanging).status).toBe(503);
    stream.write(Buffer.from('still here'));
    await reader.has('still here');
  });

  test('a client that disconnects closes it', async () => {
    const { port, streams } = await start();
    const [reader, stream] = await openStream(port, streams);
    let closed = 0;
    stream.whenClosed(() => {
      closed += 1;
    });
    reader.socket.resetAndDestroy();
    await until(() => stream.isClosed, 'the stream is closed');
    stream.write(Buffer.from('for nobody'));
    stream.end();
    expect(closed).toBe(1);
  });

  test('a reader that pauses receives everything in order once it continues', async () => {
    const { port, streams } = await start();
    const [reader, stream] = await openStream(port, streams);
    reader.socket.pause();
    const size = 60_000;
    let written = 0;
    // More than the buffers of the socket, less than the limit.
    for (; written < 60 && !stream.isClosed; written++) {
      stream.write(Buffer.alloc(size, 65 + (written % 26)));
      await new Promise(setImmediate);
    }
    expect(stream.isClosed).toBe(false);
    reader.socket.resume();
    stream.write(Buffer.from('the end'));
    await reader.has('the end');
    const letters = reader.body().replaceAll(':\n', '').replace('the end', '');
    const expected = Array.from({ length: written }, (_, i) =>
      String.fromCharCode(65 + (i % 26)).repeat(size),
    );
    expect(letters === expected.join('')).toBe(true);
  });

  test('a reader that does not read is disconnected at a limit, and another stream is not delayed', async () => {
    const { port, streams } = await start();
    const [slow, slowStream] = await openStream(port, streams);
    const [quick, quickStream] = await openStream(port, streams);
    slow.socket.pause();
    const before = process.memoryUsage().arrayBuffers;
    let written = 0;
    for (; !slowStream.isClosed && written < 2_000; written++) {
      const piece = Buffer.alloc(50_000, 66);
      slowStream.write(piece);
      quickStream.write(piece);
      await new Promise(setImmediate);
    }
    expect(slowStream.isClosed).toBe(true);
    expect(written).toBeLessThan(2_000);
    quickStream.write(Buffer.from('on time'));
    await quick.has('on time');
    expect(quickStream.isClosed).toBe(false);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(200 * 1_048_576);
  });

  test('a stop ends it at once', async () => {
    const { server, port, streams } = await start();
    const [reader, stream] = await openStream(port, streams);
    const late = await Reader.open(port, '/stream'); // Perhaps still on its way when the stop begins.
    const stopped = server.stop();
    await stopped;
    await Promise.all([reader.ended(), late.ended()]);
    expect(stream.isClosed).toBe(true);
    expect(streams.every(({ isClosed }) => isClosed)).toBe(true);
    expect(reader.received.endsWith('0\r\n\r\n')).toBe(true);
  });

  test('the response to HEAD is the head', async () => {
    const { port, streams } = await start();
    const response = await request(port, { method: 'HEAD', path: '/stream' });
    expect(response.status).toBe(200);
    expect(response.headers['content-type']).toBe('text/event-stream');
    expect(streams).toEqual([]);
  });
});

/** Reads a chunked answer as it comes. */
class Reader {
  readonly socket: Socket;
  received = '';
  #isOver = false;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.setEncoding('latin1');
    socket.on('data', (text: string) => {
      this.received += text;
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.#isOver = true;
    });
  }

  static async open(port: number, path: string): Promise<Reader> {
    const socket = connect({ host: '127.0.0.1', port });
    await once(socket, 'connect');
    const reader = new Reader(socket);
    socket.write(`GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
    return reader;
  }

  has(text: string): Promise<void> {
    const bytes = Buffer.from(text).toString('latin1');
    return until(() => this.received.includes(bytes), `the client has ${JSON.stringify(text)}`);
  }

  ended(): Promise<void> {
    return until(() => this.#isOver, 'the connection has ended');
  }

  /** What the chunks hold. */
  body(): string {
    let rest = this.received.slice(this.received.indexOf('\r\n\r\n') + 4);
    let body = '';
    for (;;) {
      const [, size = ''] = /^([0-9a-f]+)\r\n/i.exec(rest) ?? [];
      const length = Number.parseInt(size, 16);
      if (size === '' || length === 0) return body;
      body += rest.slice(size.length + 2, size.length + 2 + length);
      rest = rest.slice(size.length + 2 + length + 2);
    }
  }
}
