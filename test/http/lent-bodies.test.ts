/** Bodies whose memory is used anew once they were sent, over both transports. */
import { once } from 'node:events';
import { connect } from 'node:net';
import pino from 'pino';
import { afterEach, describe, expect, test } from 'vitest';
import { createServer, type HttpServer } from '../../src/http/server.ts';
import { until } from '../support/service.ts';

const open: HttpServer[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.stop();
});

const LONG = 16 * 1_048_576;

describe.each(['uws', 'node'] as const)('over %s,', (transport) => {
  let asked = 0;
  let sent = 0;

  /** Answers with so many bytes, which are others as soon as they were sent. */
  async function start(bytes: number): Promise<number> {
    asked = 0;
    sent = 0;
    const server = await createServer({
      routes: [
        {
          method: 'GET',
          path: '/',
          headers: [],
          handle: async () => {
            await new Promise(setImmediate);
            const body = Buffer.alloc(bytes, 'x');
            const onSent = (): void => {
              body.fill('o');
              sent += 1;
            };
            asked += 1;
            return { status: 200, body, onSent };
          },
        },
      ],
      ...{ transport, maxBodyBytes: 1_000, maxBodiesBytes: 10_000, trustedProxies: 0 },
      ...{ requestTimeoutMs: 1_000, log: pino({ level: 'silent' }), now: () => 0 },
    });
    open.push(server);
    return await server.listen('127.0.0.1', 0);
  }

  test.each([0, 1, 300, 70_000])('%s bytes arrive as they were, and are given back once', async (bytes) => {
    const port = await start(bytes);
    for (let request = 1; request <= 3; request += 1) {
      const response = await fetch(`http://127.0.0.1:${port}/`);
      expect(await response.text()).toBe('x'.repeat(bytes));
      await until(() => bytes === 0 || sent === request, 'the memory is free');
    }
  });

  test('memory stays what it is until a slow reader has all of it', async () => {
    const port = await start(LONG);
    const socket = connect(port, '127.0.0.1').pause();
    await once(socket, 'connect');
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    await until(() => asked === 1, 'the response begins');
    // Other responses are sent meanwhile.
    const { status } = await fetch(`http://127.0.0.1:${port}/other`);
    expect([status, sent]).toEqual([404, 0]);
    const parts: Buffer[] = [];
    let length = 0;
    socket.on('data', (part: Buffer) => {
      parts.push(part);
      length += part.length;
    });
    socket.resume();
    await until(() => length > LONG, 'all of it');
    const received = Buffer.concat(parts);
    expect(received.subarray(received.indexOf('\r\n\r\n') + 4).equals(Buffer.alloc(LONG, 'x'))).toBe(true);
    await until(() => sent === 1, 'the memory is free');
    socket.destroy();
  });

  test('memory of a response whose client left is not given back', async () => {
    const port = await start(LONG);
    const socket = connect(port, '127.0.0.1').pause();
    await once(socket, 'connect');
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    await until(() => asked === 1, 'the response begins');
    socket.destroy();
    expect((await fetch(`http://127.0.0.1:${port}/other`)).status).toBe(404);
    expect(sent).toBe(0);
  });
});
