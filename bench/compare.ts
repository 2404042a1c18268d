/**
 * The working tree beside another commit, in turns on one machine.
 *
 *   npm run bench:compare -- REF              until every ratio is known within 3 %, at most five minutes
 *   npm run bench:compare -- --judge          against the merge base, 90 seconds, and up to three more starts of the loads
 *                                             that look more expensive; exit code 1 where the CPU of an event or of a read
 *                                             has grown by more than 10 %
 *
 * Each side is a service of its own with its own embedded PostgreSQL, as `npm start` runs it, and is used only by HTTP and
 * its command line, so that any commit can be compared whose schema is another.
 */
import { execFile } from 'node:child_process';
import { chmod, mkdtemp, readFile, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Command, InvalidArgumentError, Option } from 'commander';
import { OperatorError } from '../src/errors.ts';
import { type Interval, intervalOf, pairwise, spreadOf } from './judge.ts';
import { LoadGenerator } from './load/load-generator.ts';
import type { LoadReport, LoadRequest } from './load/load-job.ts';
import { answersOf } from './measure.ts';
import { ROOT } from './report/results.ts';
import { formatNumber, formatTable } from './report/table.ts';
import { checkOut, mergeBase, resolveCommit } from './servers/checkout.ts';
import { cpuOf, cpuOfFamily, memoryOf } from './servers/process-usage.ts';
import { Spawned } from './servers/spawned.ts';

/** What a bound of an interval must be above for a change to be refused. */
const GROWTH_LIMIT = 1.1;
/** Of the claim that something has grown by more than the limit: one-sided, so the interval leaves out 5 % at either end. */
const JUDGED_CONFIDENCE = 0.9;
/** An interval is narrow where its bounds are this close to its estimate. */
const NARROW = 0.03;
/**
 * How long a comparison takes. Both services are started anew several times: a process may run one load half as fast again
 * as the next of the same code, as the compiler has come to other decisions, so what is judged must be seen in every start.
 */
interface Plan {
  readonly starts: number;
  /** Of one start; all starts together must have the six that an interval of 95 % takes. */
  readonly leastRounds: number;
  /** Of the seconds that a turn of each load has. */
  readonly turnShare: number;
  readonly budgetMs: number;
  /** More starts, of the loads alone that have become dearer in every start before. */
  readonly doubts: number;
}

const FULL: Plan = { starts: 3, leastRounds: 3, turnShare: 1, budgetMs: 300_000, doubts: 0 };
const SHORT: Plan = { starts: 2, leastRounds: 4, turnShare: 0.5, budgetMs: 90_000, doubts: 3 };

const BATCH_EVENTS = 500;
const FILLED_BATCHES = 100;
const FILLED_DAYS = 30;
const DAY_MS = 86_400_000;
const MANY_APPS = 3_000;
const EMAIL = 'bench@example.org';
const PASSWORD = 'the long password of the bench';
/** Counts of the last events are folded once a second: that long their cost is still counted. */
const FOLD_MS = 1_500;

interface App {
  readonly appId: string;
  readonly typeId: string;
  readonly loggingToken: string;
}

interface Side {
  readonly name: string;
  readonly server: Spawned;
  readonly postmaster: number;
  /** Written to; and one that was filled before, to be read. */
  readonly written: App;
  readonly filled: App;
  readonly resourceToken: string;
  /** Logging tokens of many more. */
  readonly tokens: readonly string[];
}

interface Load {
  readonly name: string;
  readonly connections: number;
  readonly seconds: number;
  /** Of the time that a comparison has. */
  readonly share: number;
  /** Events or reads of one answer. */
  readonly units: number;
  readonly requests: (side: Side) => readonly LoadRequest[];
}

/** What one turn of one side came to. */
interface Turn {
  readonly perSecond: number;
  readonly p99: number;
  /** CPU in microseconds an event or a read. */
  readonly service: number;
  readonly postgres: number;
}

const MEASURES = {
  perSecond: 'a second',
  service: 'CPU of the service',
  postgres: 'CPU of PostgreSQL',
  p99: 'p99',
} as const satisfies Record<keyof Turn, string>;

interface Comparison {
  readonly load: string;
  readonly measure: keyof Turn;
  readonly unit: string;
  /** Medians of the two. */
  readonly now: number;
  readonly before: number;
  readonly ratio: Interval;
  /** The least that the ratio may be, by {@link JUDGED_CONFIDENCE}. */
  readonly least: number;
  /** The median ratio of each start. */
  readonly starts: readonly number[];
  readonly rounds: number;
}

