/** The sockets of a pool: made for its client, and kept in sight, so that all of them end with the pool. */
import { Socket } from 'node:net';
import { openSocket, type Purpose, withCode } from './connections/dial.ts';
import type { DatabaseAddress } from './connections/server-address.ts';

export class PoolSockets {
  readonly #address: DatabaseAddress;
  readonly #purpose: Purpose;
  readonly #open = new Set<Socket>();
  #closed = false;

  constructor(address: DatabaseAddress, purpose: Purpose) {
    this.#address = address;
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
      const socket = await openSocket(this.#address, this.#purpose);
      this.#open.add(socket);
      // It may have been ended meanwhile.
      if (this.#closed) socket.destroy();
      return socket;
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
