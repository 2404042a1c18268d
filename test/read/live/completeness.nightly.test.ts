/**
 * The feed against the table: transactions that overlap, commit out of order or not at all, several processes, readers
 * who leave and go on elsewhere. What the readers were told together is what the table holds, each event once.
 */
import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import type postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ensurePartitions } from '../../../src/storage/engines/postgres/maintenance.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { insertSelected } from '../../support/insert-selected.ts';
import { LiveClient } from '../../support/live-client.ts';
import { newOwnApp, newPerson, type Person } from '../../support/person.ts';
import { reserved } from '../../support/reserved.ts';
import { startTestService, type TestService, until } from '../../support/service.ts';

const WRITERS = 4;
const READERS = 3;

type Step =
  | { readonly kind: 'insert'; readonly writer: number; readonly rows: number; readonly ageMs: number }
  | { readonly kind: 'end'; readonly writer: number; readonly how: 'COMMIT' | 'ROLLBACK' }
  | { readonly kind: 'post'; readonly service: number }
  | { readonly kind: 'look' }
  | { readonly kind: 'move'; readonly reader: number; readonly service: number };

const writer = fc.integer({ min: 0, max: WRITERS - 1 });
const place = fc.integer({ min: 0, max: 1 });
const STEP: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('insert' as const),
      writer,
      // A message has at most 200 events: what commits between two looks of a feed has to be fewer, on a busy machine too.
      rows: fc.integer({ min: 1, max: 12 }),
      ageMs: fc.integer({ min: -5_000, max: 200_000 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('end' as const),
      writer,
      how: fc.constantFrom('COMMIT' as const, 'COMMIT' as const, 'ROLLBACK' as const),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('post' as const), service: place }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('look' as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('move' as const),
      reader: fc.integer({ min: 0, max: READERS - 1 }),
      service: place,
    }),
  },
);

