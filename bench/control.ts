/** The control of a guard: what the commit that the thresholds were recorded with comes to on this machine. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { ScenarioResult } from './findings.ts';
import { checkOut, resolveCommit } from './servers/checkout.ts';

/** The variable that tells a run that it is the control of another one. */
export const IS_CONTROL = 'BENCH_IS_CONTROL';
/** Bytes of a run's JSON at most. */
const MOST_BYTES = 64 * 1_048_576;

/**
 * Runs scenarios with the code of another commit, as a guard runs them.
 * @param commit a hash @returns their results by name
 * @throws OperatorError where the history does not have the commit
 */
export async function runControl(
  commit: string,
  scenarios: readonly string[],
): Promise<ReadonlyMap<string, ScenarioResult>> {
  const folder = await checkOut(await resolveCommit(commit));
  const args = ['run', '-s', 'bench', '--', ...scenarios, '--judge', '--json'];
  const stdout = await promisify(execFile)('npm', args, {
    cwd: folder,
    env: { ...process.env, [IS_CONTROL]: '1' },
    maxBuffer: MOST_BYTES,
  }).then(
    (done) => done.stdout,
    // It misses thresholds of its own, perhaps: that is what is to be known.
    (error: { readonly code?: unknown; readonly stdout?: string }) => {
      if (error.code !== 1 || !error.stdout?.startsWith('{')) throw error;
      return error.stdout;
    },
  );
  const { results } = JSON.parse(stdout) as { results: (ScenarioResult & { scenario: string })[] };
  return new Map(results.map((result) => [result.scenario, result]));
}
