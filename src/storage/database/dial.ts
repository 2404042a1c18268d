/** Opens connections to PostgreSQL for both clients: chooses the host, and encrypts. */
import { isIP, type OnReadOpts, Socket, type SocketConstructorOpts } from 'node:net';
import { connect as connectTls } from 'node:tls';
import pg from 'pg';
import { deadline, withTimeout } from '../../base/timeout.ts';
import {
  type DatabaseAddress,
  readServerAddress,
  type ServerAddress,
  type Target,
  targetAt,
} from './server-address.ts';

/** For each step of opening a connection. */
export const CONNECT_TIMEOUT_MS = 5_000;
/** Finds out whether one of several servers takes writes. */
const CHOICE_TIMEOUT_MS = 3_000;
const CLOSE_TIMEOUT_MS = 1_000;
const SSL_REQUEST = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);
const ACCEPTED = 'S'.charCodeAt(0);

/** The hosts of an address, and which of them is used now. */
export class Hosts {
  readonly address: Pick<ServerAddress, 'targets' | 'attributes' | 'tls' | 'url'>;
  #chosen: Target | null = null;
  #choosing: Promise<Target> | null = null;

  constructor(address: DatabaseAddress) {
    this.address =
      'url' in address
        ? readServerAddress(address.url)
        : { targets: [targetAt(address)], attributes: 'any', tls: null, url: '' };
  }

  async connect(how: SocketOptions): Promise<OpenedSocket> {
    const { targets, tls } = this.address;
    const chosen = this.#chosen ?? (await this.#choose());
    try {
      return await connectTo(wayTo(chosen, tls), how);
    } catch (error) {
      if (targets.length === 1) throw error;
      this.forget();
      return await connectTo(wayTo(await this.#choose(), tls), how);
    }
  }

  forget(): void {
    this.#chosen = null;
  }

  /** Tries all hosts at once; concurrent callers share the first suitable one. */
  #choose(): Promise<Target> {
    const { targets } = this.address;
    const [only] = targets;
    if (targets.length === 1 && only !== undefined) return Promise.resolve(only);
    this.#choosing ??= firstOf(targets.map((target) => this.#ask(target)))
      .then((target) => {
        this.#chosen = target;
        return target;
      })
      .finally(() => {
        this.#choosing = null;
      });
    return this.#choosing;
  }

  /** @throws if the host is unavailable, or takes no writes although it must */
  async #ask(target: Target): Promise<Target> {
    const { url, tls, attributes } = this.address;
    const { socket } = await connectTo(wayTo(target, tls));
    const asking = async (): Promise<boolean | undefined> => {
      const client = await pgClient(
        socket,
        { connectionString: url, application_name: 'tidemark start' },
        CHOICE_TIMEOUT_MS,
      );
      const { rows } = await client.query<{ takes_writes: boolean }>(
        "SELECT current_setting('transaction_read_only') = 'off' AND NOT pg_is_in_recovery() AS takes_writes",
      );
      return rows[0]?.takes_writes;
    };
    try {
      const takesWrites = await withTimeout(asking(), 2 * CHOICE_TIMEOUT_MS, null);
      if (takesWrites === null) throw tooLate();
      if (attributes === 'read-write' && takesWrites !== true)
        throw withCode('No server of DATABASE_URL takes writes', 'SERVER_READ_ONLY');
      return target;
    } finally {
      socket.destroy();
    }
  }
}

/** The first that succeeds. @throws the most informative error if none does */
async function firstOf(targets: readonly Promise<Target>[]): Promise<Target> {
  try {
    return await Promise.any(targets);
  } catch (error) {
    const reasons: readonly unknown[] = error instanceof AggregateError ? error.errors : [error];
    throw reasons.find((reason) => reason instanceof pg.DatabaseError) ?? reasons[0];
  }
}

/**
 * A connected client of the package `pg` on an open socket. Its own timeout counts the time in which this process stood still.
 * @throws if the server refuses, or has not taken the session in time; the socket is destroyed then
 */
export async function pgClient(
  socket: Socket,
  settings: pg.ClientConfig,
  timeoutMs: number,
): Promise<pg.Client> {
  // The client connects its stream itself. This one is connected, so only the event is emitted.
  const stream = Object.assign(socket, {
    connect: () => {
      setImmediate(() => socket.emit('connect'));
      return socket;
    },
  });
  const client = new pg.Client({ ...settings, ssl: false, stream: () => stream });
  client.on('error', () => undefined);
  const end = deadline(timeoutMs, () => socket.destroy(tooLate()));
  try {
    await client.connect();
    return client;
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    end();
  }
}

/** Ends a connection in order; destroys it if the server does not respond. */
export async function endClient(client: pg.Client): Promise<void> {
  const end = deadline(CLOSE_TIMEOUT_MS, () => client.connection.stream.destroy());
  await client.end().catch(() => undefined); // A broken connection needs no closing.
  end();
}

