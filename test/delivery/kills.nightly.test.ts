/** A ledger of deliveries across kill -9 of the service, lost connections to the database, and a transition whose transaction dies. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { addAlert } from '../../src/delivery/alerts/alert-rules.ts';
import { AlertRounds, SETTLE_MS } from '../../src/delivery/alerts/rounds.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { ServerProcess } from '../e2e/server-process.ts';
import { build, tidemark } from '../support/command-line.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../support/database.ts';
import { seededRandom } from '../support/field-oracle.ts';
import { KeyedLedger } from '../support/ledger.ts';
import { testSecret, until } from '../support/service.ts';
import { storeRows } from '../support/stored-events.ts';
import { Receiver } from './receiver.ts';

const EVENTS = 300;
const KILLS = 20;
const TYPES = ['order', 'page view'];
/** A position is written down after so many events, in order and without. */
const MOST_REPEATED = { ordered: 10, unordered: 40 };
const MINUTE_MS = 60_000;

let database: TestDatabase;
let folder: string;
let app: { appId: string };
let settings: Record<string, string>;
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
  await database?.drop();
  await rm(folder, { recursive: true, force: true });
});

/** What a receiver does at a delivery: it takes it, and perhaps somebody is killed before or after its answer. */
type Fate = 'takes' | 'refuses' | 'hangs up' | 'is killed before' | 'is killed after' | 'loses the database';

/** A webhook with what its receiver has seen. */
class Endpoint {
  readonly receiver = new Receiver();
  /** The numbers whose answer was a success, since the last kill. */
  readonly taken = new Set<number>();
  readonly isOrdered: boolean;
  readonly types: readonly string[];

  constructor(types: readonly string[], isOrdered: boolean) {
    this.types = types;
    this.isOrdered = isOrdered;
  }

  get seen(): Set<number> {
    return new Set(this.receiver.numbers);
  }
}

const ENGINES_OF_ONE_SERVER = availableEngines().filter((engine) => engine !== 'citus');

