import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { open, readdir, readFile, realpath, rename, rm, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Binaries } from './binaries.ts';
import { PORT } from './socket.ts';
import { CLEAN_ENVIRONMENT, run, type SystemUser } from './user.ts';

/** What postmaster.pid says; socketFolder is empty in the first moments of a start. */
export interface Postmaster {
  readonly pid: number;
  readonly port: number;
  readonly socketFolder: string;
}

/** Why a start failed. */
export interface StartFailure {
  /** True for what passes when the processes of the one before are gone, or when another starter was quicker. */
  readonly passing: boolean;
  readonly reason: string;
  readonly log: string;
}

const POLL_MS = 50;
const LOCK_FILE = 'postmaster.pid';
// https://www.postgresql.org/docs/18/server-start.html, "pre-existing shared memory block" included.
const PASSING = /lock file ".*" already exists|lock file ".*" is empty|pre-existing shared memory block/;
/** PostgreSQL writes into its lock file right after making it: one that stays empty is what a power cut left. */
const EMPTY_LOCK_MS = 5_000;

/** @returns undefined where PostgreSQL is not running and was not killed either. */
export async function readPostmaster(cluster: string): Promise<Postmaster | undefined> {
  const text = await readFile(join(cluster, LOCK_FILE), 'utf8').catch(() => '');
  const [pid, , , port, socketFolder] = text.split('\n');
  // A standalone backend (postgres --single) writes its pid negated.
  if (!pid || Number.isNaN(Number(pid))) return undefined;
  return { pid: Math.abs(Number(pid)), port: Number(port) || PORT, socketFolder: socketFolder ?? '' };
}

/**
 * Whether the process is PostgreSQL running this cluster. A pid alone does not tell: after a reboot it may be any other
 * process. In doubt the answer is true, because that never starts a second one.
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

/** A start under way; PostgreSQL lives on when this process ends. */
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
    // Neither the process nor its output keeps this process alive.
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

  /** True while it may still come to accept connections. */
  get alive(): boolean {
    return this.#end === undefined;
  }

  /** To be called once it accepts connections: its own log has taken over. */
  async succeeded(): Promise<void> {
    await rm(this.#output, { force: true });
  }

  /** @returns why it ended; undefined when it was stopped in good order. */
  async failure(): Promise<StartFailure | undefined> {
    if (this.#end?.code === 0) {
      await this.succeeded();
      return undefined;
    }
    const output = await readFile(this.#output, 'utf8').catch(() => '');
    if (PASSING.test(output)) {
      await this.succeeded();
      return { passing: true, reason: meaningfulLine(output) ?? output, log: this.#lastOutput };
    }
    if (output.includes('redirecting log output')) {
      const logged = await this.#logged();
      if (logged !== undefined) {
        await this.succeeded();
        return { passing: PASSING.test(logged.reason), ...logged };
      }
    }
    await rename(this.#output, this.#lastOutput).catch(() => undefined);
    const signal = this.#child.signalCode;
    const reason =
      this.#end?.error?.message ??
      meaningfulLine(output) ??
      (signal === null ? output.trim().split('\n').at(-1) || 'it said nothing' : `ended by ${signal}`);
    // Somebody ended it; whoever that was, the next start may go well.
    return { passing: signal === 'SIGKILL' || signal === 'SIGTERM', reason, log: this.#lastOutput };
  }

  /** The reason from PostgreSQL's own log, which its collector may write a moment after the end. */
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
 * Stops PostgreSQL by a fast shutdown (its sessions are ended, a checkpoint is written) and waits until it is gone.
 * @returns false where its process is not to be seen from here, as from another container.
 */
export async function stopPostmaster(cluster: string): Promise<boolean> {
  const postmaster = await readPostmaster(cluster);
  if (postmaster === undefined) return true;
  if (!(await isRunning(postmaster.pid, cluster))) return false;
  signal(postmaster.pid, 'SIGINT');
  while (await isRunning(postmaster.pid, cluster)) await delay(POLL_MS);
  return true;
}

/** What has to be so whatever the cluster's own files say: where it listens, and that its log is a file. */
function fixedSettings(socketFolder: string): string[] {
  const settings = {
    port: String(PORT),
    listen_addresses: '',
    // A list, in which quotes keep a comma or a blank inside its one entry.
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
    // ESRCH: gone. EPERM: another user's process, and PostgreSQL runs as the cluster's owner.
    return false;
  }
}

/** Program and arguments; empty for a zombie, undefined where they cannot be read. */
async function commandLine(pid: number): Promise<string[] | undefined> {
  if (process.platform === 'linux') {
    const text = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => undefined);
    return text?.split('\0').slice(0, -1);
  }
  const outcome = await run('ps', ['-o', 'command=', '-p', String(pid)]);
  if (outcome.code !== 0) return undefined;
  // ps does not say where an argument ends, but we know how ours begin.
  const [program = '', rest] = outcome.stdout.trim().split(' -D ', 2);
  return rest === undefined ? [program] : [program, '-D', rest.split(' -c ', 1)[0] ?? ''];
}

/**
 * Takes away lock files that name a process which is not PostgreSQL. PostgreSQL itself believes any process of the same
 * user to be one, and would never start again.
 */
async function removeStaleLocks(cluster: string): Promise<void> {
  const postmaster = await readPostmaster(cluster);
  // The lock of a process that is gone is PostgreSQL's own business: it tells which shared memory to look for.
  if (postmaster === undefined || !isAlive(postmaster.pid)) return;
  if (await isRunning(postmaster.pid, cluster)) return;
  const { port, socketFolder } = postmaster;
  for (const path of [socketLock(socketFolder || cluster, port), join(cluster, LOCK_FILE)])
    await removeLock(path, (text) => Math.abs(Number.parseInt(text, 10)) === postmaster.pid);
}

/** Moves it away before it is looked at, so that the lock of one that started just now can be put back. */
async function removeLock(path: string, isStale: (text: string) => boolean): Promise<void> {
  const aside = `${path}.${randomUUID()}`;
  try {
    await rename(path, aside);
  } catch {
    return; // It is gone.
  }
  await (isStale(await readFile(aside, 'utf8')) ? rm(aside, { force: true }) : rename(aside, path));
}

/** Takes away lock files that the power was cut over before anything was in them: PostgreSQL waits for a person to do so. */
async function removeEmptyLocks(paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    const found = await stat(path).catch(() => undefined);
    // By any clock: that of a machine which has just started may be years behind.
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
    // It may have ended by itself.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** The last line that tells of an end, without its time and process id. */
function meaningfulLine(text: string): string | undefined {
  const lines = text.split('\n').filter((line) => /(PANIC|FATAL):/.test(line));
  const line =
    lines.findLast((one) => one.includes('PANIC:')) ??
    lines.findLast((one) => !/the database system is|terminating connection/.test(one));
  return line?.replace(/^.*?(?=(PANIC|FATAL):)/, '').trim();
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
