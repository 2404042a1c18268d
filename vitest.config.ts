import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig, type TestProjectInlineConfiguration } from 'vitest/config';

type ProjectOptions = NonNullable<TestProjectInlineConfiguration['test']>;

const SLOW = 'test/**/*.slow.test.ts';
/** Components of the dashboard in a document of happy-dom. */
const DOM = 'test/**/*.dom.test.ts';
const FILES = readdirSync('test', { recursive: true, encoding: 'utf8' })
  .map((name) => join('test', name))
  .filter((path) => path.endsWith('.test.ts') && !/\.(?:slow|dom)\.test\.ts$/.test(path));
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
const RUNS_ALL = process.env.TEST_ALL === 'true';
/** The sized files of `slow`, which runs them on its engines at their full size: where everything runs, no other project does. */
const SIZED_IN_SLOW = SIZED.filter((path) => !MOCKING.includes(path));
const DONE_BY_SLOW = RUNS_ALL ? SIZED_IN_SLOW : [];
const besideSlow = (paths: readonly string[]): string[] =>
  paths.filter((path) => !DONE_BY_SLOW.includes(path));

function filesWith(pattern: RegExp): string[] {
  return FILES.filter((path) => pattern.test(readFileSync(path, 'utf8')));
}

/** Properties of parsers and of the journal, which `npm run fuzz` runs a hundred times longer. */
const FUZZED = [
  'test/http/fuzz.test.ts',
  'test/http/token-reads-fuzz.test.ts',
  'test/ingest/event-time.test.ts',
  'test/ingest/formats/bulk.test.ts',
  'test/ingest/formats/cloud-events.test.ts',
  'test/ingest/formats/mutated.test.ts',
  'test/ingest/formats/otlp.test.ts',
  'test/ingest/formats/records.test.ts',
  'test/ingest/formats/segment-tracking.test.ts',
  'test/ingest/formats/times.test.ts',
  'test/ingest/journal/segment.test.ts',
  'test/ingest/parse/batch-event.test.ts',
  'test/ingest/parse/batch-text.test.ts',
  'test/ingest/parse/event-body.test.ts',
  'test/ingest/parse/find-tokens.test.ts',
  'test/json/lexer.test.ts',
  'test/json/scan.test.ts',
  'test/read/events-query.test.ts',
  'test/read/filter/parse-filter.test.ts',
  'test/read/filter/payload-filter.test.ts',
  'test/read/iso-date.test.ts',
  'test/storage/counts/series.test.ts',
  'test/storage/database/copy-tap.test.ts',
  'test/storage/event-cursor.test.ts',
  'test/storage/fields/number-summary.test.ts',
  'test/storage/fields/payload-values.test.ts',
  'test/storage/read/event-list.test.ts',
  'test/storage/read/event-page.test.ts',
  'test/storage/read/line-writer.test.ts',
];

const common: ProjectOptions = {
  pool: 'forks',
  // No test is about these times: they end one that hangs, on a machine that is busy with others. Fuzzing takes as many times
  // longer (test/support/fuzz.ts).
  testTimeout: 60_000 * Number(process.env.FUZZ_FACTOR ?? 1),
  hookTimeout: 120_000,
  // As long as `until` waits. The default of a second says how fast the machine is, not whether the page is right.
  expect: { poll: { timeout: 15_000, interval: 20 } },
};
/** Of files at their full size. */
const LONG_TIMEOUT_MS = 120_000;

function oneEngine(engine: string): ProjectOptions {
  return { isolate: false, setupFiles: ['test/support/one-engine.ts'], env: { TEST_ENGINES: engine } };
}

const FUZZ: TestProjectInlineConfiguration = {
  test: {
    ...common,
    name: 'fuzz',
    include: FUZZED,
    isolate: false,
    env: { TEST_ENGINES: 'postgres18 timescale' },
  },
};

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
          exclude: [SLOW, DOM, ...MOCKING, ...DONE_BY_SLOW],
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
      {
        test: {
          ...common,
          name: 'mocking',
          include: [DOM, ...MOCKING],
          ...(RUNS_ALL && { testTimeout: LONG_TIMEOUT_MS, env: { TEST_SIZES: 'long' } }),
        },
      },
      ...(process.env.FUZZ_FACTOR === undefined ? [] : [FUZZ]),
      // Campaigns of faults, long property runs, floods and long browser tours; and the sized tests at their full size.
      {
        test: {
          ...common,
          name: 'slow',
          include: [SLOW, ...SIZED_IN_SLOW],
          // A worker loads the service, and starts the browser, once.
          isolate: false,
          testTimeout: LONG_TIMEOUT_MS,
          env: { TEST_SIZES: 'long', TEST_ENGINES: 'postgres18 timescale' },
        },
      },
    ],
  },
});
