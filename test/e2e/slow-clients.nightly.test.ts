/** Hundreds of clients that take their time, against a real server: the others do not notice, and the slow ones are cut off. */
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { tidemark } from '../support/command-line.ts';
import { goodTraffic, type Latency, residentMiB, span } from '../support/good-traffic.ts';
import { requestBytes } from '../support/http-client.ts';
import { patient } from '../support/patience.ts';
import { until } from '../support/service.ts';
import { Installation, type ServerProcess } from './server-process.ts';

vi.setConfig({ testTimeout: patient(120_000), hookTimeout: patient(60_000) });

const CLIENTS = 300;
/** Idle connections are ended after 10 s by uWebSockets.js, after 130 s by node: what is measured here is not idle. */
const REQUEST_TIMEOUT_SECONDS = 5;
/** Ten seconds for heads, five for bodies and answers, and what a sweep and a busy machine add. */
const CUT_WITHIN_MS = 25_000;
const DRIBBLE_MS = 250;

/** One slow client: what it sends at once and then byte by byte, and whether it reads. */
interface Manner {
  readonly atOnce: Buffer;
  readonly dribbled: Buffer;
  readonly reads: boolean;
}

const ESTABLISHED = '01';

/** The other ends' ports of the connections to a port of this machine, as the kernel lists them. */
function establishedTo(port: number): Set<number> {
  const rows = readFileSync('/proc/net/tcp', 'utf8').split('\n').slice(1);
  const own = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const remotePorts = rows
    .map((row) => row.trim().split(/\s+/))
    .filter(([, local, , state]) => local?.endsWith(own) && state === ESTABLISHED)
    .map(([, , remote]) => Number.parseInt(remote?.split(':')[1] ?? '', 16));
  return new Set(remotePorts);
}

class SlowClients {
  readonly #port: number;
  readonly #sockets: Socket[];
  readonly #dribbling: NodeJS.Timeout;

