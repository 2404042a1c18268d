import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { open, readdir, readFile, realpath, rename, rm, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Binaries } from './binaries.ts';
import { PORT } from './socket.ts';
import { CLEAN_ENVIRONMENT, run, type SystemUser } from './user.ts';

/** The content of postmaster.pid; socketFolder is empty at the beginning of a start. */
export interface Postmaster {
  readonly pid: number;
  readonly port: number;
  readonly socketFolder: string;
}

/** Why a start failed. */
export interface StartFailure {
  /** True if a retry may succeed: after the exit of earlier processes, or because another process started it. */
  readonly isRetryable: boolean;
  readonly reason: string;
  readonly log: string;
}

const POLL_MS = 50;
const LOCK_FILE = 'postmaster.pid';
// https://www.postgresql.org/docs/18/server-start.html, "pre-existing shared memory block" included.
const RETRYABLE = /lock file ".*" already exists|lock file ".*" is empty|pre-existing shared memory block/;
/** PostgreSQL writes its lock file right after creating it: one that stays empty was left by a power failure. */
const EMPTY_LOCK_MS = 5_000;

/** @returns undefined if PostgreSQL is not running and was not killed */
export async function readPostmaster(cluster: string): Promise<Postmaster | undefined> {
  const text = await readFile(join(cluster, LOCK_FILE), 'utf8').catch(() => '');
  const [pid, , , port, socketFolder] = text.split('\n');
  // A standalone backend (postgres --single) writes its pid negated.
  if (!pid || Number.isNaN(Number(pid))) return undefined;
  return { pid: Math.abs(Number(pid)), port: Number(port) || PORT, socketFolder: socketFolder ?? '' };
}

/**
 * Whether the process is PostgreSQL running this cluster. A pid is not enough: after a reboot it may belong to any process.
 * True if unknown, so that a second PostgreSQL is never started.
 */
export async function isRunning(pid: number, cluster: string): Promise<boolean> {
  if (!isAlive(pid)) return false;
  const command = await commandLine(pid);
  if (command === undefined) return true;
  // A zombie has no command line, and a backend's is its title, "postgres: ...".
  const program = basename(command[0] ?? '');
  if (program !== 'postgres' && program !== 'postmaster') return false;
  const folder = command[command.indexOf('-D') + 1];
  if (folder === undefined || !command.includes('-D')) return true;
  return (await realpath(folder).catch(() => folder)) === cluster;
}

/** A running start. PostgreSQL keeps running when this process ends. */
export class PostmasterStart {
  readonly #cluster: string;
  readonly #output: string;
  readonly #lastOutput: string;
  readonly #child: ChildProcess;
  #end: { readonly code: number | null; readonly error?: Error } | undefined;

  private constructor(dataDir: string, cluster: string, output: string, child: ChildProcess) {
    this.#cluster = cluster;
    this.#output = output;
    this.#lastOutput = join(dataDir, 'postgres-start.log');
    this.#child = child;
    child.once('exit', (code) => {
      this.#end ??= { code };
    });
    child.on('error', (error) => {
      this.#end ??= { code: null, error };
    });
    // Neither the process nor its output keep this process alive.
    child.unref();
  }

  /** Starts PostgreSQL in a session of its own, so that Ctrl-C in the terminal does not reach it. */
  static async begin(options: {
    readonly dataDir: string;
    readonly cluster: string;
    readonly socketFolder: string;
    readonly binaries: Binaries;
    readonly user: SystemUser | undefined;
  }): Promise<PostmasterStart> {
    await removeStaleLocks(options.cluster);
    await removeEmptyLocks([join(options.cluster, LOCK_FILE), socketLock(options.socketFolder, PORT)]);
    const output = join(options.dataDir, `postgres.start-${randomUUID()}.log`);
    const file = await open(output, 'wx', 0o600);
    try {
      const child = spawn(
        join(options.binaries.bin, 'postgres'),
        // -D comes first: see commandLine.
        ['-D', options.cluster, ...fixedSettings(options.socketFolder)],
        {
          cwd: '/',
          env: CLEAN_ENVIRONMENT,
          detached: true,
          stdio: ['ignore', file.fd, file.fd],
          ...options.user,
        },
      );
      return new PostmasterStart(options.dataDir, options.cluster, output, child);
    } finally {
      await file.close();
    }
  }

  /** True while the start may still succeed. */
  get alive(): boolean {
    return this.#end === undefined;
  }

