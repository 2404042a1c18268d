/** Servers under test as child processes: started until they say that they listen, ended by SIGTERM. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const START_TIMEOUT_MS = 120_000;
const STOP_TIMEOUT_MS = 30_000;
/** What is kept of a server's log, for the error message where it does not start or stop well. */
const KEPT_CHARACTERS = 4_000;

/** The command line of the service. */
export const LAUNCHER = fileURLToPath(new URL('../../../tidemark.mjs', import.meta.url));

export interface SpawnOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Its first group is the port; a server without one listens on a socket that its caller knows. */
  readonly listens: RegExp;
}

export class Spawned {
  readonly #child: ChildProcess;
  #output = '';
  #port = 0;

  private constructor({ command, args, env }: SpawnOptions) {
    this.#child = spawn(command, args, {
      env: { PATH: process.env.PATH ?? '', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    // A bench that is interrupted may have just started it.
    const end = (): void => void this.#child.kill();
    process.on('exit', end);
    this.#child.once('exit', () => process.off('exit', end));
  }

  static async start(options: SpawnOptions): Promise<Spawned> {
    const spawned = new Spawned(options);
    await new Promise<void>((resolve, reject) => {
      const fail = (why: string): void =>
        reject(new Error(`${options.command} ${options.args.join(' ')} ${why}:\n${spawned.#output}`));
      const timeout = setTimeout(() => fail('does not listen'), START_TIMEOUT_MS);
      const onOutput = (text: Buffer): void => {
        spawned.#output = (spawned.#output + text).slice(-KEPT_CHARACTERS);
        const listening = options.listens.exec(spawned.#output);
        if (listening === null || spawned.#port !== 0) return;
        spawned.#port = Number(listening[1] ?? -1);
        clearTimeout(timeout);
        resolve();
      };
      spawned.#child.stdout?.on('data', onOutput);
      spawned.#child.stderr?.on('data', onOutput);
      spawned.#child.once('error', (error) => fail(`cannot be run (${error.message})`));
      spawned.#child.once('exit', () => {
        clearTimeout(timeout);
        fail('has ended');
      });
    });
    return spawned;
  }

  get port(): number {
    return this.#port;
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** @returns its exit code; null where it had to be killed */
  async stop(): Promise<number | null> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return this.#child.exitCode;
    const exited = once(this.#child, 'exit');
    const kill = setTimeout(() => this.#child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    this.#child.kill('SIGTERM');
    await exited;
    clearTimeout(kill);
    return this.#child.exitCode;
  }

  /** The end of what it has written. */
  get output(): string {
    return this.#output;
  }
}

/** @param node the path of its program @returns such as `22.23.3` */
export async function versionOfNode(node: string): Promise<string> {
  const { stdout } = await promisify(execFile)(node, ['--version']);
  return stdout.trim().slice(1);
}

/**
 * The real service, as `npm start` runs it.
 * @param nodeOptions such as `--cpu-prof`
 * @param node        the program that runs it
 */
export function startTidemark(
  settings: Readonly<Record<string, string>>,
  nodeOptions: readonly string[] = [],
  node: string = process.execPath,
): Promise<Spawned> {
  return Spawned.start({
    command: node,
    args: [...nodeOptions, LAUNCHER, 'serve'],
    env: { PORT: '0', LOG_LEVEL: 'warn', ...settings },
    listens: /listens on http:\/\/127\.0\.0\.1:(\d+)/,
  });
}

/** A server of the bench itself. @param name of its compiled file */
export function startContender(name: string, env: Readonly<Record<string, string>> = {}): Promise<Spawned> {
  return Spawned.start({
    command: process.execPath,
    args: [fileURLToPath(new URL(`../rivals/${name}.js`, import.meta.url))],
    env,
    listens: /^listening (\d+)$/m,
  });
}
