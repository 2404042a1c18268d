/** The sockets of a pool: made for its client, and kept in sight, so that they can be broken at once. */
import { Socket } from 'node:net';

/** As the client waits for the rest of a new connection; it counts from when it has the socket. */
const CONNECT_TIMEOUT_MS = 5_000;

/** What the client tells whoever makes its sockets: hosts and ports by turns, or the path of a Unix socket. */
interface SocketTarget {
  readonly host: readonly string[];
  readonly port: readonly number[];
  readonly path: string | false | undefined;
}

export class PoolSockets {
  readonly #open = new Set<Socket>();
  #closed = false;
  #turn = 0;

  /**
   * The client's option `socket`. The client listens to a socket only some time after it was made, so a `connect` that
   * fails at once (no route, no address, no file handle) would find no listener and end the process. Hence the socket is
   * connected first.
   */
  readonly connect = async ({ host, port, path }: SocketTarget): Promise<Socket> => {
    if (this.#closed) throw new Error('The pool has ended.');
    for (const old of this.#open) if (old.destroyed) this.#open.delete(old);
    const index = this.#turn++ % host.length;
    const name = host[index] ?? '';
    const socket = new Socket();
    // For as long as it lives: the client may take its own listeners away first.
    socket.on('error', () => undefined);
    this.#open.add(socket);
    const failure = await connected(socket, path || { host: name, port: port[index] ?? 0 });
    if (failure !== null) return failed(failure);
    // The name is what TLS checks the certificate against.
    return path ? socket : Object.assign(socket, { host: name });
  };

  /** Ends every connection now. */
  break(): void {
    for (const socket of this.#open) socket.destroy();
  }

  /** The same, and no further one can be made. */
  close(): void {
    this.#closed = true;
    this.break();
  }
}

/** @returns why the socket could not be connected; null where it is */
function connected(
  socket: Socket,
  target: string | { readonly host: string; readonly port: number },
): Promise<Error | null> {
  return new Promise((resolve) => {
    const giveUp = setTimeout(() => {
      resolve(withCode('The server did not answer in time', 'CONNECT_TIMEOUT'));
      socket.destroy();
    }, CONNECT_TIMEOUT_MS);
    const settle = (failure: Error | null): void => {
      clearTimeout(giveUp);
      resolve(failure);
    };
    socket.once('connect', () => settle(null));
    socket.once('error', settle);
    // Also where it was broken from here, which is no error.
    socket.once('close', () => settle(withCode('The connection was closed', 'CONNECTION_CLOSED')));
    if (typeof target === 'string') socket.connect(target);
    else socket.connect(target);
  });
}

/** A socket that could not be connected. What the client writes to it goes nowhere. */
class FailedSocket extends Socket {
  override write(): boolean {
    return true;
  }
}

/**
 * A socket that fails as soon as the client listens to it. The client learns from these events alone that a connection
 * has ended: told of the failure in any other way, it would wait for it for ever.
 */
function failed(failure: Error): Socket {
  const socket = new FailedSocket();
  socket.on('error', () => undefined);
  // The client writes its first message in the next turn. A connection that ends before would leave the message to the
  // next one (it forgets to take back the turn), and that one would never be answered.
  setImmediate(() =>
    setImmediate(() => {
      socket.emit('error', failure);
      socket.emit('close', true);
    }),
  );
  return socket;
}

function withCode(message: string, code: string): Error {
  return Object.assign(new Error(message), { code });
}
