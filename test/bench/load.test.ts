import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { afterEach, describe, expect, test } from 'vitest';
import { runOpenLoop } from '../../bench/load/open-loop.ts';

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
});