const payload = (n: number): string =>
  JSON.stringify({
    path: `/articles/${n % 5_000}`,
    referrer: 'https://example.org/',
    user: `u-${n % 977}`,
    status: [200, 200, 200, 404, 500][n % 5],
    text: 'x'.repeat(90),
  });

/** @param type the property that names it */
function event(loggingToken: string, type: string): LoadRequest {
  const body = `{"loggingToken":"${loggingToken}",${type},"payload":${payload(0)}}`;
  return { method: 'POST', path: '/public/create_event', body };
}

function get(side: Side, path: string): LoadRequest {
  return { method: 'GET', path, headers: { Authorization: `Bearer ${side.resourceToken}` } };
}

function batch(app: App, createdAt: (n: number) => string): LoadRequest {
  const events = Array.from(
    { length: BATCH_EVENTS },
    (_, n) => `{"typeId":"${app.typeId}"${createdAt(n)},"payload":${payload(n)}}`,
  );
  return {
    method: 'POST',
    path: '/v1/events',
    headers: { Authorization: `Bearer ${app.loggingToken}` },
    body: `{"events":[${events.join(',')}]}`,
  };
}

const LOADS: readonly Load[] = [
  {
    name: 'event',
    connections: 64,
    seconds: 1.5,
    share: 0.3,
    units: 1,
    requests: ({ written: { loggingToken, typeId } }) => [event(loggingToken, `"typeId":"${typeId}"`)],
  },
  {
    name: 'event of many apps',
    connections: 256,
    seconds: 3,
    share: 0.25,
    units: 1,
    requests: ({ tokens }) => tokens.map((token) => event(token, '"typeName":"page viewed"')),
  },
  {
    name: 'batch',
    connections: 2,
    seconds: 1,
    share: 0.15,
    units: BATCH_EVENTS,
    requests: ({ written }) => [batch(written, () => '')],
  },
  {
    name: 'page',
    connections: 4,
    seconds: 0.8,
    share: 0.15,
    units: 1,
    requests: (side) => [get(side, `/public/get_events?appId=${side.filled.appId}&limit=100&offset=20000`)],
  },
  {
    name: 'series',
    connections: 4,
    seconds: 0.8,
    share: 0.15,
    units: 1,
    requests: (side) => [get(side, `/v1/apps/${side.filled.appId}/series?interval=1d&by=type`)],
  },
];

/** The text of a command's JSON, run with the code of a side. @param input its standard input */
async function command(
  folder: string,
  env: NodeJS.ProcessEnv,
  args: readonly string[],
  input = '',
): Promise<Record<string, string>> {
  const all = [join(folder, 'tidemark.mjs'), ...args, '--json'];
  const running = promisify(execFile)(process.execPath, all, { env });
  running.child.stdin?.end(input);
  return JSON.parse((await running).stdout);
}

/** The two services, and what must be gone when they end. */
class Sides {
  readonly #servers: Spawned[] = [];
  readonly #folders: string[] = [];

  async start(name: string, folder: string): Promise<Side> {
    const home = await realpath(await mkdtemp(join(tmpdir(), 'tidemark-compare-')));
    this.#folders.push(home);
    // The unprivileged user that runs PostgreSQL for root must get in.
    await chmod(home, 0o755);
    const DATA_DIR = join(home, 'data');
    const settings = {
      DATA_DIR,
      LOG_LEVEL: 'warn',
      CREATE_LIMIT_PER_MINUTE: '0',
      READ_LIMIT_PER_MINUTE: '0',
      MAX_APPS_PER_ACCOUNT: '0',
    };
    const server = await Spawned.start({
      command: process.execPath,
      args: [join(folder, 'tidemark.mjs'), 'serve'],
      env: { PORT: '0', ...settings },
      listens: /listens on http:\/\/127\.0\.0\.1:(\d+)/,
    });
    this.#servers.push(server);
    const cluster = await realpath(join(DATA_DIR, 'postgres'));
    if (!cluster.startsWith(home)) this.#folders.push(cluster);
    const env = { PATH: process.env.PATH, ...settings };
    const run = (...args: readonly string[]) => command(folder, env, args);
    const makeApp = async (appName: string): Promise<App> => {
      const { appId = '', loggingToken = '' } = await run('app', 'create', '--name', appName);
      const { typeId = '' } = await run('type', 'create', '--app', appId, '--name', 'page viewed');
      return { appId, loggingToken, typeId };
    };
    const written = await makeApp('written');
    const filled = await makeApp('filled');
    const { resourceToken = '' } = await run('token', 'create', '--name', 'compare', '--app', filled.appId);
    await fill(server.port, filled);
    await command(folder, env, ['user', 'create', '--email', EMAIL, '--password-stdin'], PASSWORD);
    const tokens = await makeApps(server.port);
    const postmaster = Number.parseInt(await readFile(join(cluster, 'postmaster.pid'), 'utf8'), 10);
    return { name, server, postmaster, written, filled, resourceToken, tokens };
  }

