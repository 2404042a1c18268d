/** saturate: how many durable events a second, and what each of them costs. */

import type { Findings } from '../findings.ts';
import { pairwise, spreadOf } from '../judge.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadReport, LoadRequest } from '../load/load-job.ts';
import { runWrk } from '../load/wrk.ts';
import {
  type Contender,
  checkLedger,
  checkStatuses,
  createRequest,
  interleavedRounds,
  type Round,
  withCost,
} from '../measure.ts';
import { findProgram, startFloor, startLifted, startNaive } from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { Workbench } from '../servers/workbench.ts';
import { addRounds } from './comparisons.ts';

const PAYLOADS = [
  { name: '180 B', bytes: 180 },
  { name: '2 KB', bytes: 2_048 },
  { name: '64 KB', bytes: 65_536 },
] as const;

interface Cell {
  readonly payload: (typeof PAYLOADS)[number];
  readonly connections: number;
  readonly seconds: number;
  readonly rounds: number;
  /** Whom the service takes turns with. */
  readonly beside: readonly ('floor' | 'naive')[];
}

function cellsOf(options: RunOptions): Cell[] {
  if (options.profileFolder !== null) {
    return [{ payload: PAYLOADS[0], connections: 256, seconds: 10, rounds: 1, beside: [] }];
  }
  const [small, ...larger] = PAYLOADS;
  const main = byLength(options, {
    full: { seconds: 4, rounds: 5 },
    quick: { seconds: 2, rounds: 3 },
    smoke: { seconds: 2, rounds: 4 },
  });
  // The smoke run only checks the work.
  if (options.length === 'smoke') return [{ payload: small, connections: 64, ...main, beside: ['floor'] }];
  const compared = [64, 256].map((connections): Cell => {
    return { payload: small, connections, ...main, beside: ['floor', 'naive'] };
  });
  const rest = byLength(options, {
    full: { seconds: 2.5, rounds: 2 },
    quick: { seconds: 1, rounds: 1 },
    smoke: null,
  });
  if (rest === null) return compared;
  const others = [16, 1_024].map(
    (connections): Cell => ({ payload: small, connections, ...rest, beside: ['floor'] }),
  );
  const heavy = larger.flatMap((payload) =>
    [16, 64, 256, 1_024].map((connections): Cell => ({ payload, connections, ...rest, beside: ['floor'] })),
  );
  return [...compared, ...others, ...heavy];
}

/** Whether more may wait for its commit than the service holds by default (COMMIT_BUFFER_BYTES): then some is refused. */
function waitsBeyondCeiling({ payload, connections }: Cell): boolean {
  return 2 * payload.bytes * connections > 64 * 1_048_576;
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note('Limits lifted, one app, one type. Closed loop by autocannon, pipelining 1.');
  findings.note(
    'Load generator, server and database share the cores; the floor is measured by the same generator.',
  );
  const generator = bench.startGenerator();
  const app = await bench.makeApp('saturate');
  const ours = await startLifted(bench, app);
  const cells = cellsOf(options);
  const servers = new Map<string, Contender>();
  if (cells.some(({ beside }) => beside.includes('floor')))
    servers.set('floor', await startFloor(bench, app));
  if (cells.some(({ beside }) => beside.includes('naive')))
    servers.set('naive', await startNaive(bench, app));
  const reported: Record<'tidemark' | 'naive', LoadReport[]> = { tidemark: [], naive: [] };
  for (const cell of cells) {
    const requests: readonly LoadRequest[] = [createRequest(app, cell.payload.bytes)];
    const contenders = [ours, ...cell.beside.flatMap((name) => servers.get(name) ?? [])].map((one) => ({
      ...one,
      requests,
    }));
    const results = await interleavedRounds(bench, generator, contenders, cell);
    const name = `${cell.payload.name}, ${cell.connections} connections`;
    for (const [contender, { rounds, warmUp }] of results) {
      const reports = [warmUp, ...rounds].map(({ report }) => report);
      const isOverload = contender === 'tidemark' && waitsBeyondCeiling(cell);
      checkStatuses(findings, `${contender}, ${name}`, reports, isOverload ? [201, 503] : [201]);
      if (contender === 'tidemark' || contender === 'naive') reported[contender].push(...reports);
      if (contender === 'tidemark') addOurs(findings, name, rounds);
      else
        findings.figure(
          `${name}: ${contender}`,
          '/s',
          rounds.map(({ accepted }) => accepted),
        );
    }
    addRatios(findings, cell, (contender) => results.get(contender)?.rounds ?? []);
  }
  checkLedger(findings, 'tidemark', reported.tidemark, await sumOfTable(bench.sql, 'events', [app.id]));
  if (reported.naive.length > 0)
    checkLedger(
      findings,
      'naive',
      reported.naive,
      await sumOfTable(bench.sql, 'bench_naive_events', [app.id]),
    );
  const isShort = options.length === 'smoke';
  if (!isShort && options.profileFolder === null) await runByWrk(bench, findings, options, ours, servers);
}

