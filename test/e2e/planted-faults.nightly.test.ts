/** What nobody expects in the real process: connections that fail at once, and errors that nobody handles. */
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { HttpConnection, request } from '../support/http-client.ts';
import { type Comparison, Ledger } from '../support/ledger.ts';
import { patient } from '../support/patience.ts';
import { TestRedis } from '../support/redis.ts';
import { REDIS_SERVER } from '../support/redis-server.ts';
import { RestartablePostgres } from '../support/restartable-postgres.ts';
import { CREATE_EVENT, until } from '../support/service.ts';
import { childrenOf, Installation, type ServerProcess } from './server-process.ts';
import { pidsOf } from './servers.ts';

vi.setConfig({ testTimeout: patient(120_000), hookTimeout: patient(90_000) });

const PLANTED = fileURLToPath(new URL('../support/planted-faults.mjs', import.meta.url));
const FLAWLESS: Comparison = {
  acknowledgedAndMissing: 0,
  storedTwice: 0,
  storedAndRefused: 0,
  storedAndNeverSent: 0,
  miscounted: 0,
};

let postgres: RestartablePostgres;
let installation: Installation;
let loggingToken: string;

beforeEach(async () => {
  postgres = await RestartablePostgres.make();
  installation = await Installation.make({ DATABASE_URL: postgres.url, LOG_LEVEL: 'info' });
  await plant('nothing nothing');
});

afterEach(async () => {
  await installation.remove();
  await postgres.stop();
});

/** @param words the system error of each `connect`, and what happens at SIGUSR2 */
async function plant(words: string): Promise<void> {
  await writeFile(join(installation.folder, 'planted'), words);
}

async function start(more: Record<string, string> = {}): Promise<ServerProcess> {
  const server = await installation.start({
    JOURNAL_DIR: join(installation.folder, 'journal'),
    NODE_OPTIONS: `--import=${PLANTED}`,
    PLANTED_FAULTS: join(installation.folder, 'planted'),
    ...more,
  });
  ({ loggingToken } = await installation.makeApp());
  return server;
}

async function breakConnections(): Promise<void> {
  const sql = postgres.connect();
  try {
    await sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tidemark%'`;
  } finally {
    await sql.end();
  }
}

async function compare(ledger: Ledger): Promise<Comparison> {
  const sql = postgres.connect();
  try {
    return await ledger.compare(sql);
  } finally {
    await sql.end();
  }
}

interface Readiness {
  readonly journal: { readonly waitingEvents: number };
}

async function waitingEvents(server: ServerProcess): Promise<number> {
  const { body } = await request(server.port, { path: '/readyz' });
  return (JSON.parse(body) as Readiness).journal.waitingEvents; // The server has a journal, so the field is there.
}

async function isReady(server: ServerProcess): Promise<boolean> {
  return (
    (await request(server.port, { path: '/readyz' })).status === 200 && (await waitingEvents(server)) === 0
  );
}

test('a database to which connect() fails at once is an outage: the journal takes over, whatever the error is', async () => {
  const server = await start();
  const ledger = new Ledger({ loggingToken, typeName: 'no way', port: () => server.port });
  ledger.start(8);
  await until(() => ledger.acknowledged > 50, 'events are acknowledged');
  for (const code of ['ENETUNREACH', 'EHOSTUNREACH', 'ENETDOWN', 'EADDRNOTAVAIL', 'EMFILE']) {
    await plant(`${code} nothing`);
    await breakConnections();
    await until(async () => (await waitingEvents(server)) > 50, `events go to the journal for ${code}`);
    await plant('nothing nothing');
    await until(() => isReady(server), 'the database is back and the journal empty', 30_000);
  }
  await ledger.stop();
  await until(() => isReady(server), 'the journal is empty');
  expect(await server.end('SIGTERM')).toMatchObject({ code: 0 });
  expect([...ledger.statuses.keys()]).toEqual([201]);
  expect(await compare(ledger)).toEqual(FLAWLESS);
});

