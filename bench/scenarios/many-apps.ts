/** many-apps: what an event costs where thousands of apps send, against a few, and what a read costs right after. */
import { setTimeout as pause } from 'node:timers/promises';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadReport } from '../load/load-job.ts';
import { answersOf, checkLedger, checkStatuses, createRequest, withCost } from '../measure.ts';
import { SMALL_PAYLOAD_BYTES, startLifted } from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { Workbench } from '../servers/workbench.ts';
import { addLatency } from './limits.ts';

/** The fewest come first: the others are compared with them. */
const FEWEST = 20;
/** How many times what it is with the fewest apps the CPU of an event and the median time of a read may be. */
const EVENT_GOALS: Readonly<Record<number, number>> = { 3000: 1.15, 10000: 1.3 };
const READ_GOAL = 1.15;
const CONNECTIONS = 256;
/** One: with the fold, which may run meanwhile, each has a core. */
const READERS = 1;
const READ_SECONDS = 1;
const POLL_MS = 250;
/** Counts of thousands of apps are folded once a minute at the latest. */
const MOST_POLLS = 300;

interface Turn {
  readonly writes: LoadReport;
  readonly reads: LoadReport;
  /** CPU in microseconds an event, with the folding of its counts. */
  readonly server: number;
  readonly database: number;
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    `Limits lifted, ${CONNECTIONS} connections, closed loop by autocannon; each connection sends for its share of the apps in turn, one type each.`,
  );
  findings.note('The CPU of an event includes the folding of all counts, for which each round waits.');
  findings.note(
    'Reads: the first page of 100 events of one app with its total, before the counts are folded.',
  );
  const { seconds, rounds, sizes } = byLength<{ seconds: number; rounds: number; sizes: readonly number[] }>(
    options,
    {
      full: { seconds: 12, rounds: 5, sizes: [FEWEST, 3_000, 10_000] },
      quick: { seconds: 20, rounds: 2, sizes: [FEWEST, 3_000, 10_000] },
      smoke: { seconds: 2, rounds: 1, sizes: [FEWEST, 3_000] },
    },
  );
  const generator = bench.startGenerator();
  const apps = await bench.makeApps(Math.max(...sizes), 'many-apps');
  const [first] = apps;
  if (first === undefined) throw new Error('No app was made.');
  const token = await bench.makeResourceToken([first]);
  const service = await startLifted(bench, first);
  const { port } = service;
  const write = (size: number, more: { seconds: number; once?: true }): Promise<LoadReport> => {
    const requests = apps.slice(0, size).map((app) => createRequest(app, SMALL_PAYLOAD_BYTES));
    const connections = more.once ? Math.min(CONNECTIONS, size) : CONNECTIONS;
    return generator.run({
      kind: 'closed',
      port,
      connections,
      requests,
      ...more,
    });
  };
  const page = {
    method: 'GET',
    path: `/public/get_events?appId=${first.appId}&limit=100`,
    headers: { Authorization: `Bearer ${token}` },
  } as const;
  const writesOfAll: LoadReport[] = [];
  const turn = async (size: number): Promise<Turn> => {
    const stored = await withCost(bench, service, () => write(size, { seconds }));
    const reads = await generator.run({
      kind: 'closed',
      port,
      connections: READERS,
      seconds: READ_SECONDS,
      requests: [page],
    });
    const folded = await withCost(bench, service, () => untilFolded(bench));
    writesOfAll.push(stored.result);
    const events = answersOf(stored.result);
    return {
      writes: stored.result,
      reads,
      server: ((stored.serverMs + folded.serverMs) * 1_000) / events,
      database: ((stored.databaseMs + folded.databaseMs) * 1_000) / events,
    };
  };
  // Looks up every token and every type.
  for (const size of sizes) writesOfAll.push(await write(size, { seconds, once: true }));
  await untilFolded(bench);
  const turns = new Map<number, Turn[]>(sizes.map((size) => [size, []]));
  for (let round = 0; round < rounds; round += 1)
    for (const size of round % 2 === 0 ? sizes : [...sizes].reverse())
      turns.get(size)?.push(await turn(size));
  checkStatuses(findings, 'many-apps', writesOfAll, [201]);
  checkStatuses(
    findings,
    'many-apps, reads',
    [...turns.values()].flat().map(({ reads }) => reads),
    [200],
  );
  const ids = apps.map(({ id }) => id);
  checkLedger(findings, 'many-apps', writesOfAll, await sumOfTable(bench.sql, 'events', ids));
  for (const [size, some] of turns) addFindings(findings, size, some, turns.get(FEWEST) ?? []);
}

function addFindings(
  findings: Findings,
  size: number,
  turns: readonly Turn[],
  fewest: readonly Turn[],
): void {
  const name = `${size.toLocaleString('en')} apps`;
  const reports = turns.map(({ writes }) => writes);
  const perSecond = reports.map((report) => answersOf(report) / report.seconds);
  findings.figure(`${name}: events`, '/s', perSecond);
  addLatency(findings, `${name}: latency`, reports);
  findings.figure(
    `${name}: server CPU`,
    'µs/event',
    turns.map(({ server }) => server),
  );
  findings.figure(
    `${name}: database CPU`,
    'µs/event',
    turns.map(({ database }) => database),
  );
  findings.figure(
    `${name}: a read, p50`,
    'ms',
    turns.map(({ reads }) => reads.latency?.p50 ?? Number.NaN),
  );
  if (turns === fewest) return;
  const event = (some: readonly Turn[]): number[] => some.map(({ server, database }) => server + database);
  const read = (some: readonly Turn[]): number[] => some.map(({ reads }) => reads.latency?.p50 ?? Number.NaN);
  const goal = EVENT_GOALS[size];
  findings.ratio(
    `CPU of an event to ${FEWEST} apps, ${name}`,
    pairwise(event(turns), event(fewest)),
    ...(goal === undefined ? [] : ([{ atMost: goal }] as const)),
  );
  findings.ratio(`time of a read to ${FEWEST} apps, ${name}`, pairwise(read(turns), read(fewest)), {
    atMost: READ_GOAL,
  });
}

async function untilFolded({ sql }: Workbench): Promise<void> {
  for (let polls = 0; polls < MOST_POLLS; polls += 1) {
    const [row] = await sql<{ pending: boolean }[]>`SELECT EXISTS (SELECT FROM pending_deltas) AS pending`;
    if (row?.pending === false) return;
    await pause(POLL_MS);
  }
  throw new Error('Counts were not folded.');
}

export const MANY_APPS: Scenario = {
  name: 'many-apps',
  about:
    '20, 3,000 and 10,000 apps in turns, limits lifted: what an event costs, and how long a read takes after it.',
  run,
};