  constructor(port: number, count: number, { atOnce, dribbled, reads }: Manner) {
    this.#port = port;
    this.#sockets = Array.from({ length: count }, () => {
      const socket = connect({ host: '127.0.0.1', port });
      socket.on('error', () => undefined);
      if (reads) socket.resume();
      else socket.pause();
      socket.write(atOnce);
      return socket;
    });
    let sent = 0;
    this.#dribbling = setInterval(() => {
      for (const socket of this.#sockets)
        if (socket.writable) socket.write(dribbled.subarray(sent, sent + 1));
      sent = Math.min(sent + 1, dribbled.length);
    }, DRIBBLE_MS);
  }

  /** How many the server has not ended: it alone is asked, as who does not read learns of nothing. */
  get open(): number {
    const held = establishedTo(this.#port);
    return this.#sockets.filter(({ localPort }) => localPort !== undefined && held.has(localPort)).length;
  }

  end(): void {
    clearInterval(this.#dribbling);
    for (const socket of this.#sockets) socket.destroy();
  }
}

describe.each(['uws', 'node'] as const)('over %s,', (transport) => {
  let installation: Installation;
  let server: ServerProcess;
  let loggingToken: string;
  let pagePath: string;
  let authorization: string;
  /** The same without slow clients: what else the machine does meanwhile, both notice. */
  let undisturbed: { installation: Installation; port: number; loggingToken: string };

  beforeAll(async () => {
    const settings = {
      LOG_LEVEL: 'fatal',
      HTTP_TRANSPORT: transport,
      READ_LIMIT_PER_MINUTE: '0',
      REQUEST_TIMEOUT_SECONDS: String(REQUEST_TIMEOUT_SECONDS),
    };
    installation = await Installation.make();
    server = await installation.start(settings);
    const app = await installation.makeApp();
    loggingToken = app.loggingToken;
    const other = await Installation.make();
    const { port } = await other.start(settings);
    undisturbed = { installation: other, port, loggingToken: (await other.makeApp()).loggingToken };
    const { stdout } = await tidemark(
      ['token', 'create', '--name', 'Reader', '--app', app.appId, '--json'],
      installation.settings,
    );
    authorization = `Bearer ${JSON.parse(stdout).resourceToken}`;
    pagePath = `/public/get_events?appId=${app.appId}&limit=1000`;
    await store(1_000, 8_000);
  });
  afterAll(async () => {
    await installation.remove();
    await undisturbed?.installation.remove();
  });

  const store = async (events: number, bytes: number): Promise<void> => {
    const payload = { filler: 'x'.repeat(bytes) };
    const body = JSON.stringify({ loggingToken, typeName: 'large', payload });
    const post = async (): Promise<number> => {
      const url = `http://127.0.0.1:${server.port}/public/create_event`;
      return (await fetch(url, { method: 'POST', body })).status;
    };
    for (let stored = 0; stored < events; stored += 50) {
      const statuses = await Promise.all(Array.from({ length: 50 }, post));
      expect(new Set(statuses)).toEqual(new Set([201]));
    }
  };

  const read = async (): Promise<number> => {
    const response = await fetch(`http://127.0.0.1:${server.port}${pagePath}`, {
      headers: { Authorization: authorization },
    });
    await response.arrayBuffer();
    return response.status;
  };

  /** Good traffic beside slow clients, and at a server without any, from the moment that they are settled until the server has ended all of them. */
  const beside = async (
    manner: Manner,
    settled: (clients: SlowClients) => Promise<void>,
  ): Promise<{ latency: Latency; usual: Latency; grownMiB: number }> => {
    const before = residentMiB(server.pid);
    let most = before;
    const clients = new SlowClients(server.port, CLIENTS, manner);
    try {
      await settled(clients);
      const wereCutOff = async (): Promise<boolean> => {
        await span(100);
        most = Math.max(most, residentMiB(server.pid));
        return clients.open === 0;
      };
      const cutOff = until(wereCutOff, 'the server has ended every slow client', CUT_WITHIN_MS);
      const [latency, usual] = await Promise.all([
        goodTraffic(server.port, loggingToken, () => cutOff),
        goodTraffic(undisturbed.port, undisturbed.loggingToken, () => cutOff),
      ]);
      return { latency, usual, grownMiB: most - before };
    } finally {
      clients.end();
    }
  };

  const allConnected = (clients: SlowClients): Promise<void> =>
    until(() => clients.open === CLIENTS, 'every slow client is connected');
  /** The turn of each has come or its deadline has passed, as that of one more that asked after them. */
  const allServed = async (clients: SlowClients): Promise<void> => {
    await allConnected(clients);
    await read();
  };

  const expectUnharmed = (slow: Latency, usual: Latency): void => {
    expect(slow.requests).toBeGreaterThan(100);
    expect(slow.p99).toBeLessThan(5 * usual.p99 + 20);
  };

  const head = requestBytes({
    method: 'POST',
    path: '/public/create_event',
    headers: { 'Content-Length': '1000' },
  });

  test('security 19: heads that come byte by byte harm nobody, and are cut off', async () => {
    const { latency, usual, grownMiB } = await beside(
      {
        atOnce: head.subarray(0, 20),
        dribbled: Buffer.from(`\r\nX-Filler: ${'x'.repeat(2_000)}`),
        reads: true,
      },
      allConnected,
    );
    expectUnharmed(latency, usual);
    expect(grownMiB).toBeLessThan(60);
  });

  test('security 19: bodies that come byte by byte harm nobody, and are cut off', async () => {
    const { latency, usual, grownMiB } = await beside(
      {
        atOnce: head,
        dribbled: Buffer.from(`{"loggingToken":"${'x'.repeat(980)}`),
        reads: true,
      },
      allConnected,
    );
    expectUnharmed(latency, usual);
    expect(grownMiB).toBeLessThan(60);
  });

  test('security 19: bodies that were refused and go on byte by byte harm nobody, and are cut off', async () => {
    const refusedHead = requestBytes({
      method: 'POST',
      path: '/nowhere',
      headers: { 'Content-Length': '100000' },
    });
    const { latency, usual, grownMiB } = await beside(
      {
        atOnce: refusedHead,
        dribbled: Buffer.alloc(10_000, 'x'),
        reads: true,
      },
      allConnected,
    );
    expectUnharmed(latency, usual);
    expect(grownMiB).toBeLessThan(60);
  });

  test('security 19: readers of large pages that do not read harm no producer, and are cut off', async () => {
    // Those that are refused, as their turn does not come in time, are no slow readers: they are closed with the answer.
    const headers = { Authorization: authorization, Connection: 'close' };
    const page = requestBytes({ path: pagePath, headers });
    const { latency, usual, grownMiB } = await beside(
      { atOnce: page, dribbled: Buffer.alloc(0), reads: false },
      allServed,
    );
    expectUnharmed(latency, usual);
    // 300 pages of 8 MB would be 2,400: 64 may wait, four are being read, and their garbage is collected in time.
    expect(grownMiB).toBeLessThan(400);
    await until(async () => (await read()) === 200, 'pages are read again');
  });

  test('security 19: who asks on and on without reading piles up no answers', async () => {
    const index = await (await fetch(`http://127.0.0.1:${server.port}/`)).text();
    const path = /\/assets\/[^"]+\.css/.exec(index)?.[0];
    const file = await (await fetch(`http://127.0.0.1:${server.port}${path}`)).arrayBuffer();
    expect(file.byteLength).toBeGreaterThan(10_000);
    const asked = requestBytes({ path: path ?? '' });
    const before = residentMiB(server.pid);
    const socket = connect({ host: '127.0.0.1', port: server.port });
    let isOver = false;
    socket
      .on('error', () => undefined)
      .on('close', () => {
        isOver = true;
      });
    socket.pause();
    // As many as would be 60 MiB; each asked for when the one before has been answered, or has had the time for it.
    for (let answers = 0; answers * file.byteLength < 60 * 1_048_576 && !isOver; answers += 1) {
      socket.write(asked);
      await span(3);
    }
    expect(residentMiB(server.pid) - before).toBeLessThan(25);
    socket.destroy();
  });
});
