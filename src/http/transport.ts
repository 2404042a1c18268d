/** What the server needs of a transport; uws.ts and node.ts are the two there are. */
import { OperatorError } from '../errors.ts';
import type { Exchange, Wire } from './exchange.ts';
import type { Match, Route, Router } from './route.ts';
import type { SlowPeers } from './slow-peers.ts';

export interface TransportOptions {
  readonly routes: readonly Route[];
  readonly router: Router;
  /**
   * Takes over one request.
   * @param match the route where the transport itself has found it, null where the router must
   */
  readonly accept: (wire: Wire, match: Match | null) => Exchange;
  /** Called where a connection could not be accepted, as without a free handle of a file. */
  readonly onAcceptError: (error: Error) => void;
  /** Called with the change in bytes of answers that wait for a slow reader. */
  readonly onUnsentBytes: (change: number) => void;
  /** Who is waited for now; the server ends those whose time is over. */
  readonly slowPeers: SlowPeers;
  /** Whether X-Forwarded-For says where requests come from. */
  readonly trustsProxies: boolean;
}

export interface Transport {
  /**
   * Listens; port 0 takes a free one.
   * @param shared whether other processes of ours, of the same user, listen on the port too
   * @returns the port
   * @throws OperatorError where the address cannot be had
   */
  listen(host: string, port: number, shared: boolean): Promise<number>;
  /** Takes no further connections; those that are open go on. */
  stopListening(): void;
  /** Closes every connection. */
  close(): Promise<void>;
}

/** The one line for an address that cannot be had. */
export function listenError(host: string, port: number, code: string): OperatorError {
  if (code === 'EADDRINUSE') {
    return new OperatorError(
      `Port ${port} on ${host} is in use: stop what listens there, or set PORT to another port.`,
      { isPassing: true },
    );
  }
  if (code === 'EACCES') {
    return new OperatorError(
      `Port ${port} on ${host} needs rights that this user lacks: set PORT to 1024 or above.`,
    );
  }
  return new OperatorError(
    `Cannot listen on ${host}, port ${port} (${code}): set HOST to an address of this machine.`,
  );
}
