/** The real server as a process of its own, on PostgreSQL embedded in a folder of its own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { chmod, mkdtemp, readFile, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openEmbedded } from '../../src/embedded/embedded.ts';
import { connect } from '../../src/storage/database/connect.ts';
import { LAUNCHER, tidemark } from '../support/command-line.ts';
import type { Comparison, Ledger } from '../support/ledger.ts';
import { until } from '../support/service.ts';

export interface Ended {
  /** Null after a signal that nobody handled. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export type ServerSignal = 'SIGTERM' | 'SIGINT' | 'SIGKILL' | 'SIGSTOP' | 'SIGCONT' | 'SIGUSR2';

export class ServerProcess {
  readonly #child: ChildProcess;
  readonly #ended: Promise<Ended>;
  #stdout = '';
  #stderr = '';
  #port = 0;

  private constructor(
    settings: Readonly<Record<string, string>>,
    under: readonly string[],
    launcher: string = LAUNCHER,
    stderr: 'pipe' | number = 'pipe',
  ) {
    const env = { PATH: process.env.PATH ?? '', PORT: '0', ...settings };
    const [program = '', ...parameters] = [...under, process.execPath, launcher, 'serve'];
    this.#child = spawn(program, parameters, { env, stdio: ['ignore', 'pipe', stderr] });
    this.#child.stdout?.on('data', (text: Buffer) => {
      this.#stdout += text;
    });
    this.#child.stderr?.on('data', (text: Buffer) => {
      this.#stderr += text;
    });
    this.#ended = once(this.#child, 'close').then(() => this.#end());
  }

  /** Starts it, and waits for nothing. */
  static begin(settings: Readonly<Record<string, string>>, under: readonly string[] = []): ServerProcess {
    return new ServerProcess(settings, under);
  }

  /**
   * Starts it and waits until it listens.
   * @param under    a program that is to run it, with its parameters
   * @param launcher that of another release
   * @param stderr   a file descriptor in place of a pipe that is read here
   */
  static async start(
    settings: Readonly<Record<string, string>>,
    under: readonly string[] = [],
    launcher?: string,
    stderr?: number,
  ): Promise<ServerProcess> {
    const server = new ServerProcess(settings, under, launcher, stderr);
    await until(
      () => {
        if (server.#child.exitCode !== null) throw new Error(`The server has ended: ${server.#stderr}`);
        server.#port = Number(/listens on http:\/\/127\.0\.0\.1:(\d+)/.exec(server.#stdout)?.[1] ?? 0);
        return server.#port !== 0;
      },
      'the server listens',
      60_000,
    );
    return server;
  }

  get port(): number {
    return this.#port;
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get stderr(): string {
    return this.#stderr;
  }

  signal(signal: ServerSignal): void {
    this.#child.kill(signal);
  }

  /** Resolves when it has ended by itself, or after a signal that was sent before. */
  get ended(): Promise<Ended> {
    return this.#ended;
  }

  /** Sends the signal and waits for the end. */
  async end(signal: ServerSignal): Promise<Ended> {
    this.signal(signal);
    return await this.#ended;
  }

  #end(): Ended {
    // The launcher may have built what had changed.
    const stderr = this.#stderr.replace('tidemark: building\n', '');
    return { code: this.#child.exitCode, stdout: this.#stdout, stderr };
  }
}

/** A data folder in a temporary one. */
export class Installation {
  readonly folder: string;
  readonly settings: Readonly<Record<string, string>>;
  readonly #servers: ServerProcess[] = [];

  private constructor(folder: string, more: Readonly<Record<string, string>>) {
    this.folder = folder;
    this.settings = { DATA_DIR: join(folder, 'data'), CREATE_LIMIT_PER_MINUTE: '0', ...more };
  }

  /** @param more settings of every server and command, for example DATABASE_URL in place of the embedded PostgreSQL */
  static async make(more: Readonly<Record<string, string>> = {}): Promise<Installation> {
    const folder = await realpath(await mkdtemp(join(tmpdir(), 'tidemark-e2e-')));
    await chmod(folder, 0o755);
    return new Installation(folder, more);
  }

  get dataDir(): string {
    return this.settings.DATA_DIR ?? '';
  }

  async start(
    more: Readonly<Record<string, string>> = {},
    under: readonly string[] = [],
  ): Promise<ServerProcess> {
    const server = await ServerProcess.start({ ...this.settings, ...more }, under);
    this.#servers.push(server);
    return server;
  }

  /** Compares a ledger with the table of the embedded PostgreSQL, once the server has ended. */
  async compare(ledger: Ledger): Promise<Comparison> {
    const quiet = { info: () => undefined, warn: () => undefined };
    const embedded = await openEmbedded({ dataDir: this.dataDir, log: quiet });
    const sql = connect(embedded.connection, { connections: 1, name: 'ledger' });
    try {
      return await ledger.compare(sql);
    } finally {
      await sql.end();
      await embedded.close();
    }
  }

  /** Makes an app by the command line, while the server runs or not. */
  async makeApp(): Promise<{ appId: string; loggingToken: string }> {
    const { code, stdout, stderr } = await tidemark(
      ['app', 'create', '--name', 'Ledger', '--json'],
      this.settings,
    );
    if (code !== 0) throw new Error(stderr);
    return JSON.parse(stdout);
  }

  /** Of the embedded PostgreSQL; undefined where it does not run. */
  async postmaster(): Promise<number | undefined> {
    const text = await readFile(join(this.dataDir, 'postgres', 'postmaster.pid'), 'utf8').catch(() => '');
    const pid = Number.parseInt(text, 10);
    return isAlive(pid) ? pid : undefined;
  }

  /** Kills PostgreSQL: its first process, which the others notice when they next wait for something. */
  async killPostgres(): Promise<void> {
    const pid = await this.postmaster();
    if (pid === undefined) throw new Error('PostgreSQL does not run.');
    process.kill(pid, 'SIGKILL');
  }

  /** Kills all of its processes at once, in the middle of whatever they do. Where there is no /proc, only the first. */
  killAllOfPostgres(): Promise<void> {
    return this.signalAllOfPostgres('SIGKILL');
  }

  async signalAllOfPostgres(signal: ServerSignal): Promise<void> {
    const postmaster = await this.postmaster();
    if (postmaster === undefined) throw new Error('PostgreSQL does not run.');
    for (const pid of [postmaster, ...childrenOf(postmaster)]) {
      try {
        process.kill(pid, signal);
      } catch {
        // It has ended by itself meanwhile.
      }
    }
  }

  /** Ends what still runs and removes everything. */
  async remove(): Promise<void> {
    for (const server of this.#servers) await server.end('SIGKILL');
    const cluster = await realpath(join(this.dataDir, 'postgres')).catch(() => undefined);
    const pid = await this.postmaster();
    if (cluster !== undefined && pid !== undefined && readCommand(pid).includes(cluster)) {
      process.kill(pid, 'SIGQUIT');
      await until(() => !isAlive(pid), 'PostgreSQL has ended');
    }
    if (cluster !== undefined) await rm(cluster, { recursive: true, force: true });
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** A zombie is dead: a container's first process may never ask how its adopted children ended. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return process.platform !== 'linux' || readCommand(pid) !== '';
  } catch {
    return false;
  }
}

export function childrenOf(parent: number): number[] {
  try {
    const text = readFileSync(`/proc/${parent}/task/${parent}/children`, 'utf8');
    return (text.match(/\d+/g) ?? []).map(Number);
  } catch {
    return [];
  }
}

function readCommand(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}
