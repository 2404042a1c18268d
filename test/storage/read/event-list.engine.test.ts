/** What a reader receives who follows the cursor of a list to its end, while others write, settle and compress. */
import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Sql } from '../../../src/storage/database/connect.ts';
import { connect } from '../../../src/storage/database/connect.ts';
import {
  decodeCursor,
  type EventList,
  type EventListRequest,
  encodeCursor,
  readEventList,
} from '../../../src/storage/read/event-list.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { runs } from '../../support/fuzz.ts';
import { type EventRow, storeRows } from '../../support/stored-events.ts';
import { upkeepOf } from '../../support/upkeep.ts';

const DAY_MS = 86_400_000;
const START = Date.UTC(2026, 4, 4);
/** Few times for many events, so that pages end between events of one millisecond. */
const TIMES = [0, 1, 59_999, 60_000, 60_001, 3_600_000, DAY_MS - 1, DAY_MS, DAY_MS + 1, 2 * DAY_MS - 1];

/** Of an event: where in {@link TIMES}, and which of three types. */
type Place = readonly [time: number, type: number];

/** In place of a number of types: all of them, without the first. */
const ALL_BUT_ONE = 3;

type Step =
  | { readonly kind: 'page'; readonly limit: number; readonly maxBytes: number }
  /** Stores events in a transaction that stays open. */
  | { readonly kind: 'begin'; readonly places: readonly Place[] }
  /** Commits one of the open transactions, whichever it was in the order of their beginnings. */
  | { readonly kind: 'commit'; readonly which: number }
  | { readonly kind: 'settle' }
  /** Commits everything, and moves it into the columnstore where there is one. */
  | { readonly kind: 'compress' };

const place: fc.Arbitrary<Place> = fc.tuple(fc.nat(TIMES.length - 1), fc.nat(2));
const places = fc.array(place, { minLength: 1, maxLength: 12 });
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 5, arbitrary: page() },
  { weight: 3, arbitrary: places.map((all): Step => ({ kind: 'begin', places: all })) },
  { weight: 3, arbitrary: fc.nat(5).map((which): Step => ({ kind: 'commit', which })) },
  { weight: 1, arbitrary: fc.constantFrom<Step>({ kind: 'settle' }, { kind: 'compress' }) },
);

function page(): fc.Arbitrary<Step> {
  return fc
    .tuple(fc.integer({ min: 1, max: 8 }), fc.constantFrom(30, 1_000_000))
    .map(([limit, maxBytes]) => ({ kind: 'page', limit, maxBytes }));
}