/** The two comparisons again by a generator that takes less of the cores that it shares. */
async function runByWrk(
  bench: Workbench,
  findings: Findings,
  options: RunOptions,
  ours: Contender,
  servers: ReadonlyMap<string, Contender>,
): Promise<void> {
  const program = findProgram('wrk');
  if (program === null) {
    findings.note(
      'wrk is not installed: autocannon alone was used, whose own cost flatters every ratio to the floor.',
    );
    return;
  }
  findings.note(
    'autocannon costs more than the floor itself and holds it down; wrk costs a fifth, so its ratios are the stricter ones.',
  );
  // An app of its own: wrk cuts off what is under way when its time is over, so its ledger has a margin.
  const app = await bench.makeApp('saturate by wrk');
  const request = createRequest(app, PAYLOADS[0].bytes);
  const { seconds, rounds } = byLength(options, {
    full: { seconds: 3, rounds: 5 },
    quick: { seconds: 2, rounds: 3 },
    smoke: { seconds: 1, rounds: 1 },
  });
  const contenders = [ours, ...servers.values()];
  let acknowledged = 0;
  let cutOff = 0;
  for (const connections of [64, 256]) {
    const rates = new Map<string, number[]>();
    const micros = new Map<string, number[]>();
    for (let round = 0; round < rounds; round += 1) {
      for (const contender of round % 2 === 0 ? contenders : [...contenders].reverse()) {
        const { name, port } = contender;
        const cost = await withCost(bench, contender, () =>
          runWrk(program, bench.folder, { port, connections, seconds, request }),
        );
        const report = cost.result;
        rates.set(name, [...(rates.get(name) ?? []), report.accepted]);
        const ms = cost.serverMs + (name === 'floor' ? 0 : cost.databaseMs);
        micros.set(name, [...(micros.get(name) ?? []), (ms * 1_000) / report.acknowledged]);
        findings.checkAll(
          `wrk, ${name}: every answer is 201`,
          report.refused === 0 && report.unanswered === 0,
        );
        if (name !== ours.name) continue;
        acknowledged += report.acknowledged;
        cutOff += connections;
      }
    }
    addByWrk(findings, connections, rates, micros);
  }
  const stored = await sumOfTable(bench.sql, 'events', [app.id]);
  findings.check(
    'wrk: acknowledged ≤ stored, and at most one more for each connection that was cut off; nothing twice',
    acknowledged <= stored.events && stored.events <= acknowledged + cutOff && stored.twice === 0,
    `${acknowledged} acknowledged, ${stored.events} stored, ${cutOff} connections`,
  );
}

/** @param micros CPU of an answer in the server, and in the database where it uses one */
function addByWrk(
  findings: Findings,
  connections: number,
  rates: ReadonlyMap<string, readonly number[]>,
  micros: ReadonlyMap<string, readonly number[]>,
): void {
  const of = (name: string): readonly number[] => rates.get(name) ?? [];
  for (const [name, values] of rates)
    findings.figure(`by wrk, ${connections} connections: ${name}`, '/s', values);
  const toFloor = pairwise(of('tidemark'), of('floor'));
  findings.ratio(`events to the floor, 180 B, ${connections}, by wrk`, toFloor, {
    atLeast: FLOOR_GOALS[connections] ?? 0,
  });
  for (const [name, values] of micros)
    findings.figure(`by wrk, ${connections} connections: ${name}, CPU`, 'µs/answer', values);
  findings.ratio(
    `CPU of server and database to the floor, 180 B, ${connections}, by wrk`,
    pairwise(micros.get('tidemark') ?? [], micros.get('floor') ?? []),
    ...(connections === 256 ? ([{ atMost: CPU_TO_FLOOR_GOAL }] as const) : []),
  );
  const naive = NAIVE_GOALS[connections];
  const goal = naive === undefined ? [] : ([{ atLeast: naive }] as const);
  findings.ratio(
    `events to naive, 180 B, ${connections}, by wrk`,
    pairwise(of('tidemark'), of('naive')),
    ...goal,
  );
}

