/**
 * The table of faults in docs/durability.md, on both engines. With FAULT_ROUNDS each fault is done so many times under load, with
 * a journal and without; that writes bench/results/faults.json. Without that variable each is done once, and shorter.
 *
 *     FAULT_ROUNDS=10 npx vitest run test/e2e/faults.slow.test.ts && npm run docs
 */
import { chmod, mkdir, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, inject, test, vi } from 'vitest';
import { type FaultCampaign, type FaultRow, faultsTable } from '../../bench/report/figures.ts';
import { circumstances, RESULTS_FOLDER } from '../../bench/report/results.ts';
import { first } from '../support/fuzz.ts';
import { TIMESCALE_OPTIONS } from '../support/global-setup.ts';
import { request } from '../support/http-client.ts';
import { Ledger } from '../support/ledger.ts';
import { patient } from '../support/patience.ts';
import { FaultyProxy, isCopy } from '../support/proxy.ts';
import { TestRedis } from '../support/redis.ts';
import { REDIS_SERVER } from '../support/redis-server.ts';
import { RestartablePostgres } from '../support/restartable-postgres.ts';
import { until } from '../support/service.ts';
import { mountSmall, mountsAllowed } from '../support/small-disk.ts';
import { childrenOf, Installation, type ServerProcess } from './server-process.ts';

const ROUNDS = Number(process.env.FAULT_ROUNDS ?? 0);
const PRODUCERS = 16;
const AWAY_MS = ROUNDS > 0 ? 5_000 : 1_500;
/** Events that must be acknowledged before a fault, and after it. */
const PROGRESS = ROUNDS > 0 ? 300 : 100;
/** Of the disks that are filled. */
const DISK = ROUNDS > 0 ? '512m' : '128m';

vi.setConfig({ testTimeout: patient(900_000), hookTimeout: patient(90_000) });

let postgres: RestartablePostgres;
let proxy: FaultyProxy;
let installation: Installation;
let redis: TestRedis | null = null;
let server: ServerProcess | null = null;
/** What the server was started with, as JSON. */
let startedWith = '';
/** Takes the small disks away. */
let unmount: (() => Promise<void>)[] = [];
/** Folders on small disks: for the database's rows, and for the journal. */
let space: string;
let journalFolder: string;
let loggingToken: string;
const table: FaultRow[] = [];

type EngineName = FaultRow['engine'];

const timescaleHome = inject('timescaleHome');
const ALL_ENGINES = ['PostgreSQL', 'TimescaleDB'] as const;
const ENGINES: readonly EngineName[] = [
  'PostgreSQL',
  ...(timescaleHome === null ? [] : (['TimescaleDB'] as const)),
];

async function setUp(engine: EngineName): Promise<void> {
  postgres = await RestartablePostgres.make(
    {},
    engine === 'TimescaleDB' && timescaleHome !== null
      ? { home: timescaleHome, options: TIMESCALE_OPTIONS }
      : null,
  );
  await makeDisks();
  proxy = await FaultyProxy.start(postgres.address);
  const address = proxy.address;
  if ('url' in address) throw new Error('The proxy has no port.');
  installation = await Installation.make({
    DATABASE_URL: `postgres://${address.user}@${address.host}:${address.port}/${address.database}`,
    LOG_LEVEL: 'fatal',
  });
  if (REDIS_SERVER !== undefined) redis = await TestRedis.start();
  server = await installation.start();
  startedWith = '{}';
  ({ loggingToken } = await installation.makeApp());
}

/** Where that is allowed, rows and journal are on disks that can be filled. */
async function makeDisks(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'tidemark-disks-'));
  await chmod(folder, 0o711); // PostgreSQL may be another user.
  [space = '', journalFolder = ''] = ['rows', 'journal'].map((name) => join(folder, name));
  await Promise.all([mkdir(space), mkdir(journalFolder)]);
  unmount = [() => rm(folder, { recursive: true, force: true })];
  if (!mountsAllowed()) return;
  unmount.unshift(await mountSmall(space, DISK, postgres.user), await mountSmall(journalFolder, DISK));
  const sql = postgres.connect();
  await sql.unsafe(`CREATE TABLESPACE small LOCATION '${space}'`);
  await sql.unsafe('ALTER DATABASE postgres SET default_tablespace = small');
  await sql.end();
}

/** Fills the disk of a folder while something is done. */
async function whileFull(folder: string, work: () => Promise<void>): Promise<void> {
  const filler = join(folder, 'filler');
  const file = await open(filler, 'w');
  try {
    // All that there is: in the end byte by byte, as rows are smaller than a block.
    for (const bytes of [1_048_576, 4_096])
      while (
        await file.write(Buffer.alloc(bytes)).then(
          () => true,
          () => false,
        )
      );
    await work();
  } finally {
    await file.close();
    await rm(filler);
  }
}

