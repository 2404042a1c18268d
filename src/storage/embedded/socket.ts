import { randomUUID } from 'node:crypto';
import { chown, lstat, mkdtemp, readlink, rename, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SystemUser } from './user.ts';

/** Part of the socket's name; nothing listens on TCP. */
export const PORT = 5432;

/** In the data folder: a link to the folder of the socket, where the cluster's own path is too long for one. */
const SOCKET_LINK = 'postgres.socket';

/** sockaddr_un holds 108 bytes on Linux, the last one a NUL; macOS holds 104. */
const MAX_SOCKET_PATH = process.platform === 'darwin' ? 103 : 107;

/**
 * The folder for the Unix socket: the cluster itself, or one under the system's temporary folder where that path is too
 * long. Which one is remembered, so that connections find PostgreSQL where it was before a restart.
 */
export async function socketFolder(
  dataDir: string,
  cluster: string,
  user: SystemUser | undefined,
): Promise<string> {
  if (fitsSocket(cluster)) return cluster;
  const link = join(dataDir, SOCKET_LINK);
  const remembered = await readlink(link).catch(() => undefined);
  if (remembered !== undefined && (await isPrivate(remembered, user))) return remembered;
  const made = await mkdtemp(
    join(fitsSocket(join(tmpdir(), 'tidemark-XXXXXX')) ? tmpdir() : '/tmp', 'tidemark-'),
  );
  if (user !== undefined) await chown(made, user.uid, user.gid);
  const draft = `${link}.${randomUUID()}`;
  await symlink(made, draft);
  await rename(draft, link);
  return made;
}

function fitsSocket(folder: string): boolean {
  const path = join(folder, `.s.PGSQL.${PORT}`);
  // A line break would break the lines of postmaster.pid.
  return Buffer.byteLength(path) <= MAX_SOCKET_PATH && !/[\r\n]/.test(path);
}

/** The temporary folder is everyone's: after it was emptied, somebody else may have made this one. */
async function isPrivate(folder: string, user: SystemUser | undefined): Promise<boolean> {
  const found = await lstat(folder).catch(() => undefined);
  return (
    found?.isDirectory() === true &&
    found.uid === (user?.uid ?? process.getuid?.()) &&
    (found.mode & 0o077) === 0
  );
}
