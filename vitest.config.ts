import {
  defineConfig,
  type TestProjectConfiguration,
  type TestProjectInlineConfiguration,
} from 'vitest/config';
import { hasCitus, hasPostgres15, hasTimescale } from './test/support/engine-homes.ts';
import { patient } from './test/support/patience.ts';

/**
 * What a file of tests is, its name says:
 *
 *   x.test.ts            in a process that it shares with others, on PostgreSQL 18
 *   x.isolated.test.ts   replaces modules or timers of the process: in one of its own
 *   x.dom.test.ts        components of the dashboard in a document of happy-dom, likewise
 *   x.contract.ts        once on every engine: PostgreSQL 18 and 15, TimescaleDB, a Citus cluster (before a merge {@link ON_CITUS})
 *   x.engine.test.ts     on PostgreSQL 18, and at night ({@link FIRST_OF_ENGINE}: always) on every engine of one server
 *   x.timescale.test.ts, x.citus.test.ts   on that engine alone
 *   x.browser.test.ts    in Chromium
 *   x.slow.test.ts       starts, stops and kills processes, runs many commands, compiles, or waits for locks and back-offs
 *   x.nightly.test.ts, x.nightly.contract.ts   campaigns, not before a merge
 *
 * `npm test` runs `fast` and `isolated`; .ci/run what a merge needs; `npm run test:nightly` everything, with tests of a size at
 * their full one and those that are for the night in files of other kinds (`atNight`, `first` and `sized` of test/support/fuzz.ts).
 */
type Kind = 'isolated' | 'dom' | 'engine' | 'timescale' | 'citus' | 'browser' | 'slow' | 'nightly';

const ofKind = (...kinds: readonly Kind[]): string[] => kinds.map((kind) => `test/**/*.${kind}.test.ts`);
const CONTRACTS = 'test/**/*.contract.ts';

const isNightly = process.env.TEST_NIGHTLY === 'true';
/** What of one server's suites tells its engines apart: the schema, how rows are written, read, counted and listed. */
const FIRST_OF_ENGINE = ['migrate', 'event-writer', 'event-page', 'series', 'word-lists'].map(
  (part) => `test/storage/**/${part}.engine.test.ts`,
);
const ENGINE = [CONTRACTS, ...(isNightly ? ofKind('engine') : FIRST_OF_ENGINE)];
/** One contract of each part that a cluster distributes: events, counts, fields, erasing, the feed, questions, searches. */
const ON_CITUS = ['storage', 'consumers', 'field-counts', 'erasing', 'query', 'words'].map(
  (part) => `test/**/${part}.contract.ts`,
);
const NIGHTLY = isNightly ? [] : ['test/**/*.nightly.contract.ts'];

type ProjectOptions = NonNullable<TestProjectInlineConfiguration['test']>;

const FUZZ_FACTOR = Number(process.env.FUZZ_FACTOR ?? 1);

const common: ProjectOptions = {
  pool: 'forks',
  // A worker loads the service, and starts the browser, once and not once a file.
  isolate: false,
  testTimeout: patient(isNightly ? 120_000 : 60_000) * FUZZ_FACTOR,
  hookTimeout: patient(120_000),
  // As long as `until` waits. The default of a second says how fast the machine is, not whether the page is right.
  expect: { poll: { timeout: patient(15_000), interval: 20 } },
  exclude: NIGHTLY,
};

let groups = 0;

/** A project runs after those above it, so that its workers keep what they have loaded and started. */
function project(
  name: string,
  maxWorkers: number,
  engines: string,
  include: readonly string[],
  options: ProjectOptions = {},
): TestProjectConfiguration {
  const env = { TEST_ENGINES: engines, ...(isNightly && { TEST_SIZES: 'long' }) };
  const sequence = { groupOrder: groups++ };
  return { test: { ...common, name, maxWorkers, sequence, include: [...include], env, ...options } };
}

export default defineConfig({
  test: {
    // Once for all projects of a run, which share its clusters.
    globalSetup: ['test/support/global-setup.ts'],
    projects: [
      // These wait more than they compute: one more worker than the two processors that all of this is made for.
      project('fast', 3, 'postgres18', ['test/**/*.test.ts', CONTRACTS], {
        exclude: [
          ...NIGHTLY,
          ...ofKind('isolated', 'dom', 'timescale', 'citus', 'browser', 'slow', 'nightly'),
        ],
      }),
      // In the group of those before, with as many workers, so that they begin while the last of those still run.
      project('isolated', 3, 'postgres18', ofKind('isolated', 'dom'), {
        isolate: true,
        sequence: { groupOrder: 0 },
      }),
      ...(hasTimescale ? [project('timescale', 3, 'timescale', [...ENGINE, ...ofKind('timescale')])] : []),
      ...(hasCitus
        ? [project('citus', 2, 'citus', [...(isNightly ? [CONTRACTS] : ON_CITUS), ...ofKind('citus')])]
        : []),
      ...(hasPostgres15 ? [project('postgres15', 3, 'postgres15', ENGINE)] : []),
      project('browser', 2, 'postgres18', ofKind('browser')),
      project('slow', 2, 'postgres18 timescale', ofKind('slow')),
      ...(isNightly ? [project('nightly', 2, 'postgres18 timescale citus', ofKind('nightly'))] : []),
    ],
  },
});
