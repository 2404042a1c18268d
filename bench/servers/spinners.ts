/** Processes that count in a loop. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';

const SPINNERS = 2;

/** Keeps two processors busy with what has nothing to do with a service, until it is stopped or the seconds are over. */
export function startSpinners(seconds: number): {
  readonly ended: Promise<unknown>;
  stop(): Promise<unknown>;
} {
  const program = `const end = Date.now() + ${seconds * 1_000}; while (Date.now() < end);`;
  const spinners = Array.from({ length: SPINNERS }, () => spawn(process.execPath, ['-e', program]));
  const ended = Promise.all(spinners.map((spinner) => once(spinner, 'exit')));
  return {
    ended,
    stop: () => {
      for (const spinner of spinners) spinner.kill();
      return ended;
    },
  };
}
