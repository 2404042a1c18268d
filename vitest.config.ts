import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig, type TestProjectInlineConfiguration } from 'vitest/config';

type ProjectOptions = NonNullable<TestProjectInlineConfiguration['test']>;

const SLOW = 'test/**/*.slow.test.ts';
const FILES = readdirSync('test', { recursive: true, encoding: 'utf8' })
  .map((name) => join('test', name))
  .filter((path) => path.endsWith('.test.ts') && !path.endsWith('.slow.test.ts'));
/** Files that replace modules or timers: each needs a process in which nothing has loaded them before, or runs beside it. */
const MOCKING = filesWith(/^vi\.mock\(|\bsimulate\(/m);
/** Files with suites that run per engine. */
const PER_ENGINE = filesWith(/\b(?:availableEngines|storageContract)\(/);
/**
 * Those whose result may depend on the version of the server: SQL, catalogs, COPY, and the routes of the read API. It does not
 * for what else HTTP, the commands and a proxy's faults make of the same statements.
 */
const PER_VERSION = PER_ENGINE.filter((path) =>
  /^test\/(?:accounts|apps|storage(?!\/database\/(?:server-watch|tls)))\/|\/(?:doctor|idempotency|import|token-reads)\.test\.ts$/.test(
    path,
  ),
);

/** Files with tests of a size that is larger in the project `slow` (test/support/fuzz.ts). */
const SIZED = filesWith(/\bsized\(/);
/** Where everything runs, `slow` has these on its engines at their full size, which contains what others would do with them. */
const DONE_BY_SLOW = process.env.TEST_ALL === 'true' ? SIZED : [];
const besideSlow = (paths: readonly string[]): string[] =>
  paths.filter((path) => !DONE_BY_SLOW.includes(path));

function filesWith(pattern: RegExp): string[] {
  return FILES.filter((path) => pattern.test(readFileSync(path, 'utf8')));
}

const common: ProjectOptions = {
  pool: 'forks',
  // Fuzzing takes as many times longer (test/support/fuzz.ts).
  testTimeout: 30_000 * Number(process.env.FUZZ_FACTOR ?? 1),
  hookTimeout: 60_000,
};

function oneEngine(engine: string): ProjectOptions {
  return { isolate: false, setupFiles: ['test/support/one-engine.ts'], env: { TEST_ENGINES: engine } };
}

export default defineConfig({
  test: {
    // Once for all projects of a run, which share its clusters.
    globalSetup: ['test/support/global-setup.ts'],
    // For two processors, and suites that fill them. Those of `npm test` wait more than they compute: it has one more worker.
    maxWorkers: 2,
    projects: [
      {
        test: {
          ...common,
          name: 'fast',
          include: ['test/**/*.test.ts'],
          exclude: [SLOW, ...MOCKING, ...DONE_BY_SLOW],
          // A worker loads the service once, not once a file, which saves a second for each of them.
          isolate: false,
          env: { TEST_ENGINES: 'postgres18' },
        },
      },
      // The suites per engine on TimescaleDB and on the oldest supported PostgreSQL. Not in `npm test`, which would take half as
      // long again: for changes in src/storage and sql/, and in .ci/run.
      {
        test: {
          ...common,
          ...oneEngine('timescale'),
          name: 'timescale',
          include: besideSlow(PER_ENGINE),
        },
      },
      {
        test: {
          ...common,
          ...oneEngine('postgres15'),
          name: 'postgres15',
          include: PER_VERSION,
        },
      },
      { test: { ...common, name: 'mocking', include: besideSlow(MOCKING) } },
      // Campaigns of faults, long property runs, floods and long browser tours; and the sized tests at their full size.
      {
        test: {
          ...common,
          name: 'slow',
          include: [SLOW, ...SIZED],
          testTimeout: 120_000,
          env: { TEST_SIZES: 'long', TEST_ENGINES: 'postgres18 timescale' },
        },
      },
    ],
  },
});