describe.each(ENGINES_OF_ONE_SERVER)('on %s', (engine) => {
  test.each([1, 2])(
    'no event is missed or overtaken where the service is killed before and after an answer, or the database ends its connections (seed %i)',
    async (seed) => {
      const random = seededRandom(seed);
      const own = await testDatabase(engine, { prepared: true });
      const place = await mkdtemp(join(tmpdir(), 'tidemark-kills-'));
      const { appId, loggingToken } = await createApp(own.sql, await testSecret(), { name: 'Shop' });
      const options = { ...settings, DATABASE_URL: own.url, DATA_DIR: place };
      const endpoints = [
        new Endpoint(TYPES, true),
        new Endpoint(['order'], true),
        new Endpoint(TYPES, false),
      ];
      let server: ServerProcess | null = null;
      let isDying = false;
      let kills = 0;
      let deliveries = 0;
      let nextKill = 5 + random(20);
      const fate = (): Fate => {
        if (isDying) return 'takes';
        if (deliveries >= nextKill && kills < KILLS) {
          nextKill = deliveries + 5 + random(40);
          return (
            (['is killed before', 'is killed after', 'loses the database'] as const)[random(3)] ?? 'takes'
          );
        }
        const chance = random(60);
        return chance === 0 ? 'refuses' : chance === 1 ? 'hangs up' : 'takes';
      };
      const kill = (): void => {
        isDying = true;
        kills += 1;
        server?.signal('SIGKILL');
      };
      const endConnections = () => own.sql`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name NOT LIKE 'test%' AND pid <> pg_backend_pid()`;
      try {
        for (const { receiver: one, types, isOrdered, taken } of endpoints) {
          const url = await one.listen();
          const chosen = types.length === TYPES.length ? [] : types.flatMap((type) => ['--type', type]);
          const how = isOrdered ? [] : ['--unordered'];
          const add = ['webhook', 'add', '--app', appId, '--url', url, '--json', ...chosen, ...how];
          const added = await tidemark(add, options);
          expect(added.code, added.stderr).toBe(0);
          one.answer = (response) => {
            deliveries += 1;
            const n = one.numbers.at(-1) ?? 0;
            const done = (): void => {
              taken.add(n);
              response.writeHead(204).end();
            };
            switch (fate()) {
              case 'refuses':
                return response.writeHead(503).end();
              case 'hangs up':
                return response.destroy();
              case 'is killed before':
                return kill();
              case 'is killed after':
                taken.add(n);
                return response.writeHead(204).end(kill);
              case 'loses the database':
                kills += 1;
                return void endConnections().then(done, done);
              default:
                return done();
            }
          };
        }
        server = await ServerProcess.start(options);
        const ledger = new KeyedLedger({
          loggingToken,
          port: () => (isDying ? null : (server?.port ?? null)),
        });
        const isWanted = (types: readonly string[]) =>
          ledger.events.filter(({ typeName }) => types.includes(typeName));
        const isDone = (): boolean =>
          ledger.events.length >= EVENTS &&
          kills >= KILLS &&
          endpoints.every(({ seen, types }) => seen.size >= isWanted(types).length);
        const produce = async (): Promise<void> => {
          // Kills meet events that wait and such that come.
          while (ledger.events.length < EVENTS || kills < KILLS) {
            const [first] = endpoints;
            if (ledger.events.length - (first?.seen.size ?? 0) > 40)
              await until(
                () => ledger.events.length - (first?.seen.size ?? 0) <= 40,
                'events are delivered',
                240_000,
              );
            const at = random(3) === 0 ? Date.now() - 60_000 * (1 + random(300)) : null;
            await ledger.send(TYPES[random(TYPES.length)] ?? '', at);
          }
        };
        const produced = produce();
        produced.catch(() => undefined);
        while (!isDone()) {
          await until(() => isDying || isDone(), 'a kill, or the end', 300_000);
          if (!isDying) continue;
          await server.end('SIGKILL');
          const before = endpoints.map(({ receiver: one, taken }) => ({
            count: one.received.length,
            had: new Set(taken),
          }));
          for (const { taken } of endpoints) taken.clear();
          // The lease of a process that is gone ends by itself, after a minute: the first time that is waited for.
          if (kills > 1) await own.sql`UPDATE consumers SET leased_until = now()`;
          // What was refused would wait longer and longer.
          await own.sql`UPDATE webhooks SET next_try_at = NULL`;
          server = await ServerProcess.start(options);
          isDying = false;
          await until(
            () =>
              isDying ||
              isDone() ||
              endpoints.every(({ receiver: one }, n) => one.received.length > (before[n]?.count ?? 0)),
            'it goes on',
            240_000,
          );
          for (const [n, { receiver: one, isOrdered }] of endpoints.entries()) {
            const again = one.numbers.slice(before[n]?.count).filter((number) => before[n]?.had.has(number));
            expect(new Set(again).size, `again after kill ${kills} of webhook ${n}`).toBeLessThanOrEqual(
              MOST_REPEATED[isOrdered ? 'ordered' : 'unordered'],
            );
          }
        }
        await produced;
        for (const { seen, receiver: one, types, isOrdered } of endpoints) {
          const wanted = isWanted(types).map(({ n }) => n);
          expect([...seen].sort((a, b) => a - b)).toEqual(wanted);
          // Each one first comes after all that were committed before it.
          if (isOrdered) expect([...new Set(one.numbers)]).toEqual(wanted);
        }
        expect((await server.end('SIGTERM')).code).toBe(0);
      } finally {
        await server?.end('SIGKILL');
        for (const { receiver: one } of endpoints) one.close();
        await own.drop();
        await rm(place, { recursive: true, force: true });
      }
    },
    3_600_000,
  );
});

test('a transition whose transaction dies is said once by the next round', async () => {
  const { sql } = database;
  const [row] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${app.appId}`;
  const at = Date.now() - MINUTE_MS;
  const minute = Math.ceil(at / MINUTE_MS) * MINUTE_MS;
  const [type] = await sql<{ id: number }[]>`
    INSERT INTO event_types (public_id, app_id, name) VALUES ('typ_order', ${row?.id ?? 0}, 'order') RETURNING id`;
  const order = { appId: row?.id ?? 0, typeId: type?.id ?? 0, at, payload: '{}' };
  const newId = createEventIds();
  await storeRows(sql, 'postgres', [
    { ...order, id: newId(at) },
    { ...order, id: newId(at) },
  ]);
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
      ...{ sql, storage, isLeader: () => true, now: () => minute + SETTLE_MS },
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
