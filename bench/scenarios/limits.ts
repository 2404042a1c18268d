/** per-app-limit and over-limit: one app just below its limit, and one at three times of it. */
import type { Sql } from '../../src/storage/database/connect.ts';
import type { Findings } from '../findings.ts';
import { pairwise, spreadOf } from '../judge.ts';
import type { Latency } from '../load/latency.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadReport } from '../load/load-job.ts';
import { checkLedger, checkStatuses, createRequest, interleavedRounds, type Round } from '../measure.ts';
import { SMALL_PAYLOAD_BYTES, startFloor } from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';

const LIMIT = 1_000;
const WINDOW_SECONDS = 60;
/** An event's time is taken a moment after the limiter has counted it. */
const CLOCK_TOLERANCE_MS = 5;

const BELOW_LIMIT_PER_SECOND = 990 / 60;
const OVER_LIMIT_PER_SECOND = 3_000 / 60;

const PERCENTILES = [
  ['p50', 'p50'],
  ['p99', 'p99'],
  ['p999', 'p99.9'],
] as const satisfies readonly (readonly [keyof Latency, string])[];

export function addLatency(findings: Findings, name: string, reports: readonly LoadReport[]): void {
  for (const [key, label] of PERCENTILES) {
    findings.figure(
      `${name}: ${label}`,
      'ms',
      reports.map(({ latency }) => latency?.[key] ?? Number.NaN),
    );
  }
}

async function runPerAppLimit(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    'Open loop, 990 requests a minute, evenly; a latency counts from the time at which a request was due.',
  );
  findings.note(
    'Beside it, at the same times and the same pace: one prepared INSERT of the same payload, a bare commit.',
  );
  const { rounds, seconds } = byLength(options, {
    full: { rounds: 5, seconds: 25 },
    quick: { rounds: 3, seconds: 10 },
    smoke: { rounds: 1, seconds: 15 },
  });
  const [generator, committer] = [bench.startGenerator(), bench.startGenerator()];
  const app = await bench.makeApp('per-app-limit');
  const { port } = await bench.startService({ limits: 'kept' });
  const request = createRequest(app, SMALL_PAYLOAD_BYTES);
  const pace = { seconds, perSecond: BELOW_LIMIT_PER_SECOND, warmUpSeconds: 0 };
  const reports: LoadReport[] = [];
  const commits: LoadReport[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const first = round === 0 ? { warmUpSeconds: 3 } : {};
    const [report, bare] = await Promise.all([
      generator.run({ kind: 'open', port, connections: 16, requests: [request], ...pace, ...first }),
      committer.run({
        kind: 'commits',
        address: bench.connection,
        appId: -app.id,
        payload: JSON.stringify(JSON.parse(request.body ?? '{}').payload),
        ...pace,
        ...first,
      }),
    ]);
    reports.push(report);
    commits.push(bare);
  }
  checkStatuses(findings, 'per-app-limit', reports, [201]);
  checkLedger(findings, 'per-app-limit', reports, await sumOfTable(bench.sql, 'events', [app.id]));
  addLatency(findings, 'request', reports);
  addLatency(findings, 'bare commit', commits);
  const of = (all: readonly LoadReport[], key: keyof Latency): number[] =>
    all.map(({ latency }) => latency?.[key] ?? Number.NaN);
  findings.ratio('p50 to a bare commit', pairwise(of(reports, 'p50'), of(commits, 'p50')));
  findings.ratio('p99 to a bare commit', pairwise(of(reports, 'p99'), of(commits, 'p99')));
  const beyond = spreadOf(of(reports, 'p99')).median - spreadOf(of(commits, 'p99')).median;
  findings.goal("p99 beyond a bare commit's", 'ms', beyond, { atMost: 2 });
}

/** How often 1,001 events of an app came within 60 seconds of each other. */
export async function windowsOverLimit(sql: Sql, appIds: readonly number[]): Promise<number> {
  const shortest = WINDOW_SECONDS - CLOCK_TOLERANCE_MS / 1_000;
  const [row] = await sql<{ times: number }[]>`
    SELECT count(*)::float8 AS times
      FROM (SELECT created_at - lag(created_at, ${LIMIT}::integer) OVER (PARTITION BY app_id ORDER BY created_at) AS apart
              FROM events WHERE app_id = ANY(${[...appIds]}::integer[])) events
     WHERE apart < make_interval(secs => ${shortest}::float8)`;
  return row?.times ?? Number.NaN;
}

