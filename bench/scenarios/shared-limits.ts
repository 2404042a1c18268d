/** shared-limits: what limits through Redis cost, beside limits in the process's own memory. */
import { Redis } from 'ioredis';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { addSums, sumOfTable } from '../load/ledger.ts';
import type { LoadReport } from '../load/load-job.ts';
import {
  type Contender,
  checkLedger,
  checkStatuses,
  createRequest,
  interleavedRounds,
  type Round,
} from '../measure.ts';
import { SMALL_PAYLOAD_BYTES, startForgetfulRedis } from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { readMetrics } from '../servers/metrics.ts';
import { cpuOf } from '../servers/process-usage.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';
import { addRounds } from './comparisons.ts';

const APPS = 20;
const CONNECTIONS = 256;
const OWN = 'own limits';
const SHARED = 'limits through Redis';
/** Never reached, and counted all the same. A Redis that a busy machine makes slow must not be left. */
const SETTINGS = { CREATE_LIMIT_PER_MINUTE: '1000000', REDIS_TIMEOUT_MS: '5000' };
const JOINED_TIMEOUT_MS = 10_000;

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    `Closed loop by autocannon, ${CONNECTIONS} connections, ${APPS} apps, far below their limits.`,
  );
  const redis = await startForgetfulRedis(bench);
  if (redis === null) {
    findings.note('Skipped: there is no redis-server.');
    return;
  }
  const length = byLength(options, {
    full: { seconds: 4, rounds: 7 },
    quick: { seconds: 2, rounds: 3 },
    smoke: { seconds: 1, rounds: 1 },
  });
  const generator = bench.startGenerator();
  const apps = await bench.makeApps(APPS, 'shared-limits');
  const [own, shared] = [await startOwn(bench, apps), await startShared(bench, apps, redis.url)];
  const client = new Redis(redis.url);
  const before = { calls: await scriptCalls(client), cpu: cpuOf(redis.pid) };
  const results = await interleavedRounds(bench, generator, [own, shared], {
    connections: CONNECTIONS,
    ...length,
  });
  const calls = (await scriptCalls(client)) - before.calls;
  const redisMs = cpuOf(redis.pid) - before.cpu;
  await client.quit();

  const ids = apps.map(({ id }) => id);
  const reports = [own, shared].flatMap(({ name }) => reportsOf(results.get(name)));
  checkStatuses(findings, 'shared-limits', reports, [201]);
  checkLedger(findings, 'shared-limits', reports, await sumOfTable(bench.sql, 'events', ids));
  const alone = (await readMetrics(shared.port))?.get('tidemark_limits_own_decisions_total');
  const seen = `${calls} calls, ${alone} events without`;
  findings.check('Redis decided on every event', calls > 0 && alone === 0, seen);
  addComparison(findings, results.get(OWN)?.rounds ?? [], results.get(SHARED)?.rounds ?? []);
  const events = addSums(reportsOf(results.get(SHARED)).map(({ acknowledged }) => acknowledged)).events;
  findings.figure(`${SHARED}: CPU of Redis`, 'µs/answer', [(redisMs * 1_000) / events]);
  findings.figure(`${SHARED}: events a call of the script`, '', [events / calls]);
}

type Result = Awaited<ReturnType<typeof interleavedRounds>> extends Map<string, infer R> ? R : never;

function reportsOf(result: Result | undefined): LoadReport[] {
  return result === undefined ? [] : [result.warmUp, ...result.rounds].map(({ report }) => report);
}

function addComparison(findings: Findings, own: readonly Round[], shared: readonly Round[]): void {
  addRounds(findings, OWN, own);
  addRounds(findings, SHARED, shared);
  const rates = (rounds: readonly Round[]): number[] => rounds.map(({ accepted }) => accepted);
  const cpu = (rounds: readonly Round[]): number[] => rounds.map(({ serverMicros }) => serverMicros);
  findings.ratio('events, shared to own', pairwise(rates(shared), rates(own)));
  findings.ratio('server CPU, shared to own', pairwise(cpu(shared), cpu(own)));
}

async function startOwn(bench: Workbench, apps: readonly BenchApp[]): Promise<Contender> {
  const { port, pid } = await bench.startService({ limits: 'kept', settings: SETTINGS });
  return { name: OWN, port, pid, requests: apps.map((app) => createRequest(app, SMALL_PAYLOAD_BYTES)) };
}

async function startShared(bench: Workbench, apps: readonly BenchApp[], url: string): Promise<Contender> {
  const settings = { ...SETTINGS, REDIS_URL: url };
  const { port, pid } = await bench.startService({ limits: 'kept', settings });
  await untilJoined(port);
  return { name: SHARED, port, pid, requests: apps.map((app) => createRequest(app, SMALL_PAYLOAD_BYTES)) };
}

async function untilJoined(port: number): Promise<void> {
  const deadline = performance.now() + JOINED_TIMEOUT_MS;
  while ((await readMetrics(port))?.get('tidemark_limits_shared') !== 1) {
    if (performance.now() > deadline) throw new Error('The service does not share its limits.');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** How often the limiter's script was called. */
async function scriptCalls(client: Redis): Promise<number> {
  const stats = await client.info('commandstats');
  return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
}

export const SHARED_LIMITS: Scenario = {
  name: 'shared-limits',
  about: 'Limits through Redis beside limits in memory: events a second, CPU of the service and of Redis.',
  run,
};
