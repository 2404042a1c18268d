/** What a cluster promises beside the contract of storage. One cluster for all of it: a coordinator and two workers. */
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { getOrCreateEventTypes } from '../../../../src/apps/event-types.ts';
import { declareField, listFields } from '../../../../src/apps/fields.ts';
import { Rejection } from '../../../../src/errors.ts';
import { createEventIds } from '../../../../src/ingest/event-id.ts';
import { copyDatabase } from '../../../../src/storage/copy/copy.ts';
import { connect, type Sql } from '../../../../src/storage/database/connect.ts';
import { openCopyClient } from '../../../../src/storage/database/copy-client.ts';
import type { Database } from '../../../../src/storage/database/database.ts';
import { clusterOf } from '../../../../src/storage/engines/citus/cluster.ts';
import { CLUSTER } from '../../../../src/storage/engines/citus/maintenance.ts';
import { clipPartitions } from '../../../../src/storage/engines/postgres/maintenance.ts';
import type { MaintenanceTasks } from '../../../../src/storage/maintenance/loop.ts';
import { openStorage, type Storage } from '../../../../src/storage/storage.ts';
import type { AcceptedEvent } from '../../../../src/storage/write/accepted-event.ts';
import { TestCitus } from '../../../support/citus.ts';
import { holdersInTurns, isWaitedFor } from '../../../support/counts-lock.ts';
import { type TestDatabase, testDatabase } from '../../../support/database.ts';
import { hasCitus } from '../../../support/engine-homes.ts';
import { totalBy } from '../../../support/field-totals.ts';
import { Ledger as Producers } from '../../../support/ledger.ts';
import { startTestService, type TestService, until } from '../../../support/service.ts';
import { RoutedWriter } from '../../../support/writers.ts';
import { fleetOnCluster } from './fleet.ts';

const SETTINGS = { CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 0, RETENTION_DAYS: 0, CONSUMER_REACH_HOURS: 168 };
const DAY_MS = 86_400_000;
const FIELD = { appId: 1, path: ['a'], kind: 'value', typeName: null, backfill: true } as const;
const SCOPE = { typeIds: null, from: null, until: null };

