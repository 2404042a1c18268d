import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { runClosedLoop } from '../../bench/load/closed-loop.ts';
import { parseResponse, runOpenLoop } from '../../bench/load/open-loop.ts';
import { runSilentBodies } from '../../bench/load/silent-bodies.ts';

const servers: Server[] = [];

/** A server that answers 201 with an id after this many milliseconds, and keeps the bodies. */
async function serve(
  delayMs: (request: number) => number,
): Promise<{ port: number; bodies: string[]; answered: () => number }> {
  const bodies: string[] = [];
  let requests = 0;
  let answered = 0;
  const server = createServer((request, response) => {
    const mine = requests++;
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk;
    });
    request.on('end', () => {
      bodies.push(body);
      setTimeout(() => {
        answered += 1;
        const id = `019a0000-0000-7000-8000-0000${mine.toString(16).padStart(8, '0')}`;
        const text = `{"success":true,"eventId":"${id}"}`;
        response.writeHead(201, { 'Content-Length': text.length }).end(text);
      }, delayMs(mine));
    });
  });
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no TCP port');
  return { port: address.port, bodies, answered: () => answered };
}

afterEach(() => {
  for (const server of servers.splice(0)) server.closeAllConnections();
});

const noGlobals = (): number => 0;

describe('open loop', () => {
  const job = { kind: 'open', seconds: 1, perSecond: 200, warmUpSeconds: 0 } as const;
  const post = { method: 'POST', path: '/', body: '{"n":{n}}' } as const;

  test('a stall is felt by everybody who would have come meanwhile', async () => {
    // One request holds the only connection for 400 ms: some 80 others are due by then.
    const { port } = await serve((request) => (request === 50 ? 400 : 0));
    const report = await runOpenLoop({ ...job, port, connections: 1, requests: [post] }, noGlobals);
    expect(report.statuses).toEqual({ 201: 200 });
    expect(report.latency?.max).toBeGreaterThan(399);
    // One slow answer in 200 alone would leave the 99th percentile where it was.
    expect(report.latency?.p99).toBeGreaterThan(200);
  });

  test('numbers in bodies are never used twice, and what was acknowledged is summed up', async () => {
    const { port, bodies } = await serve(() => 0);
    const report = await runOpenLoop({ ...job, port, connections: 8, requests: [post, post] }, noGlobals);
    expect(new Set(bodies).size).toBe(200);
    // 0 + 1 + … + 199
    expect(report.acknowledged).toEqual({ events: 200, idSum: 19_900 });
    expect(report.unanswered).toBe(0);
  });

  test('a connection that the server has closed meanwhile is not used again', async () => {
    const { port } = await serve(() => 0);
    const closing = setInterval(() => {
      for (const server of servers) server.closeIdleConnections();
    }, 101);
    const slow = { ...job, perSecond: 20, port, connections: 8, requests: [post] };
    const report = await runOpenLoop(slow, noGlobals);
    clearInterval(closing);
    expect(report.statuses).toEqual({ 201: 20 });
  });

  test('what was due and never sent is said, and counts as slow', async () => {
    const { port } = await serve(() => 3_000);
    const report = await runOpenLoop(
      { ...job, perSecond: 20, port, connections: 1, requests: [post] },
      noGlobals,
    );
    expect(report.statuses).toEqual({ 201: 1 });
    expect(report.dropped).toBe(19);
    expect(report.latency?.p50).toBeGreaterThan(1_500);
  });
});

test('a closed loop ends with an answer to every request', async () => {
  const { port, bodies, answered } = await serve((request) => request % 7);
  const requests = [{ method: 'POST', path: '/', body: '{}' } as const];
  const report = await runClosedLoop(
    { kind: 'closed', port, connections: 16, seconds: 0.5, requests },
    noGlobals,
  );
  expect(report.unanswered).toBe(0);
  expect(report.statuses).toEqual({ 201: answered() });
  expect(report.acknowledged.events).toBe(bodies.length);
});

test('a response is complete when its length has come', () => {
  const whole = 'HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nabcd';
  expect(parseResponse(Buffer.from(whole))).toEqual({ status: 429, body: 'abcd' });
  expect(parseResponse(Buffer.from(whole.slice(0, -1)))).toBeNull();
  expect(parseResponse(Buffer.from('HTTP/1.1 201 Created\r\nContent'))).toBeNull();
});

describe('silent bodies', () => {
  const job = {
    kind: 'silent',
    connections: 3,
    seconds: 1,
    announcedBytes: 1_000,
    againMs: 20,
    requests: [{ method: 'POST', path: '/api/session' }],
  } as const;

  test('come to within a byte of what they announce, and stay', async () => {
    const received: number[] = [];
    const server = createServer((request) => {
      const index = received.push(0) - 1;
      request.on('data', (chunk: Buffer) => {
        received[index] = (received[index] ?? 0) + chunk.length;
      });
    });
    servers.push(server);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const report = await runSilentBodies({ ...job, port: (server.address() as AddressInfo).port });
    expect(received).toEqual([999, 999, 999]);
    expect(report).toMatchObject({ statuses: {}, unanswered: 3 });
  });

  test('begin again when they are refused, and say how often', async () => {
    const server = createServer((_request, response) => {
      response.writeHead(408, { 'Content-Length': 2, Connection: 'close' }).end('{}');
    });
    servers.push(server);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { statuses } = await runSilentBodies({ ...job, port: (server.address() as AddressInfo).port });
    expect(statuses[408]).toBeGreaterThan(3);
  });
});