test.each(['rejection', 'exception'])(
  'a %s that nobody handles is logged with its stack, and stops the process in order with exit code 1',
  async (kind) => {
    await plant(`nothing ${kind}`);
    const server = await start();
    const ledger = new Ledger({ loggingToken, typeName: kind, port: () => server.port });
    ledger.start(8);
    await until(() => ledger.acknowledged > 50, 'events are acknowledged');
    // In flight: its commit waits for the table.
    const sql = postgres.connect();
    const watcher = postgres.connect();
    const held = await sql.reserve();
    await held`BEGIN`;
    await held`LOCK TABLE events IN SHARE MODE`;
    const connection = await HttpConnection.open(server.port);
    const body = JSON.stringify({ loggingToken, typeName: kind, payload: { in: 'flight' } });
    await connection.write(
      `POST ${CREATE_EVENT} HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    await until(async () => {
      const rows = await watcher`SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'`;
      return rows.length > 0;
    }, 'a commit waits');
    const ending = server.end('SIGUSR2');
    await until(() => server.stderr.includes('"Stopping"'), 'it stops');
    await held`ROLLBACK`;
    held.release();
    await Promise.all([sql.end(), watcher.end()]);
    expect((await connection.response()).status).toBe(201);
    const { code, stderr } = await ending;
    await ledger.stop();
    expect(code).toBe(1);
    const lines = stderr.split('\n').filter((line) => line.startsWith('{'));
    const fatal = lines.map((line) => JSON.parse(line)).filter(({ level }) => level === 'fatal');
    expect(fatal).toHaveLength(1);
    expect(fatal[0]).toMatchObject({ msg: 'Unhandled error: stopping' });
    expect(fatal[0].err).toMatchObject({ type: 'Error', message: 'the planted fault' });
    expect(fatal[0].err.stack).toMatch(/planted-faults\.mjs:\d+/);
    expect(lines.at(-1)).toContain('"Stopped"');
    expect(await compare(ledger)).toMatchObject({
      acknowledgedAndMissing: 0,
      storedTwice: 0,
      storedAndRefused: 0,
    });
  },
);

test('events that wait in the journal at such a stop are stored by the next start', async () => {
  await plant('nothing rejection');
  const server = await start();
  const ledger = new Ledger({ loggingToken, typeName: 'journaled', port: () => server.port });
  ledger.start(8);
  await until(() => ledger.acknowledged > 50, 'events are acknowledged');
  await plant('ENETUNREACH rejection');
  await breakConnections();
  await until(async () => (await waitingEvents(server)) > 50, 'events go to the journal');
  const [{ code }] = await Promise.all([server.end('SIGUSR2'), ledger.stop()]);
  expect(code).toBe(1);
  await plant('nothing nothing');
  const next = await installation.start({ JOURNAL_DIR: join(installation.folder, 'journal') });
  await until(() => isReady(next), 'the journal is empty');
  expect(await next.end('SIGTERM')).toMatchObject({ code: 0 });
  const left = await readdir(join(installation.folder, 'journal'), { recursive: true });
  expect(left.filter((name) => name.endsWith('.journal'))).toEqual([]);
  expect(await compare(ledger)).toMatchObject({ acknowledgedAndMissing: 0, storedTwice: 0 });
});

test.skipIf(REDIS_SERVER === undefined)(
  'of several workers the one with the fault stops in order, and another takes its place',
  async () => {
    const redis = await TestRedis.start();
    onTestFinished(() => redis.remove());
    await plant('nothing exception');
    const server = await start({ WORKERS: '2', REDIS_URL: redis.url });
    await until(() => pidsOf(server).length === 2, 'both serve');
    const workers = childrenOf(server.pid);
    expect(workers).toHaveLength(2);
    const [faulty = 0, other = 0] = workers;
    process.kill(faulty, 'SIGUSR2');
    const replaced = /"worker":[12],"code":1,.*worker: ended, starting a replacement/;
    await until(() => replaced.test(server.stderr), 'the worker has ended with exit code 1');
    await until(() => {
      const now = childrenOf(server.pid);
      return now.length === 2 && !now.includes(faulty) && now.includes(other);
    }, 'another has taken its place');
    expect(await server.end('SIGTERM')).toMatchObject({ code: 0 });
  },
);
