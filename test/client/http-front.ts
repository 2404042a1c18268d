/** A TCP proxy in front of the service: it loses answers, refuses connections, and survives restarts of the service. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

export class HttpFront {
  /** Where the service is. */
  target: number;
  /** Asked for each connection that brings a request: whether its answer is lost. */
  losesAnswer: () => boolean = () => false;
  /** Whether connections are refused. */
  isUnreachable = false;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(target: number) {
    this.target = target;
    this.#server = createServer((client) => this.#join(client));
  }

  static async start(target: number): Promise<HttpFront> {
    const front = new HttpFront(target);
    front.#server.listen(0, '127.0.0.1');
    await once(front.#server, 'listening');
    return front;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  cutAll(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async stop(): Promise<void> {
    this.#server.close();
    this.cutAll();
    await once(this.#server, 'close');
  }

  #join(client: Socket): void {
    this.#sockets.add(client);
    client.on('error', () => undefined); // 'close' follows.
    client.on('close', () => this.#sockets.delete(client));
    if (this.isUnreachable) {
      client.destroy();
      return;
    }
    const server = connect(this.target, '127.0.0.1');
    server.on('error', () => undefined);
    server.on('close', () => client.destroy());
    client.on('close', () => server.destroy());
    client.on('data', (bytes) => server.write(bytes));
    server.on('data', (bytes) => {
      if (this.losesAnswer()) client.destroy();
      else client.write(bytes);
    });
  }
}