describe.runIf(hasCitus)('a Citus cluster', () => {
  let cluster: TestCitus;
  beforeAll(async () => {
    cluster = await TestCitus.start();
  });
  afterAll(() => cluster.stop());

  fleetOnCluster(() => cluster);

  test('a backup of one server is restored into a cluster, with exact counts', async () => {
    const source = await World.createIn(await testDatabase('postgres18'));
    const target = await cluster.database({ empty: true });
    const [from, into] = [
      await openCopyClient(source.database.address, 'test export'),
      await openCopyClient(target.address, 'test restore'),
    ];
    try {
      await source.write(240);
      await declareField(source.sql, FIELD);
      const storage = await openStorage(target.sql);
      const exported = await source.storage.beginExport(from, source.database.sql.pool.database);
      const restore = await storage.beginRestore({ client: into, sql: target.sql, schema: exported.schema });
      for (const section of exported.sections) await restore.add(section.section, section.rows());
      await exported.end();
      await restore.commit(exported.sequences);
      await source.expectStored({ database: target, storage });
      // Fields are counted again.
      await countFields({ database: target, storage });
      const events = source.written.filter(({ appId }) => appId === FIELD.appId).length;
      expect(await totalBy(storage.reader(target.sql), FIELD.appId, 'a:1')).toBe(events);
    } finally {
      await from.end();
      await into.end();
      await source.close();
      await target.drop();
    }
  });

  test('a database moves into a cluster and out of it while producers go on: nothing is lost or doubled', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tidemark-move-test-'));
    const config = { JOURNAL_DIR: folder, CREATE_LIMIT_PER_MINUTE: 0 };
    const databases = [
      await testDatabase('postgres18', { prepared: true }),
      await cluster.database({ empty: true }),
      await testDatabase('postgres18', { empty: true }),
    ];
    let service: TestService | null = null;
    let port: number | null = null;
    let ledger: Producers | null = null;
    try {
      for (const [at, database] of databases.entries()) {
        const current = await startTestService({ database, config });
        service = current;
        port = current.port;
        ledger ??= new Producers({
          loggingToken: current.app.loggingToken,
          typeName: 'moved',
          port: () => port,
        });
        if (at === 0) ledger.start(4);
        const written = ledger;
        const before = written.acknowledged;
        await until(() => written.acknowledged > before + 50, 'producers write');
        const next = databases[at + 1];
        if (next === undefined) break;
        const sides = { from: database.address, to: next.address, onProgress: () => undefined };
        if (at === 0) await declareField(database.sql, FIELD);
        const first = await copyDatabase(sides, false);
        expect(first).toMatchObject({ switched: false, repaired: [] });
        expect(await copyDatabase(sides, true)).toMatchObject({ switched: true, repaired: [] });
        port = null;
        await current.stop();
      }
      await ledger?.stop();
      await until(() => service?.stats().journal?.waitingEvents === 0, 'the journal is replayed');
      const last = databases.at(-1);
      expect(last && (await listFields(last.sql, FIELD.appId))).toMatchObject([{ path: FIELD.path }]);
      expect(last && (await ledger?.compare(last.sql))).toEqual({
        acknowledgedAndMissing: 0,
        storedTwice: 0,
        storedAndRefused: 0,
        storedAndNeverSent: 0,
        miscounted: 0,
      });
    } finally {
      port = null;
      await ledger?.stop();
      await service?.stop();
      for (const database of databases) await database.drop();
      await rm(folder, { recursive: true, force: true });
    }
  });

  test('apps of all nodes get their new types together, and one that is locked waits alone', async () => {
    const database = await cluster.database();
    try {
      const { sql } = database;
      const rows = await sql<{ id: number }[]>`
        INSERT INTO apps (public_id, name) SELECT 'app_many_' || n, 'many' FROM generate_series(1, 20) n RETURNING id`;
      const ids = rows.map(({ id }) => id);
      const [locked = 0] = ids;
      const apps = new Map(ids.map((appId) => [appId, ['a', 'b']]));
      const outcomes = await sql.begin(async (tx) => {
        await tx`SELECT FROM apps WHERE id = ${locked} FOR UPDATE`;
        return await getOrCreateEventTypes(sql, { apps, maxTypes: 1 });
      });
      expect(outcomes.get(locked)).toBe('locked');
      for (const appId of ids.slice(1))
        expect(outcomes.get(appId)).toEqual(new Map([['a', expect.objectContaining({ name: 'a' })]]));
      const [copied] = await sql`SELECT count(*)::integer AS names FROM type_names`;
      expect(copied?.names).toBe(19);
    } finally {
      await database.drop();
    }
  });

  describe('the writer', () => {
    let world: World;
    beforeAll(async () => {
      world = await World.create(cluster);
    });
    afterAll(() => world.close());

    test('commits the part of each node there, without a transaction over several nodes', async () => {
      const before = await world.distributedTransactions();
      await world.write(400);
      // One that may be stored already, and keyed ones.
      await world.write(40, true);
      expect(await world.distributedTransactions()).toBe(before);
      await world.expectStored();
      await world.sql`UPDATE type_names SET name = name`;
      expect(await world.distributedTransactions()).toBeGreaterThan(before);
    });

    test('refuses a bad event alone, stores none twice, and makes room for days of long ago', async () => {
      const events = world.events(60);
      world.written.push(...events);
      const bad = { ...world.event(0), payload: '{' };
      const outcomes = await world.writer.write([...events.slice(0, 30), bad, ...events.slice(30)]);
      expect(outcomes.filter((outcome) => outcome instanceof Rejection)).toHaveLength(1);
      expect(outcomes[30]).toBeInstanceOf(Rejection);
      // As after a lost connection: it is not known whether they are stored.
      expect(await world.writer.write(events, true)).toEqual(events.map(() => null));
      // And a group that repeats what is stored.
      expect(await world.writer.write(events.slice(0, 5))).toEqual([null, null, null, null, null]);
      const old = [0, 1].map((at) => world.event(at, Date.now() - 400 * DAY_MS));
      world.written.push(...old);
      expect(await world.writer.write(old)).toEqual([null, null]);
      await world.expectStored();
    });

    test('a fold that finds the counts of a node held again and again comes in between holders that never pause', async () => {
      await world.settle();
      const event = world.event(0);
      expect(await world.writer.write([event])).toEqual([null]);
      world.written.push(event);
      const { maintenance, end } = world.maintenance();
      const holders = await holdersInTurns(world.databaseOf(event.appId).address);
      try {
        const left: number[] = [];
        while (left.at(-1) !== 0 && left.length < 20) {
          await maintenance.everySecond();
          left.push(await world.pending(event.appId));
        }
        expect(left.slice(0, 5)).toEqual([1, 1, 1, 1, 1]);
        expect(left.at(-1)).toBe(0);
      } finally {
        await holders.stop();
        await end();
      }
      await world.expectStored();
    });

    test('a recount waits for whoever changes the counts of a node', async () => {
      await world.write(world.apps.length);
      await world.settle();
      const appId = world.apps[0]?.id ?? 0;
      const own = world.written.filter((event) => event.appId === appId);
      const days = own.map(({ createdAt }) => Math.floor(createdAt / DAY_MS) * DAY_MS);
      const [from, end] = [Math.max(...days), Math.max(...days) + DAY_MS];
      const { sql } = world;
      await sql`UPDATE day_counts SET count = count + 1 WHERE app_id = ${appId} AND bucket = ${new Date(from)}`;
      const alone = connect(world.database.sql.pool.database, { connections: 1, name: 'test recount' });
      const node = connect(world.databaseOf(appId), { connections: 2, name: 'test holder' });
      let isOver = false;
      const recounted = await node.begin(async (tx) => {
        await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
        const outcome = world.storage
          .recount(alone, { from, until: end }, () => undefined)
          .finally(() => {
            isOver = true;
          });
        // Longer than a lock of shards is waited for.
        await until(async () => isOver || (await isWaitedFor(node, 1_500)), 'the recount waits');
        return { outcome };
      });
      await recounted.outcome;
      await Promise.all([alone.end(), node.end()]);
      await world.expectStored();
    });

    test('rows before the boundary leave a wide partition a part at a time, on each node', async () => {
      const { sql } = world;
      const [app] = world.apps;
      const year = Date.UTC(new Date().getUTCFullYear() - 2, 0, 1);
      const at = (day: number): string => new Date(year + day * DAY_MS).toISOString();
      const last = randomUUID();
      await sql`SELECT make_room(ARRAY[${at(3).slice(0, 10)}::date])`;
      await sql`
        INSERT INTO events (id, app_id, type_id, created_at, payload)
        SELECT CASE WHEN n = 30000 THEN ${last}::uuid ELSE gen_random_uuid() END, ${app?.id ?? 0}, ${app?.typeId ?? 0}, ${at(3)}::timestamptz + n % 3 * interval '1 day', '{}'
          FROM generate_series(1, 30000) n`;
      const [before] = await sql<
        { boundary: string }[]
      >`SELECT readable_from::text AS boundary FROM retention`;
      await sql`UPDATE retention SET readable_from = ${at(5)}`;
      const alone = connect(world.database.sql.pool.database, { connections: 1, name: 'test maintenance' });
      // Whoever holds a row keeps its part waiting alone: the parts before it are gone.
      await sql.begin(async (tx) => {
        await tx`SELECT FROM events WHERE app_id = ${app?.id ?? 0} AND id = ${last} FOR UPDATE`;
        expect(await clipPartitions(alone, CLUSTER)).toBe(10_000);
      });
      expect(await clipPartitions(alone, CLUSTER)).toBe(10_000);
      expect(await clipPartitions(alone, CLUSTER)).toBe(0);
      await alone.end();
      const left = await sql`SELECT FROM events WHERE created_at < ${at(30)}`;
      expect(left).toHaveLength(10_000);
      await sql`DELETE FROM events WHERE created_at < ${at(30)}`;
      await sql`UPDATE retention SET readable_from = ${before?.boundary ?? ''}::text::timestamptz`;
    });

    test('a backup is one moment of all nodes while events are written', async () => {
      const [first] = world.apps;
      const nodeOf = (appId: number): string => world.nodes.nodeOf(appId).name;
      const second = world.apps.find(({ id }) => nodeOf(id) !== nodeOf(first?.id ?? 0));
      const [one, other] = [
        first === undefined ? -1 : world.apps.indexOf(first),
        second === undefined ? -1 : world.apps.indexOf(second),
      ];
      expect(other).toBeGreaterThan(0);
      const before = new Map(
        [one, other].map((at) => [
          at,
          world.written.filter((event) => event.appId === world.apps[at]?.id).length,
        ]),
      );
      let isOver = false;
      // An event on one node, and when that is stored one on another node.
      const writing = (async () => {
        while (!isOver)
          for (const at of [one, other]) {
            const event = world.event(at);
            expect(await world.writer.write([event])).toEqual([null]);
            world.written.push(event);
          }
      })();
      try {
        for (let round = 0; round < 5; round += 1) {
          const client = await openCopyClient(world.database.address, 'test export');
          try {
            const exported = await world.storage.beginExport(client, world.database.sql.pool.database);
            const counts = new Map<string, number>();
            for (const { section, rows } of exported.sections) {
              if (section.section !== 'events') continue;
              const chunks: Buffer[] = [];
              for await (const chunk of rows()) chunks.push(chunk);
              for (const line of Buffer.concat(chunks).toString().split('\n')) {
                const [, app = ''] = line.split('\t');
                counts.set(app, (counts.get(app) ?? 0) + 1);
              }
            }
            await exported.end();
            const since = [one, other].map(
              (at) => (counts.get(String(world.apps[at]?.id)) ?? 0) - (before.get(at) ?? 0),
            );
            const ahead = (since[0] ?? 0) - (since[1] ?? 0);
            expect([0, 1]).toContain(ahead);
          } finally {
            await client.end();
          }
        }
      } finally {
        isOver = true;
        await writing;
      }
      await world.expectStored();
    });

    test('goes on while shards move: nothing is lost, nothing doubled, and reads and the feed follow', async () => {
      await world.write(100);
      const [app] = world.apps;
      if (app === undefined) throw new Error('There is no app.');
      const reader = world.storage.reader(world.sql);
      const look = () => reader.feed(app.id, async (snapshot) => ({ cursor: snapshot.cursor(Date.now()) }));
      const before = await look();
      expect((await look()).cursor.place).toBe(before.cursor.place);
      let isMoving = true;
      const moving = world.moveAway(app.id).finally(() => {
        isMoving = false;
      });
      while (isMoving) {
        await world.write(20);
        await world.settle();
      }
      await moving;
      await world.nodes.renew();
      await world.write(20);
      await world.expectStored();
      const after = await look();
      expect(after.cursor.place).not.toBe(before.cursor.place);
      const missed = await reader.feed(app.id, async (snapshot) =>
        snapshot.missed(before.cursor, Date.now()),
      );
      expect(missed).toBe('too many');
    });
  });
});

