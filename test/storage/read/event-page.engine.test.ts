import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Sql, Transaction } from '../../../src/storage/database/connect.ts';
import { connect, errorCode } from '../../../src/storage/database/connect.ts';
import type { Engine } from '../../../src/storage/database/engine.ts';
import { readEventPage } from '../../../src/storage/read/event-page.ts';
import type { EventPage, PageRequest, StoredEvent } from '../../../src/storage/read/page-request.ts';
import { openStorage } from '../../../src/storage/storage.ts';
import {
  availableEngines,
  type TestDatabase,
  type TestEngine,
  testDatabase,
} from '../../support/database.ts';
import { runs, sized } from '../../support/fuzz.ts';
import { insertSelected } from '../../support/insert-selected.ts';
import { upkeepOf } from '../../support/upkeep.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const START = Date.UTC(2026, 1, 27);
const DAYS = 4;
const END = START + DAYS * DAY;
const PLENTY = 1_000_000;

/** Times that are likely to lie on, just before or just after the edge of a bucket. */
const times = fc.oneof(
  fc.integer({ min: START, max: END - 1 }),
  fc
    .tuple(
      fc.constantFrom(MINUTE, 15 * MINUTE, HOUR, DAY),
      fc.nat({ max: 10_000 }),
      fc.constantFrom(-60_001, -1, 0, 0, 1, 59_999),
    )
    .map(([unit, n, shift]) => START + ((n * unit) % (DAYS * DAY)) + shift)
    .filter((time) => time >= START && time < END),
);

interface Seed {
  readonly at: number;
  /** Index of the type; one of them is rare. */
  readonly type: number;
  readonly app: number;
  readonly payload: string;
}

const seeds: fc.Arbitrary<Seed> = fc.record({
  at: times,
  type: fc.constantFrom(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2),
  app: fc.constantFrom(0, 0, 0, 1),
  payload: fc.nat({ max: 60 }).map((length) => `{ "ä": "${'ß'.repeat(length)}" }`),
});

interface Draw {
  readonly type: number | null;
  readonly from: number | null;
  readonly until: number | null;
  readonly offset: number;
  readonly limit: number;
  readonly order: 'asc' | 'desc';
  readonly maxBytes: number;
}

const draws: fc.Arbitrary<Draw> = fc.record({
  type: fc.constantFrom(null, null, 0, 1, 2, 99),
  from: fc.option(times),
  until: fc.option(times),
  offset: fc.oneof(fc.constant(0), fc.nat({ max: 20 }), fc.nat({ max: 2_500 })),
  limit: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 50 }), fc.constant(1_000)),
  order: fc.constantFrom('asc', 'desc'),
  maxBytes: fc.constantFrom(PLENTY, PLENTY, 1, 150, 2_000),
});

interface World {
  readonly sql: Sql;
  readonly engine: Engine;
  readonly appIds: readonly number[];
  readonly typeIds: readonly number[];
}

async function createWorld(sql: Sql, engine: TestEngine = 'postgres18'): Promise<World> {
  const apps = await sql<{ id: number }[]>`
    INSERT INTO apps (public_id, name) VALUES ('a0', 'a0'), ('a1', 'a1') RETURNING id`;
  const appIds = apps.map((app) => app.id);
  const types = await sql<{ id: number }[]>`
    INSERT INTO event_types (public_id, app_id, name)
    SELECT 't' || n, ${appIds[0] ?? 0}, 't' || n FROM generate_series(0, 2) n RETURNING id`;
  await upkeepOf(engine).prepare(sql, START, END - 1);
  return {
    sql,
    engine: engine === 'timescale' ? 'timescale' : 'postgres',
    appIds,
    typeIds: types.map((type) => type.id),
  };
}

