/** fleet: 1,500 apps, each at its limit. */
import type { Sql } from '../../src/storage/database/connect.ts';
import type { Findings } from '../findings.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadGenerator } from '../load/load-generator.ts';
import type { OpenJob } from '../load/load-job.ts';
import {
  answersOf,
  type Contender,
  checkLedger,
  checkStatuses,
  createRequest,
  withCost,
} from '../measure.ts';
import { SMALL_PAYLOAD_BYTES } from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { memoryOf } from '../servers/process-usage.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';
import { addLatency, windowsOverLimit } from './limits.ts';

export const FLEET_APPS = 1_500;
/** 1,000 a minute of each. */
export const FLEET_PER_SECOND = perSecondOf(FLEET_APPS);
const CONNECTIONS = 512;

function perSecondOf(apps: number): number {
  return (apps * 1_000) / 60;
}

/** The fleet's producers: every app at its limit, in turn, evenly. */
export function fleetJob(port: number, apps: readonly BenchApp[], seconds: number): OpenJob {
  return {
    kind: 'open',
    port,
    connections: CONNECTIONS,
    seconds,
    perSecond: perSecondOf(apps.length),
    warmUpSeconds: Math.min(5, seconds / 3),
    requests: apps.map((app) => createRequest(app, SMALL_PAYLOAD_BYTES)),
  };
}

/** A fleet, and the service and the database that take its events. */
export interface Fleet extends Pick<Contender, 'port' | 'pid' | 'serverCpu' | 'databaseCpu'> {
  /** Of its checks. */
  readonly name: string;
  /** Begins the names of its figures. */
  readonly prefix: string;
  readonly sql: Sql;
  readonly apps: readonly BenchApp[];
  readonly seconds: number;
}

/** Offers a service what the limits of a fleet's apps take, and checks what it has done with that. */
export async function runFleet(
  bench: Workbench,
  findings: Findings,
  generator: LoadGenerator,
  { name, prefix, sql, apps, seconds, ...service }: Fleet,
): Promise<void> {
  const job = fleetJob(service.port, apps, seconds);
  const cost = await withCost(bench, service, () => generator.run(job));
  const report = cost.result;
  const ids = apps.map(({ id }) => id);
  checkStatuses(findings, name, [report], [201, 429]);
  checkLedger(findings, name, [report], await sumOfTable(sql, 'events', ids));
  const over = await windowsOverLimit(sql, ids);
  findings.check(`${name}: never more than 1,000 of an app in any 60 seconds`, over === 0, `${over} times`);
  const answers = answersOf(report);
  const accepted = answersOf(report, /^201$/);
  const figure = (what: string, unit: string, value: number): void =>
    findings.figure(`${prefix}${what}`, unit, [value]);
  figure('offered', '/s', job.perSecond);
  figure('accepted', '/s', accepted / report.seconds);
  figure('refused', '/s', (answers - accepted) / report.seconds);
  figure('offered and never sent', '', report.dropped);
  if (report.dropped > 0)
    findings.note('The machine could not take what was offered: latencies are those of a queue.');
  findings.ratio(`${prefix}accepted to offered`, [accepted / (answers + report.dropped)]);
  addLatency(findings, `${prefix}latency`, [report]);
  figure('server CPU', 'µs/answer', (cost.serverMs * 1_000) / answers);
  figure('database CPU', 'µs/answer', (cost.databaseMs * 1_000) / answers);
  figure('generator CPU', 'µs/answer', report.generatorMicros);
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    'Open loop over 512 connections; the first 5 seconds, in which tokens are looked up, are not in the latencies.',
  );
  findings.note(
    'At exactly its limit a producer whose request comes a moment early is refused: 429s are expected, and few.',
  );
  const seconds = byLength(options, { full: 75, quick: 15, smoke: 5 });
  const generator = bench.startGenerator();
  const apps = await bench.makeApps(FLEET_APPS, 'fleet');
  const { port, pid } = await bench.startService({ limits: 'kept' });
  await runFleet(bench, findings, generator, {
    ...{ name: 'fleet', prefix: '', sql: bench.sql, port, pid, apps, seconds },
  });
  findings.figure('server memory, high-water', 'MB', [memoryOf(pid).highWater]);
}

export const FLEET: Scenario = {
  name: 'fleet',
  about: '1,500 apps, each at its limit: 25,000 requests a second offered; accepted, refused, latency.',
  run,
};
