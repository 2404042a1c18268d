/** Asks PostgreSQL to cancel the statement of a connection, so that its backend does not continue without a client. */
import type pg from 'pg';
import { openAgain } from '../connections/dial.ts';
import { CANCEL_REQUEST } from '../connections/wire.ts';

const MESSAGE_BYTES = 16;

/** `pg` keeps the server's BackendKeyData, but its types lack it. */
interface BackendKey {
  readonly processID?: number | null;
  readonly secretKey?: number | null;
}

/**
 * Sends the request on a connection of its own, as the protocol demands: to the same server, with the same encryption. The
 * outcome is only seen on the connection that runs the statement.
 * @param timeoutMs timeout of each step if the server does not respond
 */
export function cancelStatement(client: pg.Client, timeoutMs: number): void {
  const { processID, secretKey } = client as BackendKey;
  if (typeof processID !== 'number' || typeof secretKey !== 'number') return;
  const message = Buffer.alloc(MESSAGE_BYTES);
  for (const [index, word] of [MESSAGE_BYTES, CANCEL_REQUEST, processID, secretKey].entries())
    message.writeInt32BE(word, 4 * index);
  openAgain(client.connection.stream, timeoutMs).then(
    (socket) => {
      socket.setTimeout(timeoutMs, () => socket.destroy());
      // It reads the request and closes.
      socket.resume();
      socket.end(message);
    },
    // A server that cannot be asked ends the statement by its own timeout.
    () => undefined,
  );
}
