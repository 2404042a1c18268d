/**
 * The command line of the bench.
 *
 *   npm run bench                     every scenario, more than two hours, of which scale takes 32 to 42 minutes, fields 12 and
 *                                     the soak ten; where TIMESCALE_URL is set, import and engines take three quarters of an hour more
 *   npm run bench -- NAME [NAME]      some of them
 *   npm run bench -- search export    searches and exports of ten million events, one export beside 10,000 new ones a second:
 *                                     5 to 20 minutes, by the machine; --events 1000000 takes less
 *   npm run bench -- explore          the page of 520,000 events in a browser: three minutes, with TIMESCALE_PG_HOME two more
 *   npm run bench -- --quick          shorter rounds and fewer, 12 minutes
 *   npm run bench:smoke               what no noise excuses, in under two minutes
 *   npm run docs                      runs nothing: the generated parts of README.md, docs and bench/RESULTS.md
 *
 * Exit code 1 where a check of the work failed; 2 where the bench itself failed.
 */
import { mkdir } from 'node:fs/promises';
import { resolve } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { OperatorError } from '../src/errors.ts';
import { Findings } from './findings.ts';
import { writeDocuments } from './report/documents.ts';
import { endProfile, profileOptions } from './report/profile.ts';
import { circumstances, ROOT, type StoredResult, storeProfile, storeResult } from './report/results.ts';
import { formatResult } from './report/table.ts';
import type { Length, RunOptions, Scenario } from './scenario.ts';
import { SCENARIOS } from './scenarios.ts';
import { stolenSince } from './servers/process-usage.ts';
import { Workbench } from './servers/workbench.ts';

interface Options {
  readonly json?: true;
  readonly quick?: true;
  readonly smoke?: true;
  readonly profile?: true;
  readonly events?: number;
  readonly docs?: true;
  readonly store: boolean;
}

/** For people, while it runs; with --json standard output belongs to the JSON. */
let audience: NodeJS.WriteStream = process.stdout;

function say(line: string): void {
  audience.write(`${line}\n`);
}

async function runScenario(bench: Workbench, scenario: Scenario, options: RunOptions): Promise<StoredResult> {
  say(`\n${scenario.name}: ${scenario.about}`);
  const started = performance.now();
  const stolen = stolenSince();
  const findings = new Findings();
  await scenario.run(bench, findings, options);
  await bench.tidy();
  const { profileFolder } = options;
  if (profileFolder !== null) say(`profile: ${await endProfile(findings, profileFolder, scenario.name)}`);
  const result = findings.result();
  const around = await circumstances(bench.engine, options.length, stolen());
  say(`${formatResult(result)}\n(${Math.round((performance.now() - started) / 1_000)} s)`);
  return { scenario: scenario.name, about: scenario.about, ...around, ...result };
}

/** Runs them in their order, each on a fresh workbench unless it shares its neighbor's. */
async function runScenarios(
  scenarios: readonly Scenario[],
  options: RunOptions,
  onResult: (result: StoredResult) => Promise<void>,
): Promise<void> {
  let opened: Promise<Workbench> | null = null;
  const close = async (): Promise<void> => {
    const bench = await opened;
    opened = null;
    await bench?.close();
  };
  // PostgreSQL runs in a session of its own and would outlive us.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => {
      say(`${signal}: stopping`);
      void close().finally(() => process.exit(130));
    });
  }
  const { profileFolder } = options;
  const failed: string[] = [];
  try {
    for (const [index, scenario] of scenarios.entries()) {
      opened ??= Workbench.open(profileFolder === null ? [] : profileOptions(profileFolder));
      try {
        await onResult(await runScenario(await opened, scenario, options));
      } catch (error) {
        if (error instanceof OperatorError || scenarios.length === 1) throw error;
        // Half an hour of the others is not thrown away for one.
        say(`${scenario.name} could not be run: ${error instanceof Error ? error.stack : String(error)}`);
        failed.push(scenario.name);
        await close();
      }
      const next = scenarios[index + 1];
      if (scenario.shares === undefined || next?.shares !== scenario.shares) await close();
    }
  } finally {
    await close();
  }
  if (failed.length > 0) throw new OperatorError(`could not be run: ${failed.join(', ')}`);
}