/** By internal ids. */
interface OwnApp {
  readonly id: number;
  readonly typeId: number;
}

/** A database of a cluster with twelve apps, and a writer. */
class World {
  readonly database: TestDatabase;
  readonly sql: Sql;
  readonly storage: Storage;
  readonly writer: RoutedWriter;
  readonly apps: readonly OwnApp[];
  /** What was acknowledged. */
  readonly written: AcceptedEvent[] = [];

  private constructor(database: TestDatabase, storage: Storage, apps: readonly OwnApp[]) {
    this.database = database;
    this.sql = database.sql;
    this.storage = storage;
    this.apps = apps;
    this.writer = new RoutedWriter(storage.nodesOf(database.sql.pool.database), {
      engine: storage.writes,
      connections: 2,
      log: pino({ level: 'silent' }),
      now: () => performance.now(),
    });
  }

  static async create(cluster: TestCitus): Promise<World> {
    const world = await World.createIn(await cluster.database());
    await world.nodes.ready();
    return world;
  }

  static async createIn(database: TestDatabase): Promise<World> {
    const { sql } = database;
    await sql`INSERT INTO apps (public_id, name) SELECT 'app_' || n, 'App ' || n FROM generate_series(1, 12) AS n`;
    await sql`INSERT INTO event_types (public_id, app_id, name) SELECT 'typ_' || id, id, 'type' FROM apps`;
    const apps = await sql<OwnApp[]>`SELECT app_id AS id, id AS "typeId" FROM event_types ORDER BY id`;
    const world = new World(database, await openStorage(sql), apps);
    await world.storage.maintenance({ sql, slow: sql }, SETTINGS, Date.now).prepare();
    return world;
  }