/** Accepted events in each whole 60 seconds from the first one on. */
async function perMinute(bench: Workbench, app: BenchApp, seconds: number): Promise<number[]> {
  const rows = await bench.sql<{ minute: number; events: number }[]>`
    SELECT floor(extract(epoch FROM created_at - min(created_at) OVER ()) / ${WINDOW_SECONDS}::integer)::int AS minute,
           1 AS events
      FROM events WHERE app_id = ${app.id}`;
  // A run that is shorter than a window can only have used up the limit once.
  const minutes = Math.max(1, Math.floor(seconds / WINDOW_SECONDS));
  return Array.from({ length: minutes }, (_, index) => rows.filter(({ minute }) => minute === index).length);
}

async function runOverLimit(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    'Open loop, 3,000 requests a minute; then a closed loop of 64 connections to an app that is over its limit.',
  );
  const seconds = byLength(options, { full: 130, quick: 25, smoke: 23 });
  const generator = bench.startGenerator();
  const app = await bench.makeApp('over-limit');
  const refusedApp = await bench.makeApp('refused');
  const service = await bench.startService({ limits: 'kept' });
  const { port, pid } = service;
  const report = await generator.run({
    kind: 'open',
    port,
    connections: 16,
    seconds,
    perSecond: OVER_LIMIT_PER_SECOND,
    warmUpSeconds: 2,
    requests: [createRequest(app, SMALL_PAYLOAD_BYTES)],
  });
  checkStatuses(findings, 'over-limit', [report], [201, 429]);
  checkLedger(findings, 'over-limit', [report], await sumOfTable(bench.sql, 'events', [app.id]));
  const accepted = await perMinute(bench, app, seconds);
  findings.check(
    'over-limit: exactly 1,000 accepted in every 60 seconds from the first',
    accepted.every((events) => events === LIMIT),
    accepted.join(', '),
  );
  const over = await windowsOverLimit(bench.sql, [app.id]);
  findings.check('over-limit: never more than 1,000 in any 60 seconds', over === 0, `${over} times`);
  addLatency(findings, 'accepted and refused', [report]);

  if (options.length === 'smoke') return;
  const floor = await startFloor(bench, refusedApp);
  const requests = [createRequest(refusedApp, SMALL_PAYLOAD_BYTES)];
  const ours = { name: 'a 429', port, pid, requests };
  const rounds = byLength(options, {
    full: { seconds: 4, rounds: 5 },
    quick: { seconds: 2, rounds: 3 },
    smoke: { seconds: 1, rounds: 1 },
  });
  const results = await interleavedRounds(bench, generator, [ours, floor], { connections: 64, ...rounds });
  const [refused, bare] = [results.get(ours.name), results.get(floor.name)];
  if (refused === undefined || bare === undefined) throw new Error('A contender was not measured.');
  const reports = [refused.warmUp, ...refused.rounds].map((round) => round.report);
  checkStatuses(findings, 'a 429', reports, [201, 429]);
  checkLedger(findings, 'a 429', reports, await sumOfTable(bench.sql, 'events', [refusedApp.id]));
  const cpu = (all: readonly Round[]): number[] => all.map(({ serverMicros }) => serverMicros);
  findings.figure(
    'a 429: answers',
    '/s',
    refused.rounds.map((round) => round.accepted + round.refused),
  );
  findings.figure(
    'floor: answers',
    '/s',
    bare.rounds.map((round) => round.accepted),
  );
  findings.figure('a 429: server CPU', 'µs/answer', cpu(refused.rounds));
  findings.figure('floor: server CPU', 'µs/answer', cpu(bare.rounds));
  findings.ratio("CPU of a 429 to the floor's answer", pairwise(cpu(refused.rounds), cpu(bare.rounds)), {
    atMost: 1.5,
  });
}

export const LIMITS: readonly Scenario[] = [
  {
    name: 'per-app-limit',
    about:
      'One app at 990 requests a minute, evenly: not one 429, and its latency beside that of a bare commit.',
    run: runPerAppLimit,
  },
  {
    name: 'over-limit',
    about:
      'One app at 3,000 requests a minute: exactly 1,000 accepted in every 60 seconds, and what a 429 costs.',
    run: runOverLimit,
  },
];
