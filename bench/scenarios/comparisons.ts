/** floor, naive and rivals: the baselines of the service's figures. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { sumOfTable } from '../load/ledger.ts';
import {
  checkLedger,
  checkStatuses,
  closedRound,
  interleavedRounds,
  latenciesOf,
  type Round,
  reportsOf,
} from '../measure.ts';
import {
  findProgram,
  startFloor,
  startInsertRival,
  startLifted,
  startNaive,
  startRedisRival,
  transport,
} from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';

const CLOSED_LOOP =
  'Closed loop by autocannon: answers a second are what a fixed number of callers get; every request has its answer.';

/** Figures of one contender's rounds under its name. */
export function addRounds(findings: Findings, name: string, rounds: readonly Round[]): void {
  const reports = reportsOf(rounds);
  findings.figure(`${name}: answers`, '/s', ratesOf(rounds));
  for (const percentile of ['p50', 'p99'] as const)
    findings.figure(`${name}: ${percentile}`, 'ms', latenciesOf(reports, percentile));
  const costs = { server: 'serverMicros', database: 'databaseMicros', generator: 'generatorMicros' } as const;
  for (const [whose, micros] of Object.entries(costs)) {
    const each = rounds.map((round) => round[micros]);
    findings.figure(`${name}: ${whose} CPU`, 'µs/answer', each);
  }
}

const ratesOf = (rounds: readonly Round[]): number[] => rounds.map(({ accepted }) => accepted);

const seconds = (options: RunOptions): { seconds: number; rounds: number } =>
  byLength(options, {
    full: { seconds: 3, rounds: 5 },
    quick: { seconds: 2, rounds: 3 },
    smoke: { seconds: 1, rounds: 3 },
  });

async function runFloor(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(CLOSED_LOOP);
  const generator = bench.startGenerator();
  const floor = await startFloor(bench, await bench.makeApp('floor'));
  for (const connections of [64, 256]) {
    const results = await interleavedRounds(bench, generator, [floor], { connections, ...seconds(options) });
    const { rounds = [] } = results.get('floor') ?? {};
    addRounds(findings, `${connections} connections`, rounds);
    checkStatuses(findings, `${connections} connections`, reportsOf(rounds), [201]);
  }
}

async function runNaive(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(CLOSED_LOOP);
  findings.note(
    'Fastify, pg with 20 connections, tokens and types kept in memory, one prepared INSERT a request.',
  );
  const generator = bench.startGenerator();
  const app = await bench.makeApp('naive');
  const contenders = [await startFloor(bench, app), await startNaive(bench, app)];
  const reports = [];
  for (const connections of [64, 256]) {
    const results = await interleavedRounds(bench, generator, contenders, {
      connections,
      ...seconds(options),
    });
    const naive = results.get('naive');
    const floor = results.get('floor');
    if (naive === undefined || floor === undefined) throw new Error('A contender was not measured.');
    addRounds(findings, `${connections} connections`, naive.rounds);
    findings.ratio(`of the floor at ${connections}`, pairwise(ratesOf(naive.rounds), ratesOf(floor.rounds)));
    reports.push(naive.warmUp.report, ...naive.rounds.map(({ report }) => report));
  }
  checkStatuses(findings, 'naive', reports, [201]);
  checkLedger(findings, 'naive', reports, await sumOfTable(bench.sql, 'bench_naive_events', [app.id]));
}

