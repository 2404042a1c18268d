/** What every engine promises of the retention of apps and types. Not a test file: retention.test.ts calls it for each. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { declareField } from '../../src/apps/fields.ts';
import { type KeptDays, listRetention, setRetention } from '../../src/apps/retention.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { compareDay } from '../../src/storage/counts/differences.ts';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { readCommitted } from '../../src/storage/feed/commit-order.ts';
import type { MaintenanceTasks } from '../../src/storage/maintenance/loop.ts';
import type { Cursor } from '../../src/storage/read/event-list.ts';
import type { EventReader } from '../../src/storage/read/event-reader.ts';
import { openStorage, type Storage } from '../../src/storage/storage.ts';
import { availableEngines, type TestDatabase, type TestEngine, testDatabase } from '../support/database.ts';
import { sized } from '../support/fuzz.ts';
import { testSecret } from '../support/service.ts';
import { type EventRow, storeRows } from '../support/stored-events.ts';

const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;
const START = Date.UTC(2026, 4, 1);
const DAYS = 24;
const END = START + DAYS * DAY_MS;
const TYPES = 12;
const PLENTY = 1_000_000_000;
const SETTINGS = { CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 0, RETENTION_DAYS: 0, CONSUMER_REACH_HOURS: 168 };

type MakeDatabase = () => Promise<TestDatabase>;

interface Scope {
  readonly typeIds: readonly number[] | null;
  readonly exceptTypes?: readonly number[];
  readonly from: number | null;
  readonly until: number | null;
}

/** Two apps with the same events, of which the second has no retention; and what this process knows of them. */
class World {
  readonly database: TestDatabase;
  readonly sql: Sql;
  readonly storage: Storage;
  readonly reader: EventReader;
  readonly tasks: MaintenanceTasks;
  readonly #maintenance: Sql;
  /** Public ids. */
  readonly appIds: string[] = [];
  readonly rows: EventRow[] = [];
  /** By internal id of the type, 0 for the others: as the rules have it. */
  readonly boundaries = new Map<number, number>();
  now = END + 3_600_000;

