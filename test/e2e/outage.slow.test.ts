/** Outages under load, with the real server as a process and a journal: the ledger holds, and 201 comes after the sync. */
import { spawnSync } from 'node:child_process';
import { appendFile, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { atNight } from '../support/fuzz.ts';
import { request } from '../support/http-client.ts';
import { type Comparison, Ledger } from '../support/ledger.ts';
import { patient } from '../support/patience.ts';
import { FaultyProxy } from '../support/proxy.ts';
import { RestartablePostgres } from '../support/restartable-postgres.ts';
import { until } from '../support/service.ts';
import { Installation, type ServerProcess } from './server-process.ts';

vi.setConfig({ testTimeout: patient(120_000), hookTimeout: patient(90_000) });

const PRODUCERS = 16;
const FLAWLESS: Comparison = {
  acknowledgedAndMissing: 0,
  storedTwice: 0,
  storedAndRefused: 0,
  storedAndNeverSent: 0,
  miscounted: 0,
};

let postgres: RestartablePostgres;
let installation: Installation;
let server: ServerProcess | null = null;
let loggingToken: string;

beforeAll(async () => {
  postgres = await RestartablePostgres.make();
  installation = await Installation.make({ DATABASE_URL: postgres.url, LOG_LEVEL: 'info' });
  // A short path: a socket in it tells who owns it.
  server = await start();
  ({ loggingToken } = await installation.makeApp());
});

afterAll(async () => {
  await installation.remove();
  await postgres.stop();
});

async function start(under: readonly string[] = []): Promise<ServerProcess> {
  return await installation.start({ JOURNAL_DIR: join(installation.folder, 'journal') }, under);
}

async function run(): Promise<ServerProcess> {
  server ??= await start();
  return server;
}

async function end(signal: 'SIGTERM' | 'SIGKILL'): Promise<{ code: number | null; stderr: string }> {
  const ended = await (await run()).end(signal);
  server = null;
  return ended;
}

function ledgerOf(typeName: string): Ledger {
  return new Ledger({ loggingToken, typeName, port: () => server?.port ?? null });
}

/** So many more acknowledged. */
async function progress(ledger: Ledger, events: number): Promise<void> {
  const goal = ledger.acknowledged + events;
  await until(() => ledger.acknowledged >= goal, `${events} more events are acknowledged`, 30_000);
}

interface Readiness {
  readonly journal: { readonly waitingEvents: number };
}

async function waitingEvents(): Promise<number> {
  const { body } = await request((await run()).port, { path: '/readyz' });
  return (JSON.parse(body) as Readiness).journal.waitingEvents; // The server has a journal, so the field is there.
}

async function replayed(): Promise<void> {
  const isReady = async (): Promise<boolean> =>
    (await request((await run()).port, { path: '/readyz' })).status === 200 && (await waitingEvents()) === 0;
  await until(isReady, 'the database is back and the journal empty', 60_000);
}

async function compare(ledger: Ledger): Promise<Comparison> {
  const sql = postgres.connect();
  try {
    return await ledger.compare(sql);
  } finally {
    await sql.end();
  }
}

async function segments(): Promise<string[]> {
  const names = await readdir(join(installation.folder, 'journal'), { recursive: true });
  return names.filter((name) => name.endsWith('.journal')).sort();
}

test('security 22: PostgreSQL is killed and stays away, the server is killed meanwhile and its last record torn: nothing acknowledged is lost', async () => {
  await run();
  const ledger = ledgerOf('killed in an outage');
  ledger.start(PRODUCERS);
  await progress(ledger, 300);
  for (let round = 0; round < 2; round += 1) {
    await postgres.kill();
    await progress(ledger, 1_000);
    await end('SIGKILL');
    const last = join(installation.folder, 'journal', (await segments()).at(-1) ?? '');
    // The marker of its records, and a few bytes of one that was never written to its end.
    await appendFile(last, Buffer.concat([(await readFile(last)).subarray(8, 16), Buffer.from([0, 0, 1])]));
    await postgres.start();
    await run();
    await progress(ledger, 300);
    await replayed();
    expect(server?.stderr).toContain('what is missing at its end may have been acknowledged');
  }
  await ledger.stop();
  expect(await end('SIGTERM')).toMatchObject({ code: 0 });
  expect(await segments()).toEqual([]);
  expect(await compare(ledger)).toEqual(FLAWLESS);
});

atNight(
  'security 22: PostgreSQL is killed and comes back, again and again: producers only ever see 201',
  async () => {
    await run();
    const ledger = ledgerOf('only 201');
    ledger.start(PRODUCERS);
    await progress(ledger, 300);
    for (let round = 0; round < 2; round += 1) {
      await postgres.kill();
      await progress(ledger, 300);
      await postgres.start();
      await progress(ledger, 300);
    }
    await ledger.stop();
    await replayed();
    expect([...ledger.statuses.keys()]).toEqual([201]);
    expect(await compare(ledger)).toEqual(FLAWLESS);
  },
);

atNight(
  'security 22: PostgreSQL is paused and resumed: producers go on, and a commit that was only late stores nothing twice',
  async () => {
    await run();
    const ledger = ledgerOf('paused');
    ledger.start(PRODUCERS);
    await progress(ledger, 300);
    await postgres.pause();
    await until(async () => (await waitingEvents()) > 500, 'events go to the journal', 10_000);
    await postgres.resume();
    await progress(ledger, 500);
    await ledger.stop();
    await replayed();
    expect([...ledger.statuses.keys()]).toEqual([201]);
    expect(await compare(ledger)).toEqual(FLAWLESS);
  },
);

test.each([
  ['looks its first token up', /^tidemark lookups/],
  ['opens its first connection for writing', /^tidemark writer/],
])(
  'the server itself stands still for a second while it %s, and again under load: no event is refused or lost',
  async (_, connection) => {
    await run();
    const proxy = await FaultyProxy.start({ url: postgres.url });
    const { url: DATABASE_URL = '' } = { url: '', ...proxy.address };
    const own = await installation.start({ DATABASE_URL, JOURNAL_DIR: '' });
    const standStill = async (): Promise<void> => {
      own.signal('SIGSTOP');
      await sleep(1_000);
      own.signal('SIGCONT');
    };
    try {
      const ledger = new Ledger({
        loggingToken,
        typeName: `stood still ${connection}`,
        port: () => own.port,
      });
      // A connection takes several round trips, and the process stands still during the first.
      proxy.delayMs = 10;
      const isOpening = new Promise<void>((resolve) => {
        proxy.onSent = (_sent, name) => connection.test(name) && resolve();
      });
      ledger.start(PRODUCERS);
      await isOpening;
      await standStill();
      for (let round = 0; round < 3; round += 1) {
        await progress(ledger, 200);
        await standStill();
      }
      await progress(ledger, 200);
      await ledger.stop();
      expect([...ledger.statuses.keys()]).toEqual([201]);
      expect(await compare(ledger)).toEqual(FLAWLESS);
    } finally {
      expect(await own.end('SIGTERM')).toMatchObject({ code: 0 });
      await proxy.stop();
    }
  },
);

test('SIGTERM in an outage: exit code 0, one line says how many events wait, and the next start stores them', async () => {
  await run();
  const ledger = ledgerOf('stopped in an outage');
  ledger.start(PRODUCERS);
  await progress(ledger, 300);
  await postgres.kill();
  await progress(ledger, 500);
  const answered = ledger.stop();
  const { code, stderr } = await end('SIGTERM');
  await answered;
  expect(code).toBe(0);
  expect(stderr.match(/"waitingEvents":\d+.*journal: events wait for the next start/g)).toHaveLength(1);
  expect(ledger.unanswered).toBe(0);
  await postgres.start();
  await run();
  await replayed();
  expect(await compare(ledger)).toEqual(FLAWLESS);
});

const hasStrace = spawnSync('strace', ['-V']).status === 0;

test.skipIf(!hasStrace)(
  'in an outage no 201 is sent before the sync of its record, by strace',
  async () => {
    if (server !== null) await end('SIGTERM');
    const trace = join(installation.folder, 'trace');
    const calls = 'trace=fdatasync,write,pwrite64,send,sendto,sendmsg,writev,openat';
    server = await start(['strace', '-D', '-f', '-ttt', '-y', '-s', '400', '-e', calls, '-o', trace]);
    const { port } = server;
    const post = (key: string): Promise<{ status: number }> =>
      request(port, {
        method: 'POST',
        path: '/public/create_event',
        body: JSON.stringify({ loggingToken, typeName: 'traced', payload: { key } }),
      });
    expect((await post('before')).status).toBe(201);
    await postgres.kill();
    const keys = Array.from({ length: 20 }, (_, index) => `traced-${index}`);
    for (const key of keys) expect((await post(key)).status).toBe(201);
    await postgres.start();
    await replayed();
    await end('SIGTERM');
    const order = journalCalls(await readFile(trace, 'utf8'));
    // One after the other: written, synced, answered, twenty times and in no other order.
    expect(order).toEqual(keys.flatMap((key) => [`write ${key}`, 'sync', 'answer']));
  },
  180_000,
);

/** What the trace tells: records written to the journal, syncs of it that have ended well, and 201s that were begun. */
function journalCalls(trace: string): string[] {
  const order: string[] = [];
  const syncing = new Set<string>();
  for (const line of trace.split('\n')) {
    const thread = line.split(' ', 1)[0] ?? '';
    const key = /pwrite64\(.*(traced-\d+)/.exec(line)?.[1];
    if (key !== undefined) order.push(`write ${key}`);
    if (/fdatasync\(\d+<[^>]*\.journal>/.test(line)) syncing.add(thread);
    const isSynced = /fdatasync.*= 0$/.test(line) && syncing.delete(thread);
    // The first one of a file is that of its header.
    if (isSynced && order.at(-1)?.startsWith('write') === true) order.push('sync');
    if (line.includes('HTTP/1.1 201') && order.length > 0) order.push('answer');
  }
  return order;
}
