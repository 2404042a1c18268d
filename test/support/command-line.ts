/** Runs the command line as a person or a script does. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';

export const LAUNCHER = fileURLToPath(new URL('../../tidemark.mjs', import.meta.url));

export interface Outcome {
  /** Exit code; null after a signal. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `tidemark` with these arguments and settings, and nothing else of our own environment but PATH. */
export function tidemark(
  args: readonly string[],
  settings: Readonly<Record<string, string>> = {},
  launcher = LAUNCHER,
): Promise<Outcome> {
  return new Promise((resolve) => {
    const env = { PATH: process.env.PATH ?? '', ...settings };
    const child = execFile(process.execPath, [launcher, ...args], { env }, (_error, stdout, stderr) => {
      resolve({ code: child.exitCode, stdout, stderr });
    });
  });
}
