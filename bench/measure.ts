/** Closed-loop rounds against one server or several in turn, with what each of them cost. */
import type { Findings } from './findings.ts';
import type { Latency } from './load/latency.ts';
import { addSums, type LedgerSum } from './load/ledger.ts';
import type { LoadGenerator } from './load/load-generator.ts';
import type { ClosedJob, LoadReport, LoadRequest } from './load/load-job.ts';
import { type Account, accountBetween, readMetrics } from './servers/metrics.ts';
import { cpuOf, memoryOf } from './servers/process-usage.ts';
import type { BenchApp, Workbench } from './servers/workbench.ts';

/** A server and what it is sent. */
export interface Contender {
  readonly name: string;
  readonly port: number;
  readonly pid: number;
  readonly requests: readonly LoadRequest[];
  /** CPU of it in milliseconds, where it has more processes than one. */
  readonly serverCpu?: () => number;
  /** CPU of its database in milliseconds, where that is not the bench's PostgreSQL. */
  readonly databaseCpu?: () => number;
}

export interface Round {
  /** Answers a second: of 2xx, and of others. */
  readonly accepted: number;
  readonly refused: number;
  /** CPU in microseconds an answer. */
  readonly serverMicros: number;
  readonly databaseMicros: number;
  readonly generatorMicros: number;
  /** Megabytes at most since the server's start. */
  readonly memory: number;
  readonly account: Account | null;
  readonly report: LoadReport;
}

/** Work, and the CPU that a server and its database have used meanwhile, in milliseconds. */
export async function withCost<T>(
  bench: Workbench,
  {
    pid,
    serverCpu = () => cpuOf(pid),
    databaseCpu = () => bench.databaseCpu(),
  }: Pick<Contender, 'pid' | 'serverCpu' | 'databaseCpu'>,
  work: () => Promise<T>,
): Promise<{ result: T; serverMs: number; databaseMs: number }> {
  const before = { server: serverCpu(), database: databaseCpu() };
  const result = await work();
  return { result, serverMs: serverCpu() - before.server, databaseMs: databaseCpu() - before.database };
}

/** The number of answers with a status of this form. */
export function answersOf({ statuses }: LoadReport, form = /./): number {
  return Object.entries(statuses).reduce((sum, [status, times]) => sum + (form.test(status) ? times : 0), 0);
}

export const reportsOf = (rounds: readonly { readonly report: LoadReport }[]): LoadReport[] =>
  rounds.map(({ report }) => report);

/** A percentile of each report, in milliseconds; NaN where nothing was answered. */
export const latenciesOf = (reports: readonly LoadReport[], percentile: keyof Latency): number[] =>
  reports.map(({ latency }) => latency?.[percentile] ?? Number.NaN);

export async function closedRound(
  bench: Workbench,
  generator: LoadGenerator,
  contender: Contender,
  { connections, seconds }: Pick<ClosedJob, 'connections' | 'seconds'>,
): Promise<Round> {
  const { port, pid, requests } = contender;
  const metricsBefore = await readMetrics(port).catch(() => null);
  const {
    result: report,
    serverMs,
    databaseMs,
  } = await withCost(bench, contender, () =>
    generator.run({ kind: 'closed', port, connections, seconds, requests }),
  );
  const metricsAfter = metricsBefore === null ? null : await readMetrics(port).catch(() => null);
  const answers = answersOf(report);
  const accepted = answersOf(report, /^2/);
  return {
    accepted: accepted / report.seconds,
    refused: (answers - accepted) / report.seconds,
    serverMicros: (serverMs * 1_000) / answers,
    databaseMicros: (databaseMs * 1_000) / answers,
    generatorMicros: report.generatorMicros,
    memory: memoryOf(pid).highWater,
    account:
      metricsBefore === null || metricsAfter === null ? null : accountBetween(metricsBefore, metricsAfter),
    report,
  };
}