describe.each(availableEngines())('on %s,', (engine) => {
  const { prepare, settle } = upkeepOf(engine);
  let database: TestDatabase;
  let pools: Sql[];
  beforeAll(async () => {
    database = await testDatabase(engine);
    await prepare(database.sql, START, START + 2 * DAY_MS);
    // Whoever makes a chunk holds up all others until its commit.
    const first = await World.create('asc', 0);
    await first.begin(TIMES.map((_, time): Place => [time, 0]));
    await first.commitAll();
    // As two processes have them.
    pools = [1, 2].map((n) =>
      connect(database.sql.pool.database, { connections: 2, name: `test reader ${n}` }),
    );
  });
  afterAll(async () => {
    await Promise.all(pools.map((pool) => pool.end()));
    await database.drop();
  });

  /** An app of its own, with what is known of its events. */
  class World {
    readonly committed: EventRow[] = [];
    readonly received: string[] = [];
    /** The events that were committed when a page was asked for, and where it began. */
    readonly owed = new Set<string>();
    readonly #appId: number;
    readonly #typeIds: readonly number[];
    readonly #scope: Pick<EventListRequest, 'typeIds' | 'order'> & {
      readonly exceptTypes: readonly number[];
    };
    readonly #open: { readonly rows: readonly EventRow[]; readonly commit: () => Promise<void> }[] = [];
    #cursor: string | null = null;
    #isOver = false;
    #isCompressed = false;
    #pages = 0;

    constructor(
      appId: number,
      typeIds: readonly number[],
      scope: Pick<EventListRequest, 'order'> & { types: number },
    ) {
      this.#appId = appId;
      this.#typeIds = typeIds;
      const isAll = scope.types === 0 || scope.types === ALL_BUT_ONE;
      this.#scope = {
        order: scope.order,
        typeIds: isAll ? null : typeIds.slice(0, scope.types),
        exceptTypes: scope.types === ALL_BUT_ONE ? typeIds.slice(0, 1) : [],
      };
    }

    static async create(order: 'asc' | 'desc', types: number): Promise<World> {
      const { sql } = database;
      const [app] = await sql<[{ id: number }]>`
        INSERT INTO apps (public_id, name) VALUES (${randomUUID()}, 'app') RETURNING id`;
      const made = await sql<{ id: number }[]>`
        INSERT INTO event_types (public_id, app_id, name)
        SELECT ${randomUUID()} || n, ${app.id}, 'type ' || n FROM generate_series(1, 3) n RETURNING id`;
      return new World(
        app.id,
        made.map(({ id }) => id),
        { order, types },
      );
    }

    /** Receives a page, as a client that has kept nothing but the text of a cursor. */
    async page(limit: number, maxBytes: number): Promise<void> {
      if (this.#isOver) return;
      const after = this.#cursor === null ? null : decodeCursor(this.#cursor);
      const { order, typeIds, exceptTypes } = this.#scope;
      const keyOf = (at: number, id: string): string => `${at} ${id}`;
      for (const row of this.committed) {
        if (typeIds !== null && !typeIds.includes(row.typeId)) continue;
        if (exceptTypes.includes(row.typeId)) continue;
        const isLater =
          after === null || keyOf(row.at, row.id) > keyOf(after.at, after.id) === (order === 'asc');
        if (isLater) this.owed.add(row.id);
      }
      const pool = pools[this.#pages % pools.length] as Sql;
      this.#pages += 1;
      const list: EventList = await readEventList(pool, {
        appId: this.#appId,
        typeIds,
        exceptTypes,
        from: START,
        until: START + 2 * DAY_MS,
        order,
        after,
        limit,
        maxBytes,
      });
      this.received.push(...list.events.map(({ id }) => id));
      this.#isOver = list.next === null;
      if (list.next !== null) {
        expect(list.events.length).toBeGreaterThan(0);
        this.#cursor = encodeCursor(list.next);
      }
    }

    async begin(given: readonly Place[]): Promise<void> {
      // Writers into a compressed chunk wait for each other.
      if (this.#isCompressed) await this.commitAll();
      const rows = given.map(
        ([time, type]): EventRow => ({
          id: randomUUID(),
          appId: this.#appId,
          typeId: this.#typeIds[type] ?? 0,
          at: START + (TIMES[time] ?? 0),
          payload: '{"a":1}',
        }),
      );
      await new Promise<void>((resolve, reject) => {
        const ended = database.sql.begin(async (tx) => {
          await storeRows(tx, database.engine, rows);
          await new Promise<void>((release) => {
            const commit = async (): Promise<void> => {
              release();
              await ended;
              this.committed.push(...rows);
            };
            this.#open.push({ rows, commit });
            resolve();
          });
        });
        ended.catch(reject);
      });
    }

    async commit(which: number): Promise<void> {
      const [open] = this.#open.splice(which % Math.max(1, this.#open.length), 1);
      await open?.commit();
    }

    async commitAll(): Promise<void> {
      while (this.#open.length > 0) await this.commit(0);
    }

    async compress(): Promise<void> {
      await this.commitAll();
      this.#isCompressed = engine === 'timescale';
      if (this.#isCompressed)
        await database.sql`SELECT compress_chunk(chunk, true) FROM show_chunks('events') AS chunk`;
    }

    /** Leaves the chunks to the next world as they were. */
    async close(): Promise<void> {
      await this.commitAll();
      if (this.#isCompressed)
        await database.sql`SELECT decompress_chunk(chunk, true) FROM show_chunks('events') AS chunk`;
    }

    /** What was received of a type that was left out. */
    get unwanted(): string[] {
      const { exceptTypes } = this.#scope;
      const received = new Set(this.received);
      return this.committed.flatMap(({ id, typeId }) =>
        received.has(id) && exceptTypes.includes(typeId) ? [id] : [],
      );
    }

    get isOver(): boolean {
      return this.#isOver;
    }
  }

  const take = async (world: World, one: Step): Promise<void> => {
    if (one.kind === 'page') await world.page(one.limit, one.maxBytes);
    else if (one.kind === 'begin') await world.begin(one.places);
    else if (one.kind === 'commit') await world.commit(one.which);
    else if (one.kind === 'settle') await settle(database.sql);
    else await world.compress();
  };

  test('every event that is committed before its place is read comes exactly once, and none comes twice', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(places, { minLength: 1, maxLength: 4 }),
        fc.array(step, { maxLength: 30 }),
        fc.constantFrom('asc', 'desc'),
        fc.nat(ALL_BUT_ONE),
        async (before, steps, order, types) => {
          const world = await World.create(order, types);
          for (const given of before) await world.begin(given);
          await world.commitAll();
          for (const one of steps) await take(world, one);
          while (!world.isOver) await world.page(5, 1_000_000);
          await world.close();
          expect(new Set(world.received).size).toBe(world.received.length);
          const missing = [...world.owed].filter((id) => !world.received.includes(id));
          expect(missing).toEqual([]);
          expect(world.unwanted).toEqual([]);
        },
      ),
      runs(engine === 'timescale' ? 12 : 25),
    );
  }, 120_000);
});

test('a list of fifty types costs as many statements as one of a single type', async () => {
  const database = await testDatabase();
  const sql = connect(database.address, { connections: 1, name: 'counted' });
  try {
    const rows = Array.from(
      { length: 500 },
      (_, n): EventRow => ({
        id: randomUUID(),
        appId: 1,
        typeId: 1 + (n % 60),
        at: START + n,
        payload: '{}',
      }),
    );
    await upkeepOf('postgres18').prepare(database.sql, START, START + DAY_MS);
    await storeRows(database.sql, database.engine, rows);
    const list = async (typeIds: readonly number[]): Promise<{ ids: string[]; statements: number }> => {
      const statements = await prepared(sql);
      const page = await readEventList(sql, {
        ...{ appId: 1, typeIds, from: null, until: null, order: 'asc', after: null },
        ...{ limit: 1_000, maxBytes: 1e9, withTotal: true },
      });
      expect(page.total).toBe(page.events.length);
      return { ids: page.events.map(({ id }) => id), statements: (await prepared(sql)) - statements };
    };
    const one = await list([1]);
    expect(one.ids).toHaveLength(9);
    const fifty = await list(Array.from({ length: 50 }, (_, n) => n + 1));
    expect(fifty.ids).toEqual(rows.filter(({ typeId }) => typeId <= 50).map(({ id }) => id));
    expect(fifty.statements).toBeLessThanOrEqual(one.statements);
  } finally {
    await sql.end();
    await database.drop();
  }
});

/** Executions of the session's prepared statements. */
async function prepared(sql: Sql): Promise<number> {
  const [row] = await sql<{ runs: number }[]>`
    SELECT coalesce(sum(generic_plans + custom_plans), 0)::int AS runs FROM pg_prepared_statements`;
  return row?.runs ?? 0;
}
