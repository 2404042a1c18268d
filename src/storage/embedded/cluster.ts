import { randomUUID } from 'node:crypto';
import {
  access,
  chmod,
  chown,
  constants,
  lstat,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  readlink,
  realpath,
  rename,
  rm,
  stat,
  symlink,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { OperatorError } from '../../errors.ts';
import { makeFolder } from '../../make-folder.ts';
import { type Binaries, renamed, rootOnlyFolder, STATE_FOLDER } from './binaries.ts';
import { canReach, isRoot, run, type SystemUser } from './user.ts';

// The folder DATA_DIR holds, beside files of others such as the secret:
//   postgres           the cluster, or as root a link to it where its user cannot pass through DATA_DIR
//   postgres.new-*     a cluster in the making
//   postgres.socket    a link to the folder of the Unix socket, where the cluster's own path is too long for one
//   postgres.start-*   what PostgreSQL says until its own log takes over; postgres-start.log if it says nothing good
const CLUSTER = 'postgres';

/** A database and a superuser of this name are made with every cluster. */
export const DATABASE = 'tidemark';

/** A cluster in the making this old was left behind by a process that was killed: initdb takes seconds. */
const ABANDONED_MS = 10 * 60_000;

const SETTINGS_FILE = 'tidemark.conf';
const SETTINGS = `# Written by Tidemark at every start. Your own settings belong at the end of postgresql.conf.
fsync = on
synchronous_commit = on
max_connections = 100
shared_buffers = 256MB
min_wal_size = 512MB
max_wal_size = 4GB
checkpoint_timeout = 15min
wal_compression = pglz
jit = off
timezone = 'UTC'
log_timezone = 'UTC'
# A file for each day of the week, overwritten when the day comes round again.
log_filename = 'postgresql-%a.log'
log_rotation_age = 1d
log_rotation_size = 0
log_truncate_on_rotation = on
log_checkpoints = off
log_line_prefix = '%m [%p] '
`;

/**
 * Makes DATA_DIR if need be and checks that it can be used.
 * @returns its real path
 * @throws OperatorError when it is a file or may not be written to.
 */
export async function openDataFolder(dataDir: string): Promise<string> {
  try {
    await makeFolder(dirname(dataDir), 0o777);
    await mkdir(dataDir, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
    const found = await stat(dataDir);
    if (!found.isDirectory()) {
      throw new OperatorError(`DATA_DIR ${dataDir} is a file: set DATA_DIR to a folder`);
    }
    await access(dataDir, constants.R_OK | constants.W_OK | constants.X_OK);
    return await realpath(dataDir);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw explained(error, dataDir);
    throw new OperatorError(`DATA_DIR ${dataDir} cannot be made: set DATA_DIR to another folder`, {
      cause: error,
    });
  }
}

/**
 * Where the cluster of a data folder is.
 * @returns its real path; undefined when there is none yet
 * @throws OperatorError when something else is in its place, or it belongs to another user.
 */
export async function findCluster(dataDir: string): Promise<string | undefined> {
  const path = join(dataDir, CLUSTER);
  const entry = await lstat(path).catch(() => undefined);
  if (entry === undefined) return undefined;
  const cluster = await realpath(path).catch(() => undefined);
  if (cluster === undefined) {
    throw new OperatorError(
      `${path} points to ${await readlink(path)}, which is not there: bring it back, or remove ${path} to begin empty`,
    );
  }
  const owner = await stat(cluster);
  if (!isRoot() && owner.uid !== process.getuid?.()) {
    throw new OperatorError(
      `${path} belongs to another user (uid ${owner.uid}): start Tidemark as that user`,
    );
  }
  const names = await readdir(cluster).catch(() => undefined);
  if (names === undefined) throw new OperatorError(`${path} is no folder: move it away`);
  if (names.includes('PG_VERSION')) return cluster;
  if (names.length === 0) return undefined;
  throw new OperatorError(`${path} holds something else than PostgreSQL's data: move it away`);
}

/**
 * The user an existing cluster belongs to, when we are root: the one who has to run it.
 * @throws OperatorError when that is root, or the user cannot get there.
 */
export async function clusterOwner(cluster: string): Promise<SystemUser | undefined> {
  if (!isRoot()) return undefined;
  const { uid, gid } = await stat(cluster);
  if (uid === 0) {
    throw new OperatorError(
      `${cluster} belongs to root, as whom PostgreSQL refuses to run: chown -R tidemark ${cluster}`,
    );
  }
  if (!(await canReach(cluster, { uid, gid }))) {
    throw new OperatorError(
      `the owner of ${cluster} (uid ${uid}) cannot reach it any more: chmod a+x the folders above it`,
    );
  }
  return { uid, gid };
}

/** @throws OperatorError when another major version of PostgreSQL made the cluster. */
export async function checkVersion(cluster: string, binaries: Binaries): Promise<void> {
  const made = (await readFile(join(cluster, 'PG_VERSION'), 'utf8')).trim();
  if (made === binaries.major) return;
  throw new OperatorError(
    `${cluster} was made by PostgreSQL ${made} and this release of Tidemark has PostgreSQL ${binaries.major}: ` +
      'start the release that made it and run `tidemark backup`, or move the folder away to begin empty',
  );
}

/**
 * Makes the cluster. Two processes may do so at once: the rename at the end lets one of them win, and a process killed
 * on the way leaves nothing that could be taken for a cluster.
 */
export async function createCluster(
  dataDir: string,
  binaries: Binaries,
  user: SystemUser | undefined,
  stateFolder = STATE_FOLDER,
): Promise<void> {
  const place = join(dataDir, CLUSTER);
  try {
    await removeAbandoned(dataDir);
    if (user === undefined || (await letIn(dataDir, user))) {
      const draft = await draftCluster(`${place}.new-`, binaries, user);
      if (!(await renamed(draft, place))) await rm(draft, { recursive: true });
    } else {
      await rootOnlyFolder(stateFolder);
      const draft = await draftCluster(join(stateFolder, 'data.new-'), binaries, user);
      const home = join(stateFolder, `data-${randomUUID()}`);
      await rename(draft, home);
      if (!(await linked(home, place))) await rm(home, { recursive: true });
      await syncFolder(stateFolder);
    }
    await syncFolder(dataDir);
  } catch (error) {
    throw explained(error, dataDir);
  }
}

/** Brings the cluster's settings up to those of this release. */
export async function writeSettings(cluster: string, user: SystemUser | undefined): Promise<void> {
  const path = join(cluster, SETTINGS_FILE);
  if ((await readFile(path, 'utf8').catch(() => '')) === SETTINGS) return;
  await shell('umask 077; cat > "$1.$$" && mv "$1.$$" "$1"', path, user, SETTINGS);
}

async function draftCluster(
  prefix: string,
  binaries: Binaries,
  user: SystemUser | undefined,
): Promise<string> {
  const draft = await mkdtemp(prefix);
  try {
    if (user !== undefined) await chown(draft, user.uid, user.gid);
    const locale = ['--encoding=UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'];
    // Only the socket lets anyone in, and only its owner can reach the socket.
    const access = [`--username=${DATABASE}`, '--auth-local=trust', '--auth-host=reject'];
    const options = [...locale, ...access, '--data-checksums', '--no-instructions'];
    await must(binaries, 'initdb', ['-D', draft, ...options], user, '');
    await writeSettings(draft, user);
    await shell('cat >> "$1"', join(draft, 'postgresql.conf'), user, `\ninclude = '${SETTINGS_FILE}'\n`);
    const single = [
      '--single',
      '-D',
      draft,
      '-c',
      'exit_on_error=on',
      '-c',
      'logging_collector=off',
      'postgres',
    ];
    await must(binaries, 'postgres', single, user, `CREATE DATABASE ${DATABASE}\n`);
    return draft;
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    throw error;
  }
}

/**
 * Writes a file of the cluster as its owner: as root we would write through a link that the owner put there.
 * @param script finds the file's path in $1 and the text on its standard input
 */
async function shell(
  script: string,
  path: string,
  user: SystemUser | undefined,
  input: string,
): Promise<void> {
  const outcome = await run('/bin/sh', ['-c', script, 'sh', path], { user, input });
  if (outcome.code !== 0)
    throw new OperatorError(`${path} cannot be written: ${outcome.stderr.trim().split('\n', 1)[0]}`);
}

async function must(
  binaries: Binaries,
  program: string,
  args: readonly string[],
  user: SystemUser | undefined,
  input: string,
): Promise<void> {
  const outcome = await run(join(binaries.bin, program), args, { user, input });
  if (outcome.code === 0) return;
  const lines = outcome.stderr.trim().split('\n');
  const reason = lines.find((line) => /error:|FATAL:|PANIC:|ERROR:/.test(line)) ?? lines.at(-1) ?? '';
  throw new OperatorError(
    `PostgreSQL's data folder could not be made: ${reason || `${program}: ${outcome.code}`}`,
  );
}

/**
 * Whether the user can pass through the data folder. One that is root's alone because we made it so is opened to the
 * user's group; one that holds anything but our own files is left as it is.
 */
async function letIn(dataDir: string, user: SystemUser): Promise<boolean> {
  if (await canReach(dataDir, user)) return true;
  const found = await stat(dataDir);
  const names = await readdir(dataDir);
  const ours = names.every((name) => name.startsWith(CLUSTER) || name.startsWith('secret'));
  const closed = found.uid === 0 && (found.mode & 0o077) === 0;
  // Nothing is gained where the way to the folder is closed as well.
  if (ours && closed && (await canReach(dirname(dataDir), user))) {
    await chown(dataDir, 0, user.gid);
    await chmod(dataDir, 0o710);
  }
  return canReach(dataDir, user);
}

async function linked(target: string, link: string): Promise<boolean> {
  try {
    await symlink(target, link);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

async function removeAbandoned(dataDir: string): Promise<void> {
  for (const name of await readdir(dataDir)) {
    if (!name.startsWith(`${CLUSTER}.new-`) && !name.startsWith(`${CLUSTER}.start-`)) continue;
    const path = join(dataDir, name);
    const found = await stat(path).catch(() => undefined);
    if (found === undefined || Date.now() - found.mtimeMs < ABANDONED_MS) continue;
    await rm(path, { recursive: true, force: true });
  }
}

/** A rename is only safe from a power cut once its folder is on the disk. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Turns what the file system refuses into a OperatorError that says what to do; anything else stays what it is. */
export function explained(error: unknown, dataDir: string): unknown {
  switch ((error as NodeJS.ErrnoException).code) {
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return new OperatorError(
        `DATA_DIR ${dataDir} cannot be written to: give this user the right to, or set DATA_DIR to another folder`,
        { cause: error },
      );
    case 'ENOTDIR':
    case 'EEXIST':
      return new OperatorError(`DATA_DIR ${dataDir} is inside a file: set DATA_DIR to a folder`, {
        cause: error,
      });
    case 'ENOSPC':
      return new OperatorError(`the disk of DATA_DIR ${dataDir} is full: make room`, { cause: error });
    default:
      return error;
  }
}