  async close(): Promise<void> {
    for (const server of this.#servers.splice(0)) await server.stop();
    for (const folder of this.#folders.splice(0)) await rm(folder, { recursive: true, force: true });
  }
}

/** Apps of one account, by HTTP: a command for each would take an hour. @returns their logging tokens */
async function makeApps(port: number): Promise<readonly string[]> {
  const base = `http://127.0.0.1:${port}`;
  const post = async (path: string, body: object, cookie = ''): Promise<Response> => {
    const headers = { 'Content-Type': 'application/json', Origin: base, Cookie: cookie };
    const response = await fetch(`${base}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    if (!response.ok) throw new OperatorError(`${path}: ${response.status} ${await response.text()}`);
    return response;
  };
  const session = await post('/api/session', { email: EMAIL, password: PASSWORD });
  const cookie = session.headers.get('set-cookie')?.split(';')[0] ?? '';
  const tokens: string[] = [];
  const makeSome = async (): Promise<void> => {
    while (tokens.length < MANY_APPS) {
      const response = await post('/api/apps', { name: 'many' }, cookie);
      const { data } = (await response.json()) as { data: { loggingToken: string } };
      tokens.push(data.loggingToken);
    }
  };
  await Promise.all(Array.from({ length: 8 }, makeSome));
  return tokens;
}

/** Events over a month, by HTTP. */
async function fill(port: number, app: App): Promise<void> {
  const until = Date.now();
  const spacing = (FILLED_DAYS * DAY_MS) / (FILLED_BATCHES * BATCH_EVENTS);
  for (let part = 0; part < FILLED_BATCHES; part += 1) {
    const from = until - (FILLED_BATCHES - part) * BATCH_EVENTS * spacing;
    const at = (n: number): string => `,"createdAt":"${new Date(from + n * spacing).toISOString()}"`;
    const { path, headers, body } = batch(app, at);
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method: 'POST',
      headers: { ...headers, 'Content-Type': 'application/json' },
      body: body ?? '',
    });
    if (response.status !== 201 && response.status !== 200)
      throw new OperatorError(`events could not be filled in: ${response.status} ${await response.text()}`);
  }
}

/** Turns of both sides in one start; turns[i] of both were neighbors. */
type Start = readonly [now: Turn[], before: Turn[]];

/** Runs loads against two services in turns. */
class Measuring {
  readonly #generator = new LoadGenerator();
  readonly #sides: readonly [Side, Side];
  readonly #turnShare: number;

  constructor(sides: readonly [Side, Side], turnShare: number) {
    this.#sides = sides;
    this.#turnShare = turnShare;
  }

  end(): Promise<void> {
    return this.#generator.end();
  }

  async #load(side: Side, load: Load): Promise<LoadReport> {
    const { connections, requests } = load;
    const { port } = side.server;
    const seconds = load.seconds * this.#turnShare;
    const job = { kind: 'closed', port, connections, seconds, requests: requests(side) } as const;
    const report = await this.#generator.run(job);
    const refused = answersOf(report) - answersOf(report, /^2|^404/) + report.unanswered;
    if (refused > 0) throw new OperatorError(`${side.name} refuses ${load.name}: ${report.refusals[0]}`);
    return report;
  }

  /** @returns whether both sides have it: an older commit may not have the route */
  async warmUp(load: Load): Promise<boolean> {
    let missing = 0;
    for (const side of this.#sides) missing += answersOf(await this.#load(side, load), /^404/);
    return missing === 0;
  }

  /**
   * Rounds of two turns, in a drawn order, until they say enough. What a side's PostgreSQL does behind its turn,
   * such as folding counts, is counted until its next one.
   * @param isEnough asked after each round
   */
  async rounds(load: Load, isEnough: (turns: Start) => boolean): Promise<Start> {
    const turns: Start = [[], []];
    const open: (() => void)[] = [];
    let order: readonly [number, number] = [0, 1];
    let rounds = 0;
    do {
      // Drawn for every other round; the next one has it the other way around, which cancels a drift.
      order = rounds++ % 2 === 1 ? [order[1], order[0]] : Math.random() < 0.5 ? [0, 1] : [1, 0];
      for (const side of order) {
        open[side]?.();
        open[side] = await this.#turn(side, load, turns);
      }
    } while (!isEnough(turns));
    await pause(FOLD_MS);
    for (const end of open) end();
    return turns;
  }

  /** @returns what ends the turn and adds it to the others */
  async #turn(index: number, load: Load, turns: Start): Promise<() => void> {
    const side = this.#sides[index] as Side;
    const before = { service: cpuOf(side.server.pid), postgres: cpuOfFamily(side.postmaster) };
    const report = await this.#load(side, load);
    const units = answersOf(report) * load.units;
    return () => {
      turns[index]?.push({
        perSecond: units / report.seconds,
        p99: report.latency?.p99 ?? Number.NaN,
        service: ((cpuOf(side.server.pid) - before.service) * 1_000) / units,
        postgres: ((cpuOfFamily(side.postmaster) - before.postgres) * 1_000) / units,
      });
    };
  }
}

const UNITS = { perSecond: '/s', p99: 'ms', service: 'µs', postgres: 'µs' } as const;

function comparisonsOf(load: Load, starts: readonly Start[]): Comparison[] {
  return (Object.keys(MEASURES) as (keyof Turn)[]).map((measure) => {
    const of = (turns: readonly Turn[]): number[] => turns.map((turn) => turn[measure]);
    const ratios = starts.map(([now, before]) => pairwise(of(now), of(before)));
    return {
      load: load.name,
      measure,
      unit: UNITS[measure],
      now: spreadOf(starts.flatMap(([now]) => of(now))).median,
      before: spreadOf(starts.flatMap(([, before]) => of(before))).median,
      ratio: intervalOf(ratios.flat()),
      least: intervalOf(ratios.flat(), JUDGED_CONFIDENCE).low,
      starts: ratios.map((one) => spreadOf(one).median),
      rounds: ratios.flat().length,
    };
  });
}

function isNarrow({ ratio }: Comparison): boolean {
  return ratio.high / ratio.estimate - 1 < NARROW && ratio.estimate / ratio.low - 1 < NARROW;
}

function formatComparisons(comparisons: readonly Comparison[]): string {
  const rows = comparisons.map(({ load, measure, unit, now, before, ratio, starts, rounds }) => [
    `${load}: ${MEASURES[measure]}`,
    `${formatNumber(before)} ${unit}`,
    `${formatNumber(now)} ${unit}`,
    ratio.estimate.toFixed(3),
    `${ratio.low.toFixed(3)} to ${ratio.high.toFixed(3)}`,
    starts.map((one) => one.toFixed(2)).join(', '),
    String(rounds),
  ]);
  return formatTable(['What', 'Before', 'Now', 'Ratio', '95 % interval', 'Starts', 'Rounds'], rows);
}

/** What has certainly become dearer by more than the limit, in every start. */
function grown(comparisons: readonly Comparison[]): Comparison[] {
  return comparisons.filter(
    ({ measure, least, starts }) =>
      (measure === 'service' || measure === 'postgres') &&
      least > GROWTH_LIMIT &&
      starts.every((one) => one > GROWTH_LIMIT),
  );
}

interface Options {
  readonly judge?: true;
  readonly seconds?: number;
  readonly json?: true;
  readonly only?: string;
}

/** Megabytes that each service has had at most, in each start. */
type MemoryOfStart = readonly [now: number, before: number];

interface Measured {
  readonly comparisons: readonly Comparison[];
  readonly memory: readonly MemoryOfStart[];
}

async function compareWith(commit: string, loads: readonly Load[], plan: Plan): Promise<Measured> {
  const before = await checkOut(commit);
  const turns = new Map<Load, Start[]>(loads.map((load) => [load, []]));
  const memory: MemoryOfStart[] = [];
  const compared = (): Comparison[] => [...turns].flatMap(([load, starts]) => comparisonsOf(load, starts));
  const startBoth = async (measured: Map<Load, Start[]>, until: number): Promise<void> => {
    const sides = new Sides();
    try {
      const pair = await Promise.all([sides.start('now', ROOT), sides.start('before', before)]);
      await measureStart(pair, measured, plan, until);
      memory.push([memoryOf(pair[0].server.pid).highWater, memoryOf(pair[1].server.pid).highWater]);
    } finally {
      await sides.close();
    }
  };
  const started = performance.now();
  for (let start = 1; start <= plan.starts; start += 1)
    await startBoth(turns, started + (plan.budgetMs * start) / plan.starts);
  for (let doubt = 0; doubt < plan.doubts; doubt += 1) {
    const names = new Set(grown(compared()).map(({ load }) => load));
    if (names.size === 0) break;
    const dearer = [...turns].filter(([{ name }]) => names.has(name));
    const share = dearer.reduce((sum, [load]) => sum + load.share, 0) / plan.starts;
    await startBoth(new Map(dearer), performance.now() + plan.budgetMs * share);
  }
  return { comparisons: compared(), memory };
}

/** Every load in one start of both services. @param until milliseconds of performance.now() */
async function measureStart(
  pair: readonly [Side, Side],
  turns: Map<Load, Start[]>,
  { leastRounds, turnShare }: Plan,
  until: number,
): Promise<void> {
  const measuring = new Measuring(pair, turnShare);
  try {
    const loads = [...turns.keys()];
    for (const [index, load] of loads.entries()) {
      if (!(await measuring.warmUp(load))) {
        process.stderr.write(`${load.name}: only one of the two commits has it\n`);
        turns.delete(load);
        continue;
      }
      const now = performance.now();
      const left = loads.slice(index).reduce((sum, { share }) => sum + share, 0);
      const deadline = now + ((until - now) * load.share) / left;
      const earlier = turns.get(load) ?? [];
      const isEnough = (latest: Start): boolean =>
        latest[0].length >= leastRounds &&
        (performance.now() > deadline || comparisonsOf(load, [...earlier, latest]).every(isNarrow));
      earlier.push(await measuring.rounds(load, isEnough));
    }
  } finally {
    await measuring.end();
  }
}

async function main(ref: string | undefined, options: Options): Promise<number> {
  const base = ref === undefined ? await mergeBase() : await resolveCommit(ref);
  if (base === null) {
    process.stderr.write('Nothing to compare with: this clone has one commit.\n');
    return 0;
  }
  const plan = options.judge === true ? SHORT : FULL;
  const budgetMs = options.seconds === undefined ? plan.budgetMs : options.seconds * 1_000;
  const loads = LOADS.filter(({ name }) => options.only === undefined || options.only === name);
  const { comparisons, memory } = await compareWith(base, loads, { ...plan, budgetMs });
  const dearer = options.judge === true ? grown(comparisons) : [];
  if (options.json === true) {
    process.stdout.write(`${JSON.stringify({ before: base, comparisons, memory, dearer }, null, 2)}\n`);
  } else {
    const starts = memory.map(([now, earlier]) => `${Math.round(earlier)} → ${Math.round(now)}`).join(', ');
    process.stdout.write(
      `Now: the working tree. Before: ${base}.\n\n${formatComparisons(comparisons)}\n\nMemory of the service in each start, high-water: ${starts} MB.\n`,
    );
  }
  for (const { load, measure, least } of dearer)
    process.stderr.write(
      `FAILED: ${load}, ${MEASURES[measure]}: at least ${least.toFixed(2)} times as much\n`,
    );
  return dearer.length > 0 ? 1 : 0;
}

function seconds(text: string): number {
  if (!/^\d+$/.test(text) || Number(text) < 30) throw new InvalidArgumentError('At least 30.');
  return Number(text);
}

const program = new Command('bench:compare')
  .description('compare the working tree with another commit, in turns on this machine')
  .argument('[ref]', 'the other commit; the merge base with the main branch where none is named')
  .option(
    '--seconds <number>',
    'end after this long though ratios are still uncertain: 300, or 90 with --judge',
    seconds,
  )
  .option('--judge', 'exit code 1 where the CPU of an event or a read has certainly grown by more than 10 %')
  .addOption(new Option('--only <load>', 'one load').choices(LOADS.map(({ name }) => name)))
  .option('--json', 'print one JSON object on standard output')
  .action(async (ref: string | undefined, options: Options) => {
    process.exitCode = await main(ref, options).catch((error: unknown) => {
      const text = error instanceof Error && !(error instanceof OperatorError) ? error.stack : undefined;
      process.stderr.write(`bench: ${text ?? (error instanceof Error ? error.message : String(error))}\n`);
      return 2;
    });
  });
await program.parseAsync();
