import { defineConfig, type TestProjectInlineConfiguration } from 'vitest/config';

type ProjectOptions = NonNullable<TestProjectInlineConfiguration['test']>;

const SLOW = 'test/**/*.slow.test.ts';

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
    // The clusters and the servers under test need their share of the machine too.
    maxWorkers: 2,
    projects: [
      {
        test: {
          ...common,
          name: 'fast',
          include: ['test/**/*.test.ts'],
          exclude: [SLOW],
          // A worker loads the service once, not once a file, which saves a second for each of them.
          isolate: false,
        },
      },
      // Campaigns of faults, long property runs, floods and long browser tours.
      { test: { ...common, name: 'slow', include: [SLOW] } },
    ],
  },
});
