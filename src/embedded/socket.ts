import { randomUUID } from 'node:crypto';
import { chown, lstat, mkdtemp, readlink, rename, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MAX_SOCKET_PATH } from '../base/socket-path.ts';
import type { SystemUser } from './user.ts';

/** Part of the socket's name; PostgreSQL does not listen on TCP. */
export const PORT = 5432;

/** In the data folder: a link to the folder of the socket if the path of the cluster is too long. */
const SOCKET_LINK = 'postgres.socket';

/**
 * The folder for the Unix socket: the cluster itself, or one in the system's temporary folder if that path is too long. A
 * link stores the choice, so that the path is the same after a restart.
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
  // A line break would corrupt postmaster.pid.
  return Buffer.byteLength(path) <= MAX_SOCKET_PATH && !/[\r\n]/.test(path);
}

/** The temporary folder is shared: after a cleanup another user may have created a folder of this name. */
async function isPrivate(folder: string, user: SystemUser | undefined): Promise<boolean> {
  const found = await lstat(folder).catch(() => undefined);
  return (
    found?.isDirectory() === true &&
    found.uid === (user?.uid ?? process.getuid?.()) &&
    (found.mode & 0o077) === 0
  );
}
