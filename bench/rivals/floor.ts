/**
 * The floor: a bare handler that reads the body and answers 201, with an answer as long as the service's, over the
 * transport that the service has here. Nothing that reads the same bytes over the same library can cost less.
 */
import { createServer } from 'node:http';
import { announcePort } from './rival-checks.ts';

const ANSWER = JSON.stringify({
  success: true,
  eventId: '019a0000-0000-7000-8000-000000000000',
  typeId: 'typ_00000000000000000000',
  timestamp: '2026-01-01T00:00:00.000Z',
  message: 'Event created',
});

async function serveOnUws(): Promise<void> {
  const { App, us_socket_local_port } = await import('uWebSockets.js');
  App()
    .post('/public/create_event', (res) => {
      res.onAborted(() => undefined);
      const chunks: Buffer[] = [];
      res.onData((chunk, last) => {
        chunks.push(Buffer.from(new Uint8Array(chunk)));
        if (!last) return;
        const body = chunks.length === 1 ? chunks[0] : Buffer.concat(chunks);
        res.cork(() => {
          res.writeStatus(body === undefined ? '400 Bad Request' : '201 Created');
          res.writeHeader('Content-Type', 'application/json');
          res.end(ANSWER);
        });
      });
    })
    .listen('127.0.0.1', 0, (socket) => announcePort(us_socket_local_port(socket)));
}

function serveOnNode(): void {
  const headers = { 'Content-Type': 'application/json', 'Content-Length': ANSWER.length };
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      response.writeHead(Buffer.concat(chunks).length === 0 ? 400 : 201, headers).end(ANSWER);
    });
  });
  server.listen(0, '127.0.0.1', () => {
    const address = server.address();
    if (address !== null && typeof address !== 'string') announcePort(address.port);
  });
}

if (process.env.BENCH_TRANSPORT === 'node:http') serveOnNode();
else await serveOnUws();