  get nodes() {
    return clusterOf(this.database.sql.pool.database);
  }

  async close(): Promise<void> {
    await this.writer.close();
    await this.database.drop();
  }

  event(at: number, createdAt = Date.now()): AcceptedEvent {
    const { id: appId, typeId } = this.apps[at % this.apps.length] ?? { id: 0, typeId: 0 };
    const source = { appId: '', typeId: '', typeName: '' };
    return { id: newId(createdAt), appId, typeId, createdAt, payload: '{"a":1}', source };
  }

  /** Events of all apps in turns. */
  events(count: number): AcceptedEvent[] {
    return Array.from({ length: count }, (_, at) => this.event(at));
  }

  /** Writes events of all apps, all of which must be stored. */
  async write(count: number, uncertain = false): Promise<void> {
    const events = this.events(count);
    expect(await this.writer.write(events, uncertain)).toEqual(events.map(() => null));
    this.written.push(...events);
  }

  async settle(): Promise<void> {
    await settle(this.storage, this.database);
  }

  /** As a service does it. */
  maintenance(): { maintenance: MaintenanceTasks; end(): Promise<void> } {
    const sql = connect(this.database.sql.pool.database, { connections: 1, name: 'test maintenance' });
    return {
      maintenance: this.storage.maintenance({ sql, slow: sql }, SETTINGS, Date.now),
      end: () => sql.end(),
    };
  }

