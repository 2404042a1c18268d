/** The transport on node:http: what it does for a request beside answering it. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import type { Exchange, Wire } from '../../src/http/exchange.ts';
import { createNodeTransport } from '../../src/http/node.ts';
import { Router } from '../../src/http/route.ts';
import { type SlowPeer, SlowPeers } from '../../src/http/slow-peers.ts';
import type { Transport } from '../../src/http/transport.ts';
import { until } from '../support/service.ts';

let transport: Transport;
/** Milliseconds of the clock by which peers are slow. */
let time = 0;

afterEach(() => transport.close());

/** Peers that were ever waited for, and bytes that are unsent now. */
class Watched extends SlowPeers {
  added = 0;

  override add(peer: SlowPeer): void {
    this.added += 1;
    super.add(peer);
  }
}

/** Answers every request with a body of so many bytes. */
async function serve(bytes: number): Promise<{ port: number; peers: Watched; unsent: () => number }> {
  const peers = new Watched(60_000, () => time);
  let unsent = 0;
  const accept = (wire: Wire): Exchange => {
    wire.readBody((_, last) => {
      const body = 'é'.padEnd(bytes - 1, 'x');
      if (last) setImmediate(() => wire.respond(200, 'Content-Type: text/plain', body, bytes, false));
    });
    // Only what the transport itself calls.
    return { abort: () => undefined, isFramed: true } as Exchange;
  };
  transport = createNodeTransport({
    routes: [],
    router: new Router([]),
    accept,
    onAcceptError: () => undefined,
    onUnsentBytes: (change) => {
      unsent += change;
    },
    slowPeers: peers,
    trustsProxies: false,
  });
  return { port: await transport.listen('127.0.0.1', 0, false), peers, unsent: () => unsent };
}

test('a response that the system has taken is not waited for', async () => {
  const { port, peers, unsent } = await serve(300);
  for (let request = 0; request < 3; request += 1) {
    const response = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: '{}' });
    expect(response.headers.get('content-length')).toBe('300');
    expect(await response.text()).toBe('é'.padEnd(299, 'x'));
  }
  expect(peers.added).toBe(0);
  expect(unsent()).toBe(0);
});

test('small responses to a client that does not read them are counted, and given back when it leaves', async () => {
  const { port, peers, unsent } = await serve(30_000);
  const socket = connect(port, '127.0.0.1').pause();
  await once(socket, 'connect');
  const request = 'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}';
  for (let sent = 0; sent < 1_000; sent += 1) socket.write(request);
  await until(() => unsent() > 0, 'the system takes no more');
  expect(peers.added).toBeGreaterThan(0);
  socket.destroy();
  await until(() => {
    time += 60_000;
    peers.sweep(false);
    return unsent() === 0;
  }, 'nothing is counted any more');
});
