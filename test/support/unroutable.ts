/** `connect` that fails at once, as the kernel does it without a route, a network, an address or a handle of a file. */
import { constants } from 'node:os';

export type ConnectError = 'ENETUNREACH' | 'EHOSTUNREACH' | 'ENETDOWN' | 'EADDRNOTAVAIL' | 'EMFILE';

interface TcpWrap {
  readonly prototype: { connect: (request: object, address: string, port: number) => number };
}

/**
 * Has every `connect` of this process to the port return the error from the system call itself, before anything has
 * gone to the network: what node:net reports in the same turn, and not later as it does a refusal.
 * @returns ends it
 */
export function failConnects(code: ConnectError, port: number): () => void {
  // What node:net calls; there is no public way to it.
  const { TCP } = (process as unknown as { binding(name: string): { TCP: TcpWrap } }).binding('tcp_wrap');
  const real = TCP.prototype.connect;
  TCP.prototype.connect = function (request, address, to) {
    return to === port ? -constants.errno[code] : real.call(this, request, address, to);
  };
  return () => {
    TCP.prototype.connect = real;
  };
}
