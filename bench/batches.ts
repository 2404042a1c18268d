/**
 * POST /v1/events beside a bare COPY of the same rows into the same table by a script with one connection, in
 * interleaved rounds; the CPU that each takes; the latency of single events alone and beside a stream of batches; and how
 * long the server's event loop is kept at a time.
 *
 * POSTGRES_URL names an empty database; without it an embedded PostgreSQL is made in a temporary folder. ROUNDS and
 * BATCHES (of 10,000 events each a round) change the size. To run it:
 *
 *   npx tsc -p tsconfig.check.json --noEmit false --outDir .bench && cp -r sql package.json .bench/ && node .bench/bench/batches.js
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks';
import { gzipSync } from 'node:zlib';
import pino from 'pino';
import { createApp } from '../src/apps/apps.ts';
import { createEventType } from '../src/apps/event-types.ts';
import { openSecret } from '../src/apps/secret.ts';
import { readConfig } from '../src/config.ts';
import { createEventIds } from '../src/ingest/event-id.ts';
import { startService } from '../src/service.ts';
import { connect, type DatabaseAddress, type Sql } from '../src/storage/connect.ts';
import { ENGINES } from '../src/storage/engines.ts';
import { openDatabase } from '../src/storage/open.ts';
import { openStorage } from '../src/storage/storage.ts';
import type { AcceptedEvent } from '../src/storage/write/accepted-event.ts';
import { CopyConnection } from '../src/storage/write/copy-connection.ts';
import { COPY_COMMANDS, copyGroup } from '../src/storage/write/copy-group.ts';
import { cpuOf, cpuOfFamily } from './process-usage.ts';

const ROUNDS = Number(process.env.ROUNDS ?? 7);
const BATCHES = Number(process.env.BATCHES ?? 8);
const EVENTS = 10_000;
const TYPES = 20;
const SECRET = 'the secret of the bench, 32 characters';

/** The server under test, in a process of its own. */
async function serve(address: DatabaseAddress): Promise<void> {
  const config = readConfig({ PORT: '0', CREATE_LIMIT_PER_MINUTE: '0' });
  const sql = connect(address, { connections: 1, name: 'bench' });
  const service = await startService({
    config,
    address,
    storage: await openStorage(sql),
    secret: await openSecret({ configured: SECRET, dataDir: null }),
    log: pino({ level: 'error' }),
  });
  await sql.end();
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  process.send?.(service.port);
  while ((await nextMessage()) === 'delay') process.send?.(delaysOf(delay));
  await service.stop();
  process.disconnect();
}

async function nextMessage(): Promise<unknown> {
  const [message] = await once(process, 'message');
  return message;
}

/** Milliseconds for which the event loop was kept since the last time: the 99th percentile and the longest. */
function delaysOf(delay: IntervalHistogram): readonly [number, number] {
  const delays = [delay.percentile(99) / 1e6, delay.max / 1e6] as const;
  delay.reset();
  return delays;
}

interface Producer {
  readonly port: number;
  readonly token: string;
  readonly typeIds: readonly string[];
}

const agent = new Agent({ keepAlive: true, maxSockets: 256 });

function post(port: number, path: string, body: Buffer, headers: Record<string, string>): Promise<string> {
  return new Promise((resolve, reject) => {
    const sending = request(
      { port, path, method: 'POST', agent, headers: { 'Content-Length': body.length, ...headers } },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString();
          if ((response.statusCode ?? 0) < 300) resolve(text);
          else reject(new Error(`${response.statusCode}: ${text.slice(0, 200)}`));
        });
      },
    );
    sending.on('error', reject);
    sending.end(body);
  });
}

const PAYLOADS = Array.from({ length: EVENTS }, (_, n) =>
  JSON.stringify({
    orderId: 1_000_000 + n,
    customerId: `c_${(n * 7_919) % 50_000}`,
    status: ['placed', 'paid', 'packed', 'shipped'][n % 4],
    source: ['web', 'ios', 'android', 'partner'][n % 4],
    items: [{ sku: `SKU-${n % 2_000}`, quantity: 1 + (n % 4) }],
    total: (n % 50_000) / 100,
    note: 'x'.repeat(60),
  }),
);

function batchBody({ typeIds }: Producer): Buffer {
  const events = PAYLOADS.map((payload, n) => `{"typeId":"${typeIds[n % TYPES]}","payload":${payload}}`);
  return Buffer.from(`{"events":[${events.join(',')}]}`);
}

