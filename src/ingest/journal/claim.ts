/**
 * Ownership of a folder: one process listens on a Unix socket in it. The kernel closes the socket when the process ends in
 * any way, so a claim never outlives its owner. Unlike a process id it is valid across containers.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdir, unlink } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { MAX_SOCKET_PATH } from '../../base/socket-path.ts';
import { OperatorError } from '../../errors.ts';
import { errorCode } from '../../storage/database/connect.ts';

export interface Claim {
  release(): Promise<void>;
}

const NAME = /^owner-[0-9a-f]{8}$/;

/**
 * Claims a folder. Of several concurrent claims at most one succeeds: each creates its socket first, then looks for others.
 * @returns null if another process owns the folder, or tries to claim it now
 * @throws OperatorError if no socket can be created there
 */
export async function claimFolder(folder: string): Promise<Claim | null> {
  const own = `owner-${randomBytes(4).toString('hex')}`;
  const path = join(folder, own);
  if (Buffer.byteLength(path) > MAX_SOCKET_PATH)
    throw new OperatorError(
      `JOURNAL_DIR: ${folder} is too long a path for a Unix socket: choose a shorter one`,
    );
  const server = createServer((caller) => caller.destroy());
  // A failed listen is handled below. Later errors only concern callers, for which the accepted connection is enough.
  server.on('error', () => undefined);
  // Not shared with other workers of the cluster, and must not keep the process alive.
  server.listen({ path, exclusive: true });
  server.unref();
  try {
    await once(server, 'listening');
  } catch (error) {
    throw new OperatorError(
      `JOURNAL_DIR: no Unix socket can be created in ${folder} (${errorCode(error)}): choose a folder of this user on a local disk`,
      { cause: error },
    );
  }
  const release = async (): Promise<void> => {
    const closed = once(server, 'close');
    server.close(); // This removes the socket too.
    await closed;
  };
  const others = (await readdir(folder)).filter((name) => NAME.test(name) && name !== own);
  const taken = await Promise.all(others.map((name) => isOwned(join(folder, name))));
  if (!taken.includes(true)) return { release };
  await release();
  return null;
}

/** Whether a process listens on the socket. A socket without a listener is removed. */
async function isOwned(path: string): Promise<boolean> {
  const caller = connect(path);
  caller.on('error', () => undefined); // Handled below.
  try {
    await once(caller, 'connect');
    return true;
  } catch (error) {
    if (!['ECONNREFUSED', 'ENOENT'].includes(errorCode(error))) return true;
    await unlink(path).catch(() => undefined); // Another process has removed it.
    return false;
  } finally {
    caller.destroy();
  }
}
