/** Asks PostgreSQL to cancel the statement of a connection, so that its backend does not continue without a client. */
import { type NetConnectOpts, Socket } from 'node:net';
import type pg from 'pg';

/** Protocol documentation, 55.7: CancelRequest. */
const CANCEL_REQUEST = 80_877_102;
const MESSAGE_BYTES = 16;

/** `pg` keeps the server's BackendKeyData, but its types lack it. */
interface BackendKey {
  readonly processID?: number | null;
  readonly secretKey?: number | null;
}

/**
 * Sends the request on a connection of its own, as the protocol demands. The outcome is only seen on the connection that
 * runs the statement.
 * @param timeoutMs timeout of the request if the server does not respond
 */
export function cancelStatement(client: pg.Client, timeoutMs: number): void {
  const { processID, secretKey } = client as BackendKey;
  if (typeof processID !== 'number' || typeof secretKey !== 'number') return;
  const message = Buffer.alloc(MESSAGE_BYTES);
  for (const [index, word] of [MESSAGE_BYTES, CANCEL_REQUEST, processID, secretKey].entries())
    message.writeInt32BE(word, 4 * index);
  const socket = new Socket();
  socket.on('error', () => socket.destroy()); // A server that cannot be asked ends the statement by its own timeout.
  socket.setTimeout(timeoutMs, () => socket.destroy());
  // It reads the request and closes.
  socket.resume();
  socket.connect(sameServer(client));
  socket.end(message);
}

/** Where the connection goes now: its host name may mean another server meanwhile. */
function sameServer({ connection, host, port }: pg.Client): NetConnectOpts {
  const { remoteAddress, remotePort } = connection.stream as Partial<Socket>;
  return remoteAddress !== undefined && remotePort !== undefined
    ? { host: remoteAddress, port: remotePort }
    : { path: `${host}/.s.PGSQL.${port}` };
}
