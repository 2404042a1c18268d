/** What every engine promises through the interface of storage. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { COMMAND_LINE } from '../../src/accounts/log/audit.ts';
import { createApp, deleteApp } from '../../src/apps/apps.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { textOf } from '../../src/json/path-walk.ts';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { hasSchema } from '../../src/storage/database-facts.ts';
import type { StorageSettings } from '../../src/storage/engines/storage-engine.ts';
import type { RowFilter } from '../../src/storage/fields/row-filter.ts';
import type { MaintenanceTasks } from '../../src/storage/maintenance/loop.ts';
import type { EventList } from '../../src/storage/read/event-list.ts';
import type { EventReader } from '../../src/storage/read/event-reader.ts';
import type { ScanRequest } from '../../src/storage/read/event-scan.ts';
import type { PageRequest } from '../../src/storage/read/page-request.ts';
import { openStorage, type Storage } from '../../src/storage/storage.ts';
import { availableEngines, type TestDatabase, type TestEngine, testDatabase } from '../support/database.ts';
import { sized } from '../support/fuzz.ts';
import { removedByTransaction } from '../support/held-snapshot.ts';
import { testSecret, until } from '../support/service.ts';
import { type EventRow, storeRows } from '../support/stored-events.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const START = Date.UTC(2026, 4, 4);
const DAYS = 6;
const END = START + DAYS * DAY_MS;
const PLENTY = 1_000_000_000;
/** Without compression, which has tests of its own: the feed does not reach back to what is compressed, but the days here are old. */
const SETTINGS: StorageSettings = {
  CHUNK_HOURS: 24,
  COMPRESS_AFTER_DAYS: 0,
  RETENTION_DAYS: 0,
  CONSUMER_REACH_HOURS: 168,
};
const PAYLOADS = ['{ "b" : 1e400,\r\n"a":-0 }', '{"n":12345678901234567890,"n":1}', '{"s":"\\u0000\\ud800"}'];

/** How a suite gets its databases. @param options.empty without the schema of this release */
type MakeDatabase = (options?: { readonly empty: boolean }) => Promise<TestDatabase>;

/** A database with two apps, and what is stored in it as this process knows it. */
class World {
  readonly database: TestDatabase;
  readonly sql: Sql;
  readonly storage: Storage;
  readonly reader: EventReader;
  readonly tasks: MaintenanceTasks;
  /** The clock of maintenance. */
  now = START + DAY_MS;
  readonly rows: EventRow[] = [];
  readonly #maintenanceSql: Sql;

  private constructor(database: TestDatabase, storage: Storage) {
    this.database = database;
    this.sql = database.sql;
    this.storage = storage;
    this.reader = storage.reader(database.sql);
    this.#maintenanceSql = connect(database.address, { connections: 1, name: 'test maintenance' });
    this.tasks = this.tasksWith(SETTINGS);
  }

  static async create(make: MakeDatabase): Promise<World> {
    const database = await make();
    const world = new World(database, await openStorage(database.sql));
    await world.tasks.prepare();
    for (const name of ['One', 'Two']) {
      const { appId } = await createApp(world.sql, await testSecret(), { name });
      await world.sql`
        INSERT INTO event_types (public_id, app_id, name)
        SELECT 'typ_' || apps.id || n, apps.id, 'type ' || n FROM apps, generate_series(1, 3) n
         WHERE public_id = ${appId}`;
    }
    return world;
  }

  async close(): Promise<void> {
    await this.#maintenanceSql.end();
    await this.database.drop();
  }

  /** Stores events of app 1 (types 1 to 3) and app 2 (4 to 6) in one transaction. */
  async store(events: readonly { readonly at: number; readonly typeId: number }[]): Promise<EventRow[]> {
    const rows = events.map(({ at, typeId }, i) => ({
      // Each of a generator of its own: one alone never goes back in time.
      id: createEventIds()(at),
      appId: typeId <= 3 ? 1 : 2,
      typeId,
      at,
      payload: PAYLOADS[i % PAYLOADS.length] ?? '{}',
    }));
    await storeRows(this.sql, this.storage.engine, rows);
    this.rows.push(...rows);
    return rows;
  }

