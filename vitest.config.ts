import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    pool: 'forks',
    // The clusters and the servers under test need their share of the machine too.
    maxWorkers: 2,
    // Fuzzing takes as many times longer (test/support/fuzz.ts).
    testTimeout: 30_000 * Number(process.env.FUZZ_FACTOR ?? 1),
    hookTimeout: 60_000,
  },
});
