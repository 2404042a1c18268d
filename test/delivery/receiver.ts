/** A receiver of webhooks that answers as a test says. */
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Received {
  readonly path?: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export class Receiver {
  readonly received: Received[] = [];
  readonly #server: Server;
  /** Connections that were opened. */
  connections = 0;
  answer: (response: ServerResponse, count: number) => unknown = (response) => response.writeHead(204).end();

  constructor() {
    this.#server = createServer(async (request, response) => {
      const parts: Buffer[] = [];
      for await (const part of request) parts.push(part as Buffer);
      this.received.push({
        path: request.url ?? '',
        headers: request.headers,
        body: Buffer.concat(parts).toString(),
      });
      this.answer(response, this.received.length);
    });
    this.#server.on('error', () => undefined);
    this.#server.on('connection', () => {
      this.connections += 1;
    });
  }

  async listen(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/hook`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  /** The bodies, parsed. */
  get bodies(): { readonly type: string; readonly data: Readonly<Record<string, unknown>> }[] {
    return this.received.map(({ body }) => JSON.parse(body));
  }

  /** The numbers in the payloads, in order of arrival. */
  get numbers(): number[] {
    return this.received.map(({ body }) => JSON.parse(body).data.payload.n);
  }
}