/** Messages of one COPY each, made before the clock starts, as the bodies of the batches are. */
function copyBatches(newId: (now: number) => string): Buffer[] {
  return Array.from({ length: BATCHES }, () => {
    const createdAt = Date.now();
    const events = PAYLOADS.map(
      (payload, n): AcceptedEvent => ({
        id: newId(createdAt),
        appId: 1,
        typeId: 1 + (n % TYPES),
        createdAt,
        payload,
        source: { appId: 'app_1', typeId: 'typ_1', typeName: 'type' },
      }),
    );
    return copyGroup(ENGINES.postgres.writes, events);
  });
}

/** Processes whose CPU is measured, beside the script's own. */
interface Processes {
  readonly server: ChildProcess;
  /** NaN where PostgreSQL is not on this machine. */
  readonly postmaster: number;
}

/** What BATCHES times EVENTS rows took. */
interface Run {
  readonly rowsPerSecond: number;
  /** CPU in microseconds a row: of the server, of PostgreSQL with all its processes, and of this script. */
  readonly cpu: readonly number[];
}

async function timed({ server, postmaster }: Processes, work: () => Promise<void>): Promise<Run> {
  const usage = (): number[] => [
    cpuOf(server.pid ?? Number.NaN),
    cpuOfFamily(postmaster),
    cpuOf(process.pid),
  ];
  const rows = BATCHES * EVENTS;
  const before = usage();
  const startedAt = performance.now();
  await work();
  const seconds = (performance.now() - startedAt) / 1_000;
  const cpu = usage().map((after, index) => ((after - (before[index] ?? 0)) * 1_000) / rows);
  return { rowsPerSecond: rows / seconds, cpu };
}

/** The postmaster of a database in a folder that can be read. */
async function postmasterOf(sql: Sql): Promise<number> {
  const [row] = await sql<{ folder: string }[]>`SELECT current_setting('data_directory') AS folder`;
  const text = await readFile(join(row?.folder ?? '', 'postmaster.pid'), 'utf8').catch(() => '');
  return Number.parseInt(text, 10);
}

async function postBatches(
  producer: Producer,
  body: Buffer,
  inFlight: number,
  headers: Record<string, string> = {},
): Promise<void> {
  let left = BATCHES;
  const send = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      const answer = await post(producer.port, '/v1/events', body, {
        Authorization: `Bearer ${producer.token}`,
        ...headers,
      });
      if (!answer.startsWith(`{"success":true,"stored":${EVENTS},`)) throw new Error(answer.slice(0, 200));
    }
  };
  await Promise.all(Array.from({ length: inFlight }, send));
}

/** Latencies in milliseconds of single events, posted one after the other until told to stop. */
async function postSingles({ port, token, typeIds }: Producer, until: () => boolean): Promise<number[]> {
  const body = Buffer.from(`{"loggingToken":"${token}","typeId":"${typeIds[0]}","payload":${PAYLOADS[0]}}`);
  const latencies: number[] = [];
  while (!until()) {
    const startedAt = performance.now();
    await post(port, '/public/create_event', body, {});
    latencies.push(performance.now() - startedAt);
  }
  return latencies;
}

function quantile(values: readonly number[], share: number): number {
  return (
    values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))] ?? NaN
  );
}

async function rowsIn(sql: Sql): Promise<number> {
  const [row] = await sql<{ rows: number }[]>`SELECT count(*)::int AS rows FROM events`;
  return row?.rows ?? 0;
}

