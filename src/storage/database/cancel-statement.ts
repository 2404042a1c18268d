/** Asks PostgreSQL to cancel the statement of a connection, so that its backend does not continue without a client. */
import type { Socket } from 'node:net';
import type pg from 'pg';
import type { OpenedSocket } from './dial.ts';
import { CANCEL_REQUEST } from './wire.ts';

const MESSAGE_BYTES = 16;

/** What a backend told its client at the start (BackendKeyData): whoever knows it may cancel its statements. */
export interface BackendKey {
  readonly pid: number;
  readonly secret: number;
}

/** `pg` keeps the server's BackendKeyData, but its types lack it. */
interface KeyOfClient {
  readonly processID?: number | null;
  readonly secretKey?: number | null;
}

/**
 * Sends the request on a connection of its own, as the protocol demands: to the same server, with the same encryption. The
 * outcome is only seen on the connection that runs the statement.
 * @param again     opens the connection for it
 * @param timeoutMs timeout of each step if the server does not respond
 */
export function cancelStatement(client: pg.Client, again: OpenedSocket['again'], timeoutMs: number): void {
  const { processID: pid, secretKey: secret } = client as KeyOfClient;
  if (typeof pid !== 'number' || typeof secret !== 'number') return;
  void requestCancel(again(timeoutMs), { pid, secret }, timeoutMs);
}

/**
 * Sends a request to cancel and waits until the server has closed that connection: by then it has signaled the backend, and a
 * later statement is not canceled.
 * @param opening   a connection to the server of the backend, which is ended here
 * @param timeoutMs without news of the server
 * @returns resolves also if the server cannot be asked: then it ends the statement by its own timeout
 */
export async function requestCancel(
  opening: Promise<Socket>,
  { pid, secret }: BackendKey,
  timeoutMs: number,
): Promise<void> {
  const message = Buffer.alloc(MESSAGE_BYTES);
  // Clients have the two numbers with a sign or without.
  for (const [index, word] of [MESSAGE_BYTES, CANCEL_REQUEST, pid, secret].entries())
    message.writeUInt32BE(word >>> 0, 4 * index);
  const socket = await opening.catch(() => null);
  if (socket === null) return;
  await new Promise<void>((resolve) => {
    socket.on('error', () => undefined); // 'close' follows.
    socket.on('close', () => resolve());
    socket.setTimeout(timeoutMs, () => socket.destroy());
    socket.resume();
    // Not ended: the server closes it when it has done what it was asked.
    socket.write(message);
  });
}
