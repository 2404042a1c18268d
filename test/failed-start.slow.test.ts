/** A start that fails, however far it came, leaves nothing open that would keep the process. */

import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readConfig } from '../src/config.ts';
import { migrating } from '../src/service/migrating.ts';
import { startService } from '../src/service.ts';
import { connect } from '../src/storage/database/connect.ts';
import { openStorage } from '../src/storage/storage.ts';
import { type TestDatabase, testDatabase } from './support/database.ts';
import { reserved } from './support/reserved.ts';
import { captured, testSecret, until } from './support/service.ts';

let database: TestDatabase;
let folder: string;

beforeEach(async () => {
  database = await testDatabase();
  folder = await mkdtemp(join(tmpdir(), 'tidemark-start-'));
});

afterEach(async () => {
  await database.drop();
  await rm(folder, { recursive: true, force: true });
});

async function start(settings: Record<string, string> = {}): Promise<unknown> {
  return await startService({
    config: readConfig({ PORT: '0', JOURNAL_DIR: folder, ...settings }),
    address: database.address,
    storage: await openStorage(database.sql),
    secret: await testSecret(),
    log: captured([]),
  });
}

/** What would keep the process, counted by kind. */
function kept(): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const kind of process.getActiveResourcesInfo()) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

async function connections(): Promise<string[]> {
  const rows = await database.sql<{ name: string }[]>`
    SELECT application_name AS name FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'tidemark%'`;
  return rows.map(({ name }) => name);
}

async function expectNothingOpen(before: Record<string, number>): Promise<void> {
  await until(async () => (await connections()).length === 0, 'no connection is left');
  for (const kind of ['Timeout', 'TCPSocketWrap', 'TCPServerWrap', 'PipeWrap', 'PipeServerWrap'])
    await until(() => (kept()[kind] ?? 0) <= (before[kind] ?? 0), `no ${kind} is left`, 5_000);
  const claims = (await readdir(folder, { recursive: true })).filter((name) => name.includes('owner-'));
  expect(claims).toEqual([]);
}

test.each([
  ['the preparation of the database', 'DROP TABLE events CASCADE'],
  ['what the journal asks of the database', 'DROP TABLE installation'],
  ["the dashboard's link to the first account", 'DROP TABLE users CASCADE'],
])('a start that fails at %s', async (_, spoil) => {
  await database.sql.unsafe(spoil);
  const before = kept();
  await expect(start()).rejects.toThrow();
  await expectNothingOpen(before);
});

test('a start that fails at its port', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  await until(() => other.listening, 'the port is in use');
  const address = other.address();
  const port = typeof address === 'object' ? String(address?.port) : '';
  await connections();
  const before = kept();
  await expect(start({ PORT: port })).rejects.toThrow(port);
  await expectNothingOpen(before);
  other.close();
});

test('a start that waits for the lock of migrations answers with who holds it, says so, and goes on by itself', async () => {
  const empty = await testDatabase('postgres18', { empty: true });
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  const lines: Record<string, unknown>[] = [];
  const extended: number[] = [];
  const holder = await reserved(empty.sql);
  const own = connect(empty.address, { connections: 1, name: 'tidemark start' });
  try {
    const [held] = await holder<{ pid: number }[]>`
      SELECT pg_backend_pid() AS pid, pg_advisory_lock(hashtext('tidemark migrations'))`;
    const work = migrating(
      {
        config: { HOST: '127.0.0.1', PORT: port },
        address: empty.address,
        storage: await openStorage(own),
        log: captured(lines),
        extend: (ms) => extended.push(ms),
        now: () => performance.now(),
      },
      own,
    );
    const waits = `waits for pid ${held?.pid} of PostgreSQL, which holds the lock`;
    const get = async (path: string): Promise<[number, string]> => {
      const answer = await fetch(`http://127.0.0.1:${port}${path}`).catch(() => null);
      return answer === null ? [0, ''] : [answer.status, await answer.text()];
    };
    await until(async () => (await get('/readyz'))[1].includes(waits), 'who holds the lock');
    expect(await get('/readyz')).toEqual([503, expect.stringMatching(/migrating 1 of \d+, waits/)]);
    expect(await get('/livez')).toEqual([200, expect.stringContaining('"status":"live"')]);
    expect((await get('/public/create_event'))[0]).toBe(503);
    await until(() => lines.some(({ msg }) => String(msg).includes(waits)), 'the line of the log');
    expect(extended).toContain(60_000);
    await holder`SELECT pg_advisory_unlock_all()`;
    expect((await work).applied.length).toBeGreaterThan(3);
    // The port is the service's now.
    expect((await get('/livez'))[0]).toBe(0);
  } finally {
    holder.release();
    await own.end();
    await empty.drop();
  }
});