/** Figures, and where the service itself says that its time goes. */
function addOurs(findings: Findings, name: string, rounds: readonly Round[]): void {
  addRounds(findings, name, rounds);
  findings.figure(`${name}: server memory, high-water`, 'MB', [rounds.at(-1)?.memory ?? Number.NaN]);
  if (rounds.some(({ refused }) => refused > 0))
    findings.figure(
      `${name}: refused`,
      '/s',
      rounds.map(({ refused }) => refused),
    );
  const accounts = rounds.flatMap(({ account }) => account ?? []);
  if (accounts.length === 0) {
    findings.note('The service has no GET /metrics: where its time goes is not shown.');
    return;
  }
  for (const stage of Object.keys(accounts[0]?.stageMicros ?? {})) {
    findings.figure(
      `${name}: stage ${stage}`,
      'µs',
      accounts.map(({ stageMicros }) => stageMicros[stage] ?? Number.NaN),
    );
  }
  findings.figure(
    `${name}: events a batch`,
    '',
    accounts.map(({ eventsPerBatch }) => eventsPerBatch),
  );
  findings.figure(
    `${name}: a batch's commit`,
    'ms',
    accounts.map(({ batchMs }) => batchMs),
  );
  findings.figure(
    `${name}: event loop late, p99`,
    'ms',
    accounts.map(({ eventLoopLateMs }) => eventLoopLateMs),
  );
}

type Goals = Readonly<Record<number, number>>;
/** Least shares of the floor, by connections: of small payloads, and of the largest. */
const FLOOR_GOALS: Goals = { 64: 0.35, 256: 0.45 };
const LARGE_GOALS: Goals = { 64: 0.25 };
const NAIVE_GOALS: Goals = { 256: 6 };
const CPU_GOAL_MICROS = 32;
const CPU_TO_FLOOR_GOAL = 2.2;

function addRatios(findings: Findings, cell: Cell, roundsOf: (contender: string) => readonly Round[]): void {
  const [ours, floor, naive] = ['tidemark', 'floor', 'naive'].map(roundsOf);
  if (ours === undefined || floor === undefined || naive === undefined) return;
  const { payload, connections } = cell;
  const small = payload.bytes === PAYLOADS[0].bytes;
  const rates = (rounds: readonly Round[]): number[] => rounds.map(({ accepted }) => accepted);
  const goal = (goals: Goals): [{ atLeast: number }] | [] => {
    const least = goals[connections];
    return least === undefined ? [] : [{ atLeast: least }];
  };
  const name = `${payload.name}, ${connections}`;
  if (floor.length > 0) {
    const goals = new Map<number, Goals>([
      [PAYLOADS[0].bytes, FLOOR_GOALS],
      [PAYLOADS[2].bytes, LARGE_GOALS],
    ]).get(payload.bytes);
    findings.ratio(
      `events to the floor, ${name}`,
      pairwise(rates(ours), rates(floor)),
      ...(goals === undefined ? [] : goal(goals)),
    );
    const cpu = (rounds: readonly Round[]): number[] => rounds.map(({ serverMicros }) => serverMicros);
    findings.ratio(`server CPU to the floor, ${name}`, pairwise(cpu(ours), cpu(floor)));
  }
  if (naive.length > 0)
    findings.ratio(`events to naive, ${name}`, pairwise(rates(ours), rates(naive)), ...goal(NAIVE_GOALS));
  if (small && connections === 256) {
    const both = spreadOf(
      ours.map(({ serverMicros, databaseMicros }) => serverMicros + databaseMicros),
    ).median;
    findings.goal('CPU of server and database per durable event, 256 connections', 'µs', both, {
      atMost: CPU_GOAL_MICROS,
    });
  }
}

export const SATURATE: Scenario = {
  name: 'saturate',
  about:
    'Limits lifted, 16 to 1,024 connections, payloads of 180 B to 64 KB: durable events, CPU and memory.',
  run,
};