async function insert(sql: Sql | Transaction, world: World, events: readonly Seed[]): Promise<void> {
  const rows = events.map((event) => ({
    id: randomUUID(),
    app_id: world.appIds[event.app] ?? 0,
    type_id: world.typeIds[event.type] ?? 0,
    created_at: new Date(event.at),
    payload: event.payload,
  }));
  const selected = sql`
    SELECT * FROM unnest(
      ${rows.map((row) => row.id)}::uuid[], ${rows.map((row) => row.app_id)}::integer[],
      ${rows.map((row) => row.type_id)}::integer[], ${rows.map((row) => row.created_at.toISOString())}::timestamptz[],
      ${rows.map((row) => row.payload)}::text[]::json[])`;
  await insertSelected(sql, world.engine, selected);
}

function requestOf(world: World, draw: Draw): PageRequest {
  const typeId = draw.type === null ? null : (world.typeIds[draw.type] ?? 1_000_000);
  const { from, until, offset, limit, order, maxBytes } = draw;
  return {
    scope: { appId: world.appIds[0] ?? 0, typeIds: typeId === null ? null : [typeId], from, until },
    offset,
    limit,
    order,
    maxBytes,
  };
}

/** The same page by count(*) and OFFSET. */
async function plainPage(tx: Transaction, request: PageRequest): Promise<EventPage> {
  const { scope, offset, limit, order } = request;
  const matches = tx`
    app_id = ${scope.appId} AND created_at >= (SELECT readable_from FROM retention)
    ${scope.typeIds === null ? tx`` : tx`AND type_id = ANY(${[...scope.typeIds]}::integer[])`}
    ${scope.from === null ? tx`` : tx`AND created_at >= ${new Date(scope.from)}`}
    ${scope.until === null ? tx`` : tx`AND created_at < ${new Date(scope.until)}`}`;
  const direction = order === 'asc' ? tx`ASC` : tx`DESC`;
  const [counted] = await tx<
    { total: number }[]
  >`SELECT count(*)::float8 AS total FROM events WHERE ${matches}`;
  const rows = await tx<StoredEvent[]>`
    SELECT events.id, public_id AS "typeId", events.created_at AS "createdAt", payload::text AS payload
      FROM (SELECT * FROM events WHERE ${matches}
             ORDER BY created_at ${direction}, id ${direction} OFFSET ${offset} LIMIT ${limit}) events
      JOIN event_types ON event_types.id = type_id
     ORDER BY events.created_at ${direction}, events.id ${direction}`;
  let bytes = 0;
  const tooMuch = rows.findIndex((row, i) => {
    bytes += Buffer.byteLength(row.payload);
    return i > 0 && bytes > request.maxBytes;
  });
  const events = tooMuch === -1 ? [...rows] : rows.slice(0, tooMuch);
  const total = counted?.total ?? 0;
  return { total, events, hasMore: offset + events.length < total };
}

/** Reads a page both ways in one and the same snapshot, whoever is writing meanwhile, and compares. */
async function expectSame({ sql }: World, request: PageRequest): Promise<EventPage> {
  let plain: EventPage = { total: 0, events: [], hasMore: false };
  const begin = (mode: string, work: (tx: Transaction) => Promise<EventPage>) =>
    sql.begin(mode, async (tx) => {
      const page = await work(tx);
      plain = await plainPage(tx, request);
      return page;
    });
  const observed = new Proxy(sql, {
    get: (target, name) => (name === 'begin' ? begin : Reflect.get(target, name, target)),
  });
  const page = await readEventPage(observed, request);
  // Only beyond the end hasMore differs from what the arithmetic says: there is nothing there in either case.
  expect({ ...page, events: [...page.events] }).toEqual({
    ...plain,
    hasMore: plain.hasMore && page.events.length > 0,
  });
  return page;
}

/** What two who settle at once may tell each other: lock_not_available, and TimescaleDB's own of a concurrent refresh. */
const BUSY = new Set(['55P03', '55000', '40P01']);

