/**
 * Who owns a folder: the one process that listens on a socket in it. The system closes a socket with its process,
 * however that ends, so a claim never outlives its owner; and unlike a process id it means the same in every container.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdir, unlink } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { OperatorError } from '../../errors.ts';
import { errorCode } from '../../storage/connect.ts';

export interface Claim {
  release(): Promise<void>;
}

const NAME = /^owner-[0-9a-f]{8}$/;
/** sockaddr_un holds 108 bytes on Linux, the last one a NUL; macOS holds 104. */
const MAX_SOCKET_PATH = process.platform === 'darwin' ? 103 : 107;

/**
 * Claims a folder. Of several that try at once at most one gets it: each first announces itself, then looks around.
 * @returns null where another process has it, or tries in this moment
 * @throws OperatorError where no socket can be made there
 */
export async function claimFolder(folder: string): Promise<Claim | null> {
  const own = `owner-${randomBytes(4).toString('hex')}`;
  const path = join(folder, own);
  if (Buffer.byteLength(path) > MAX_SOCKET_PATH)
    throw new OperatorError(
      `JOURNAL_DIR: ${folder} is too long a path for a Unix socket: choose a shorter one`,
    );
  const server = createServer((caller) => caller.destroy());
  // While it begins to listen, the error is waited for below; later ones are of callers, who learn what they want anyway.
  server.on('error', () => undefined);
  // Not shared with other workers of a cluster, and no reason for the process to stay.
  server.listen({ path, exclusive: true });
  server.unref();
  try {
    await once(server, 'listening');
  } catch (error) {
    throw new OperatorError(
      `JOURNAL_DIR: no Unix socket can be made in ${folder} (${errorCode(error)}): choose a folder of this user on a local disk`,
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

/** Whether a process listens on the socket. One that nobody listens on any more is removed. */
async function isOwned(path: string): Promise<boolean> {
  const caller = connect(path);
  caller.on('error', () => undefined); // Waited for below.
  try {
    await once(caller, 'connect');
    return true;
  } catch (error) {
    if (!['ECONNREFUSED', 'ENOENT'].includes(errorCode(error))) return true;
    await unlink(path).catch(() => undefined); // Somebody else was quicker.
    return false;
  } finally {
    caller.destroy();
  }
}