async function runRivals(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(CLOSED_LOOP);
  if ((await transport()) === 'node:http') {
    findings.note('Skipped: the rivals stand on uWebSockets.js, which has no binary for this Node.');
    return;
  }
  findings.note(
    'All of them make the same checks and answer when the event is durable; pgbench has no HTTP and no checks.',
  );
  const generator = bench.startGenerator();
  const app = await bench.makeApp('rivals');
  const redis = await startRedisRival(bench, app);
  if (redis === null) findings.note('Skipped: Redis XADD, as there is no redis-server.');
  const ours = await startLifted(bench, app);
  const insert = await startInsertRival(bench, app);
  const contenders = [ours, insert, ...(redis === null ? [] : [redis])];
  const { rounds, ...round } = seconds(options);
  const connections = 256;
  const results = await interleavedRounds(bench, generator, contenders, { connections, rounds, ...round });
  const rates = (name: string): number[] => results.get(name)?.rounds.map(({ accepted }) => accepted) ?? [];
  const reports = (name: string) => {
    const result = results.get(name);
    return result === undefined ? [] : [result.warmUp, ...result.rounds].map(({ report }) => report);
  };
  for (const { name } of contenders) {
    addRounds(findings, name, results.get(name)?.rounds ?? []);
    checkStatuses(findings, name, reports(name), [201]);
    if (name !== ours.name) findings.ratio(`tidemark to ${name}`, pairwise(rates(ours.name), rates(name)));
  }
  checkLedger(findings, ours.name, reports(ours.name), await sumOfTable(bench.sql, 'events', [app.id]));
  checkLedger(
    findings,
    insert.name,
    reports(insert.name),
    await sumOfTable(bench.sql, 'bench_rival_events', [app.id]),
  );
  if (redis !== null) await checkStream(findings, redis.socket, reports(redis.name));
  const transactions = await runPgbench(bench, findings, app, { rounds, ...round });
  if (transactions.length === 0) return;
  findings.figure('pgbench: transactions', '/s', transactions);
  // Not neighbors of our rounds: a round of ours and one of pgbench, in turn.
  const beside: number[] = [];
  for (const _ of transactions) {
    const one = await closedRound(bench, generator, ours, { connections, ...round });
    beside.push(one.accepted);
  }
  findings.ratio('tidemark to pgbench', pairwise(beside, transactions));
}

async function checkStream(
  findings: Findings,
  socket: string,
  reports: readonly { acknowledged: { events: number } }[],
): Promise<void> {
  const redis = new Redis({ path: socket });
  const stored = await redis.xlen('events');
  await redis.quit();
  const acknowledged = reports.reduce((sum, { acknowledged }) => sum + acknowledged.events, 0);
  findings.check(
    'Redis XADD: acknowledged = stored',
    acknowledged === stored,
    `${acknowledged} acknowledged, ${stored} stored`,
  );
}

/** pgbench with one prepared INSERT a transaction. @returns transactions a second, by round; empty where it is absent */
async function runPgbench(
  bench: Workbench,
  findings: Findings,
  app: BenchApp,
  { seconds, rounds }: { seconds: number; rounds: number },
): Promise<number[]> {
  const program = findProgram('pgbench');
  if (program === null) {
    findings.note('Skipped: pgbench, which is not installed.');
    return [];
  }
  const script = join(bench.folder, 'insert.sql');
  const payload = JSON.stringify({ path: '/articles/1001', user: 'u-4711', text: 'x'.repeat(110) });
  await writeFile(
    script,
    `INSERT INTO bench_rival_events VALUES (gen_random_uuid(), ${-app.id}, 1, clock_timestamp(), '${payload}');\n`,
  );
  const { host, port, user, database } = bench.connection;
  const rates: number[] = [];
  let processed = 0;
  for (let round = 0; round < rounds; round += 1) {
    const { stdout } = await promisify(execFile)(program, [
      ...['-h', host, '-p', String(port), '-U', user, '-n', '-M', 'prepared', '-f', script],
      ...['-c', '64', '-j', '1', '-T', String(seconds), database],
    ]);
    rates.push(Number(/^tps = ([\d.]+)/m.exec(stdout)?.[1] ?? Number.NaN));
    processed += Number(/actually processed: (\d+)/.exec(stdout)?.[1] ?? Number.NaN);
  }
  const stored = await sumOfTable(bench.sql, 'bench_rival_events', [-app.id]);
  findings.check(
    'pgbench: processed = stored',
    processed === stored.events,
    `${processed} processed, ${stored.events} stored`,
  );
  return rates;
}

export const COMPARISONS: readonly Scenario[] = [
  {
    name: 'floor',
    about: 'A bare uWebSockets.js handler that reads the same body and answers 201.',
    run: runFloor,
  },
  {
    name: 'naive',
    about: 'What a user would write instead: Fastify and pg, one INSERT a request.',
    run: runNaive,
  },
  {
    name: 'rivals',
    about: 'What a good engineer would try: pgbench, Redis with appendfsync always, INSERT every 5 ms.',
    run: runRivals,
  },
];
