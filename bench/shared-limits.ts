/**
 * What limits through Redis cost: durable events/s of one process with them against one without, in alternating rounds of
 * one run, and the CPU of Node and of Redis per event.
 *
 * Needs redis-server and Linux. Both servers share one embedded PostgreSQL in a temporary folder. SECONDS, ROUNDS,
 * CONNECTIONS and APPS change the size. To run it:
 * `npx tsc -p tsconfig.check.json --noEmit false --outDir .bench && node .bench/bench/shared-limits.js`.
 * Writes bench/results/shared-limits.json and prints it.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import autocannon from 'autocannon';

const SECONDS = Number(process.env.SECONDS ?? 4);
const ROUNDS = Number(process.env.ROUNDS ?? 7);
const CONNECTIONS = Number(process.env.CONNECTIONS ?? 256);
const APPS = Number(process.env.APPS ?? 20);

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const LAUNCHER = join(ROOT, 'tidemark.mjs');
/** 200 bytes. */
const PAYLOAD = JSON.stringify({ orderId: 1_001, note: 'x'.repeat(170) });
/** The unit of /proc/PID/stat: a hundredth of a second on every Linux there is. */
const TICK_US = 10_000;

const run = promisify(execFile);

/** Calls of the script so far. */
async function callsOf(port: number): Promise<number> {
  const { stdout } = await run('redis-cli', ['-p', String(port), 'info', 'commandstats']);
  return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stdout)?.[1] ?? 0);
}

/** CPU that a process has used, in microseconds. */
function cpuOf({ pid }: ChildProcess): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) * TICK_US;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' && address !== null ? address.port : 0;
}

interface Server {
  readonly process: ChildProcess;
  readonly port: number;
}

/** Starts a server and waits until it listens, and for a line of its log where one is named. */
async function startServer(settings: Record<string, string>, line = ''): Promise<Server> {
  const env = { PATH: process.env.PATH ?? '', PORT: '0', CREATE_LIMIT_PER_MINUTE: '1000000', ...settings };
  const child = spawn(process.execPath, [LAUNCHER, 'serve'], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      text += chunk;
    });
  for (;;) {
    const port = Number(/listens on http:\/\/127\.0\.0\.1:(\d+)/.exec(text)?.[1] ?? 0);
    if (port !== 0 && text.includes(line)) return { process: child, port };
    if (child.exitCode !== null) throw new Error(text);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

interface Round {
  readonly eventsPerSecond: number;
  readonly nodeMicrosPerEvent: number;
  readonly redisMicrosPerEvent: number;
  readonly eventsPerCall: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

async function round(server: Server, redis: ChildProcess, bodies: readonly string[]): Promise<Round> {
  const calls = await callsOf(redisPort);
  const before = [cpuOf(server.process), cpuOf(redis)] as const;
  const result = await autocannon({
    url: `http://127.0.0.1:${server.port}/public/create_event`,
    connections: CONNECTIONS,
    duration: SECONDS,
    requests: bodies.map((body) => ({
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    })),
  });
  const used = [cpuOf(server.process) - before[0], cpuOf(redis) - before[1]] as const;
  const events = result['2xx'];
  if (result.non2xx + result.errors > 0)
    throw new Error(`${result.non2xx} refusals, ${result.errors} errors`);
  return {
    eventsPerSecond: events / result.duration,
    nodeMicrosPerEvent: used[0] / events,
    redisMicrosPerEvent: used[1] / events,
    // Without Redis there are none.
    eventsPerCall: events / Math.max(1, (await callsOf(redisPort)) - calls),
    p50Ms: result.latency.p50,
    p99Ms: result.latency.p99,
  };
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return Number((sorted[Math.floor(sorted.length / 2)] ?? Number.NaN).toFixed(2));
}

function medians(rounds: readonly Round[]): Round {
  return {
    eventsPerSecond: Math.round(median(rounds.map((one) => one.eventsPerSecond))),
    nodeMicrosPerEvent: median(rounds.map((one) => one.nodeMicrosPerEvent)),
    redisMicrosPerEvent: median(rounds.map((one) => one.redisMicrosPerEvent)),
    eventsPerCall: median(rounds.map((one) => one.eventsPerCall)),
    p50Ms: median(rounds.map((one) => one.p50Ms)),
    p99Ms: median(rounds.map((one) => one.p99Ms)),
  };
}

const folder = await mkdtemp(join(tmpdir(), 'tidemark-bench-'));
const redisPort = await freePort();
const redis = spawn(
  'redis-server',
  ['--port', String(redisPort), '--bind', '127.0.0.1', '--save', '', '--dir', folder],
  {
    stdio: 'ignore',
  },
);
const started: ChildProcess[] = [];
try {
  const settings = { DATA_DIR: join(folder, 'data') };
  const alone = await startServer(settings);
  started.push(alone.process);
  const shared = await startServer(
    // What is measured is the cost, not the fallback of a busy machine.
    { ...settings, REDIS_URL: `redis://127.0.0.1:${redisPort}`, REDIS_TIMEOUT_MS: '5000' },
    'Limits are shared through Redis',
  );
  started.push(shared.process);

  const bodies: string[] = [];
  for (let index = 0; index < APPS; index += 1) {
    const args = [LAUNCHER, 'app', 'create', '--name', `App ${index}`, '--json'];
    const { stdout } = await run(process.execPath, args, { env: { PATH: process.env.PATH, ...settings } });
    const { loggingToken }: { loggingToken: string } = JSON.parse(stdout);
    bodies.push(`{"loggingToken":"${loggingToken}","typeName":"bench","payload":${PAYLOAD}}`);
  }

  const rounds: { own: Round; common: Round }[] = [];
  // The first one warms up both.
  for (let index = 0; index <= ROUNDS; index += 1) {
    const [first, second] = index % 2 === 0 ? [alone, shared] : [shared, alone];
    const [one, two] = [await round(first, redis, bodies), await round(second, redis, bodies)];
    const pair = first === alone ? { own: one, common: two } : { own: two, common: one };
    if (index > 0) rounds.push(pair);
    process.stderr.write(
      `${index}: ${Math.round(pair.own.eventsPerSecond)} own, ${Math.round(pair.common.eventsPerSecond)} shared\n`,
    );
  }
  const ratios = rounds.map(({ own, common }) => common.eventsPerSecond / own.eventsPerSecond);
  const results = {
    bench: 'shared-limits',
    at: new Date().toISOString(),
    machine: { cpu: cpus()[0]?.model, cores: cpus().length, node: process.version },
    connections: CONNECTIONS,
    apps: APPS,
    rounds: ROUNDS,
    secondsPerRound: SECONDS,
    ownLimits: medians(rounds.map(({ own }) => own)),
    limitsThroughRedis: medians(rounds.map(({ common }) => common)),
    ratio: {
      median: median(ratios),
      least: median([Math.min(...ratios)]),
      most: median([Math.max(...ratios)]),
    },
  };
  await mkdir(join(ROOT, 'bench/results'), { recursive: true });
  const text = `${JSON.stringify(results, null, 2)}\n`;
  await writeFile(join(ROOT, 'bench/results/shared-limits.json'), text);
  process.stdout.write(text);
} finally {
  for (const child of started.reverse()) {
    child.kill('SIGTERM');
    await once(child, 'exit');
  }
  redis.kill('SIGKILL');
  await rm(folder, { recursive: true, force: true });
}
