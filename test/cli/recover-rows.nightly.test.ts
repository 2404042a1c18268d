/** Events that an earlier release wrote to a server without the library of its engine come back, with their counts. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { declareField, listFields } from '../../src/apps/fields.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { connect, type DatabaseAddress, type Sql } from '../../src/storage/database/connect.ts';
import { openStorage } from '../../src/storage/storage.ts';
import type { AcceptedEvent } from '../../src/storage/write/accepted-event.ts';
import { EventWriter } from '../../src/storage/write/event-writer.ts';
import { TestCitus } from '../support/citus.ts';
import { tidemark } from '../support/command-line.ts';
import type { TestDatabase } from '../support/database.ts';
import { hasCitus } from '../support/engine-homes.ts';
import { totalBy } from '../support/field-totals.ts';
import { RestartablePostgres } from '../support/restartable-postgres.ts';
import { testSecret, until } from '../support/service.ts';
import { hasTimescale, TIMESCALE } from '../support/timescale-home.ts';
import { writingTo } from '../support/writers.ts';

const DAY_MS = 86_400_000;
const EVENTS = 2_500;
const SETTINGS = { CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 0, RETENTION_DAYS: 0, CONSUMER_REACH_HOURS: 168 };

type Made = Awaited<ReturnType<typeof createApp>> & { readonly id: number };

/** The apps and the rows of a test. */
class World {
  readonly database: Pick<TestDatabase, 'engine' | 'sql' | 'address' | 'url'>;
  readonly #newId = createEventIds();

  constructor(database: World['database']) {
    this.database = database;
  }

  get sql(): Sql {
    return this.database.sql;
  }

