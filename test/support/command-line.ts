/** Runs the command line as a person or a script does. */
import { type ChildProcess, execFile, fork, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

export const LAUNCHER = fileURLToPath(new URL('../../tidemark.mjs', import.meta.url));
const RESIDENT = fileURLToPath(new URL('resident-command.mjs', import.meta.url));

export interface Outcome {
  /** Exit code; null after a signal. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export type Settings = Readonly<Record<string, string>>;

let isBuilt = false;

/** Brings dist/ up to date, so that no later command says on standard error that it builds. */
export function build(): void {
  if (isBuilt) return;
  const { status, stderr } = spawnSync(process.execPath, [LAUNCHER, '--build-only'], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`dist/ is not built: ${stderr}`);
  isBuilt = true;
}

/** Lines of src/cli/transfer/progress.ts. */
const PROGRESS = /^tidemark: \d+ % {2}.*\n/gm;

/** Processes that have loaded the command line and wait for a command. */
const waiting: ChildProcess[] = [];

/**
 * Runs `tidemark` with these arguments and settings, and nothing else of our own environment but PATH. In a process that has
 * run others before, because loading the command line takes longer than most commands: {@link tidemarkProcess} starts one.
 * @param input what is on its standard input
 * @returns what it says without how far it is, which a busy machine says more often
 */
export async function tidemark(
  args: readonly string[],
  settings: Settings = {},
  input = '',
): Promise<Outcome> {
  build();
  const process = waiting.pop() ?? resident();
  process.ref();
  process.channel?.ref();
  process.send({ args, env: environment(settings), input });
  const ended = new AbortController();
  const { signal } = ended;
  try {
    const [outcome] = await Promise.race([
      once(process, 'message', { signal }),
      once(process, 'exit', { signal }).then(([code]) => {
        throw new Error(`The process of commands has ended with ${code}: ${args.join(' ')}`);
      }),
    ]);
    waiting.push(process);
    return { ...outcome, stderr: outcome.stderr.replace(PROGRESS, '') };
  } finally {
    ended.abort();
    process.unref();
    process.channel?.unref();
  }
}

function resident(): ChildProcess {
  return fork(RESIDENT, [LAUNCHER], { env: environment({}), execArgv: [], serialization: 'advanced' });
}

/**
 * Runs `tidemark` in a process of its own: a service, a command that others start at the same moment, or the start itself.
 * @param launcher that of another release
 */
export function tidemarkProcess(
  args: readonly string[],
  settings: Settings = {},
  launcher = LAUNCHER,
): Promise<Outcome> {
  return new Promise((resolve) => {
    const env = environment(settings);
    const child = execFile(process.execPath, [launcher, ...args], { env }, (_error, stdout, stderr) => {
      resolve({ code: child.exitCode, stdout, stderr });
    });
  });
}

function environment(settings: Settings): Record<string, string> {
  return { PATH: process.env.PATH ?? '', ...settings };
}