  tasksWith(settings: StorageSettings): MaintenanceTasks {
    return this.storage.maintenance({ sql: this.#maintenanceSql, slow: this.sql }, settings, () => this.now);
  }

  async settle(): Promise<void> {
    await this.storage.settleCounts(this.#maintenanceSql, this.now);
  }

  /** What is in a scope, in the order of a page. */
  of(appId: number, { typeIds, from = START, until = END }: Partial<Scope> = {}): EventRow[] {
    return this.rows
      .filter((row) => row.appId === appId && row.at >= from && row.at < until)
      .filter((row) => typeIds === undefined || typeIds.includes(row.typeId))
      .sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
  }
}

interface Scope {
  readonly typeIds: readonly number[];
  readonly from: number;
  readonly until: number;
}

const publicType = (typeId: number): string => `typ_${typeId <= 3 ? 1 : 2}${((typeId - 1) % 3) + 1}`;

const shown = ({ id, typeId, at, payload }: EventRow): object => ({
  id,
  typeId: publicType(typeId),
  createdAt: new Date(at),
  payload,
});

/** The line of an export. A line break between two tokens of a payload is a space there. */
const lineOf = ({ id, typeId, at, payload }: EventRow): string =>
  `{"id":"${id}","typeId":"${publicType(typeId)}","type":"type ${((typeId - 1) % 3) + 1}",` +
  `"createdAt":"${new Date(at).toISOString()}","payload":${payload.replaceAll(/[\r\n]/g, ' ')}}\n`;

/** 800 events over six days, one type common, one rare; the last minutes of a day and the first of the next among them. */
function manyEvents(): { at: number; typeId: number }[] {
  return Array.from({ length: 800 }, (_, i) => ({
    at: i % 50 === 0 ? START + ((i / 50) % DAYS) * DAY_MS - (i % 3) + DAY_MS : START + i * 640_013,
    typeId: i % 97 === 0 ? 3 : i % 5 === 0 ? 4 : 1 + (i % 2),
  })).filter(({ at }) => at < END);
}

function storageContract(engine: TestEngine): void {
  const make: MakeDatabase = (options) => testDatabase(engine, options);
  describe(`on ${engine}`, () => {
    let world: World;
    beforeAll(async () => {
      world = await World.create(make);
      const events = manyEvents();
      // In several transactions, the older events not first.
      for (const part of [events.slice(400), events.slice(0, 200), events.slice(200, 400)])
        await world.store(part);
    });
    afterAll(() => world.close());

    const page = (request: Partial<PageRequest> & Pick<PageRequest, 'scope'>) =>
      world.reader.page({ offset: 0, limit: 1_000, order: 'asc', maxBytes: PLENTY, ...request });
    const scopeOf = (appId: number, typeId: number | null = null) => ({
      appId,
      typeIds: typeId === null ? null : [typeId],
      from: null,
      until: null,
    });

    async function expectPages(): Promise<void> {
      for (const typeId of sized([null, 3], [null, 1, 3, 4])) {
        for (const [from, until] of [
          [null, null],
          [START + 90_061, START + 3 * DAY_MS + 5],
          [START + DAY_MS, START + 2 * DAY_MS],
          [START + HOUR_MS, START + HOUR_MS + 17],
        ] as const) {
          const bounds = { from: from ?? START, until: until ?? END };
          const rows = world.of(1, { ...bounds, ...(typeId !== null && { typeIds: [typeId] }) });
          for (const order of ['asc', 'desc'] as const) {
            const ordered = order === 'asc' ? rows : rows.toReversed();
            const middle = Math.floor(rows.length / 2);
            for (const offset of order === 'asc' ? [0, middle, rows.length] : [7, middle]) {
              const scope = { appId: 1, typeIds: typeId === null ? null : [typeId], from, until };
              const found = await page({ scope, order, offset, limit: 20 });
              expect(found).toEqual({
                total: rows.length,
                events: ordered.slice(offset, offset + 20).map(shown),
                hasMore: offset + 20 < rows.length,
              });
            }
          }
        }
      }
    }

    async function expectLists(): Promise<void> {
      for (const typeIds of [null, [3], [1, 3]]) {
        for (const order of ['asc', 'desc'] as const) {
          // With few bytes, some pages end early: of one type before that of another.
          for (const maxBytes of typeIds?.length === 1 ? [PLENTY] : [PLENTY, sized(3_000, 1_000)]) {
            const [from, until] = [START + 1_000, END - DAY_MS];
            const rows = world.of(1, { from, until, ...(typeIds !== null && { typeIds }) });
            const seen: object[] = [];
            let list: EventList | null = null;
            do {
              const after: EventList['next'] = list?.next ?? null;
              const scope = { appId: 1, typeIds, from, until, order };
              list = await world.reader.list({ ...scope, after, limit: 120, maxBytes, withTotal: true });
              expect(list.total).toBe(rows.length);
              seen.push(...list.events);
            } while (list.next !== null);
            expect(seen).toEqual((order === 'asc' ? rows : rows.toReversed()).map(shown));
          }
        }
      }
    }

    async function expectSearches(): Promise<void> {
      const filters = [
        { contains: [], matches: () => true },
        { contains: [['1e400']], matches: having('1e400') },
        {
          contains: [
            ['"n"', '\\u00'],
            ['ud800', 'nothing'],
          ],
          matches: having('ud800'),
        },
        { contains: [['"n"']], matches: () => false },
      ];
      for (const [typeIds, order, from, until] of [
        [null, 'asc', null, null],
        [[1, 3], 'desc', null, null],
        [[1, 3], 'asc', START + 1_000, END - DAY_MS],
        [null, 'desc', START + 1_000, END - DAY_MS],
      ] as const) {
        for (const filter of filters) {
          const rows = world.of(1, {
            ...(from !== null && { from, until }),
            ...(typeIds !== null && { typeIds }),
          });
          const expected = (order === 'asc' ? rows : rows.toReversed())
            .filter(({ payload }) =>
              filter.contains.every((anyOf) => anyOf.some((part) => payload.includes(part))),
            )
            .filter(({ payload }) => filter.matches(payload));
          const request = { appId: 1, typeIds, from, until, order };
          expect(await searched(request, filter)).toEqual(expected.map(shown));
        }
      }
    }

    /** Half of it by one search, the rest by others that go on where it has come to; a few rows at a time. */
    async function searched(request: Omit<ScanRequest, 'after'>, filter: RowFilter): Promise<object[]> {
      const seen: object[] = [];
      let after: ScanRequest['after'] = null;
      for (let searches = 0; ; searches += 1) {
        const search = world.reader.search({ ...request, after }, filter);
        for (let steps = 0; searches > 0 || steps < 7; steps += 1) {
          const { events, looked, position } = await search.step(97);
          expect(looked).toBeLessThanOrEqual(97);
          seen.push(...events);
          if (position === null) return seen;
          after = position;
        }
      }
    }

    async function expectLines(): Promise<void> {
      for (const typeIds of [null, [1, 3]]) {
        for (const filter of [null, { contains: [['ud800']], matches: having('"s"') }]) {
          const [from, until] = [START + 1_000, END];
          const rows = world.of(1, { from, until, ...(typeIds !== null && { typeIds }) });
          const reader = world.reader.lines(
            { appId: 1, typeIds, from, until, order: 'asc', after: null },
            filter,
          );
          let text = '';
          let events = 0;
          for (let part = await reader.next(); part !== null; part = await reader.next()) {
            text += part.lines;
            events += part.events;
          }
          const expected = rows
            .filter(({ payload }) => filter === null || payload.includes('"s"'))
            .map(lineOf);
          expect(text).toBe(expected.join(''));
          expect(events).toBe(expected.length);
        }
      }
    }

    async function expectSeries(): Promise<void> {
      for (const [from, until, buckets, timezone] of [
        [START, END, 6, 'UTC'],
        [START, START + 8 * HOUR_MS, 40, 'Asia/Kathmandu'],
        [START + DAY_MS, START + DAY_MS + HOUR_MS, 60, 'Europe/Berlin'],
      ] as const) {
        const series = await world.reader.series({ appId: 1, typeIds: null, from, until, buckets, timezone });
        if (typeof series === 'string') throw new Error(series);
        const ends = [...series.starts.slice(1), series.end];
        const countsOf = (typeIds?: number[]): number[] =>
          series.starts.map(
            (start, i) =>
              world.of(1, { from: start, until: ends[i] ?? 0, ...(typeIds && { typeIds }) }).length,
          );
        expect(series.all).toEqual(countsOf());
        for (const { typeId, counts } of series.types) {
          const id = [1, 2, 3].find((one) => publicType(one) === typeId) ?? 0;
          expect(counts).toEqual(countsOf([id]));
        }
        expect(series.before.all).toBe(world.of(1, { until: series.starts[0] ?? 0 }).length);
        expect(series.countsOnlyBefore).toBeNull();
      }
    }

    async function expectCounters(): Promise<void> {
      for (const [from, stepMs, steps] of [
        [START, 15 * MINUTE_MS, 300],
        [START + 17_345, 37 * MINUTE_MS + 11_000, 200],
        [START + DAY_MS, MINUTE_MS, 120],
        [START - DAY_MS, 8 * DAY_MS + 1, 2],
      ] as const) {
        const instants = Array.from({ length: steps }, (_, n) => from + n * stepMs);
        const asked = [
          { appId: 1, typeIds: [0, 1, 3], instants },
          { appId: 2, typeIds: [4], instants },
        ];
        const counters = await world.reader.counters(asked);
        if (counters === 'too many') throw new Error(counters);
        const times = instants.map((at) => Math.floor(at / MINUTE_MS) * MINUTE_MS);
        asked.forEach(({ appId, typeIds }, index) => {
          expect(counters[index]?.times).toEqual(times);
          for (const typeId of typeIds)
            expect(counters[index]?.counts.get(typeId)).toEqual(
              times.map(
                (until) =>
                  world.of(appId, { from: 0, until, ...(typeId > 0 && { typeIds: [typeId] }) }).length,
              ),
            );
        });
      }
    }

    async function expectStats(): Promise<void> {
      const now = START + 3 * DAY_MS + 5 * HOUR_MS + 1;
      const stats = await world.reader.appStats([1, 2], { timezone: 'UTC', now });
      for (const appId of [1, 2]) {
        const rows = world.of(appId);
        const firstHour = Math.floor(now / HOUR_MS) - 23;
        expect(stats.get(appId)).toEqual({
          total: rows.length,
          today: world.of(appId, {
            from: START + 3 * DAY_MS,
            until: Math.floor(now / (15 * MINUTE_MS)) * 15 * MINUTE_MS + DAY_MS,
          }).length,
          sparkline: Array.from(
            { length: 24 },
            (_, i) => rows.filter(({ at }) => Math.floor(at / HOUR_MS) === firstHour + i).length,
          ),
          lastEventAt: rows.length === 0 ? null : new Date(Math.max(...rows.map(({ at }) => at))),
        });
        expect(await world.reader.appSpan(appId)).toEqual({
          total: rows.length,
          firstEventAt: new Date(rows[0]?.at ?? 0),
          lastEventAt: new Date(rows.at(-1)?.at ?? 0),
        });
        const byType = new Map<string, { count: number; lastEventAt: Date }>();
        for (const { typeId, at } of rows) {
          const count = (byType.get(publicType(typeId))?.count ?? 0) + 1;
          byType.set(publicType(typeId), { count, lastEventAt: new Date(at) });
        }
        expect(await world.reader.typeStats(appId)).toEqual(byType);
      }
    }

    const READS = [
      ['pages and totals', expectPages],
      ['lists that follow their cursor', expectLists],
      ['searches', expectSearches],
      ['lines of exports', expectLines],
      ['series', expectSeries],
      ['counters at any instants', expectCounters],
      ['stats', expectStats],
    ] as const;

    test.each(READS)('%s are exact before anything is settled', (_, expectExact) => expectExact());

    test('what is left to settle is known, and settling leaves nothing', async () => {
      world.now = END + DAY_MS;
      expect((await world.storage.facts(world.sql)).pendingCounts).toBeGreaterThan(0);
      await world.settle();
      expect((await world.storage.facts(world.sql)).pendingCounts).toBe(0);
    });

    test.each(READS)('%s are exact when all is settled', (_, expectExact) => expectExact());

    test('rows that come late are counted at once, by all reads, until maintenance settles them by itself', async () => {
      await world.tasks.everyTenMinutes();
      await world.tasks.everySecond();
      // Days are profiled, and some have changed since.
      await world.store([
        { at: START + 5, typeId: 3 },
        { at: START + DAY_MS - 1, typeId: 1 },
        { at: START + 2 * DAY_MS + 7, typeId: 1 },
        { at: START + 4 * DAY_MS, typeId: 2 },
      ]);
      for (const [, expectExact] of READS) await expectExact();
      world.now += 10 * MINUTE_MS;
      await world.tasks.everySecond();
      expect((await world.storage.facts(world.sql)).pendingCounts).toBe(0);
      for (const [, expectExact] of READS) await expectExact();
    });

    test('one event is found by its id, in its own app alone', async () => {
      const [row] = world.of(1, { typeIds: [3] });
      if (row === undefined) throw new Error('There is no such event.');
      expect(await world.reader.event(1, row.id)).toEqual({ ...shown(row), typeName: 'type 3' });
      expect(await world.reader.event(2, row.id)).toBeNull();
      expect(await world.reader.event(1, '0196a000-0000-7000-8000-000000000000')).toBeNull();
      expect(await world.reader.event(1, 'no id')).toBeNull();
    });

    test('a page ends before the payload that would take it over its limit, and is never empty', async () => {
      const bytes = PAYLOADS.reduce((sum, payload) => sum + Buffer.byteLength(payload), 0);
      const first = await page({ scope: scopeOf(1), maxBytes: bytes });
      expect(first.events.length).toBeGreaterThanOrEqual(2);
      expect(first.events.length).toBeLessThanOrEqual(3);
      expect(first.hasMore).toBe(true);
      expect((await page({ scope: scopeOf(1), maxBytes: 1 })).events).toHaveLength(1);
    });

    test('the feed tells what was committed between two snapshots, once, and nothing else', async () => {
      const at = END - 30_000;
      const { reader } = world;
      const look = () =>
        reader.feed(1, async (snapshot) => ({
          text: snapshot.text,
          cursor: snapshot.cursor(at),
          minutes: await snapshot.minuteCounts({ since: at, now: at }),
          total: await snapshot.total(),
        }));
      let before = await look();
      // Transaction ids are those of the whole server: what other tests do is in the text too.
      await until(async () => {
        before = await look();
        return (await reader.snapshotText(1)) === before.text;
      }, 'two looks see the same');
      const rows = await world.store([
        { at: at + 1, typeId: 1 },
        { at: at + 2, typeId: 1 },
        { at: at + 3, typeId: 4 },
        { at: at + 4, typeId: 2 },
      ]);
      expect(await reader.snapshotText(1)).not.toBe(before.text);
      const own = rows.filter(({ appId }) => appId === 1).toReversed();
      await reader.feed(1, async (snapshot) => {
        const now = await snapshot.minuteCounts({ since: at, now: at });
        const arrivals = await snapshot.arrivals(before.cursor, { before: before.minutes, now });
        const missed = await snapshot.missed(before.cursor, at);
        for (const found of [arrivals, missed]) {
          if (found === null || found === 'too many') throw new Error(`There are ${found} arrivals.`);
          expect(found.events.map(({ id, payload }) => ({ id, payload }))).toEqual(
            own.map(({ id, payload }) => ({ id, payload })),
          );
          expect(found.skipped).toBe(0);
          const counts = found.counts.map(({ typeId, count }) => [typeId, count] as const);
          expect(new Map(counts)).toEqual(
            new Map([
              [publicType(1), 2],
              [publicType(2), 1],
            ]),
          );
        }
        expect(await snapshot.total()).toBe(before.total + 3);
        expect(await snapshot.arrivals(snapshot.cursor(at), { before: now, now })).toBeNull();
        return {};
      });
    });

    test('facts tell the engine, the events and that the schema is complete, and asking changes nothing', async () => {
      expect(await hasSchema(world.sql)).toBe(true);
      await world.settle();
      const facts = await world.storage.facts(world.sql);
      expect(facts).toMatchObject({
        engine: world.database.engine,
        description: world.storage.description,
        pendingMigrations: 0,
        events: world.of(1).length + world.of(2).length,
        eventsInFuture: 0,
        retentionBoundary: null,
      });
      expect(facts.partitions).toBeGreaterThanOrEqual(DAYS);
      const empty = await make({ empty: true });
      try {
        expect(await hasSchema(empty.sql)).toBe(false);
        expect(await empty.sql`SELECT FROM pg_extension WHERE extname = 'timescaledb'`).toHaveLength(0);
      } finally {
        await empty.drop();
      }
    });

    test('many counts of a deleted app go in slices, each in a transaction of its own', async () => {
      const { sql, storage } = world;
      const { appId } = await createApp(sql, await testSecret(), { name: 'Many' });
      const [app] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
      const id = app?.id ?? 0;
      // The table of an aggregate of TimescaleDB, or the table of counts itself.
      const [minutes = { name: 'minute_counts' }] =
        storage.engine === 'timescale'
          ? await sql<{ name: string }[]>`
              SELECT format('%s.%s', materialization_hypertable_schema, materialization_hypertable_name) AS name
                FROM timescaledb_information.continuous_aggregates WHERE view_name = 'minute_counts'`
          : [];
      const rows = sql`
        SELECT ${id}::integer, n % 100 + 1, ${new Date(START)}::timestamptz + n / 100 * interval '1 minute', 1
          FROM generate_series(0, 29999) AS n`;
      const columns = sql`(app_id, type_id, bucket, count)`;
      await sql`INSERT INTO ${sql(minutes.name)} ${columns} ${rows}`;
      await sql`INSERT INTO field_minute_counts (app_id, series_id, bucket, count) ${rows}`;
      await deleteApp(sql, { appId: id, confirm: 'Many', by: COMMAND_LINE });
      const tables = [minutes.name, 'field_minute_counts'];
      const removed = await removedByTransaction(await storage.poolOfApp(sql, id), tables, id, () =>
        world.tasks.everyTenMinutes(),
      );
      expect(removed.toSorted((a, b) => a - b)).toEqual([10_000, 10_000, 20_000, 20_000]);
    });

    test('of a deleted app nothing is left, and the others keep all of theirs', async () => {
      const total = world.of(1).length;
      await deleteApp(world.sql, { appId: 2, confirm: 'Two', by: COMMAND_LINE });
      await world.tasks.everyTenMinutes();
      for (const relation of ['events', 'events_per_minute', 'events_per_day', 'events_per_month'])
        expect(await world.sql`SELECT FROM ${world.sql(relation)} WHERE app_id = 2`).toHaveLength(0);
      expect((await page({ scope: scopeOf(2) })).total).toBe(0);
      expect((await page({ scope: scopeOf(1) })).total).toBe(total);
      await expectPages();
    });

    test('retention first hides what is too old, from all reads, and removes it later; coarse counts stay', async () => {
      const boundary = START + 2 * DAY_MS;
      await world.settle();
      const all = world.of(1).length;
      const [old] = world.of(1);
      const tasks = world.tasksWith({ ...SETTINGS, RETENTION_DAYS: 4 });
      world.now = boundary + 4 * DAY_MS + HOUR_MS;
      expect(await tasks.everyTenMinutes()).toEqual([]);
      const kept = world.of(1, { from: boundary }).length;
      expect((await page({ scope: scopeOf(1) })).total).toBe(kept);
      expect(await world.reader.event(1, old?.id ?? '')).toBeNull();
      const rowsBefore = async (): Promise<number> =>
        (await world.sql`SELECT FROM events WHERE created_at < ${new Date(boundary)}`).length;
      expect(await rowsBefore()).toBeGreaterThan(0);
      expect((await tasks.everyTenMinutes()).length).toBeGreaterThan(0);
      expect(await rowsBefore()).toBe(0);
      expect((await page({ scope: scopeOf(1) })).total).toBe(kept);
      expect((await world.reader.appSpan(1)).total).toBe(all);
      const series = await world.reader.series({
        appId: 1,
        typeIds: null,
        from: START,
        until: END,
        buckets: 6,
        timezone: 'UTC',
      });
      if (typeof series === 'string') throw new Error(series);
      expect(series.all.reduce((sum, count) => sum + count, 0)).toBe(all);
      expect(series.countsOnlyBefore).toBe(boundary);
      expect((await world.storage.facts(world.sql)).retentionBoundary).toBe(boundary);
    });
  });
}

for (const engine of availableEngines()) storageContract(engine);

function having(text: string): RowFilter['matches'] {
  return (payload) => textOf(payload).includes(text);
}