  async app(): Promise<Made> {
    const made = await createApp(this.sql, await testSecret(), { name: 'app' });
    await createEventType(this.sql, { appId: made.appId, name: 'made', maxTypes: 10 });
    const [row] = await this.sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${made.appId}`;
    return { ...made, id: row?.id ?? 0 };
  }

  async events(app: Made, count: number, at = Date.now()): Promise<AcceptedEvent[]> {
    const [type] = await this.sql<{ id: number }[]>`SELECT id FROM event_types WHERE app_id = ${app.id}`;
    return Array.from({ length: count }, (_, index) => ({
      id: this.#newId(at),
      appId: app.id,
      typeId: type?.id ?? 0,
      createdAt: at - index,
      payload: `{"country":"${index % 2 === 0 ? 'de' : 'fr'}"}`,
      source: { appId: app.appId, typeId: '', typeName: '' },
    }));
  }

  /** Writes as earlier releases did: whatever the server is. */
  async write(
    events: readonly AcceptedEvent[],
    address: DatabaseAddress = this.database.address,
  ): Promise<void> {
    const writer = new EventWriter({
      ...writingTo({ ...this.database, address }),
      connections: 1,
      log: { warn: () => undefined, error: () => undefined },
      now: () => performance.now(),
    });
    try {
      for (let at = 0; at < events.length; at += 500) {
        const part = events.slice(at, at + 500);
        expect(await writer.write(part)).toEqual(part.map(() => null));
      }
    } finally {
      await writer.close();
    }
  }

  /** The ids of an app's events, and how many its counts say. */
  async read(app: Made): Promise<{ ids: readonly string[]; total: number }> {
    const rows = await this.sql<
      { id: string }[]
    >`SELECT id::text FROM events WHERE app_id = ${app.id} ORDER BY 1`;
    const reader = (await openStorage(this.sql)).reader(this.sql);
    return { ids: rows.map(({ id }) => id), total: (await reader.appSpan(app.id)).total };
  }

  /** The total of a value, once maintenance has counted all minutes. */
  async totalOf(app: Made, filter: string): Promise<number | undefined> {
    const sql = connect(this.database.address, { connections: 1, name: 'test maintenance' });
    const storage = await openStorage(sql);
    // Minutes are counted after their end.
    const now = (): number => Date.now() + 5 * 60_000;
    const { everySecond } = storage.maintenance({ sql, slow: sql }, SETTINGS, now);
    let total: number | undefined;
    try {
      await until(
        async () => {
          await everySecond();
          const fields = await listFields(sql, app.id);
          if (!fields.every(({ backfill, completeFrom }) => !backfill && completeFrom !== null)) return false;
          total = await totalBy(storage.reader(sql), app.id, filter);
          return total !== undefined;
        },
        'values are counted',
        60_000,
      );
      return total;
    } finally {
      await sql.end();
    }
  }

  async run(...args: readonly string[]): Promise<{ code: number | null; answer: Record<string, unknown> }> {
    const { code, stdout, stderr } = await tidemark([...args, '--json'], {
      DATABASE_URL: this.database.url,
      DATA_DIR: '/tmp/tidemark-none',
    });
    if (stdout === '') throw new Error(stderr);
    return { code, answer: JSON.parse(stdout) };
  }

  /** What the doctor says of hidden events. */
  async hidden(): Promise<readonly string[]> {
    const { answer } = await this.run('doctor');
    const { findings } = answer as { findings: readonly { check: string; found: string }[] };
    return findings.filter(({ check }) => check === 'events').map(({ found }) => found);
  }
}

const idsOf = (...parts: readonly (readonly AcceptedEvent[])[]): string[] =>
  parts
    .flat()
    .map(({ id }) => id)
    .sort();

/**
 * @param world  a database with its library
 * @param during does something while the server of an app has no library, by its address
 * @param server of whose rows the reports speak
 */
async function recovers(
  world: World,
  app: Made,
  during: (work: (address: DatabaseAddress) => Promise<void>) => Promise<void>,
  server: string,
): Promise<void> {
  await declareField(world.sql, {
    appId: app.id,
    path: ['country'],
    kind: 'value',
    typeName: null,
    backfill: true,
  });
  const before = await world.events(app, 100);
  await world.write(before);
  const lost = [...(await world.events(app, EVENTS)), ...(await world.events(app, 10, Date.now() - DAY_MS))];
  const gone = await world.app();
  await during(async (address) => {
    await world.write(lost, address);
  });
  // One that its producer has sent again under the same id, as a replay of the journal does.
  const repeated = lost.slice(0, 1);
  await world.write(repeated);
  expect((await world.read(app)).ids).toEqual(idsOf(before, repeated));
  expect(await world.hidden()).toEqual([
    expect.stringMatching(new RegExp(`^${lost.length} acknowledged events lie`)),
  ]);
  const found = [{ server, rows: lost.length }];
  expect((await world.run('recover-rows', '--dry-run')).answer).toEqual({ found, recovered: 0, dropped: 0 });

  // Interrupted after its first transaction.
  const alone = connect(world.database.address, { connections: 1, name: 'test' });
  const storage = await openStorage(alone);
  const interrupted = storage.recoverRows(alone, () => {
    throw new Error('interrupted');
  });
  await expect(interrupted).rejects.toThrow('interrupted');
  await alone.end();
  const { answer } = await world.run('recover-rows');
  expect(answer).toMatchObject({ dropped: 0 });
  expect(answer.recovered).toBeLessThan(lost.length);

  const { ids, total } = await world.read(app);
  expect(ids).toEqual(idsOf(before, lost));
  expect(total).toBe(ids.length);
  expect(await world.totalOf(app, 'country:de')).toBe(ids.length / 2);
  expect(await world.hidden()).toEqual([]);
  expect((await world.run('recover-rows')).answer).toEqual({ found: [], recovered: 0, dropped: 0 });
  expect((await world.read(gone)).ids).toEqual([]);
}

describe.runIf(hasTimescale)('TimescaleDB', () => {
  let server: RestartablePostgres;
  let world: World;
  beforeAll(async () => {
    server = await RestartablePostgres.make({}, TIMESCALE);
    const sql = connect(server.address, { connections: 4, name: 'test' });
    world = new World({ engine: 'timescale', sql, address: server.address, url: server.url });
    const storage = await openStorage(sql);
    await storage.migrate(sql);
  });
  afterAll(async () => {
    await world?.sql.end();
    await server?.stop();
  });

  test('what was written without its library is recovered', async () => {
    await recovers(
      world,
      await world.app(),
      async (work) => {
        // Earlier releases had no trigger that refuses it.
        await world.sql`ALTER TABLE events DISABLE TRIGGER refuse_without_timescaledb`;
        await server.kill();
        await server.start('-c shared_preload_libraries=');
        await work(server.address);
        await server.kill();
        await server.start();
        await world.sql`ALTER TABLE events ENABLE TRIGGER refuse_without_timescaledb`;
      },
      'database',
    );
  });

  test('events of apps that were deleted meanwhile are dropped', async () => {
    const app = await world.app();
    const lost = await world.events(app, 20);
    await world.sql`ALTER TABLE events DISABLE TRIGGER refuse_without_timescaledb`;
    await world.sql`SELECT timescaledb_pre_restore()`;
    await world.write(lost);
    await world.sql`SELECT timescaledb_post_restore()`;
    await world.sql`ALTER TABLE events ENABLE TRIGGER refuse_without_timescaledb`;
    await world.sql`DELETE FROM apps WHERE id = ${app.id}`;
    const found = [{ server: 'database', rows: 20 }];
    expect((await world.run('recover-rows')).answer).toEqual({ found, recovered: 0, dropped: 20 });
    expect((await world.read(app)).ids).toEqual([]);
  });
});

describe.runIf(hasCitus)('Citus', () => {
  let cluster: TestCitus;
  let database: TestDatabase;
  beforeAll(async () => {
    cluster = await TestCitus.start();
    database = await cluster.database();
  });
  afterAll(async () => {
    await database?.drop();
    await cluster?.stop();
  });

  test('what was written to a worker without its library is recovered', async () => {
    const world = new World(database);
    const { sql } = database;
    const storage = await openStorage(sql);
    await storage
      .maintenance(
        { sql, slow: sql },
        { CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 0, RETENTION_DAYS: 0, CONSUMER_REACH_HOURS: 168 },
        Date.now,
      )
      .prepare();
    const app = await world.app();
    const [place] = await sql<{ port: number }[]>`
      SELECT nodeport AS port FROM pg_dist_placement JOIN pg_dist_node USING (groupid)
       WHERE shardid = get_shard_id_for_distribution_column('events', ${app.id}::int)`;
    const worker = cluster.workers.find(({ port }) => port === place?.port);
    if (worker === undefined) throw new Error('The app is on no worker.');
    const name = new URL(database.url).pathname.slice(1);
    await recovers(
      world,
      app,
      async (work) => {
        await worker.kill();
        await worker.start('-c shared_preload_libraries=');
        await work({ url: worker.urlOf(name) });
        await worker.kill();
        await worker.start();
      },
      `127.0.0.1:${worker.port}`,
    );
  });
});