  /** Deltas of an app. */
  async pending(appId: number): Promise<number> {
    const rows = await this.sql`SELECT FROM count_deltas WHERE app_id = ${appId}`;
    return rows.length;
  }

  /** The node of an app. */
  databaseOf(appId: number): Database {
    const place = this.nodes.placeOf(appId);
    if (place === null || place.isCoordinator) throw new Error('The app is on the coordinator.');
    return place.node.database;
  }

  /** Transactions that were committed in two phases, as far as the nodes still remember them. */
  async distributedTransactions(): Promise<number> {
    const [row] = await this.sql<{ count: number }[]>`
      SELECT sum(result::int)::int AS count
        FROM run_command_on_all_nodes('SELECT count(*) FROM pg_dist_transaction')`;
    return row?.count ?? 0;
  }

  /** Moves the shards of an app to the other worker. */
  async moveAway(appId: number): Promise<void> {
    const place = this.nodes.placeOf(appId);
    const other = this.nodes.places.find(({ node }) => node !== place?.node)?.node;
    if (place == null || other === undefined) throw new Error('There is no other node.');
    const sql = connect(this.database.sql.pool.database, { connections: 1, name: 'test move' });
    try {
      await sql`SELECT citus_move_shard_placement(${place.shard}::bigint, ${place.node.host}, ${place.node.port}, ${other.host},
                                                  ${other.port}, 'force_logical')`;
    } finally {
      await sql.end();
    }
  }

  /** Rows, counts that are not settled and settled counts all say the same. */
  async expectStored({ database, storage }: Pick<World, 'database' | 'storage'> = this): Promise<void> {
    const reader = storage.reader(database.sql);
    for (const settled of [false, true]) {
      if (settled) await settle(storage, database);
      for (const { id } of this.apps) {
        const own = this.written.filter(({ appId }) => appId === id);
        const page = await reader.page({
          ...{ scope: { appId: id, ...SCOPE }, offset: 0, limit: 100_000, order: 'asc', maxBytes: 1e9 },
        });
        expect(page.total).toBe(own.length);
        expect(new Set(page.events.map((event) => event.id))).toEqual(new Set(own.map((event) => event.id)));
        expect(page.events).toHaveLength(own.length);
      }
    }
  }
}

/** Waits until the past of fields is counted. */
async function countFields({ database, storage }: Pick<World, 'database' | 'storage'>): Promise<void> {
  const sql = connect(database.sql.pool.database, { connections: 1, name: 'test maintenance' });
  const { everySecond } = storage.maintenance({ sql, slow: sql }, SETTINGS, Date.now);
  await until(async () => {
    await everySecond();
    const fields = await listFields(sql, FIELD.appId);
    return fields.every(({ backfill, completeFrom }) => !backfill && completeFrom !== null);
  }, 'the past of fields is counted');
  await sql.end();
}

async function settle(storage: Storage, { address }: TestDatabase): Promise<void> {
  const sql = connect(address, { connections: 1, name: 'test maintenance' });
  await storage.settleCounts(sql, Date.now());
  await sql.end();
}

const newId = createEventIds();
