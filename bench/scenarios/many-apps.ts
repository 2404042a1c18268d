/** many-apps: what an event costs where thousands of apps send, against a few. */
import { setTimeout as pause } from 'node:timers/promises';
import { SMALL_PAYLOAD_BYTES, startLifted } from '../contenders.ts';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { sumOfTable } from '../ledger.ts';
import type { LoadReport } from '../load-job.ts';
import { answersOf, checkLedger, checkStatuses, createRequest, withCost } from '../measure.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { BenchApp, Workbench } from '../workbench.ts';
import { addLatency } from './limits.ts';

/** The fewest come first: the others are compared with them. */
const SIZES = [20, 3_000, 10_000] as const;
type Size = (typeof SIZES)[number];
/** How many times the CPU of an event with the fewest apps an event may take. */
const GOALS: Readonly<Partial<Record<Size, number>>> = { 3000: 1.15, 10000: 1.3 };
const CONNECTIONS = 256;
/** Counts of the last events are folded once a second: what that costs belongs to the round. */
const FOLD_MS = 2_500;

interface Turn {
  readonly report: LoadReport;
  /** CPU in microseconds an event. */
  readonly server: number;
  readonly database: number;
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    `Limits lifted, ${CONNECTIONS} connections, closed loop by autocannon; the apps send in turn, each one type.`,
  );
  findings.note('CPU includes the folding of counts, for which each round waits.');
  const { seconds, rounds, sizes } = byLength<{ seconds: number; rounds: number; sizes: readonly Size[] }>(
    options,
    {
      full: { seconds: 6, rounds: 7, sizes: SIZES },
      quick: { seconds: 4, rounds: 3, sizes: SIZES },
      guard: { seconds: 4, rounds: 5, sizes: [20, 3_000] },
      smoke: { seconds: 2, rounds: 1, sizes: [20, 3_000] },
    },
  );
  const generator = bench.startGenerator();
  const apps = await bench.makeApps(Math.max(...sizes), 'many-apps');
  const [first] = apps;
  if (first === undefined) throw new Error('No app was made.');
  const service = await startLifted(bench, first);
  const requestsOf = (some: readonly BenchApp[]) =>
    some.map((app) => createRequest(app, SMALL_PAYLOAD_BYTES));
  const reports: LoadReport[] = [];
  const turn = async (size: Size, once?: true): Promise<Turn> => {
    const requests = requestsOf(apps.slice(0, size));
    const cost = await withCost(bench, service, async () => {
      const connections = Math.min(CONNECTIONS, once ? size : CONNECTIONS);
      const job = { kind: 'closed', port: service.port, connections, requests } as const;
      const report = await generator.run({ ...job, seconds, ...(once && { once }) });
      await pause(FOLD_MS);
      return report;
    });
    const report = cost.result;
    reports.push(report);
    const answers = answersOf(report);
    return {
      report,
      server: (cost.serverMs * 1_000) / answers,
      database: (cost.databaseMs * 1_000) / answers,
    };
  };
  // Looks up every token and every type.
  for (const size of sizes) await turn(size, true);
  const turns = new Map<Size, Turn[]>(sizes.map((size) => [size, []]));
  for (let round = 0; round < rounds; round += 1)
    for (const size of round % 2 === 0 ? sizes : [...sizes].reverse())
      turns.get(size)?.push(await turn(size));
  checkStatuses(findings, 'many-apps', reports, [201]);
  const ids = apps.map(({ id }) => id);
  checkLedger(findings, 'many-apps', reports, await sumOfTable(bench.sql, 'events', ids));
  const both = (some: readonly Turn[]): number[] => some.map(({ server, database }) => server + database);
  const few = turns.get(sizes[0] ?? 20) ?? [];
  for (const [size, some] of turns) {
    const name = `${size.toLocaleString('en')} apps`;
    findings.figure(
      `${name}: answers`,
      '/s',
      some.map(({ report }) => answersOf(report) / report.seconds),
    );
    addLatency(
      findings,
      `${name}: latency`,
      some.map(({ report }) => report),
    );
    findings.figure(
      `${name}: server CPU`,
      'µs/answer',
      some.map(({ server }) => server),
    );
    findings.figure(
      `${name}: database CPU`,
      'µs/answer',
      some.map(({ database }) => database),
    );
    if (some === few) continue;
    const goal = GOALS[size];
    findings.ratio(
      `CPU of an event to ${sizes[0]} apps, ${name}`,
      pairwise(both(some), both(few)),
      ...(goal === undefined ? [] : ([{ atMost: goal }] as const)),
    );
  }
}

export const MANY_APPS: Scenario = {
  name: 'many-apps',
  about:
    '20, 3,000 and 10,000 apps in turns, limits lifted: what an event costs in the service and in PostgreSQL.',
  run,
};
