/** shared-limits: what limits through Redis cost, beside limits in the process's own memory. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import { Redis } from 'ioredis';
import { SMALL_PAYLOAD_BYTES, startRedis } from '../contenders.ts';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { sumOfTable } from '../ledger.ts';
import { checkLedger, checkStatuses, createRequest, interleavedRounds, type Round } from '../measure.ts';
import { readMetrics } from '../metrics.ts';
import { cpuOf } from '../process-usage.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { Workbench } from '../workbench.ts';
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
  const port = await freePort();
  const redis = await startRedis(bench, [
    '--port',
    String(port),
    '--bind',
    '127.0.0.1',
    '--appendonly',
    'no',
  ]);
  if (redis === null) {
    findings.note('Skipped: there is no redis-server.');
    return;
  }
  const length = byLength(options, {
    full: { seconds: 4, rounds: 7 },
    quick: { seconds: 2, rounds: 3 },
    guard: { seconds: 2, rounds: 3 },
    smoke: { seconds: 1, rounds: 1 },
  });
  const generator = bench.startGenerator();
  const apps = await bench.makeApps(APPS, 'shared-limits');
  const requests = apps.map((app) => createRequest(app, SMALL_PAYLOAD_BYTES));
  const own = await bench.startService({ limits: 'kept', settings: SETTINGS });
  const url = `redis://127.0.0.1:${port}`;
  const shared = await bench.startService({ limits: 'kept', settings: { ...SETTINGS, REDIS_URL: url } });
  await untilJoined(shared.port);
  const contenders = [
    { name: OWN, port: own.port, pid: own.pid, requests },
    { name: SHARED, port: shared.port, pid: shared.pid, requests },
  ];
  const client = new Redis({ port });
  const before = { calls: await scriptCalls(client), cpu: cpuOf(redis.pid) };
  const results = await interleavedRounds(bench, generator, contenders, {
    connections: CONNECTIONS,
    ...length,
  });
  const calls = (await scriptCalls(client)) - before.calls;
  const redisMs = cpuOf(redis.pid) - before.cpu;
  await client.quit();

  const [ofOwn, ofShared] = [results.get(OWN), results.get(SHARED)];
  if (ofOwn === undefined || ofShared === undefined) throw new Error('A contender was not measured.');
  addRounds(findings, OWN, ofOwn.rounds);
  addRounds(findings, SHARED, ofShared.rounds);
  const events = [ofShared.warmUp, ...ofShared.rounds].reduce(
    (sum, { report }) => sum + report.acknowledged.events,
    0,
  );
  findings.figure(`${SHARED}: CPU of Redis`, 'µs/answer', [(redisMs * 1_000) / events]);
  findings.figure(`${SHARED}: events a call of the script`, '', [events / calls]);
  const rates = (rounds: readonly Round[]): number[] => rounds.map(({ accepted }) => accepted);
  const cpu = (rounds: readonly Round[]): number[] => rounds.map(({ serverMicros }) => serverMicros);
  findings.ratio('events, shared to own', pairwise(rates(ofShared.rounds), rates(ofOwn.rounds)));
  findings.ratio('server CPU, shared to own', pairwise(cpu(ofShared.rounds), cpu(ofOwn.rounds)));

  const reports = [ofOwn, ofShared].flatMap(({ warmUp, rounds }) =>
    [warmUp, ...rounds].map(({ report }) => report),
  );
  checkStatuses(findings, 'shared-limits', reports, [201]);
  const ids = apps.map(({ id }) => id);
  checkLedger(findings, 'shared-limits', reports, await sumOfTable(bench.sql, 'events', ids));
  const alone = (await readMetrics(shared.port))?.get('tidemark_limits_own_decisions_total');
  findings.check(
    'Redis decided on every event',
    calls > 0 && alone === 0,
    `${calls} calls, ${alone} events without`,
  );
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

/** A TCP port that nobody has. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('There is no TCP port.');
  return address.port;
}

export const SHARED_LIMITS: Scenario = {
  name: 'shared-limits',
  about: 'Limits through Redis beside limits in memory: events a second, CPU of the service and of Redis.',
  run,
};