  private constructor(database: TestDatabase, storage: Storage) {
    this.database = database;
    this.sql = database.sql;
    this.storage = storage;
    this.reader = storage.reader(database.sql);
    this.#maintenance = connect(database.address, { connections: 1, name: 'test maintenance' });
    this.tasks = storage.maintenance({ sql: this.#maintenance, slow: this.sql }, SETTINGS, () => this.now);
  }

  static async create(make: MakeDatabase): Promise<World> {
    const database = await make();
    const world = new World(database, await openStorage(database.sql));
    for (const name of ['One', 'Two']) {
      const { appId } = await createApp(world.sql, await testSecret(), { name });
      world.appIds.push(appId);
      await world.sql`
        INSERT INTO event_types (public_id, app_id, name)
        SELECT 'typ_' || apps.id || '_' || n, apps.id, 'type ' || n FROM apps, generate_series(1, ${TYPES}) n
         WHERE public_id = ${appId} ORDER BY n`;
    }
    await ENGINES[world.storage.engine].createPartitions(world.sql, { from: START, until: END });
    await world.tasks.prepare();
    return world;
  }

  async close(): Promise<void> {
    await this.#maintenance.end();
    await this.database.drop();
  }

  async store(events: readonly { readonly at: number; readonly typeId: number }[]): Promise<void> {
    const rows = events.map(({ at, typeId }, i) => ({
      ...{ id: createEventIds()(at), appId: typeId <= TYPES ? 1 : 2, typeId, at },
      payload: `{"n":${i},"k":"${'abc'[i % 3]}"}`,
    }));
    await storeRows(this.sql, this.storage.engine, rows);
    this.rows.push(...rows);
  }

  async settle(): Promise<void> {
    await this.storage.settleCounts(this.#maintenance, this.now);
  }

  /** Rounds of maintenance until the declared field is counted. */
  async countFields(): Promise<void> {
    for (let left = true; left; ) {
      await this.tasks.everySecond();
      const [field] = await this.sql<{ left: boolean }[]>`
        SELECT backfill OR complete_from IS NULL AS left FROM declared_fields`;
      left = field?.left ?? true;
    }
    await this.tasks.everySecond();
  }

  async recount(day: number): Promise<void> {
    await this.storage.recount(this.#maintenance, { from: day, until: day + 1 }, () => undefined);
  }

  async set(typeId: number | null, days: KeptDays): Promise<void> {
    const type = typeId === null ? null : `type ${typeId}`;
    const rule = { appId: this.appIds[0] ?? '', type, days, now: this.now };
    const { readableFrom } = await setRetention(this.sql, SETTINGS, rule);
    this.boundaries.set(typeId ?? 0, readableFrom);
  }

  boundaryOf({ appId, typeId }: EventRow): number {
    return appId === 2 ? 0 : (this.boundaries.get(typeId) ?? this.boundaries.get(0) ?? 0);
  }

  /** What can be read of a scope, in the order of a page. */
  of(appId: number, { typeIds, exceptTypes = [], from, until }: Scope): EventRow[] {
    return this.rows
      .filter((row) => row.appId === appId && row.at >= this.boundaryOf(row))
      .filter((row) => row.at >= (from ?? 0) && row.at < (until ?? PLENTY * DAY_MS))
      .filter(({ typeId }) => typeIds?.includes(typeId) ?? !exceptTypes.includes(typeId))
      .sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
  }

  /** Ids of the rows that are there, whatever can be read of them. */
  async stored(): Promise<ReadonlySet<string>> {
    const rows = await this.sql<{ id: string }[]>`SELECT id::text FROM events`;
    return new Set(rows.map(({ id }) => id));
  }

  async removeRows(): Promise<void> {
    await this.tasks.everyTenMinutes();
    await this.tasks.everySecond();
  }

  async chart(appId: number) {
    const request = { appId, from: START, until: END, timezone: 'UTC', topTypes: 5 };
    const days = await this.reader.series({ ...request, typeIds: null, buckets: '1d' });
    const hours = await this.reader.series({ ...request, typeIds: [1, 2, 3], buckets: '1h' });
    if (typeof days === 'string' || typeof hours === 'string') throw new Error('too many buckets');
    const ofValues = { ...request, typeIds: null, buckets: '1d', withBefore: false } as const;
    const values = await this.reader.valueSeries(ofValues, ['k']);
    // The second app has not declared it.
    if (typeof values === 'string' && appId === 1) throw new Error(values);
    return {
      lines: typeof values === 'string' ? [] : values.lines,
      days: { ...days, countsOnlyBefore: null },
      hours: { ...hours, countsOnlyBefore: null },
    };
  }
}

/** The events that a chart by values has. */
function sumOfLines(
  chart: { readonly lines: readonly { readonly counts: readonly number[] }[] } | undefined,
): number {
  return (chart?.lines ?? []).flatMap(({ counts }) => counts).reduce((sum, count) => sum + count, 0);
}

const ids = (rows: readonly { readonly id: string }[]): string[] => rows.map(({ id }) => id);

/** A generator of the same numbers each time: the linear congruential one of Numerical Recipes. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1_664_525 + 1_013_904_223) % 4_294_967_296;
    return Math.floor((state / 4_294_967_296) * below);
  };
}

function retentionContract(engine: TestEngine): void {
  const make: MakeDatabase = () => testDatabase(engine);
  describe(`retention of apps and types on ${engine}`, () => {
    let world: World;
    const random = numbers(42);
    beforeAll(async () => {
      world = await World.create(make);
      const events = Array.from({ length: 1_500 }, (_, i) => ({
        at:
          i % 40 === 0 ? START + (i % DAYS) * DAY_MS - (i % 2) + 1 : START + random(DAYS * 1_440) * MINUTE_MS,
        typeId: 1 + random(TYPES),
      }));
      await declareField(world.sql, { appId: 1, path: ['k'], kind: 'value', typeName: null, backfill: true });
      await world.store(events);
      await world.store(events.map(({ at, typeId }) => ({ at, typeId: typeId + TYPES })));
      await world.settle();
      await world.countFields();
    });
    afterAll(() => world.close());

    /** Compares reads of scopes with what this process knows. */
    async function expectReads(scopes: number): Promise<void> {
      for (let n = 0; n < scopes; n += 1) {
        const isWhole = n % 3 === 0;
        const from = isWhole ? null : START + random(DAYS * 1_440) * MINUTE_MS;
        const until = isWhole ? null : Math.min(END, (from ?? 0) + random(DAYS * 1_440) * MINUTE_MS + 1);
        const some = [1 + random(TYPES), 1 + random(TYPES), 1 + random(TYPES)];
        const typeIds = n % 4 === 1 ? [...new Set(some)] : n % 4 === 3 ? some.slice(0, 1) : null;
        const scope = { from, until, typeIds, exceptTypes: n % 4 === 2 ? some.slice(0, 2) : [] };
        const wanted = world.of(1, scope);
        const order = n % 2 === 0 ? 'asc' : 'desc';
        const inOrder = ids(order === 'asc' ? wanted : wanted.toReversed());
        const offset = random(wanted.length + 2);
        const what = JSON.stringify({ ...scope, order, offset });
        const most = { limit: 50, maxBytes: PLENTY };
        const page = await world.reader.page({ scope: { appId: 1, ...scope }, offset, order, ...most });
        expect({ total: page.total, ids: ids(page.events) }, what).toEqual({
          total: wanted.length,
          ids: inOrder.slice(offset, offset + 50),
        });
        await expectList(scope, order, inOrder, what);
        const search = world.reader.search({ appId: 1, ...scope, order, after: null }, null);
        const found: string[] = [];
        for (let position: unknown = {}; position !== null; ) {
          const step = await search.step(300);
          found.push(...ids(step.events));
          position = step.position;
        }
        expect(found, what).toEqual(inOrder);
      }
    }

    async function expectList(
      scope: Scope,
      order: 'asc' | 'desc',
      wanted: readonly string[],
      what: string,
    ): Promise<void> {
      const listed: string[] = [];
      for (let after: Cursor | null = null, rounds = 0; rounds < 3; rounds += 1) {
        const request = { appId: 1, ...scope, order, after, limit: 37, maxBytes: PLENTY, withTotal: true };
        const list = await world.reader.list(request);
        expect(list.total, what).toBe(wanted.length);
        listed.push(...ids(list.events));
        after = list.next;
        if (after === null) break;
      }
      expect(listed, what).toEqual(wanted.slice(0, 3 * 37));
    }

    async function expectEvents(): Promise<void> {
      for (const row of world.rows.filter((_, index) => index % 70 === 0))
        expect((await world.reader.event(row.appId, row.id))?.id ?? null).toBe(
          row.at >= world.boundaryOf(row) ? row.id : null,
        );
    }

    /** What consumers read that begin with the past. */
    async function expectHistory(): Promise<void> {
      const pool = await world.storage.poolOfApp(world.sql, 1);
      const place = (await pool.begin((tx) => ENGINES[world.storage.engine].placeOf?.(tx, 1))) ?? 0;
      await pool`
        INSERT INTO feed_ticks (app_id, tick, place, snapshot, minutes, counts)
        VALUES (1, 1, ${place}, ${await world.reader.snapshotText(1)}, '{}', '{}')`;
      const after = { by: 'history' as const, createdAt: new Date(START - DAY_MS).toISOString(), id: '' };
      const request = { appId: 1, position: { tick: '1', after }, limit: PLENTY, maxBytes: PLENTY };
      const { events } = await readCommitted(ENGINES[world.storage.engine], pool, request);
      const all = { typeIds: null, from: null, until: null };
      expect(ids(events)).toEqual(ids(world.of(1, all)));
    }

    let charts: readonly unknown[] = [];

    test('twelve retentions hide what they should from every read at once, and nothing else', async () => {
      charts = [await world.chart(1), await world.chart(2)];
      await world.set(null, 10);
      await expectReads(4);
      for (const typeId of [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
        await world.set(typeId, typeId === 11 ? 'forever' : 1 + random(DAYS));
      await expectReads(sized(12, 24));
      await expectEvents();
      await expectHistory();
      expect(world.of(1, { typeIds: null, from: null, until: null }).length).toBeLessThan(1_200);
      expect(await world.chart(1)).toEqual(charts[0]);
      expect(await world.chart(2)).toEqual(charts[1]);
    });

    test('rows follow; counts of charts stay, whatever is refreshed or folded later', async () => {
      await world.removeRows();
      const there = await world.stored();
      for (const row of world.rows) expect(there.has(row.id)).toBe(row.at >= world.boundaryOf(row));
      expect(await world.chart(1)).toEqual(charts[0]);
      await expectReads(sized(6, 12));
      // Late events of all types and of the other app, in days of which rows are gone.
      const late = Array.from({ length: 120 }, (_, i) => ({
        at: START + random(DAYS * 1_440) * MINUTE_MS + i,
        typeId: 1 + random(2 * TYPES),
      })).filter(
        ({ at, typeId }) =>
          at >= world.boundaryOf({ id: '', appId: typeId > TYPES ? 2 : 1, typeId, at, payload: '' }),
      );
      await world.store(late);
      const total = (await world.reader.appSpan(1)).total;
      expect(total).toBe(world.rows.filter(({ appId }) => appId === 1).length);
      await world.countFields();
      const before = [await world.chart(1), await world.chart(2)];
      const counted = sumOfLines(before[0]);
      expect(counted).toBe(world.rows.filter(({ appId }) => appId === 1).length);
      await world.settle();
      await world.countFields();
      expect([await world.chart(1), await world.chart(2)]).toEqual(before);
      await world.tasks.everySecond();
      expect((await world.reader.appSpan(1)).total).toBe(total);
      await expectReads(12);
      const list = await listRetention(world.sql, SETTINGS, world.appIds[0] ?? '');
      expect(list.every(({ isRemoved }) => isRemoved)).toBe(true);
    });

    test('a count of a day of which a part is gone is not taken for a mistake, and not corrected', async () => {
      const before = [await world.chart(1), await world.chart(2)];
      for (const day of [START, START + 10 * DAY_MS, END - 2 * DAY_MS]) {
        for (const appId of [1, 2]) {
          const pool = await world.storage.poolOfApp(world.sql, appId);
          expect((await compareDay(pool, day, appId, world.sql)).differing).toBe(0);
        }
        await world.recount(day);
      }
      expect([await world.chart(1), await world.chart(2)]).toEqual(before);
      await expectReads(6);
    });

    test('a day later the boundaries are a day later; a rule that ends brings nothing back', async () => {
      world.now += DAY_MS;
      await world.removeRows();
      for (const { typeId, readableFrom, days } of await listRetention(
        world.sql,
        SETTINGS,
        world.appIds[0] ?? '',
      )) {
        const type = typeId === null ? 0 : Number(typeId.split('_')[2]);
        const before = world.boundaries.get(type) ?? 0;
        const due = typeof days === 'number' ? Math.floor(world.now / DAY_MS - days) * DAY_MS : 0;
        expect(readableFrom).toBe(Math.max(before, due));
        world.boundaries.set(type, readableFrom);
      }
      await expectReads(8);
      const hidden = world.boundaries.get(1) ?? 0;
      await world.set(1, 'default');
      await world.set(2, 'forever');
      expect(world.boundaries.get(1)).toBe(Math.max(hidden, world.boundaries.get(0) ?? 0));
      await expectReads(8);
      // What the type with the longest time had kept goes with the rest of the app.
      await world.set(11, 'default');
      expect(world.boundaries.get(11)).toBe(world.boundaries.get(0));
      await world.removeRows();
      const there = await world.stored();
      for (const row of world.rows) expect(there.has(row.id)).toBe(row.at >= world.boundaryOf(row));
      await expectReads(8);
    });

    test('partitions or chunks that this leaves empty are dropped', async () => {
      // A writer reaches the node of its app by itself.
      if (engine === 'citus')
        await world.sql.begin(async (tx) => {
          await tx.unsafe('LOCK TABLE events IN ACCESS EXCLUSIVE MODE');
          const pool = await world.storage.poolOfApp(world.sql, 1);
          const writing = pool.begin(async (own) => {
            await own.unsafe("SET LOCAL lock_timeout = '200ms'");
            await own`
              INSERT INTO events (id, app_id, type_id, created_at, payload)
              VALUES (gen_random_uuid(), 1, 1, ${new Date(START)}, '{}')`;
          });
          await expect(writing).rejects.toMatchObject({ code: '55P03' });
        });
      for (let typeId = 1; typeId <= TYPES; typeId += 1) await world.set(typeId, 1);
      await setRetention(world.sql, SETTINGS, {
        appId: world.appIds[1] ?? '',
        type: null,
        days: 1,
        now: world.now,
      });
      await world.removeRows();
      await world.tasks.everyTenMinutes();
      const pool = await world.storage.poolOfApp(world.sql, 1);
      const { intervals } = { intervals: ENGINES[world.storage.engine].eventIntervals };
      const left = await pool.unsafe(
        `SELECT FROM (${intervals}) AS parts WHERE finish <= '${new Date(END - DAY_MS).toISOString()}'`,
      );
      expect(left.length).toBe(0);
    });
  });
}

for (const engine of availableEngines()) retentionContract(engine);
