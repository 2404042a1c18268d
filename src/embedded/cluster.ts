import { randomUUID } from 'node:crypto';
import {
  access,
  chmod,
  chown,
  constants,
  lstat,
  mkdir,
  mkdtemp,
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
import { makeFolder, syncFolder } from '../base/make-folder.ts';
import { OperatorError } from '../errors.ts';
import { type Binaries, renamed, rootOnlyFolder, STATE_FOLDER } from './binaries.ts';
import { canReach, isRoot, run, type SystemUser } from './user.ts';

// Files of the embedded PostgreSQL in DATA_DIR:
//   postgres           the cluster, or as root a link to it if its user cannot traverse DATA_DIR
//   postgres.new-*     a cluster that is being created
//   postgres.socket    a link to the folder of the Unix socket if the path of the cluster is too long
//   postgres.start-*   output of PostgreSQL before it writes its own log; renamed to postgres-start.log after a failure
const CLUSTER = 'postgres';

/** Name of the database and of the superuser of every cluster. */
export const DATABASE = 'tidemark';

/** An unfinished cluster of this age was left by a killed process: initdb takes seconds. */
const ABANDONED_MS = 10 * 60_000;

const SETTINGS_FILE = 'tidemark.conf';
const SETTINGS = `# Written by Tidemark at every start. Your own settings belong at the end of postgresql.conf.
fsync = on
synchronous_commit = on
max_connections = 200
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
 * Creates DATA_DIR if it does not exist, and checks that it can be used.
 * @returns its real path
 * @throws OperatorError if it is a file or not writable
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
 * Finds the cluster of a data folder.
 * @returns its real path; undefined if there is none yet
 * @throws OperatorError if its path is something else, or it belongs to another user
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
 * The owner of an existing cluster if this process is root: PostgreSQL must run as that user.
 * @throws OperatorError if that is root, or the user cannot reach the cluster
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

/** @throws OperatorError if the cluster is of another major version of PostgreSQL */
export async function checkVersion(cluster: string, binaries: Binaries): Promise<void> {
  const made = (await readFile(join(cluster, 'PG_VERSION'), 'utf8')).trim();
  if (made === binaries.major) return;
  throw new OperatorError(
    `${cluster} was made by PostgreSQL ${made} and this release of Tidemark has PostgreSQL ${binaries.major}: ` +
      'start the release that made it and run `tidemark backup`, or move the folder away to begin empty',
  );
}

/**
 * Creates the cluster. Two processes may do so at once: the rename at the end succeeds for one of them, and a killed process
 * leaves nothing that looks like a cluster.
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

/** Updates the cluster's settings to those of this release. */
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
    // Connections are only possible by the socket, which only its owner can reach.
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
 * Writes a file of the cluster as its owner: root would follow a symbolic link that the owner placed there.
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
 * Whether the user can traverse the data folder. A folder that Tidemark created for root only is opened to the user's group;
 * one with other files is not changed.
 */
async function letIn(dataDir: string, user: SystemUser): Promise<boolean> {
  if (await canReach(dataDir, user)) return true;
  const found = await stat(dataDir);
  const names = await readdir(dataDir);
  const ours = names.every((name) => name.startsWith(CLUSTER) || name.startsWith('secret'));
  const closed = found.uid === 0 && (found.mode & 0o077) === 0;
  // Useless if a parent folder cannot be traversed either.
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

/** Converts errors of the file system to an OperatorError that says what to do; returns other errors unchanged. */
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