async function tearDown(): Promise<void> {
  await redis?.remove();
  redis = null;
  await installation.remove();
  await proxy.stop();
  await postgres.stop();
  for (const step of unmount) await step();
}

afterAll(async () => {
  if (ROUNDS === 0) return;
  const path = join(RESULTS_FOLDER, 'faults.json');
  const { faults: known }: FaultCampaign = JSON.parse(await readFile(path, 'utf8'));
  // An engine whose campaign was not complete keeps its record.
  const complete = ENGINES.filter(
    (engine) => rowsOf(table, engine).length === EVERY_FAULT.flatMap(modesOf).length,
  );
  const faults = ALL_ENGINES.flatMap((engine) => rowsOf(complete.includes(engine) ? table : known, engine));
  const campaign: FaultCampaign = { producers: PRODUCERS, faults };
  if (complete.length > 0) await writeFile(path, `${JSON.stringify(campaign, null, 2)}\n`);
  console.log(faultsTable({ producers: PRODUCERS, faults: table }));
});

function rowsOf(rows: readonly FaultRow[], engine: EngineName): FaultRow[] {
  return rows.filter((row) => row.engine === engine);
}

/** What a fault is done to, beside the database. */
interface Scene {
  readonly ledger: Ledger;
  readonly restart: () => Promise<void>;
}

interface Fault {
  readonly name: string;
  /** Whether it is done with a journal where it is done once; or the only way in which it can be done. */
  readonly journaled: boolean;
  readonly isOneWay?: true;
  /** Whether this machine can do it. */
  readonly isPossible?: () => boolean;
  readonly settings?: () => Record<string, string>;
  /** Does it, and undoes it. */
  readonly strike: (scene: Scene) => Promise<void>;
}

function stop(ms: number): () => Promise<void> {
  return async () => {
    await postgres.pause();
    await delay(ms);
    await postgres.resume();
  };
}

function refusals({ statuses }: Ledger): number {
  return statuses.get(503) ?? 0;
}

async function moreRefusals(ledger: Ledger): Promise<void> {
  const before = refusals(ledger);
  await until(() => refusals(ledger) > before, 'events are refused', 60_000);
}

/** In an order in which the server is seldom started again. */
const FAULTS: readonly Fault[] = [
  { name: '`kill -9` of the server', journaled: false, strike: ({ restart }) => restart() },
  {
    name: '`kill -9` of PostgreSQL, started again at once',
    journaled: false,
    strike: async () => {
      await postgres.kill();
      await postgres.start();
    },
  },
  {
    name: 'connection cut in the middle of a commit, both sides of it',
    journaled: false,
    strike: async () => {
      for (const fate of ['cut-request', 'lose-answer'] as const) {
        const met = proxy.next(isCopy, fate, 2);
        await until(() => met() === 2, 'two commits are cut');
      }
    },
  },
  {
    name: 'disk of the rows full',
    journaled: false,
    isPossible: mountsAllowed,
    strike: ({ ledger }) => {
      const before = refusals(ledger);
      const isNoticed = async (): Promise<boolean> =>
        refusals(ledger) > before || (await waitingEvents()) > 0;
      return whileFull(space, () => until(isNoticed, 'events are refused or in the journal', 60_000));
    },
  },
  {
    name: `\`kill -9\` of PostgreSQL, away for ${AWAY_MS / 1_000} s`,
    journaled: true,
    strike: async () => {
      await postgres.kill();
      await delay(AWAY_MS);
      await postgres.start();
    },
  },
  {
    name: '`kill -9` of PostgreSQL, then of the server',
    journaled: true,
    strike: async ({ restart }) => {
      await postgres.kill();
      await delay(AWAY_MS / 5);
      const down = server;
      server = null;
      await down?.end('SIGKILL');
      await postgres.start();
      await restart();
    },
  },
  { name: `PostgreSQL stopped (SIGSTOP) for ${AWAY_MS / 1_000} s`, journaled: true, strike: stop(AWAY_MS) },
  {
    name: 'PostgreSQL stopped, then the disk of the journal full',
    journaled: true,
    isOneWay: true,
    isPossible: mountsAllowed,
    settings: () => ({ JOURNAL_DIR: journalFolder }),
    strike: async ({ ledger }) => {
      await postgres.pause();
      await until(async () => (await waitingEvents()) > PROGRESS, 'events are in the journal', 60_000);
      await whileFull(journalFolder, () => moreRefusals(ledger));
      await postgres.resume();
    },
  },
  {
    name: '`kill -9` of one of two workers',
    journaled: false,
    isPossible: () => REDIS_SERVER !== undefined,
    settings: () => ({ WORKERS: '2', REDIS_URL: redis?.url ?? '' }),
    strike: async () => {
      const [first] = childrenOf(server?.pid ?? 0);
      if (first === undefined) throw new Error('The server has no workers.');
      process.kill(first, 'SIGKILL');
      await until(() => {
        const workers = childrenOf(server?.pid ?? 0);
        return workers.length === 2 && !workers.includes(first);
      }, 'another worker has taken its place');
    },
  },
];

