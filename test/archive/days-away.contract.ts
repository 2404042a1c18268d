/**
 * Days whose rows leave the database for the archive and come back: in every snapshot each event is in exactly one place, whatever fails on
 * the way, is stored meanwhile or is sent again.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { declareField } from '../../src/apps/fields.ts';
import { setRetention } from '../../src/apps/retention.ts';
import {
  archiveDueDays,
  bringDayBack,
  type DayOutcome,
  rewriteArchive,
} from '../../src/archive/archiving.ts';
import { alone, listArchivedDays, RESTORED } from '../../src/archive/days.ts';
import { readPart } from '../../src/archive/parquet.ts';
import { ArchiveError, type ArchiveStore } from '../../src/archive/store.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { readInstallation } from '../../src/storage/database/installation-id.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { ConsumerStore } from '../../src/storage/feed/consumers.ts';
import { readDaysAway, readWantedDays } from '../../src/storage/maintenance/days-away.ts';
import { openStorage, type Storage } from '../../src/storage/storage.ts';
import type { AcceptedEvent } from '../../src/storage/write/accepted-event.ts';
import { EventWriter, type WriteOutcome } from '../../src/storage/write/event-writer.ts';
import { DAY_AWAY } from '../../src/storage/write/failures.ts';
import { ReplayWriter } from '../../src/storage/write/replay-writer.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../support/database.ts';
import { dying } from '../support/dying.ts';
import { sized } from '../support/fuzz.ts';
import { captured, testSecret, until } from '../support/service.ts';

const DAY_MS = 86_400_000;
const QUARTER_MS = 900_000;
const DAY = '2026-03-28';
const START = Date.parse(`${DAY}T00:00:00Z`);
const UNTIL = START + 10 * DAY_MS;
const newId = createEventIds();

/** An archive in memory that fails when it is told to. */
class MemoryStore implements ArchiveStore {
  readonly place = 'memory';
  readonly objects: Map<string, Buffer>;
  /** Operations that succeed before one fails. */
  failsAfter = Number.POSITIVE_INFINITY;

  constructor(objects: Map<string, Buffer>) {
    this.objects = objects;
  }

  async put(key: string, bytes: Uint8Array): Promise<void> {
    this.#count();
    this.objects.set(key, Buffer.from(bytes));
  }

  async get(key: string): Promise<Buffer> {
    this.#count();
    const found = this.objects.get(key);
    if (found === undefined) throw new ArchiveError('there is no such object', { isMissing: true });
    return found;
  }

  async remove(key: string): Promise<void> {
    this.#count();
    this.objects.delete(key);
  }

  #count(): void {
    this.failsAfter -= 1;
    if (this.failsAfter < 0) throw new ArchiveError('the store is away');
  }
}

interface App {
  readonly id: number;
  readonly publicId: string;
}