async function measure(
  address: DatabaseAddress,
  sql: Sql,
  producer: Producer,
  server: ChildProcess,
): Promise<object> {
  const processes = { server, postmaster: await postmasterOf(sql) };
  const delays = async (): Promise<readonly number[]> => {
    server.send('delay');
    return (await once(server, 'message'))[0];
  };
  const connection = new CopyConnection(address, 'bench copy');
  const newId = createEventIds();
  const body = batchBody(producer);
  const zipped = gzipSync(body, { level: 1 });
  const keyed = (): Record<string, string> => ({ 'Idempotency-Key': `${Math.random()}` });
  const ways: Record<string, () => Promise<Run>> = {
    'bare COPY': () => {
      const rows = copyBatches(newId);
      return timed(processes, async () => {
        for (const batch of rows) await connection.copy(batch, COPY_COMMANDS);
      });
    },
    'batches, one at a time': () => timed(processes, () => postBatches(producer, body, 1)),
    'batches, two at a time': () => timed(processes, () => postBatches(producer, body, 2)),
    'gzip, two at a time': () =>
      timed(processes, () => postBatches(producer, zipped, 2, { 'Content-Encoding': 'gzip' })),
  };
  const figures = new Map(Object.keys(ways).map((name) => [name, [] as number[]]));
  const cpu = new Map(Object.keys(ways).map((name) => [name, [] as (readonly number[])[]]));
  const kept: (readonly number[])[] = [];
  const alone: number[] = [];
  const beside: number[] = [];
  for (let round = -1; round < ROUNDS; round += 1) {
    for (const [name, run] of Object.entries(ways)) {
      const before = await rowsIn(sql);
      const { rowsPerSecond, cpu: used } = await run();
      if ((await rowsIn(sql)) - before !== BATCHES * EVENTS) throw new Error(`${name} lost rows`);
      if (round < 0) continue;
      figures.get(name)?.push(rowsPerSecond);
      cpu.get(name)?.push(used);
    }
    const end = performance.now() + 500;
    alone.push(...(await postSingles(producer, () => performance.now() > end)));
    await delays();
    let over = false;
    const stream = postBatches(producer, body, 2).finally(() => {
      over = true;
    });
    beside.push(...(await postSingles(producer, () => over)));
    await stream;
    kept.push(await delays());
    // Few of them: an answer of each is kept for a day.
    await post(producer.port, '/v1/events', body, { Authorization: `Bearer ${producer.token}`, ...keyed() });
    await sql`TRUNCATE events, idempotency_keys`;
  }
  await connection.close();
  const floor = figures.get('bare COPY') ?? [];
  return {
    payloadBytes: Math.round(PAYLOADS.join('').length / EVENTS),
    rowsPerSecond: Object.fromEntries(
      [...figures].map(([name, values]) => [name, Math.round(quantile(values, 0.5))]),
    ),
    // Round by round, as what else the machine does changes from one to the next.
    ofBareCopy: Object.fromEntries(
      [...figures].map(([name, values]) => {
        const ratios = values.map((value, round) => value / (floor[round] ?? Number.NaN));
        return [name, [0, 0.5, 1].map((share) => Number(quantile(ratios, share).toFixed(2)))];
      }),
    ),
    cpuMicrosecondsPerRow: Object.fromEntries(
      [...cpu].map(([name, runs]) => [
        name,
        Object.fromEntries(
          ['server', 'PostgreSQL', 'script'].map((process, index) => {
            const used = runs.map((run) => run[index] ?? Number.NaN);
            return [process, [0, 0.5, 1].map((share) => Number(quantile(used, share).toFixed(1)))];
          }),
        ),
      ]),
    ),
    eventLoopKeptMs: {
      p99: Number(
        quantile(
          kept.map(([p99]) => p99 ?? Number.NaN),
          0.5,
        ).toFixed(1),
      ),
      longest: Number(Math.max(...kept.map(([, longest]) => longest ?? Number.NaN)).toFixed(1)),
    },
    singleEventMs: Object.fromEntries(
      [
        ['alone', alone],
        ['beside batches', beside],
      ].map(([name, values]) => [
        name,
        [0.5, 0.99].map((share) => Number(quantile(values as number[], share).toFixed(1))),
      ]),
    ),
  };
}

async function main(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'tidemark-bench-'));
  const database = await openDatabase(
    { DATABASE_URL: process.env.POSTGRES_URL ?? '', DATA_DIR: folder },
    { info: () => undefined, warn: (message) => process.stderr.write(`${message}\n`) },
    { supervise: false },
  );
  const sql = connect(database.address, { connections: 1, name: 'bench' });
  await (await openStorage(sql)).migrate(sql);
  const secret = await openSecret({ configured: SECRET, dataDir: null });
  const app = await createApp(sql, secret, { name: 'Bench' });
  const typeIds: string[] = [];
  for (let n = 1; n <= TYPES; n += 1)
    typeIds.push((await createEventType(sql, { appId: app.appId, name: `type ${n}`, maxTypes: 100 })).typeId);
  const server = fork(new URL(import.meta.url), {
    env: { ...process.env, BENCH_ADDRESS: JSON.stringify(database.address) },
  });
  const [port] = await once(server, 'message');
  try {
    const figures = await measure(database.address, sql, { port, token: app.loggingToken, typeIds }, server);
    process.stdout.write(`${JSON.stringify(figures, null, 2)}\n`);
  } finally {
    agent.destroy();
    server.send('stop');
    await once(server, 'exit');
    await sql.end();
    await database.close();
    await rm(folder, { recursive: true, force: true });
  }
}

const { BENCH_ADDRESS } = process.env;
await (BENCH_ADDRESS === undefined ? main() : serve(JSON.parse(BENCH_ADDRESS)));