describe.each(availableEngines())('%s', (engine) => {
  const { settle, pending } = upkeepOf(engine);
  let database: TestDatabase;
  let world: World;

  beforeAll(async () => {
    database = await testDatabase(engine);
    world = await createWorld(database.sql, engine);
  });
  afterAll(() => database.drop());

  const check = (numRuns: number) =>
    fc.assert(
      fc.asyncProperty(draws, async (draw) => {
        await expectSame(world, requestOf(world, draw));
      }),
      runs(numRuns),
    );

  test('pages and totals are those of count(*) and OFFSET, whatever part of the counts is settled', async () => {
    const { sql } = database;
    const events = fc.sample(seeds, 3_000);
    for (let i = 0; i < 2_000; i += 200) await insert(sql, world, events.slice(i, i + 200));
    await check(sized(12, 150));
    expect(await pending(sql)).toBeGreaterThan(0);
    await settle(sql);
    await check(sized(12, 150));
    for (let i = 2_000; i < 3_000; i += 100) await insert(sql, world, events.slice(i, i + 100));
    await check(sized(60, 300));
    await settle(sql);
    expect(await pending(sql)).toBe(0);
    await check(sized(12, 150));
  });

  test('rows before the retention boundary are neither counted nor read', async () => {
    const { sql } = database;
    for (const day of [1, 3, DAYS + 1]) {
      await sql`UPDATE retention SET readable_from = ${new Date(START + day * DAY)}`;
      await check(sized(15, 80));
    }
    await sql`UPDATE retention SET readable_from = '-infinity'`;
  });

  test('following hasMore reads every event of a scope once, in either order, whatever ends a page', async () => {
    for (const order of ['asc', 'desc'] as const) {
      for (const [limit, maxBytes] of [
        [200, PLENTY],
        [1_000, 20_000],
      ] as const) {
        const seen: StoredEvent[] = [];
        let page: EventPage;
        do {
          page = await readEventPage(
            database.sql,
            requestOf(world, {
              type: 1,
              from: null,
              until: null,
              offset: seen.length,
              limit,
              order,
              maxBytes,
            }),
          );
          seen.push(...page.events);
        } while (page.hasMore);
        expect(seen.length).toBe(page.total);
        expect(new Set(seen.map((event) => event.id)).size).toBe(page.total);
      }
    }
  });

  test('pages and totals stay exact while writers commit, late and early, and counts are settled', async () => {
    const { sql } = database;
    let reading = true;
    const write = async (holdOpen: boolean): Promise<void> => {
      while (reading) {
        await sql.begin(async (tx) => {
          await insert(tx, world, fc.sample(seeds, 20));
          // A second statement, and other writers and folds, before the commit.
          if (holdOpen) await tx`SELECT pg_sleep(0.02)`;
          await insert(tx, world, fc.sample(seeds, 5));
        });
      }
    };
    const fold = async (): Promise<void> => {
      while (reading) {
        await settle(sql).catch((error: unknown) => {
          if (!BUSY.has(errorCode(error))) throw error;
        });
      }
    };
    const work = [write(false), write(true), write(true), fold(), fold()];
    try {
      await check(sized(12, 150));
    } finally {
      reading = false;
      await Promise.all(work);
    }
    await check(sized(15, 50));
  });

  test('a writer that commits after the counts were settled is counted from its commit on', async () => {
    const { sql } = database;
    const request = requestOf(world, {
      type: null,
      from: null,
      until: null,
      offset: 0,
      limit: 1_000,
      order: 'asc',
      maxBytes: PLENTY,
    });
    const before = (await expectSame(world, request)).total;
    await sql.begin(async (tx) => {
      await insert(tx, world, [{ at: START, type: 0, app: 0, payload: '{}' }]);
      await insert(sql, world, [{ at: START, type: 0, app: 0, payload: '{}' }]);
      await settle(sql);
      expect((await expectSame(world, request)).total).toBe(before + 1);
    });
    expect((await expectSame(world, request)).total).toBe(before + 2);
    await settle(sql);
    expect((await expectSame(world, request)).total).toBe(before + 2);
  });

  test('bounds far outside of what PostgreSQL can hold have an answer', async () => {
    const far = 8_640_000_000_000_000;
    const draw = { type: null, offset: 0, limit: 1, order: 'asc', maxBytes: PLENTY } as const;
    const all = await readEventPage(database.sql, requestOf(world, { ...draw, from: -far, until: far }));
    expect(all.total).toBe(
      (await readEventPage(database.sql, requestOf(world, { ...draw, from: null, until: null }))).total,
    );
    for (const [from, until] of [
      [far - 1, far],
      [-far, -far + 1],
      [5, 5],
      [7, 5],
    ] as const) {
      const none = await readEventPage(database.sql, requestOf(world, { ...draw, from, until }));
      expect(none).toEqual({ total: 0, events: [], hasMore: false });
    }
    const beyond = { ...draw, from: null, until: null, offset: Number.MAX_SAFE_INTEGER };
    expect(await readEventPage(database.sql, requestOf(world, beyond))).toEqual({
      total: all.total,
      events: [],
      hasMore: false,
    });
  });
});