/** @param deathEvery how many statements are between two deaths */
function daysAway(open: () => Promise<TestDatabase>, { deathEvery }: { readonly deathEvery: number }): void {
  let database: TestDatabase;
  let storage: Storage;
  let writer: EventWriter;
  let app: App;
  let typeIds: readonly number[];
  let memory: MemoryStore;
  /** What is archived of all tests, whose database has their days. */
  const objects = new Map<string, Buffer>();
  /** All that is stored: by its id, the payload. */
  let model: Map<string, { readonly at: number; readonly payload: string }>;

  beforeAll(async () => {
    database = await open();
    storage = await openStorage(database.sql);
    await ENGINES[database.engine].createPartitions(database.sql, { from: START, until: UNTIL });
  });

  beforeEach(async () => {
    [memory, model] = [new MemoryStore(objects), new Map()];
    await newApp();
  });

  /** Makes the app that all others here are about. @param ownerId internal id of its account */
  async function newApp(ownerId: number | null = null): Promise<App> {
    const { sql } = database;
    const { appId } = await createApp(sql, await testSecret(), { name: 'away', ownerId });
    for (const name of ['page view', 'order']) await createEventType(sql, { appId, name, maxTypes: 10 });
    const [row] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
    app = { id: row?.id ?? 0, publicId: appId };
    const types = await sql<
      { id: number }[]
    >`SELECT id FROM event_types WHERE app_id = ${app.id} ORDER BY id`;
    typeIds = types.map(({ id }) => id);
    await writer?.close();
    const nodes = storage.nodesOf(sql.pool.database);
    await nodes.ready();
    writer = new EventWriter({
      ...{ node: nodes.nodeOf(app.id), engine: storage.writes, connections: 2, past: true },
      ...{ log: captured([]), now: () => performance.now() },
    });
    return app;
  }

  afterAll(async () => {
    await writer.close();
    await database.drop();
  });

  function eventAt(at: number, id: string = newId(at), payload = '{"user":{"id":4}}'): AcceptedEvent {
    const typeId = typeIds[Math.floor(at / 60_000) % 2] ?? 0;
    const source = { appId: app.publicId, typeId: String(typeId), typeName: '' };
    return { id, appId: app.id, typeId, createdAt: at, payload, source };
  }

  /** An event with a key: its id is the same whenever it is sent. */
  const keyed = (at: number): AcceptedEvent => {
    const id = randomUUID();
    return eventAt(at, `${id.slice(0, 14)}8${id.slice(15)}`);
  };

  async function write(events: readonly AcceptedEvent[]): Promise<readonly WriteOutcome[]> {
    const outcomes = await writer.write(events);
    for (const [index, { id, createdAt, payload }] of events.entries())
      if (outcomes[index] === null) model.set(id, { at: createdAt, payload });
    return outcomes;
  }

  /** Stores new events, evenly over a day. */
  const fill = (count: number, day = START): Promise<readonly WriteOutcome[]> =>
    write(Array.from({ length: count }, (_, n) => eventAt(day + Math.floor((n * DAY_MS) / count))));

  /** With the pool of one connection that a run has. */
  async function withRun<T>(
    work: (sql: Sql) => Promise<T>,
    wrap: (sql: Sql) => Sql = (sql) => sql,
  ): Promise<T> {
    const own = connect(database.address, { connections: 1, name: 'test archive' });
    own.pool.database.adopt(ENGINES[database.engine]);
    try {
      return await work(wrap(own));
    } finally {
      await own.end({ timeout: 1 });
    }
  }

  const options = (sql: Sql) => ({ sql, storage, store: memory, installationId: 'here' });

  async function run(
    wrap?: (sql: Sql) => Sql,
    filter: { app?: string } = { app: app.publicId },
  ): Promise<DayOutcome[]> {
    const days: DayOutcome[] = [];
    const archive = (sql: Sql): Promise<boolean> =>
      archiveDueDays({
        ...{ ...options(sql), filter, until: UNTIL, keepRows: false, reachMs: 7 * DAY_MS },
        onDay: (day) => days.push(day),
      });
    // The session of one that has died may not have ended yet.
    await until(() => withRun(archive, wrap), 'nobody else archives');
    return days;
  }

  /** Every event in one snapshot: of the rows, and of the objects that stand for days. */
  async function everything(): Promise<Map<string, { readonly at: number; readonly payload: string }>> {
    const place = await storage.poolOfApp(database.sql, app.id);
    const [rows, parts] = await place.begin('isolation level repeatable read read only', async (tx) => [
      await tx<{ id: string; at: number; payload: string }[]>`
        SELECT id::text, round(extract(epoch FROM created_at) * 1000)::float8 AS at, payload::text AS payload FROM events WHERE app_id = ${app.id}`,
      await tx<{ key: string; events: number }[]>`
        SELECT key, events::float8 AS events FROM archived_parts WHERE app_id = ${app.id}`,
    ]);
    const found = new Map<string, { readonly at: number; readonly payload: string }>();
    const add = ({ id, at, payload }: { id: string; at: number; payload: string }): void => {
      expect(found.has(id), `${id} is there once`).toBe(false);
      found.set(id, { at, payload });
    };
    for (const row of rows) add(row);
    for (const { key, events } of parts) {
      const read = await readPart(memory.objects.get(key) ?? Buffer.alloc(0));
      expect(read).toHaveLength(events);
      for (const event of read) add(event);
    }
    return found;
  }

  /** Whatever has happened: each event is in one place, and counted once. */
  async function expectWhole(step = ''): Promise<void> {
    expect(await everything(), step).toEqual(model);
    await expectCounted(step);
  }

  async function expectCounted(step = ''): Promise<void> {
    await withRun((sql) => storage.settleCounts(sql, Date.now() + DAY_MS));
    const rows = await database.sql<{ at: number; count: number }[]>`
      SELECT (extract(epoch FROM bucket) * 1000)::float8 AS at, sum(count)::float8 AS count FROM events_per_quarter_hour
       WHERE app_id = ${app.id} AND type_id = 0 GROUP BY bucket HAVING sum(count) <> 0`;
    const counted = new Map(rows.map(({ at, count }) => [at, count]));
    const expected = new Map<number, number>();
    for (const { at } of model.values()) {
      const quarter = Math.floor(at / QUARTER_MS) * QUARTER_MS;
      expected.set(quarter, (expected.get(quarter) ?? 0) + 1);
    }
    expect(counted, step).toEqual(expected);
  }

  const away = async (): Promise<string[]> =>
    (await readDaysAway(database.sql, app.id)).map(({ day }) => day);

  const localRows = async (): Promise<number> => {
    const [row] = await database.sql<{ rows: number }[]>`
      SELECT count(*)::integer AS rows FROM events WHERE app_id = ${app.id}`;
    return row?.rows ?? 0;
  };

  test('rows leave once their day was read back, and what comes late is merged by the next run', async () => {
    await fill(300);
    await fill(40, START + DAY_MS);
    expect(await run()).toMatchObject([
      { day: DAY, events: 300, problem: null, isAway: true },
      { events: 40, problem: null, isAway: true },
    ]);
    expect([await localRows(), await away()]).toEqual([0, [DAY, '2026-03-29']]);
    await expectWhole();
    expect(await run()).toEqual([]);
    expect(await fill(7)).toEqual(Array.from({ length: 7 }, () => null));
    expect(await localRows()).toBe(7);
    await expectWhole();
    const before = [...memory.objects.keys()].filter((key) => key.includes(DAY));
    expect(await run()).toMatchObject([{ day: DAY, events: 307, isAway: true }]);
    expect(await localRows()).toBe(0);
    await expectWhole();
    // Nothing of before is left.
    expect([...memory.objects.keys()].filter((key) => key.includes(DAY))).toHaveLength(before.length);
  });

  test('a day is brought back by hand, and stays until it is asked for by its date', async () => {
    await fill(50);
    await run();
    await withRun((sql) => alone(sql, () => bringDayBack(options(sql), app, DAY, RESTORED)));
    expect([await localRows(), await away()]).toEqual([50, []]);
    await expectWhole();
    expect(await run()).toEqual([]);
    const filter = { app: app.publicId, from: DAY, to: DAY };
    const named: DayOutcome[] = [];
    await withRun((sql) =>
      archiveDueDays({
        ...{ ...options(sql), filter, until: UNTIL, keepRows: false, reachMs: 7 * DAY_MS },
        onDay: (day) => named.push(day),
      }),
    );
    expect(named).toMatchObject([{ day: DAY, isAway: true }]);
    await expectWhole();
  });

  test('an event with a key that is sent again waits until its day is back, and is not stored twice', async () => {
    const [first, other] = [keyed(START + 1_000), keyed(START + 2_000)];
    expect(await write([first, keyed(START + DAY_MS)])).toEqual([null, null]);
    await run();
    // With others of the same group, which are stored.
    const [now, recent] = [keyed(Date.now()), keyed(START + 3 * DAY_MS)];
    expect(await write([first, other, now, recent])).toEqual([DAY_AWAY, DAY_AWAY, null, null]);
    await expectWhole();
    const [wanted] = (await readDaysAway(database.sql, app.id)).filter(({ isWanted }) => isWanted);
    expect(wanted?.day).toBe(DAY);
    // It is back first, and stays until what has waited for it was sent again.
    expect((await run()).map(({ day }) => day)).not.toContain(DAY);
    expect(await away()).not.toContain(DAY);
    expect(await write([first, other])).toEqual(['repeated', null]);
    await expectWhole();
    expect((await run()).map(({ day }) => day)).toContain(DAY);
    await expectWhole();
  });

  test('days are brought back between those that are archived, one of each account in its turn', async () => {
    const { sql } = database;
    await sql`UPDATE apps SET removed_at = now()`;
    const [eve, bob] = await sql<{ id: number }[]>`
      INSERT INTO users (public_id, email, email_key, password_hash)
      SELECT 'usr_' || name, name, name, '' FROM unnest(ARRAY['eve', 'bob']) AS name RETURNING id`;
    const days = async (owner: { id: number } | undefined, count: number): Promise<App> => {
      const made = await newApp(owner?.id);
      for (let day = 0; day < count; day += 1) await fill(3, START + day * DAY_MS);
      await run();
      return made;
    };
    const second = await days(eve, 1);
    const third = await days(bob, 2);
    const first = await days(eve, 3);
    // Of its own, so that something is to be archived between them.
    await fill(5, START + 4 * DAY_MS);
    const names = new Map([first, second, third].map(({ publicId }, n) => [publicId, n + 1]));
    const ask = ({ id }: App, day: string, at: number) => sql`
      UPDATE archived_parts SET wanted_at = ${new Date(at)} WHERE app_id = ${id} AND day = ${day}::text::date`;
    await ask(first, DAY, 1_000);
    await ask(first, '2026-03-29', 2_000);
    await ask(second, DAY, 3_000);
    await ask(first, '2026-03-30', 4_000);
    await ask(third, DAY, 5_000);
    const there = new Set(memory.objects.keys());
    const order: string[] = [];
    const note = (verb: string, key: string): void => {
      const [, appId = '', day = ''] = key.split('/');
      // Another app's is looked at to see whether it is the same archive.
      if (names.has(appId)) order.push(`${verb} ${names.get(appId)} ${day}`);
    };
    const [get, put] = [memory.get.bind(memory), memory.put.bind(memory)];
    memory.get = async (key) => {
      if (there.has(key)) note('back', key);
      return await get(key);
    };
    memory.put = async (key, bytes) => {
      if (key.endsWith('.parquet')) {
        note('archive', key);
        await ask(third, '2026-03-29', 6_000);
      }
      await put(key, bytes);
    };
    expect(await run(undefined, {})).toMatchObject([{ day: '2026-04-01', problem: null }]);
    expect(order).toEqual([
      ...['back 1 2026-03-28', 'back 3 2026-03-28', 'archive 1 2026-04-01', 'back 1 2026-03-29'],
      ...['back 3 2026-03-29', 'back 2 2026-03-28', 'back 1 2026-03-30'],
    ]);
    expect(await readWantedDays(sql)).toEqual([]);
  });

  test('a replay of a journal waits for days that are away, and keeps nothing else waiting', async () => {
    const event = eventAt(START + 5_000);
    await write([event]);
    await run();
    const { identity } = await readInstallation(database.sql);
    const [type] = await database.sql<{ publicId: string; name: string }[]>`
      SELECT public_id AS "publicId", name FROM event_types WHERE id = ${event.typeId}`;
    const replay = new ReplayWriter({
      ...{ nodes: storage.nodesOf(database.sql.pool.database), engine: storage.writes, identity },
      ...{ log: captured([]), now: () => performance.now() },
    });
    const source = { appId: app.publicId, typeId: type?.publicId ?? '', typeName: type?.name ?? '' };
    const [again, fresh] = [
      { ...event, source },
      { ...eventAt(START + 4 * DAY_MS), typeId: event.typeId, source },
    ];
    expect(await replay.write([again, fresh])).toEqual(['blocked', 'stored']);
    model.set(fresh.id, { at: fresh.createdAt, payload: fresh.payload });
    await expectWhole();
    await run();
    expect(await replay.write([again])).toEqual(['stored']);
    await expectWhole();
    await replay.close();
  });

  test('a row that is stored while its day leaves is found by the one that waits for it', async () => {
    const event = keyed(START + 7_000);
    await write([event, keyed(START + 8_000)]);
    const place = await storage.poolOfApp(database.sql, app.id);
    let again: Promise<readonly WriteOutcome[]> | undefined;
    await place.begin(async (tx) => {
      await tx`DELETE FROM events WHERE app_id = ${app.id} AND created_at < ${new Date(START + DAY_MS)}`;
      await tx`
        INSERT INTO archived_parts (app_id, day, part, key, events, bytes, groups, footer)
        VALUES (${app.id}, ${DAY}::text::date, 0, 'none', 2, 1, '[]', '')`;
      // Its INSERT waits for the end of this transaction, or begins after it: it must not be stored in either case.
      again = writer.write([event]);
    });
    expect(await again).toEqual([DAY_AWAY]);
    expect(await localRows()).toBe(0);
  });

  test('rows stay where they are not those that were archived', async () => {
    await fill(20);
    const late: { outcome?: readonly WriteOutcome[] } = {};
    const get = memory.get.bind(memory);
    // Between the read of the rows and their removal one goes, and another one comes.
    memory.get = async (key) => {
      if (late.outcome === undefined && key.includes(app.publicId)) {
        const [gone] = [...model];
        if (gone !== undefined) {
          await storage.erase(database.sql, {
            ...{ appId: app.id, erasureId: 0, payloads: null },
            events: [{ id: gone[0], at: gone[1].at }],
          });
          model.delete(gone[0]);
        }
        late.outcome = await write([eventAt(START + 123_000)]);
      }
      return await get(key);
    };
    const [outcome] = await run();
    expect(outcome).toMatchObject({ isAway: false, problem: expect.stringContaining('have changed') });
    await expectWhole();
    expect(await run()).toMatchObject([{ day: DAY, isAway: true }]);
    await expectWhole();
  });

  test('an erasure brings days back that have events to be erased, and no others', async () => {
    await fill(10);
    await fill(10, START + DAY_MS);
    await run();
    const [victim = ''] = model.keys();
    const erase = (): Promise<unknown> =>
      withRun((sql) => rewriteArchive(options(sql), app, (event) => (event.id === victim ? null : event)));
    expect(await erase()).toEqual({ changed: 0, broughtBack: 1 });
    expect(await away()).toEqual(['2026-03-29']);
    await expectWhole();
    const at = model.get(victim)?.at ?? 0;
    await withRun((sql) =>
      storage.erase(sql, { appId: app.id, erasureId: 0, events: [{ id: victim, at }], payloads: null }),
    );
    model.delete(victim);
    expect(await erase()).toEqual({ changed: 1, broughtBack: 0 });
    await expectWhole();
    await run();
    await expectWhole();
    for (const bytes of [...memory.objects].filter(([key]) => key.endsWith('.parquet')).map(([, one]) => one))
      expect((await readPart(bytes)).some(({ id }) => id === victim)).toBe(false);
  });

  /** Maintenance whose rounds a test runs. */
  function openUpkeep() {
    const { sql } = database;
    const pools = [1, 2].map(() => connect(database.address, { connections: 1, name: 'test upkeep' }));
    const [own = sql, slow = sql] = pools;
    for (const pool of pools) pool.pool.database.adopt(ENGINES[database.engine]);
    const settings = {
      CHUNK_HOURS: 24,
      COMPRESS_AFTER_DAYS: 0,
      RETENTION_DAYS: 0,
      CONSUMER_REACH_HOURS: 168,
    };
    const upkeep = storage.maintenance({ sql: own, slow }, settings, () => Date.now());
    return { upkeep, close: () => Promise.all(pools.map((pool) => pool.end({ timeout: 1 }))) };
  }

  test('rows stay until each consumer has had them, and whoever is left behind for longer than its reach is lost', async () => {
    const { sql } = database;
    const { upkeep, close } = openUpkeep();
    const store = new ConsumerStore(storage.engine, sql);
    const add = (name: string, from: 'now' | 'start') =>
      store.add(app.id, { name, kind: 'consumer', types: [], filter: [], from });
    /** What a consumer gets and acknowledges. */
    const take = async (name: string): Promise<string[]> => {
      const ids: string[] = [];
      for (let hasMore = true; hasMore; ) {
        const lease = await store.lease(app.id, name, 30_000);
        if (typeof lease === 'string' || 'leasedForSeconds' in lease) throw new Error(JSON.stringify(lease));
        const { epoch } = lease;
        const batch = await store.read(app.id, lease.position, { limit: 3, maxBytes: 1e6 });
        ids.push(...batch.events.map(({ id }) => id));
        await store.granted(app.id, name, epoch, { position: batch.position, keeps: true });
        await store.acknowledge(app.id, name, { epoch, position: batch.position, events: 0 });
        hasMore = batch.hasMore;
      }
      return ids.sort();
    };
    const isAway = async (): Promise<boolean> => {
      await run();
      return (await away()).includes(DAY);
    };
    // TimescaleDB tells of a minute once more when its counts have been refreshed.
    const leaves = (names: readonly string[], change = async (): Promise<void> => undefined) =>
      until(async () => {
        await upkeep.everySecond();
        for (const name of names) await take(name);
        await change();
        return await isAway();
      }, 'the day leaves');
    await add('reads', 'now');
    // Two of one minute: one that comes back from the archive looks as new as a late one.
    await write([START + 10_000, START + 50_000].map((at) => eventAt(at)));
    await fill(5);
    const first = [...model.keys()].sort();
    // No tick tells of them yet.
    expect(await isAway()).toBe(false);
    await upkeep.everySecond();
    expect(await isAway()).toBe(false);
    await add('reads all', 'start');
    expect(await take('reads')).toEqual(first);
    expect(await isAway()).toBe(false);
    expect(await take('reads all')).toEqual(first);
    await leaves(['reads', 'reads all']);
    // A late event, which the day comes back for; another consumer lags.
    const late = eventAt(START + 20_000);
    await write([late]);
    expect(await isAway()).toBe(false);
    await upkeep.everySecond();
    expect(await take('reads')).toContain(late.id);
    expect(await isAway()).toBe(false);
    expect(await take('reads all')).toContain(late.id);
    await leaves(['reads', 'reads all']);
    // For longer than their reach no day waits for them, nor for one that never reads what was there before.
    await write([eventAt(START + 30_000)]);
    await add('never reads', 'start');
    await upkeep.everySecond();
    expect(await isAway()).toBe(false);
    const states = async (): Promise<boolean[]> =>
      (await store.list(app.id, 'consumer')).map(({ lostAt }) => lostAt !== null);
    expect(await states()).toEqual([false, false, false]);
    await leaves([], async () => {
      await sql`UPDATE feed_ticks SET at = now() - interval '169 hours' WHERE app_id = ${app.id}`;
    });
    expect(await states()).toEqual([true, true, true]);
    expect(await store.lease(app.id, 'reads', 1_000)).toBe('lost');
    await expectWhole();
    await close();
  });

  test('what is counted of declared fields stays, beside late events', async () => {
    const { sql } = database;
    await fill(12);
    await fill(6, START + DAY_MS);
    await declareField(sql, {
      ...{ appId: app.id, path: ['user', 'id'], kind: 'value', typeName: null, backfill: true },
    });
    // Until they are counted, rows stay.
    expect((await run()).map(({ isAway, problem }) => [isAway, problem])).toEqual([
      [false, null],
      [false, null],
    ]);
    const { upkeep, close } = openUpkeep();
    const counts = async (): Promise<Record<string, number>> => {
      await upkeep.everySecond();
      // Two statements: a join of both is of other columns in a cluster.
      const series = await database.sql<{ id: number }[]>`SELECT id FROM field_series WHERE type_id = 0`;
      const rows = await database.sql<{ day: string; count: number }[]>`
        SELECT (bucket AT TIME ZONE 'UTC')::date::text AS day, sum(count)::float8 AS count
          FROM field_minute_counts AS counts
         WHERE counts.app_id = ${app.id} AND series_id = ANY(${series.map(({ id }) => id)}) GROUP BY 1 ORDER BY 1`;
      return Object.fromEntries(rows.map(({ day, count }) => [day, count]));
    };
    const all = { [DAY]: 12, '2026-03-29': 6 };
    await until(async () => JSON.stringify(await counts()) === JSON.stringify(all), 'the past is counted');
    // In a cluster the field is complete a moment after its last minute is counted.
    const left: DayOutcome[] = [];
    const haveLeft = async (): Promise<boolean> => {
      await upkeep.everySecond();
      left.push(...(await run()));
      return left.length === 2;
    };
    await until(haveLeft, 'both days have left');
    expect(left).toMatchObject([{ isAway: true }, { isAway: true }]);
    await fill(3);
    for (let second = 0; second < 3; second += 1) expect(await counts()).toEqual(all);
    await withRun((pool) =>
      storage.recount(pool, { from: START, until: START + 2 * DAY_MS }, () => undefined),
    );
    expect(await counts()).toEqual(all);
    // A field that is declared now has no past in what is away.
    await declareField(sql, {
      ...{ appId: app.id, path: ['user', 'plan'], kind: 'value', typeName: null, backfill: true },
    });
    await fill(1, START + 2 * DAY_MS);
    for (let second = 0; second < 5; second += 1) await counts();
    expect(await run()).toMatchObject([{ day: DAY, events: 15 }, { day: '2026-03-30' }]);
    await expectWhole();
    await close();
  });

  test('counts of a hidden type that an earlier release has added again are told and corrected', async () => {
    const { sql } = database;
    const next = START + DAY_MS;
    // Each minute with an odd number is of the second type.
    await fill(96);
    await fill(32, next);
    const hidden = [...model].filter(([, { at }]) => eventAt(at).typeId === typeIds[1]);
    const archive = (own: Sql): Promise<boolean> =>
      archiveDueDays({
        ...{ ...options(own), filter: { app: app.publicId }, until: UNTIL, keepRows: true, reachMs: 0 },
        onDay: ({ problem }) => expect(problem).toBeNull(),
      });
    await withRun(archive);
    const settings = {
      CHUNK_HOURS: 24,
      COMPRESS_AFTER_DAYS: 0,
      RETENTION_DAYS: 0,
      CONSUMER_REACH_HOURS: 168,
    };
    await setRetention(sql, settings, { appId: app.publicId, type: 'order', days: 7, now: Date.now() });
    const { upkeep, close } = openUpkeep();
    const removeRows = async (): Promise<void> => {
      await sql`UPDATE app_boundaries SET removed_until = '-infinity' WHERE app_id = ${app.id}`;
      const left = model.size - hidden.length;
      await until(async () => {
        await upkeep.everySecond();
        await upkeep.everyTenMinutes();
        return (await localRows()) === left;
      }, 'the rows of the type are removed');
    };
    await removeRows();
    await expectCounted('before');
    // As its `archive restore` did; of another day a part, which may be late events.
    await write(hidden.filter(([, { at }]) => at < next).map(([id, { at }]) => eventAt(at, id)));
    await write(
      hidden
        .filter(([, { at }]) => at >= next)
        .slice(1)
        .map(([id, { at }]) => eventAt(at, id)),
    );
    await removeRows();
    await expect(expectCounted()).rejects.toThrow();
    const told = async () => (await withRun((own) => storage.facts(own))).counts?.days ?? [];
    const ofDay = hidden.filter(([, { at }]) => at < next).length;
    const found = (await told()).filter(({ differing }) => differing > 0);
    expect(found).toMatchObject([
      { day: START, examples: [{ app: app.publicId, counted: 2 * ofDay, expected: ofDay }] },
    ]);
    const recount = async (): Promise<number[]> => {
      const differing: number[] = [];
      await withRun((own) =>
        storage.recount(own, { from: START, until: START + 2 * DAY_MS }, (day) =>
          differing.push(day.differing),
        ),
      );
      return differing;
    };
    expect((await recount()).map((count) => count > 0)).toEqual([true, false]);
    expect(await recount()).toEqual([0, 0]);
    expect((await told()).filter(({ differing }) => differing > 0)).toEqual([]);
    const [month] = await sql<{ count: number }[]>`
      SELECT sum(count)::integer AS count FROM events_per_month WHERE app_id = ${app.id} AND type_id = 0`;
    const again = hidden.length - ofDay - 1;
    expect(month?.count).toBe(model.size + again);
    const span = await storage.reader(sql).appSpan(app.id);
    expect(span.total).toBe(model.size + again);
    await close();
  });

  describe('what fails', () => {
    test.each(['before', 'after'] as const)(
      'a process that ends %s any statement loses nothing',
      async (when) => {
        let deaths = 0;
        await fill(30);
        for (let calls = 1; ; calls += deathEvery) {
          // Each time there is a late event of a day that is away, a new day, and one that is wanted back.
          await fill(1);
          await fill(2, START + DAY_MS);
          const killed: { isDead?: () => boolean } = {};
          await run((sql) => {
            const { sql: dies, isDead } = dying(sql, calls, when);
            killed.isDead = isDead;
            return dies;
          }).catch((error: unknown) => {
            if (killed.isDead?.() !== true) throw error;
          });
          expect(await everything(), `at step ${calls}`).toEqual(model);
          if (killed.isDead?.() !== true) break;
          deaths += 1;
          if (deaths % 4 === 0) await run();
        }
        await run();
        expect(await localRows()).toBe(0);
        await expectWhole();
        expect(deaths * deathEvery).toBeGreaterThan(20);
        // What the database calls archived is all that there is.
        const known = (await listArchivedDays(database.sql, { app: app.publicId })).flatMap(
          ({ parts }) => parts,
        );
        expect(new Set(known.map(({ key }) => key))).toEqual(
          new Set(
            [...objects.keys()].filter((key) => key.includes(app.publicId) && key.endsWith('.parquet')),
          ),
        );
      },
    );

    test('a store that fails at any operation keeps the rows where they are', async () => {
      await fill(30);
      for (let step = 0; step < 12; step += sized(4, 1)) {
        await fill(1);
        memory.failsAfter = step;
        await run();
        memory.failsAfter = Number.POSITIVE_INFINITY;
        expect(await everything(), `at step ${step}`).toEqual(model);
      }
      await run();
      expect(await localRows()).toBe(0);
      await expectWhole();
    });
  });
}

/** In a cluster a statement is many. */
const DEATH_EVERY = sized(12, 1);

describe.each(availableEngines())('days away on %s', (engine) => {
  daysAway(() => testDatabase(engine, { prepared: true }), {
    deathEvery: engine === 'citus' ? 5 : DEATH_EVERY,
  });
});
