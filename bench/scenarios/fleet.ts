/** fleet: 1,500 apps, each at its limit. */
import { SMALL_PAYLOAD_BYTES } from '../contenders.ts';
import type { Findings } from '../findings.ts';
import { sumOfTable } from '../ledger.ts';
import type { OpenJob } from '../load-job.ts';
import { answersOf, checkLedger, checkStatuses, createRequest, withCost } from '../measure.ts';
import { memoryOf } from '../process-usage.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { BenchApp, Workbench } from '../workbench.ts';
import { addLatency, windowsOverLimit } from './limits.ts';

export const FLEET_APPS = 1_500;
/** 1,000 a minute of each. */
export const FLEET_PER_SECOND = (FLEET_APPS * 1_000) / 60;
const CONNECTIONS = 512;

/** The fleet's producers: every app in turn, evenly. */
export function fleetJob(port: number, apps: readonly BenchApp[], seconds: number): OpenJob {
  return {
    kind: 'open',
    port,
    connections: CONNECTIONS,
    seconds,
    perSecond: FLEET_PER_SECOND,
    warmUpSeconds: Math.min(5, seconds / 3),
    requests: apps.map((app) => createRequest(app, SMALL_PAYLOAD_BYTES)),
  };
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    'Open loop over 512 connections; the first 5 seconds, in which tokens are looked up, are not in the latencies.',
  );
  findings.note(
    'At exactly its limit a producer whose request comes a moment early is refused: 429s are expected, and few.',
  );
  const seconds = byLength(options, { full: 75, quick: 15, guard: 15, smoke: 5 });
  const generator = bench.startGenerator();
  const apps = await bench.makeApps(FLEET_APPS, 'fleet');
  const service = await bench.startService({ limits: 'kept' });
  const cost = await withCost(bench, service, () => generator.run(fleetJob(service.port, apps, seconds)));
  const report = cost.result;
  const ids = apps.map(({ id }) => id);
  checkStatuses(findings, 'fleet', [report], [201, 429]);
  checkLedger(findings, 'fleet', [report], await sumOfTable(bench.sql, 'events', ids));
  const over = await windowsOverLimit(bench, ids);
  findings.check('fleet: never more than 1,000 of an app in any 60 seconds', over === 0, `${over} times`);
  const answers = answersOf(report);
  const accepted = answersOf(report, /^201$/);
  findings.figure('offered', '/s', [FLEET_PER_SECOND]);
  findings.figure('accepted', '/s', [accepted / report.seconds]);
  findings.figure('refused', '/s', [(answers - accepted) / report.seconds]);
  findings.figure('offered and never sent', '', [report.dropped]);
  if (report.dropped > 0)
    findings.note('The machine could not take what was offered: latencies are those of a queue.');
  findings.ratio('accepted to offered', [accepted / (answers + report.dropped)]);
  addLatency(findings, 'latency', [report]);
  findings.figure('server CPU', 'µs/answer', [(cost.serverMs * 1_000) / answers]);
  findings.figure('database CPU', 'µs/answer', [(cost.databaseMs * 1_000) / answers]);
  findings.figure('generator CPU', 'µs/answer', [report.generatorMicros]);
  findings.figure('server memory, high-water', 'MB', [memoryOf(service.pid).highWater]);
}

export const FLEET: Scenario = {
  name: 'fleet',
  about: '1,500 apps, each at its limit: 25,000 requests a second offered; accepted, refused, latency.',
  run,
};