test('a connection keeps the plans of what it finds in the counts, and plans each time what it reads of partitions', async () => {
  const database = await testDatabase();
  const sql = connect(database.address, { connections: 1, name: 'plans' });
  try {
    const world = await createWorld(sql);
    const seed = { type: 0, app: 0, payload: '{}' };
    await insert(
      sql,
      world,
      Array.from({ length: DAYS * 24 }, (_, hour) => ({ ...seed, at: START + hour * HOUR })),
    );
    const reader = (await openStorage(sql)).reader(sql);
    const appId = world.appIds[0] ?? 0;
    const request = { limit: 10, order: 'asc', maxBytes: PLENTY } as const;
    const within = { from: START + 1, until: END - 1 };
    const all = { from: null, until: null };
    for (const offset of [0, 5, 50]) {
      for (const times of [all, within])
        await reader.page({ ...request, scope: { appId, typeIds: null, ...times }, offset });
      const after = { at: START + offset * HOUR, id: randomUUID(), order: 'asc' } as const;
      await reader.list({ ...request, ...all, appId, typeIds: null, withTotal: true, after });
      const until = END + offset * DAY;
      const series = { appId, buckets: 30, from: START + 5.75 * HOUR, until, exactEnds: 'both' } as const;
      // Days that begin at half past an hour have quarter-hours at both ends.
      for (const timezone of ['UTC', 'Asia/Kolkata'])
        for (const typeIds of [null, [...world.typeIds]])
          await reader.series({ ...series, typeIds, timezone });
    }
    const plans = await sql<{ statement: string; kept: boolean; made: boolean }[]>`
      SELECT statement, generic_plans > 0 AS kept, custom_plans > 0 AS made FROM pg_prepared_statements`;
    const having = (pattern: RegExp) => plans.filter(({ statement }) => pattern.test(statement));
    // Rows, and days of profiles: the best plan depends on the times.
    const ofTimes = [/\bFROM events\b/, /\bready_profiles\b/].map(having);
    for (const found of ofTimes) {
      expect(found).not.toEqual([]);
      expect(found.filter(({ kept }) => kept)).toEqual([]);
    }
    const onCounts = having(/events_per_/).filter((plan) => !ofTimes.flat().includes(plan));
    expect(onCounts.length).toBeGreaterThan(5);
    expect(onCounts.filter(({ made }) => made)).toEqual([]);
    // Of several intervals each is read by itself, whatever they are.
    const ofIntervals = onCounts.filter(({ statement }) => statement.includes('AS part (start, finish)'));
    expect(ofIntervals).not.toEqual([]);
    expect(ofIntervals.filter(({ statement }) => !statement.includes('OFFSET 0) counted'))).toEqual([]);
  } finally {
    await sql.end();
    await database.drop();
  }
});

test('a payload comes back as the very text that was stored', async () => {
  const database = await testDatabase();
  try {
    const world = await createWorld(database.sql);
    const payload = ' {"b":1e400,"a":-0 ,"a":"\\u0000\\ud800","n":12345678901234567890}\n';
    await insert(database.sql, world, [{ at: START, type: 0, app: 0, payload }]);
    const page = await readEventPage(
      database.sql,
      requestOf(world, {
        type: null,
        from: null,
        until: null,
        offset: 0,
        limit: 1,
        order: 'asc',
        maxBytes: 1,
      }),
    );
    expect(page.events).toEqual([
      { id: expect.any(String), typeId: 't0', createdAt: new Date(START), payload },
    ]);
  } finally {
    await database.drop();
  }
});
