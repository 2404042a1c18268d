/** The interface of a transport; there are two, on uWebSockets.js and on node:http. */
import { createServer } from 'node:net';
import { OperatorError } from '../errors.ts';
import type { Exchange, Wire } from './exchange.ts';
import type { Match, Route, Router } from './route.ts';
import type { SlowPeers } from './slow-peers.ts';

export interface TransportOptions {
  readonly routes: readonly Route[];
  readonly router: Router;
  /**
   * Called for each request.
   * @param match the route if the transport has found it, null if the router has to
   */
  readonly accept: (wire: Wire, match: Match | null) => Exchange;
  /** Called when a connection could not be accepted, for example without a free file descriptor. */
  readonly onAcceptError: (error: Error) => void;
  /** Called with the change of unsent bytes of responses. */
  readonly onUnsentBytes: (change: number) => void;
  /** Connections that wait for their peers; the server closes those that are too slow. */
  readonly slowPeers: SlowPeers;
  /** Whether X-Forwarded-For is read. */
  readonly trustsProxies: boolean;
}

export interface Transport {
  /**
   * Listens; port 0 means any free port.
   * @param shared whether other processes of the service, of the same user, listen on the port too
   * @returns the port
   * @throws OperatorError if the address is not available
   */
  listen(host: string, port: number, shared: boolean): Promise<number>;
  /** Stops accepting connections; open ones stay open. */
  stopListening(): void;
  /** Closes every connection. */
  close(): Promise<void>;
}

/** Tries an address with node:net, and leaves it. @returns the code of the error; null if the address is available */
export function listenProblem(host: string, port: number): Promise<string | null> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    probe.listen(port, host, () => probe.close(() => resolve(null)));
  });
}

/** The error for an address that is not available. */
export function listenError(host: string, port: number, code: string): OperatorError {
  if (code === 'EADDRINUSE') {
    return new OperatorError(
      `Port ${port} on ${host} is in use: stop the process that listens there, or set PORT to another port.`,
      { isRetryable: true },
    );
  }
  if (code === 'EACCES') {
    return new OperatorError(
      `Port ${port} on ${host} needs privileges that this user does not have: set PORT to 1024 or above.`,
    );
  }
  return new OperatorError(
    `Cannot listen on ${host}, port ${port} (${code}): set HOST to an address of this machine.`,
  );
}