  /** Call when it accepts connections: from then on it writes its own log. */
  async succeeded(): Promise<void> {
    await rm(this.#output, { force: true });
  }

  /** @returns why it ended; undefined if it was shut down normally */
  async failure(): Promise<StartFailure | undefined> {
    if (this.#end?.code === 0) {
      await this.succeeded();
      return undefined;
    }
    const output = await readFile(this.#output, 'utf8').catch(() => '');
    if (RETRYABLE.test(output)) {
      await this.succeeded();
      return { isRetryable: true, reason: meaningfulLine(output) ?? output, log: this.#lastOutput };
    }
    if (output.includes('redirecting log output')) {
      const logged = await this.#logged();
      if (logged !== undefined) {
        await this.succeeded();
        return { isRetryable: RETRYABLE.test(logged.reason), ...logged };
      }
    }
    await rename(this.#output, this.#lastOutput).catch(() => undefined);
    const signal = this.#child.signalCode;
    const reason =
      this.#end?.error?.message ??
      meaningfulLine(output) ??
      (signal === null ? output.trim().split('\n').at(-1) || 'it said nothing' : `ended by ${signal}`);
    // It was ended by a signal; the next start may succeed.
    return { isRetryable: signal === 'SIGKILL' || signal === 'SIGTERM', reason, log: this.#lastOutput };
  }

  /** The reason from PostgreSQL's log, which its logging collector may write shortly after the exit. */
  async #logged(): Promise<{ reason: string; log: string } | undefined> {
    for (let attempt = 0; attempt < 20; attempt++) {
      const log = await newestFile(join(this.#cluster, 'log'));
      const text = log === undefined ? '' : await readFile(log, 'utf8');
      const reason = meaningfulLine(text.slice(Math.max(0, text.lastIndexOf('starting PostgreSQL'))));
      if (log !== undefined && reason !== undefined) return { reason, log };
      await delay(POLL_MS);
    }
    return undefined;
  }
}

/**
 * Stops PostgreSQL by a fast shutdown (sessions are ended, a checkpoint is written) and waits for its exit.
 * @returns false if its process is not visible, for example from another container
 */
export async function stopPostmaster(cluster: string): Promise<boolean> {
  const postmaster = await readPostmaster(cluster);
  if (postmaster === undefined) return true;
  if (!(await isRunning(postmaster.pid, cluster))) return false;
  signal(postmaster.pid, 'SIGINT');
  while (await isRunning(postmaster.pid, cluster)) await delay(POLL_MS);
  return true;
}

/** Options that override the cluster's files: where it listens, and that its log is a file. */
function fixedSettings(socketFolder: string): string[] {
  const settings = {
    port: String(PORT),
    listen_addresses: '',
    // The setting is a list: quotes protect commas and spaces in its entry.
    unix_socket_directories: `"${socketFolder.replaceAll('"', '""')}"`,
    unix_socket_permissions: '0700',
    logging_collector: 'on',
    log_destination: 'stderr',
    log_directory: 'log',
  };
  return Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    // ESRCH: no such process. EPERM: a process of another user, but PostgreSQL runs as the owner of the cluster.
    return false;
  }
}

/** Program and arguments; empty for a zombie, undefined if they cannot be read. */
async function commandLine(pid: number): Promise<string[] | undefined> {
  if (process.platform === 'linux') {
    const text = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => undefined);
    return text?.split('\0').slice(0, -1);
  }
  const outcome = await run('ps', ['-o', 'command=', '-p', String(pid)]);
  if (outcome.code !== 0) return undefined;
  // ps does not delimit arguments, but the first ones are known.
  const [program = '', rest] = outcome.stdout.trim().split(' -D ', 2);
  return rest === undefined ? [program] : [program, '-D', rest.split(' -c ', 1)[0] ?? ''];
}

/**
 * Removes lock files with the pid of a process that is not PostgreSQL. PostgreSQL itself takes any process of the same user
 * for a postmaster, and would never start again.
 */
async function removeStaleLocks(cluster: string): Promise<void> {
  const postmaster = await readPostmaster(cluster);
  // PostgreSQL itself handles the lock of an ended process, which names the shared memory to check.
  if (postmaster === undefined || !isAlive(postmaster.pid)) return;
  if (await isRunning(postmaster.pid, cluster)) return;
  const { port, socketFolder } = postmaster;
  for (const path of [socketLock(socketFolder || cluster, port), join(cluster, LOCK_FILE)])
    await removeLock(path, (text) => Math.abs(Number.parseInt(text, 10)) === postmaster.pid);
}

/** Renames it before reading it, so that the lock of a PostgreSQL that has just started can be restored. */
async function removeLock(path: string, isStale: (text: string) => boolean): Promise<void> {
  const aside = `${path}.${randomUUID()}`;
  try {
    await rename(path, aside);
  } catch {
    return; // It is gone.
  }
  await (isStale(await readFile(aside, 'utf8')) ? rm(aside, { force: true }) : rename(aside, path));
}

/** Removes lock files that a power failure left empty: PostgreSQL does not start until they are removed. */
async function removeEmptyLocks(paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    const found = await stat(path).catch(() => undefined);
    // In either direction: the clock of a machine that has just started may be years off.
    if (found?.size === 0 && Math.abs(Date.now() - found.mtimeMs) > EMPTY_LOCK_MS)
      await removeLock(path, (text) => text === '');
  }
}

function socketLock(folder: string, port: number): string {
  return join(folder, `.s.PGSQL.${port}.lock`);
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    // It may have ended already.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** PostgreSQL quotes what is in the file, whatever bytes these are. */
const BOGUS_LOCK = /FATAL:\s+bogus data in lock file "([^"]+)"/;

/** The last line about the end, without its time and process id. Has no control characters: it is printed in a terminal. */
function meaningfulLine(text: string): string | undefined {
  const [, lock] = BOGUS_LOCK.exec(text) ?? [];
  if (lock !== undefined)
    return `its lock file ${lock} does not begin with a process id: if no PostgreSQL uses this folder, remove that file`;
  const lines = text.split('\n').filter((line) => /(PANIC|FATAL):/.test(line));
  const line =
    lines.findLast((one) => one.includes('PANIC:')) ??
    lines.findLast((one) => !/the database system is|terminating connection/.test(one));
  return line
    ?.replace(/^.*?(?=(PANIC|FATAL):)/, '')
    .replace(/[\p{Cc}\uFFFD]/gu, '?')
    .trim();
}

async function newestFile(folder: string): Promise<string | undefined> {
  const names = await readdir(folder).catch(() => []);
  const files = await Promise.all(
    names.map(async (name) => {
      const path = join(folder, name);
      return { path, time: (await stat(path)).mtimeMs };
    }),
  );
  return files.sort((a, b) => b.time - a.time)[0]?.path;
}
