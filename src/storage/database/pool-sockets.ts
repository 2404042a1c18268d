/** The sockets of a pool: made for its client, and kept in sight, so that all of them end with the pool. */
import { Socket } from 'node:net';
import { withRowsTogether } from './copy-tap.ts';
import type { Database } from './database.ts';
import { withCode } from './dial.ts';
import type { Purpose } from './pools.ts';

export class PoolSockets {
  readonly #database: Database;
  readonly #purpose: Purpose;
  readonly #open = new Set<Socket>();
  #closed = false;

  constructor(database: Database, purpose: Purpose) {
    this.#database = database;
    this.#purpose = purpose;
  }

  /**
   * The client's option `socket`. The client listens to a socket only some time after it was made, so a `connect` that
   * fails at once (no route, no address, no file handle) would find no listener and end the process. Hence the socket is
   * connected first.
   */
  readonly connect = async (): Promise<Socket> => {
    if (this.#closed) return failed(withCode('The pool has ended', 'CONNECTION_ENDED'));
    for (const old of this.#open) if (old.destroyed) this.#open.delete(old);
    try {
      const { socket } = await this.#database.openSocket({ ...this.#purpose, readsInPlace: true });
      this.#open.add(socket);
      if (!this.#closed) return withOrderlyEnd(withRowsTogether(withCleanStart(socket)));
      // The client would not hear that it has ended already.
      socket.destroy();
      return failed(withCode('The pool has ended', 'CONNECTION_ENDED'));
    } catch (error) {
      return failed(error instanceof Error ? error : new Error(String(error)));
    }
  };

  /** Ends every connection now, and no further one can be made. */
  close(): void {
    this.#closed = true;
    for (const socket of this.#open) socket.destroy();
  }
}

/** A socket that could not be connected. What the client writes to it goes nowhere. */
class FailedSocket extends Socket {
  override write(): boolean {
    return true;
  }
}

/**
 * A socket that fails as soon as the client listens to it. The client learns from these events alone that a connection
 * has ended: informed in any other way, it would wait for it forever.
 */
function failed(failure: Error): Socket {
  const socket = new FailedSocket();
  socket.on('error', () => undefined);
  // The client writes its first message in the next turn. A connection that ends before would leave the message to the
  // next one (it forgets to take back the turn), and that one would never be answered.
  setImmediate(() =>
    setImmediate(() => {
      // The client has closed it meanwhile and listens no more: an error without a listener would end the process.
      if (socket.destroyed) return;
      socket.emit('error', failure);
      socket.emit('close', true);
    }),
  );
  return socket;
}

/** A session parameter that makes the client's first message so long that it is written at once. It is never sent. */
export const FILLER = { filler: 'x'.repeat(1_024) } as const;
const PROTOCOL_VERSION = 196_608;

/**
 * Has a connection begin with its first message and nothing else. Where one ends while the client gathers what to write,
 * the client keeps those bytes for the next one, and waits for a turn that it has canceled: that one would never begin.
 * What is written at once ends the waiting; what was kept is cut off here.
 */
function withCleanStart(socket: Socket): Socket {
  const write = socket.write.bind(socket);
  const first = (chunk: Buffer): boolean => {
    Object.assign(socket, { write });
    return write(startMessage(chunk));
  };
  return Object.assign(socket, { write: first });
}

function startMessage(chunk: Buffer): Buffer {
  let from = 0;
  while (
    from + 8 < chunk.length &&
    (chunk.readInt32BE(from) !== chunk.length - from || chunk.readInt32BE(from + 4) !== PROTOCOL_VERSION)
  )
    from += 1;
  // A request to cancel has nothing of this.
  if (from + 8 >= chunk.length) return chunk;
  const fields = chunk.toString('latin1', from + 8).split('\0');
  const filler = fields.indexOf('filler');
  if (filler >= 0) fields.splice(filler, 2);
  const message = Buffer.from(`\0\0\0\0\0\0\0\0${fields.join('\0')}`, 'latin1');
  message.writeInt32BE(message.length, 0);
  message.writeInt32BE(PROTOCOL_VERSION, 4);
  return message;
}

/**
 * Has the client hear of an error and of the end in one turn. Between the two it would take the connection for a good one:
 * a query that it sends there, for example in answer to the one that has failed, is never answered, and stays in the way of
 * all later ones.
 */
function withOrderlyEnd(socket: Socket): Socket {
  const emit = socket.emit as (event: string, ...values: unknown[]) => boolean; // Any event passes through.
  let failure: unknown;
  const orderly = (event: string, ...values: unknown[]): boolean => {
    if (event === 'error') {
      [failure] = values;
      return true;
    }
    if (event === 'close' && failure !== undefined) emit.call(socket, 'error', failure);
    return emit.call(socket, event, ...values);
  };
  return Object.assign(socket, { emit: orderly });
}