/**
 * Rounds in turn, the order reversed every time (a, b, b, a, …), after one of each that warms up and is not measured.
 * @returns every contender's reports, the first one's from the warm-up; rounds[i] of all were neighbors
 */
export async function interleavedRounds(
  bench: Workbench,
  generator: LoadGenerator,
  contenders: readonly Contender[],
  options: { connections: number; seconds: number; rounds: number },
): Promise<Map<string, { rounds: Round[]; warmUp: Round }>> {
  const results = new Map<string, { rounds: Round[]; warmUp: Round }>();
  for (const contender of contenders) {
    const warmUp = await closedRound(bench, generator, contender, {
      ...options,
      seconds: Math.min(2, options.seconds),
    });
    results.set(contender.name, { rounds: [], warmUp });
  }
  for (let round = 0; round < options.rounds; round += 1) {
    const order = round % 2 === 0 ? contenders : [...contenders].reverse();
    for (const contender of order) {
      results.get(contender.name)?.rounds.push(await closedRound(bench, generator, contender, options));
    }
  }
  return results;
}

/** Every answer has a status that was to be expected, and every request an answer. */
export function checkStatuses(
  findings: Findings,
  name: string,
  reports: readonly LoadReport[],
  expected: readonly number[],
): void {
  const unexpected = reports.flatMap(({ statuses, refusals }) =>
    Object.entries(statuses)
      .filter(([status]) => !expected.includes(Number(status)))
      .map(([status, times]) => `${times} × ${status} ${refusals[0] ?? ''}`),
  );
  const unanswered = reports.reduce((sum, report) => sum + report.unanswered, 0);
  const answers = reports.reduce((sum, report) => sum + answersOf(report), 0);
  findings.check(
    `${name}: every answer is ${expected.join(' or ')}`,
    unexpected.length === 0 && unanswered === 0 && answers > 0,
    [...unexpected, `${answers} answers, ${unanswered} requests without one`].join('; '),
  );
}

/** Figures of reads, all of which are answered by 200. @returns the median of each round */
export function addReads(findings: Findings, name: string, rounds: readonly Round[]): number[] {
  const reports = reportsOf(rounds);
  checkStatuses(findings, name, reports, [200]);
  for (const percentile of ['p50', 'p99'] as const)
    findings.figure(`${name}: ${percentile}`, 'ms', latenciesOf(reports, percentile));
  return latenciesOf(reports, 'p50');
}

/** What was acknowledged is in the table: all of it, nothing else, and nothing twice. */
export function checkLedger(
  findings: Findings,
  name: string,
  reports: readonly LoadReport[],
  stored: LedgerSum & { readonly twice: number },
): void {
  const acknowledged = addSums(reports.map((report) => report.acknowledged));
  findings.check(
    `${name}: acknowledged = stored, nothing twice`,
    acknowledged.events > 0 &&
      acknowledged.events === stored.events &&
      acknowledged.idSum === stored.idSum &&
      stored.twice === 0,
    `${acknowledged.events} acknowledged, ${stored.events} stored, ${stored.twice} ids twice, ids ${
      acknowledged.idSum === stored.idSum ? 'agree' : 'differ'
    }`,
  );
}

const FILLER = 'abcdefghijklmnopqrstuvwxyz0123456789';

/** A create request with a payload of about this many bytes. */
export function createRequest(app: BenchApp, payloadBytes: number): LoadRequest {
  const fields = { path: '/articles/1001', referrer: 'https://example.org/', user: 'u-4711', seconds: 42 };
  const missing = payloadBytes - JSON.stringify({ ...fields, text: '' }).length;
  const text = FILLER.repeat(Math.ceil(Math.max(0, missing) / FILLER.length)).slice(0, Math.max(0, missing));
  const { loggingToken, typeId } = app;
  return {
    method: 'POST',
    path: '/public/create_event',
    body: JSON.stringify({ loggingToken, typeId, payload: { ...fields, text } }),
  };
}