describe.each(availableEngines())('on %s', (engine) => {
  let database: TestDatabase;
  let services: TestService[];
  let owner: Person;

  beforeAll(async () => {
    database = await testDatabase(engine);
    services = [
      await startTestService({ database }),
      await startTestService({ database, transport: 'node' }),
    ];
    owner = await newPerson(serviceAt(0), 'owner@example.com');
    if (engine !== 'timescale') await ensurePartitions(database.sql, Date.now() - 300_000, Date.now());
  });
  afterAll(async () => {
    await Promise.all(services.map((service) => service.stop()));
    await database.drop();
  });

  function serviceAt(index: number): TestService {
    const service = services[index];
    if (service === undefined) throw new Error('no such service');
    return service;
  }

  test('the feed equals the table in any order of commits, for clients that stay and for those that reconnect', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(STEP, { minLength: 40, maxLength: 40, size: 'max' }), async (steps) => {
        await play(steps);
      }),
      { numRuns: 3, endOnFailure: true },
    );
  }, 120_000);

  async function play(steps: readonly Step[]): Promise<void> {
    const { sql } = database;
    const app = await newOwnApp(owner);
    const post = async (service: number): Promise<string> => {
      const response = await serviceAt(service).post({
        loggingToken: app.loggingToken,
        typeId: undefined,
        typeName: 'posted',
      });
      expect(response.status).toBe(201);
      return JSON.parse(response.body).eventId;
    };
    await post(0);
    const [ids] = await sql<{ appId: number; typeId: number }[]>`
      SELECT apps.id AS "appId", event_types.id AS "typeId" FROM apps JOIN event_types ON app_id = apps.id WHERE apps.public_id = ${app.appId}`;
    if (ids === undefined) throw new Error('no app');
    const first = await sql<{ id: string }[]>`SELECT id FROM events WHERE app_id = ${ids.appId}`;
    const known = new Set(first.map(({ id }) => id));

    const writers = await Promise.all(Array.from({ length: WRITERS }, () => reserved(sql)));
    const busy = new Set<postgres.ReservedSql>();
    const readers = await Promise.all(
      Array.from({ length: READERS }, (_, index) => new Reader(index % 2).open(app.appId)),
    );
    const look = async (): Promise<void> => {
      const marker = await post(0);
      await Promise.all(
        readers.map((reader) =>
          until(() => reader.client.events.some(({ id }) => id === marker), 'the marker has come'),
        ),
      );
    };
    for (const step of steps) {
      if (step.kind === 'insert') {
        const connection = writers[step.writer];
        if (connection === undefined) continue;
        if (!busy.has(connection)) await connection`BEGIN`;
        busy.add(connection);
        const rows = connection`
          SELECT gen_random_uuid(), ${ids.appId}::integer, ${ids.typeId}::integer,
                 ${new Date(Date.now() - step.ageMs).toISOString()}::timestamptz - n * interval '7 ms', '{}'::json
            FROM generate_series(1, ${step.rows}::integer) n`;
        await insertSelected(connection, database.engine, rows);
      } else if (step.kind === 'end') {
        const connection = writers[step.writer];
        if (connection === undefined || !busy.delete(connection)) continue;
        await connection.unsafe(step.how);
      } else if (step.kind === 'post') await post(step.service);
      else if (step.kind === 'look') await look();
      else await readers[step.reader]?.move(step.service, app.appId);
    }
    // One by one: a message has at most 200 events.
    for (const connection of busy) {
      await connection`COMMIT`;
      await look();
    }
    for (const connection of writers) connection.release();
    await look();

    const rows = await sql<{ id: string; typeId: string }[]>`
      SELECT events.id, event_types.public_id AS "typeId" FROM events JOIN event_types ON event_types.id = type_id WHERE events.app_id = ${ids.appId}`;
    const expected = rows
      .map(({ id }) => id)
      .filter((id) => !known.has(id))
      .sort();
    const positions: { readonly id: string; readonly told: ReadonlySet<string> }[] = [];
    for (const reader of readers) {
      expect(reader.told().sort()).toEqual(expected);
      expect(reader.counted()).toBe(expected.length);
      positions.push(...reader.positions());
      reader.client.close();
    }
    // Whoever goes on from any message is told the rest.
    const step = Math.max(1, Math.floor(positions.length / 12));
    for (const position of positions.filter((_, index) => index % step === 0)) {
      const late = await new Reader(positions.indexOf(position) % 2).open(app.appId, position.id);
      await until(
        () => late.client.lastEventId !== position.id || late.client.messages.length > 0,
        'the feed has begun',
      );
      const together = [...position.told, ...late.told()].sort();
      expect(together).toEqual(expected);
      late.client.close();
    }
  }

  /** One reader, who may move from one service to the other. */
  class Reader {
    client!: LiveClient;
    readonly #earlier: LiveClient[] = [];
    #service: number;

    constructor(service: number) {
      this.#service = service;
    }

    async open(appId: string, lastEventId = ''): Promise<this> {
      const { port } = serviceAt(this.#service);
      this.client = await LiveClient.follow(port, appId, { cookie: owner.cookie, lastEventId });
      return this;
    }

    async move(service: number, appId: string): Promise<void> {
      this.client.close();
      await until(() => this.client.isOver, 'the feed is closed');
      this.#earlier.push(this.client);
      this.#service = service;
      await this.open(appId, this.client.lastEventId);
    }

    get #all(): readonly LiveClient[] {
      return [...this.#earlier, this.client];
    }

    told(): string[] {
      expect(this.#all.some((client) => client.has('reset'))).toBe(false);
      return this.#all.flatMap((client) => client.events.map(({ id }) => id));
    }

    counted(): number {
      const counts = this.#all.flatMap((client) => client.data.flatMap((data) => data.counts));
      return counts.reduce((sum, { count }) => sum + count, 0);
    }

    /** Every id of a message, and what the reader had been told by then. */
    positions(): { id: string; told: ReadonlySet<string> }[] {
      const told = new Set<string>();
      return this.#all.flatMap((client) =>
        client.messages.map((message) => {
          if (message.event === 'events') for (const { id } of JSON.parse(message.data).events) told.add(id);
          return { id: message.id, told: new Set(told) };
        }),
      );
    }
  }

  test('an event of a transaction that began before the client connected and committed after is sent', async () => {
    const app = await newOwnApp(owner);
    const { sql } = database;
    const [ids] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${app.appId}`;
    const [type] = await sql<{ id: number }[]>`
      INSERT INTO event_types (public_id, app_id, name) VALUES (${randomUUID()}, ${ids?.id ?? 0}, 'late') RETURNING id`;
    const early = await reserved(sql);
    const eventId = randomUUID();
    await early`BEGIN`;
    const row = early`
      VALUES (${eventId}::uuid, ${ids?.id ?? 0}::integer, ${type?.id ?? 0}::integer, ${Date.now() - 120_000}::timestamptz, '{}'::json)`;
    await insertSelected(early, database.engine, row);
    const client = await LiveClient.follow(serviceAt(0).port, app.appId, { cookie: owner.cookie });
    for (let posted = 0; posted < 5; posted += 1) {
      await serviceAt(1).post({ loggingToken: app.loggingToken, typeId: undefined, typeName: 'later' });
      await until(() => client.events.length === posted + 1, 'a later event has come');
    }
    await early`COMMIT`;
    early.release();
    await until(() => client.events.length === 6, 'the early event has come');
    expect(client.events.at(-1)?.id).toBe(eventId);
    client.close();
  });

  test('rows of a savepoint, which snapshots do not list, cause a reset', async () => {
    const app = await newOwnApp(owner);
    const post = () =>
      serviceAt(1).post({ loggingToken: app.loggingToken, typeId: undefined, typeName: 'posted' });
    await post();
    const client = await LiveClient.follow(serviceAt(0).port, app.appId, { cookie: owner.cookie });
    const early = await reserved(database.sql);
    await early`BEGIN`;
    await early`CREATE TEMPORARY TABLE busy ON COMMIT DROP AS SELECT 1`;
    await early`SAVEPOINT inner_one`;
    const rows = early`
      SELECT gen_random_uuid(), app_id, type_id, ${Date.now()}::timestamptz, '{}'::json FROM events
       WHERE app_id = (SELECT id FROM apps WHERE public_id = ${app.appId})`;
    await insertSelected(early, database.engine, rows);
    await post();
    await until(() => client.events.length === 1, 'the later event has come');
    await early`COMMIT`;
    early.release();
    await until(() => client.has('reset'), 'the reader is told to begin again');
    client.close();
  });
});
