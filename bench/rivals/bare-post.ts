/** What a delivery costs at least: the same bytes by a bare request of node:http on a connection that is kept. */
import { once } from 'node:events';
import { Agent, createServer, type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { announcePort } from './rival-checks.ts';

const ID = '019a0000-0000-7000-8000-000000000000';
const AT = '2026-01-01T00:00:00.000Z';
const PAYLOAD = `{"path":"/articles/1001","referrer":"https://example.org/","user":"u-4711","seconds":42,"text":"${'x'.repeat(90)}"}`;
const DATA = `{"eventId":"${ID}","appId":"app_00000000000000000000","typeName":"page viewed","createdAt":"${AT}","payload":${PAYLOAD}}`;
const BODY = `{"type":"event.created","timestamp":"${AT}","data":${DATA}}`;
const HEADERS = {
  'webhook-id': ID,
  'webhook-timestamp': '1767225600',
  'webhook-signature': `v1,${'x'.repeat(44)}`,
  'content-type': 'application/json',
  'content-length': BODY.length,
  'user-agent': 'Tidemark-Webhooks',
  'accept-encoding': 'identity',
};

const agent = new Agent({ keepAlive: true });

async function post(port: number): Promise<void> {
  const sent = request({ host: '127.0.0.1', port, method: 'POST', agent, headers: HEADERS });
  sent.end(BODY);
  // The kind of the event says what it brings.
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  response.resume();
  await once(response, 'end');
}

async function postAll(port: number, posts: number, atOnce: number): Promise<void> {
  let left = posts;
  const one = async (): Promise<void> => {
    for (; left > 0; await post(port)) left -= 1;
  };
  await Promise.all(Array.from({ length: atOnce }, one));
}

/** `/PORT/POSTS/AT-ONCE` is answered when as many have been answered. */
const server = createServer((asked, response) => {
  const [, port = 0, posts = 0, atOnce = 0] = (asked.url ?? '').split('/').map(Number);
  postAll(port, posts, atOnce).then(
    () => response.end('done'),
    (error: unknown) => response.writeHead(500).end(String(error)),
  );
});
server.on('error', (error) => {
  throw error;
});
server.listen(0, '127.0.0.1', () => announcePort((server.address() as AddressInfo).port)); // It has a port.
