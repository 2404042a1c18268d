/**
 * The table of faults in docs/durability.md, by engine. Each fault is done FAULT_ROUNDS times under load; that writes
 * bench/results/faults.json. Without that variable a few are done once, on TimescaleDB alone: on PostgreSQL
 * outage.slow.test.ts and ledger.slow.test.ts do the same.
 *
 *     FAULT_ROUNDS=10 npx vitest run test/e2e/faults.slow.test.ts && npm run docs
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, inject, test, vi } from 'vitest';
import { type FaultCampaign, faultsTable } from '../../bench/figures.ts';
import { circumstances, RESULTS_FOLDER } from '../../bench/results.ts';
import { TIMESCALE_OPTIONS } from '../support/global-setup.ts';
import { request } from '../support/http-client.ts';
import { Ledger } from '../support/ledger.ts';
import { FaultyProxy, isCopy } from '../support/proxy.ts';
import { RestartablePostgres } from '../support/restartable-postgres.ts';
import { until } from '../support/service.ts';
import { Installation, type ServerProcess } from './server-process.ts';

const ROUNDS = Number(process.env.FAULT_ROUNDS ?? 0);
const PRODUCERS = 16;
const AWAY_MS = 5_000;

vi.setConfig({ testTimeout: 900_000, hookTimeout: 90_000 });

let postgres: RestartablePostgres;
let proxy: FaultyProxy;
let installation: Installation;
let server: ServerProcess | null = null;
let loggingToken: string;
const table: FaultCampaign['faults'][number][] = [];

type EngineName = NonNullable<FaultCampaign['faults'][number]['engine']>;

const timescaleHome = inject('timescaleHome');
const ENGINES: readonly EngineName[] = [
  ...(ROUNDS > 0 ? (['PostgreSQL'] as const) : []),
  ...(timescaleHome === null ? [] : (['TimescaleDB'] as const)),
];

async function setUp(engine: EngineName): Promise<void> {
  postgres = await RestartablePostgres.make(
    {},
    engine === 'TimescaleDB' && timescaleHome !== null
      ? { home: timescaleHome, options: TIMESCALE_OPTIONS }
      : null,
  );
  proxy = await FaultyProxy.start(postgres.address);
  const address = proxy.address;
  if ('url' in address) throw new Error('The proxy has no port.');
  installation = await Installation.make({
    DATABASE_URL: `postgres://${address.user}@${address.host}:${address.port}/${address.database}`,
    LOG_LEVEL: 'fatal',
  });
  server = await installation.start();
  ({ loggingToken } = await installation.makeApp());
}

async function tearDown(): Promise<void> {
  await installation.remove();
  await proxy.stop();
  await postgres.stop();
}

afterAll(async () => {
  if (ROUNDS === 0) return;
  const { at, commit } = await circumstances('', 'full');
  const campaign: FaultCampaign = { at, commit, producers: PRODUCERS, faults: table };
  // A part of the campaign is no record.
  if (table.length === 2 * (FAULTS.length + 1) * 2)
    await writeFile(join(RESULTS_FOLDER, 'faults.json'), `${JSON.stringify(campaign, null, 2)}\n`);
  console.log(faultsTable(campaign));
});

interface Fault {
  readonly name: string;
  /** Whether it is also done without FAULT_ROUNDS. */
  readonly isShort?: boolean;
  /** Does it, and undoes it. */
  readonly strike: (restart: () => Promise<void>) => Promise<void>;
}

const FAULTS: readonly Fault[] = [
  { name: '`kill -9` of the server', strike: (restart) => restart() },
  {
    name: '`kill -9` of PostgreSQL, started again at once',
    isShort: true,
    strike: async () => {
      await postgres.kill();
      await postgres.start();
    },
  },
  {
    name: `\`kill -9\` of PostgreSQL, away for ${AWAY_MS / 1_000} s`,
    strike: async () => {
      await postgres.kill();
      await delay(AWAY_MS);
      await postgres.start();
    },
  },
  {
    name: '`kill -9` of PostgreSQL, then of the server',
    strike: async (restart) => {
      await postgres.kill();
      await delay(1_000);
      const down = server;
      server = null;
      await down?.end('SIGKILL');
      await postgres.start();
      await restart();
    },
  },
  {
    name: `PostgreSQL stopped (SIGSTOP) for ${AWAY_MS / 1_000} s`,
    strike: async () => {
      await postgres.pause();
      await delay(AWAY_MS);
      await postgres.resume();
    },
  },
  {
    name: 'connection cut in the middle of a commit, both sides of it',
    isShort: true,
    strike: async () => {
      for (const fate of ['cut-request', 'lose-answer'] as const) {
        const met = proxy.next(isCopy, fate, 2);
        await until(() => met() === 2, 'two commits are cut');
      }
    },
  },
];

describe.each(ENGINES)('on %s, under load:', (engine) => {
  beforeAll(() => setUp(engine));
  afterAll(tearDown);

  test.runIf(ROUNDS > 0)('PostgreSQL stopped (SIGSTOP) for 30 s, once', async () => {
    for (const journaled of [true, false])
      await measure(engine, journaled, 1, {
        name: 'PostgreSQL stopped (SIGSTOP) for 30 s',
        strike: async () => {
          await postgres.pause();
          await delay(30_000);
          await postgres.resume();
        },
      });
  });

  test.each(FAULTS.filter(({ isShort }) => isShort === true || ROUNDS > 0))('$name', async (fault) => {
    for (const journaled of [true, false]) await measure(engine, journaled, Math.max(1, ROUNDS), fault);
  });
});

async function measure(engine: EngineName, journaled: boolean, rounds: number, fault: Fault): Promise<void> {
  const settings: Record<string, string> = journaled
    ? { JOURNAL_DIR: join(installation.folder, 'journal') }
    : {};
  const restart = async (): Promise<void> => {
    const down = server;
    server = null;
    await down?.end('SIGKILL');
    server = await installation.start(settings);
  };
  await server?.end('SIGTERM');
  server = await installation.start(settings);
  const ledger = new Ledger({
    loggingToken,
    typeName: `${fault.name} ${journaled}`,
    port: () => server?.port ?? null,
  });
  ledger.start(PRODUCERS);
  let longestWait = 0;
  let longestReplay = 0;
  const progress = async (): Promise<void> => {
    const goal = ledger.acknowledged + 300;
    await until(() => ledger.acknowledged >= goal, '300 more events are acknowledged', 60_000);
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
    await fault.strike(restart);
    const endedAt = performance.now();
    await until(isReady, 'the database is back and the journal empty', 60_000);
    longestReplay = Math.max(longestReplay, performance.now() - endedAt);
    await progress();
    clearInterval(watch);
  }
  await ledger.stop();
  const sql = postgres.connect();
  const found = await ledger.compare(sql);
  await sql.end();
  let refused = 0;
  for (const [status, times] of ledger.statuses) if (status !== 201) refused += times;
  table.push({
    fault: fault.name,
    engine,
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

async function isReady(): Promise<boolean> {
  if (server === null) return false;
  const answer = await request(server.port, { path: '/readyz' }).catch(() => null);
  if (answer?.status !== 200) return false;
  const { journal }: { journal?: { waitingEvents: number } } = JSON.parse(answer.body);
  return (journal?.waitingEvents ?? 0) === 0;
}