const LONG_STOP: Fault = {
  name: 'PostgreSQL stopped (SIGSTOP) for 30 s',
  journaled: true,
  strike: stop(30_000),
};

const EVERY_FAULT = [...FAULTS, LONG_STOP];

/** With a journal and without, as far as the fault can be done so. */
function modesOf({ journaled, isOneWay }: Fault): boolean[] {
  return isOneWay === true ? [journaled] : [journaled, !journaled];
}

describe.each(ROUNDS > 0 ? ENGINES : first(ENGINES))('security 22: on %s, under load:', (engine) => {
  beforeAll(() => setUp(engine));
  afterAll(tearDown);

  test.each(FAULTS.filter(({ isPossible }) => isPossible?.() ?? true))('$name', async (fault) => {
    const [once = true, ...others] = modesOf(fault);
    for (const journaled of ROUNDS > 0 ? [once, ...others] : [once])
      await measure(engine, journaled, Math.max(1, ROUNDS), fault);
  });

  test.runIf(ROUNDS > 0)(`${LONG_STOP.name}, once`, async () => {
    for (const journaled of modesOf(LONG_STOP)) await measure(engine, journaled, 1, LONG_STOP);
  });
});

async function measure(engine: EngineName, journaled: boolean, rounds: number, fault: Fault): Promise<void> {
  const settings = {
    ...(journaled && { JOURNAL_DIR: join(installation.folder, 'journal') }),
    ...fault.settings?.(),
  };
  const restart = async (): Promise<void> => {
    const down = server;
    server = null;
    await down?.end('SIGKILL');
    server = await installation.start(settings);
  };
  if (server === null || startedWith !== JSON.stringify(settings)) {
    await server?.end('SIGTERM');
    server = await installation.start(settings);
    startedWith = JSON.stringify(settings);
  }
  const ledger = new Ledger({
    loggingToken,
    typeName: `${fault.name} ${journaled}`,
    port: () => server?.port ?? null,
  });
  ledger.start(PRODUCERS);
  let longestWait = 0;
  let longestReplay = 0;
  const progress = async (): Promise<void> => {
    const goal = ledger.acknowledged + PROGRESS;
    await until(() => ledger.acknowledged >= goal, `${PROGRESS} more events are acknowledged`, 60_000);
  };
  await progress();
  for (let round = 0; round < rounds; round += 1) {
    let last = ledger.acknowledged;
    let lastAt = performance.now();
    const watch = setInterval(() => {
      if (ledger.acknowledged > last) {
        longestWait = Math.max(longestWait, performance.now() - lastAt);
        last = ledger.acknowledged;
        lastAt = performance.now();
      }
    }, 2);
    await fault.strike({ ledger, restart });
    const endedAt = performance.now();
    await until(isReady, 'the database is back and the journal empty', 60_000);
    longestReplay = Math.max(longestReplay, performance.now() - endedAt);
    await progress();
    clearInterval(watch);
  }
  await ledger.stop();
  // On a slow machine the last events may have gone into the journal again.
  await until(isReady, 'what was acknowledged last has left the journal', 60_000);
  const sql = postgres.connect();
  const found = await ledger.compare(sql);
  await sql.end();
  let refused = 0;
  for (const [status, times] of ledger.statuses) if (status !== 201) refused += times;
  const { at, commit } = await circumstances('', 'full');
  table.push({
    at,
    commit,
    engine,
    fault: fault.name,
    journal: journaled,
    rounds,
    acknowledged: ledger.acknowledged,
    lost: found.acknowledgedAndMissing,
    storedTwice: found.storedTwice,
    unexplained: found.storedAndNeverSent + found.storedAndRefused,
    refused,
    longestWaitMs: Math.round(longestWait),
    recoveryMs: Math.round(longestReplay),
  });
  expect(found).toEqual({
    acknowledgedAndMissing: 0,
    storedTwice: 0,
    storedAndRefused: 0,
    storedAndNeverSent: 0,
    miscounted: 0,
  });
}

/** Events in the journal; 0 where there is none. */
async function waitingEvents(): Promise<number> {
  return (await readiness()).waitingEvents;
}

async function isReady(): Promise<boolean> {
  const { status, waitingEvents } = await readiness();
  return status === 200 && waitingEvents === 0;
}

async function readiness(): Promise<{ status: number; waitingEvents: number }> {
  const answer = server === null ? null : await request(server.port, { path: '/readyz' }).catch(() => null);
  if (answer === null) return { status: 0, waitingEvents: 0 };
  const { journal }: { journal?: { waitingEvents: number } } = JSON.parse(answer.body);
  return { status: answer.status, waitingEvents: journal?.waitingEvents ?? 0 };
}
