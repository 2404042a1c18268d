/** A PostgreSQL of one test, which is killed, paused and started again without anybody's help but the test's. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { platformPackage, STATE_FOLDER, usableBinaries } from '../../src/embedded/binaries.ts';
import { CLEAN_ENVIRONMENT, isRoot, type SystemUser, unprivilegedUser } from '../../src/embedded/user.ts';
import { connect, type DatabaseAddress, type Sql } from '../../src/storage/database/connect.ts';
import { childrenOf, isAlive } from '../e2e/server-process.ts';
import {
  addressOf,
  BUILTIN_LOCALE,
  type ClusterAddress,
  freePort,
  initialise,
  temporaryFolder,
  USER,
  untilReady,
  urlOf,
} from './cluster.ts';
import { until } from './service.ts';

/**
 * A shell between us and PostgreSQL: when its standard input ends, because we are done or because we were killed, it
 * ends PostgreSQL. Each line that it reads starts PostgreSQL, with the options of the line after all others.
 */
const GUARD = `
while read -r start; do
  "$1" -D "$2/data" -k "$2" -p "$3" -c listen_addresses=127.0.0.1 -c fsync=on -c timezone=UTC $4 $start \
    >>"$2/log" 2>&1 </dev/null &
  pid=$!
done
kill -CONT $pid; kill -QUIT $pid
wait $pid
rm -rf "$2"`;

async function embeddedBinaries(folder: string, user: SystemUser | undefined): Promise<string> {
  const store = user === undefined ? join(folder, 'store') : STATE_FOLDER;
  return (await usableBinaries(await platformPackage(), user, store)).bin;
}

/** An installation of PostgreSQL. */
export interface Installation {
  /** With `bin`, `lib` and `share`. */
  readonly home: string;
  /** Further options of postgres, without blanks in them. */
  readonly options: string;
}

export class RestartablePostgres {
  readonly #guard: ChildProcess;
  readonly #folder: string;
  readonly cluster: ClusterAddress;
  /** Who owns its files, where this process is root. */
  readonly user: SystemUser | undefined;

  private constructor(
    guard: ChildProcess,
    folder: string,
    cluster: ClusterAddress,
    user: SystemUser | undefined,
  ) {
    this.#guard = guard;
    this.#folder = folder;
    this.cluster = cluster;
    this.user = user;
  }

  /**
   * Makes and starts one.
   * @param installation one with its own programs and options, in place of the embedded PostgreSQL
   */
  static async make(
    environment: Readonly<Record<string, string>> = {},
    installation: Installation | null = null,
  ): Promise<RestartablePostgres> {
    const user = isRoot() ? await unprivilegedUser() : undefined;
    const folder = await temporaryFolder(user);
    const bin = installation === null ? await embeddedBinaries(folder, user) : join(installation.home, 'bin');
    const password = 'a password of the tests';
    await initialise(bin, folder, BUILTIN_LOCALE, password, user);
    const port = await freePort();
    const options = installation?.options ?? '';
    const guard = spawn(
      '/bin/sh',
      ['-c', GUARD, 'sh', join(bin, 'postgres'), folder, String(port), options],
      {
        cwd: '/',
        env: { ...CLEAN_ENVIRONMENT, ...environment },
        detached: true,
        stdio: ['pipe', 'ignore', 'inherit'],
        ...user,
      },
    );
    const cluster = { socket: folder, host: '127.0.0.1', port, user: USER, password };
    const postgres = new RestartablePostgres(guard, folder, cluster, user);
    await postgres.start();
    return postgres;
  }

  /** By TCP, as servers on other machines are reached. */
  get url(): string {
    return this.urlOf('postgres');
  }

  urlOf(database: string): string {
    return urlOf(this.cluster, database).replaceAll(' ', '%20');
  }

  get port(): number {
    return this.cluster.port;
  }

  get password(): string {
    return this.cluster.password;
  }

  /** By the Unix socket. */
  get address(): DatabaseAddress {
    return addressOf(this.cluster, 'postgres');
  }

  connect(): Sql {
    return connect(this.address, { connections: 1, name: 'test' });
  }

  /** What it has logged. */
  log(): Promise<string> {
    return readFile(join(this.#folder, 'log'), 'utf8');
  }

  /**
   * Starts it, and waits until it lets clients in. After a kill the system needs a moment to give its memory back.
   * @param options of this start, in place of others of the same name
   */
  async start(options = ''): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      this.#guard.stdin?.write(`${options}\n`);
      await until(async () => (await this.#pid()) !== undefined, 'PostgreSQL has begun', 2_000).catch(
        () => undefined,
      );
      try {
        if ((await this.#pid()) === undefined) throw new Error('PostgreSQL does not start');
        return await untilReady(this.cluster);
      } catch (error) {
        if (attempt === 10) throw error;
      }
    }
  }

  /** SIGKILL to all of its processes at once. */
  async kill(): Promise<void> {
    const pid = await this.#pid();
    if (pid === undefined) throw new Error('PostgreSQL does not run.');
    this.#signalAll(pid, 'SIGKILL');
    await until(() => !isAlive(pid), 'PostgreSQL has ended');
  }

  /** Keeps a copy of its files, while it does not run. @returns puts them back, likewise */
  async snapshot(): Promise<() => Promise<void>> {
    const [files, copy] = [join(this.#folder, 'data'), join(this.#folder, 'snapshot')];
    await promisify(execFile)('cp', ['-a', files, copy]);
    return async () => {
      await rm(files, { recursive: true });
      await rename(copy, files);
    };
  }

  /** SIGSTOP: its connections stay, and nothing answers. */
  async pause(): Promise<void> {
    this.#signalAll((await this.#pid()) ?? 0, 'SIGSTOP');
  }

  async resume(): Promise<void> {
    this.#signalAll((await this.#pid()) ?? 0, 'SIGCONT');
  }

  async stop(): Promise<void> {
    if (this.#guard.exitCode !== null) return;
    this.#guard.stdin?.end();
    await once(this.#guard, 'exit');
    await rm(this.#folder, { recursive: true, force: true });
  }

  #signalAll(postmaster: number, signal: NodeJS.Signals): void {
    if (postmaster === 0) throw new Error('PostgreSQL does not run.');
    for (const pid of [postmaster, ...childrenOf(postmaster)]) {
      try {
        process.kill(pid, signal);
      } catch {
        // It has ended by itself meanwhile.
      }
    }
  }

  async #pid(): Promise<number | undefined> {
    const text = await readFile(join(this.#folder, 'data', 'postmaster.pid'), 'utf8').catch(() => '');
    const pid = Number.parseInt(text, 10);
    return isAlive(pid) ? pid : undefined;
  }
}
