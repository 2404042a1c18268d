/** Deliveries across kill -9 of the service, lost connections to the database, and a transition whose transaction dies. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { addAlert } from '../../src/delivery/alerts/alert-rules.ts';
import { AlertRounds, SETTLE_MS } from '../../src/delivery/alerts/rounds.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { ServerProcess } from '../e2e/server-process.ts';
import { build, tidemark } from '../support/command-line.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { request } from '../support/http-client.ts';
import { testSecret, until } from '../support/service.ts';
import { Receiver } from './receiver.ts';

const EVENTS = 40;
/** A position is written down after so many events. */
const MOST_REPEATED = 10;
const MINUTE_MS = 60_000;

let database: TestDatabase;
let folder: string;
let app: { appId: string; loggingToken: string };
let settings: Record<string, string>;
const receiver = new Receiver();
beforeAll(async () => {
  build();
  folder = await mkdtemp(join(tmpdir(), 'tidemark-kills-'));
  database = await testDatabase('postgres18', { prepared: true });
  app = await createApp(database.sql, await testSecret(), { name: 'Shop' });
  settings = {
    DATABASE_URL: database.url,
    DATA_DIR: folder,
    SECRET: 'the secret of the tests, 32 characters',
    WEBHOOK_ALLOW_PRIVATE: 'true',
    CREATE_LIMIT_PER_MINUTE: '0',
  };
}, 120_000);
afterAll(async () => {
  receiver.close();
  await database?.drop();
  await rm(folder, { recursive: true, force: true });
});

test('no event is missed or overtaken where the service is killed before and after an answer, or the database ends its connections', async () => {
  const url = await receiver.listen();
  const added = await tidemark(['webhook', 'add', '--app', app.appId, '--url', url, '--json'], settings);
  expect(added.code, added.stderr).toBe(0);
  let server = await ServerProcess.start(settings);
  const kill = (): void => server.signal('SIGKILL');
  const kills: Record<number, (response: Parameters<Receiver['answer']>[0]) => void> = {
    7: kill,
    18: (response) => response.writeHead(204).end(kill),
    29: (response) => {
      void database.sql`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name NOT LIKE 'test%' AND pid <> pg_backend_pid()`.then(
        () => response.writeHead(204).end(),
      );
    },
  };
  receiver.answer = (response, count) => {
    const act = kills[count];
    if (act === undefined) response.writeHead(204).end();
    else act(response);
  };
  for (let n = 1; n <= EVENTS; n += 1) {
    const body = JSON.stringify({ loggingToken: app.loggingToken, typeName: 'order', payload: { n } });
    const { status } = await request(server.port, { method: 'POST', path: '/public/create_event', body });
    expect(status).toBe(201);
    if (n < EVENTS) continue;
    for (const count of [7, 18]) {
      await until(() => receiver.received.length >= count, `delivery ${count}`, 60_000);
      await server.end('SIGKILL');
      // The lease of a process that is gone ends by itself, after two minutes.
      await database.sql`UPDATE consumers SET leased_until = now()`;
      server = await ServerProcess.start(settings);
    }
  }
  await until(() => receiver.numbers.includes(EVENTS), 'the last event', 60_000);
  let most = 0;
  for (const n of receiver.numbers) {
    expect(n).toBeLessThanOrEqual(most + 1);
    expect(n).toBeGreaterThan(most - MOST_REPEATED);
    most = Math.max(most, n);
  }
  expect(most).toBe(EVENTS);
  expect(receiver.numbers.length).toBeGreaterThan(EVENTS);
  await server.end('SIGTERM');
}, 180_000);

test('a transition whose transaction dies is said once by the next round', async () => {
  const { sql } = database;
  const [row] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${app.appId}`;
  const [last] = await sql<{ at: Date }[]>`SELECT max(created_at) AS at FROM events`;
  const minute = Math.ceil((last?.at.getTime() ?? 0) / MINUTE_MS) * MINUTE_MS;
  await addAlert(
    sql,
    { id: row?.id ?? 0, appId: app.appId },
    {
      ...{ name: 'Orders', rule: '{"of":"count","type":"order","window":"1h","above":1}', timezone: 'UTC' },
      ...{ webhooks: [], emails: [], alertmanager: 'http://127.0.0.1:1' },
      ...{ most: 10, allowPrivate: true, sendsMail: false },
    },
  );
  const storage = await openStorage(sql);
  const round = (): Promise<boolean> =>
    new AlertRounds({
      ...{ sql, storage, isLeader: () => true, publicUrl: '', now: () => minute + SETTLE_MS },
      log: pino({ level: 'silent' }),
    }).round(minute);
  for (const table of ['alert_rules', 'alert_transitions', 'alert_states', 'delivery_messages']) {
    // The transaction waits at each of its steps for a lock, and is ended there.
    await sql.begin(async (tx) => {
      await tx`LOCK TABLE ${tx(table)} IN SHARE MODE`;
      const died = round().then(
        () => 'done',
        () => 'died',
      );
      await until(async () => {
        const ended = await sql`
          SELECT pg_terminate_backend(pid) FROM pg_locks
           WHERE NOT granted AND relation = ${table}::regclass AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;
        return ended.length > 0;
      }, `the transaction waits at ${table}`);
      expect(await died, table).toBe('died');
    });
    expect(await sql`SELECT FROM alert_transitions`, table).toHaveLength(0);
    expect(await sql`SELECT FROM delivery_messages`, table).toHaveLength(0);
  }
  await round();
  await round();
  const said = await sql`SELECT kind FROM alert_transitions`;
  expect(said.map(({ kind }) => kind)).toEqual(['firing']);
  expect(await sql`SELECT FROM delivery_messages WHERE channel = 'alertmanager'`).toHaveLength(1);
});