/** Enough for the short runs; the full one has what the goals speak of. */
const EVENTS: Readonly<Record<Length, number>> = {
  full: 10_000_000,
  quick: 1_000_000,
  smoke: 100_000,
};

/** What no noise excuses: statuses, the ledger, the limit. No figure is judged: `compare` does that for CPU. */
const SMOKE = ['saturate', 'per-app-limit', 'over-limit'];

function lengthOf({ smoke, quick }: Options): Length {
  if (smoke === true) return 'smoke';
  return quick === true ? 'quick' : 'full';
}

/** Scenarios that were asked for; those of the smoke set; or all. */
function chosen(names: readonly string[], set: readonly string[]): Scenario[] {
  const unknown = names.find((name) => !SCENARIOS.some((scenario) => scenario.name === name));
  if (unknown !== undefined) {
    throw new OperatorError(
      `there is no scenario ${unknown}: ${SCENARIOS.map(({ name }) => name).join(', ')}`,
    );
  }
  const wanted = new Set(names.length > 0 ? names : set);
  return SCENARIOS.filter(({ name }) => wanted.size === 0 || wanted.has(name));
}

async function main(names: readonly string[], given: Options): Promise<number> {
  if (given.docs === true) {
    await writeDocuments();
    return 0;
  }
  if (given.json === true) audience = process.stderr;
  const length = lengthOf(given);
  const profileFolder = given.profile === true ? resolve(ROOT, '.bench', 'profiles') : null;
  if (profileFolder !== null) await mkdir(profileFolder, { recursive: true });
  const options: RunOptions = { length, events: given.events ?? EVENTS[length], profileFolder };
  // A smoke is no record of how fast the service is; a profile is one of where its time goes.
  const store = given.store && given.smoke !== true;
  const results: StoredResult[] = [];
  await runScenarios(chosen(names, given.smoke === true ? SMOKE : []), options, async (result) => {
    results.push(result);
    if (!store) return;
    if (profileFolder === null) await storeResult(result);
    else await storeProfile(result);
    await writeDocuments();
  });
  if (given.json === true) process.stdout.write(`${JSON.stringify({ results }, null, 2)}\n`);
  const failedChecks = results.flatMap(({ scenario, checks }) =>
    checks.filter(({ holds }) => !holds).map(({ claim, seen }) => `${scenario}: ${claim} (${seen})`),
  );
  for (const failure of failedChecks) say(`FAILED: ${failure}`);
  return failedChecks.length > 0 ? 1 : 0;
}

function count(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < 100_000) throw new InvalidArgumentError('At least 100000.');
  return value;
}

const program = new Command('bench')
  .description(
    `Scenarios:\n${SCENARIOS.map(({ name, about }) => `  ${name.padEnd(14)} ${about}`).join('\n')}`,
  )
  .argument('[names...]', 'scenarios; all where none is named')
  .option('--quick', 'shorter rounds and fewer')
  .option('--json', 'print one JSON object on standard output')
  .option(
    '--events <number>',
    'events stored for the scenarios that read: 10000000, or 1000000 with --quick',
    count,
  )
  .option(
    '--profile',
    'profile the service: NAME.cpuprofile in .bench/profiles, for the developer tools of a browser',
  )
  .option('--docs', 'run nothing; renew the generated parts of README.md, docs and bench/RESULTS.md')
  .option('--no-store', 'leave bench/results and the documentation as they are')
  .option('--smoke', 'only check that the work is right, in under two minutes')
  .action(async (names: string[], options: Options) => {
    process.exitCode = await main(names, options).catch((error: unknown) => {
      // What the person at the keyboard can put right needs no stack.
      const text = error instanceof Error && !(error instanceof OperatorError) ? error.stack : undefined;
      process.stderr.write(`bench: ${text ?? (error instanceof Error ? error.message : String(error))}\n`);
      return 2;
    });
  });
await program.parseAsync();
