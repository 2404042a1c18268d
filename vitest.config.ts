import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig, type TestProjectInlineConfiguration } from 'vitest/config';

type ProjectOptions = NonNullable<TestProjectInlineConfiguration['test']>;

const SLOW = 'test/**/*.slow.test.ts';
/** Files that replace modules: each needs a process in which nothing has loaded them before. */
const MOCKING = readdirSync('test', { recursive: true, encoding: 'utf8' })
  .map((name) => join('test', name))
  .filter((path) => path.endsWith('.test.ts') && !path.endsWith('.slow.test.ts'))
  .filter((path) => /^vi\.mock\(/m.test(readFileSync(path, 'utf8')));

const common: ProjectOptions = {
  pool: 'forks',
  // Fuzzing takes as many times longer (test/support/fuzz.ts).
  testTimeout: 30_000 * Number(process.env.FUZZ_FACTOR ?? 1),
  hookTimeout: 60_000,
};

export default defineConfig({
  test: {
    // Once for all projects of a run, which share its clusters.
    globalSetup: ['test/support/global-setup.ts'],
    // Two processors are enough: many tests wait, for a timer or for a server that starts.
    maxWorkers: 3,
    projects: [
      {
        test: {
          ...common,
          name: 'fast',
          include: ['test/**/*.test.ts'],
          exclude: [SLOW, ...MOCKING],
          // A worker loads the service once, not once a file, which saves a second for each of them.
          isolate: false,
        },
      },
      { test: { ...common, name: 'mocking', include: MOCKING } },
      // Campaigns of faults, long property runs, floods and long browser tours.
      { test: { ...common, name: 'slow', include: [SLOW] } },
    ],
  },
});