/** How a connection was made: where its server is, and which name its certificate has to prove. */
interface Way {
  readonly target: Target;
  readonly name: string;
  readonly tls: ServerAddress['tls'];
}

/** A connection that was just opened. */
export interface OpenedSocket {
  readonly socket: Socket;
  /**
   * Opens another connection to the very server that this one leads to, encrypted likewise: the host's name may mean another server
   * meanwhile. Nobody looks after it.
   * @param timeoutMs for each step of it
   */
  readonly again: (timeoutMs: number) => Promise<Socket>;
}

function wayTo(target: Target, tls: ServerAddress['tls']): Way {
  return { target, name: 'path' in target ? '' : target.host, tls };
}

interface SocketOptions {
  readonly timeoutMs?: number;
  readonly readsInPlace?: boolean;
}

async function connectTo(
  { target, name, tls }: Way,
  { timeoutMs = CONNECT_TIMEOUT_MS, readsInPlace = false }: SocketOptions = {},
): Promise<OpenedSocket> {
  const isPlain = tls === null || 'path' in target;
  const deliver = (bytes: Buffer): boolean => socket.emit('data', bytes);
  const socket: Socket = new Socket(isPlain && readsInPlace ? readingInPlace(deliver) : {});
  // For the lifetime of the socket: a client may remove its own listeners earlier.
  socket.on('error', () => undefined);
  const started = 'path' in target ? socket.connect(target.path) : socket.connect(target.port, target.host);
  await happened(started, 'connect', timeoutMs);
  socket.setNoDelay(true);
  // The system detects a dead peer within half a minute, also between statements.
  socket.setKeepAlive(true, 10_000);
  const { remoteAddress: host } = socket;
  const reached = 'path' in target || host === undefined ? target : { host, port: target.port };
  const ready = isPlain ? socket : await encrypted(socket, tls, name, timeoutMs);
  const way = { target: reached, name, tls };
  return { socket: ready, again: async (againMs) => (await connectTo(way, { timeoutMs: againMs })).socket };
}

/** Bytes of one read: what a socket makes room for by itself. */
const READ_BYTES = 65_536;

/**
 * The options of a socket that reads into the same memory each time. By default each read makes a buffer outside of the heap, and
 * for those alone V8 would go through all of the heap again and again, which took a quarter of the CPU of an export.
 * What is delivered is valid during the call, and does not wait for a listener: a server says nothing before it is asked.
 */
function readingInPlace(
  deliver: (bytes: Buffer) => void,
): SocketConstructorOpts & { readonly onread: OnReadOpts } {
  const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
  return {
    onread: {
      buffer,
      callback: (length) => {
        deliver(buffer.subarray(0, length));
        return true;
      },
    },
  };
}

async function encrypted(
  socket: Socket,
  { negotiates, ...options }: NonNullable<ServerAddress['tls']>,
  host: string,
  timeoutMs: number,
): Promise<Socket> {
  if (negotiates) {
    socket.write(SSL_REQUEST);
    await happened(socket, 'readable', timeoutMs);
    const answer: Buffer | null = socket.read(1);
    if (answer?.[0] !== ACCEPTED) {
      socket.destroy();
      throw withCode('The server does not encrypt connections, and sslmode asks for it', '08P01');
    }
  }
  const secure = connectTls({
    ...options,
    socket,
    // A certificate for an address is checked against `host`; a name is also sent (SNI).
    host,
    ...(isIP(host) === 0 && { servername: host }),
    ...(!negotiates && { ALPNProtocols: ['postgresql'] }),
  });
  secure.on('error', () => undefined);
  await happened(secure, 'secureConnect', timeoutMs);
  return secure;
}

/** Waits for an event of a socket. @throws if the socket ends first, or at the timeout; it is destroyed then */
function happened(
  socket: Socket,
  event: 'connect' | 'readable' | 'secureConnect',
  timeoutMs: number,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const onError = (error: Error): void => settle(error);
    const onClose = (): void => settle(withCode('The connection was closed', 'CONNECTION_CLOSED'));
    const onEvent = (): void => settle(null);
    const end = deadline(timeoutMs, () => settle(tooLate()));
    const settle = (failure: Error | null): void => {
      end();
      socket.off('error', onError).off('close', onClose).off(event, onEvent);
      if (failure === null) {
        resolve();
        return;
      }
      socket.destroy();
      reject(failure);
    };
    socket.on('error', onError).once('close', onClose).once(event, onEvent);
  });
}

function tooLate(): Error {
  return withCode('The server did not answer in time', 'CONNECT_TIMEOUT');
}

/** An error with a code, like those of the system. */
export function withCode(message: string, code: string): Error {
  return Object.assign(new Error(message), { code });
}
