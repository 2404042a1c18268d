/** What reads do with the rows that they have found, they do in slices of time: other work of the event loop comes in between. */
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { TimeSlice } from '../../../src/base/time-slice.ts';
import { readBatch } from '../../../src/delivery/read-batch.ts';
import { readSearchPage } from '../../../src/read/events/search-page.ts';
import { CsvLines } from '../../../src/read/export/csv-lines.ts';
import { connect, endPool, poolFor } from '../../../src/storage/database/connect.ts';
import { ConsumerStore } from '../../../src/storage/feed/consumers.ts';
import type { FeedPosition } from '../../../src/storage/feed/position.ts';
import { matchingRows } from '../../../src/storage/fields/matching-rows.ts';
import { EVERY_ROW } from '../../../src/storage/fields/row-filter.ts';
import { RowBuffer } from '../../../src/storage/read/copied-rows.ts';
import { readSnapshot } from '../../../src/storage/read/snapshot.ts';
import { testDatabase } from '../../support/database.ts';
import { ConsumerWorld } from '../feed/consumer-world.ts';

const EVENTS = 256;
/** Rows between two looks at the clock. */
const STEPS = 64;
const SCOPE = { appId: 1, typeIds: null, from: null, until: null, order: 'asc', after: null } as const;
const LIMITS = { limit: EVENTS, maxBytes: 1_048_576 } as const;

let world: ConsumerWorld;
let start: FeedPosition;
beforeAll(async () => {
  world = await ConsumerWorld.create(await testDatabase());
  await world.store.add(1, { name: 'one', kind: 'consumer', types: [], filter: [], from: 'now' });
  await world.add(EVENTS);
  await world.round();
  const lease = await world.store.lease(1, 'one', 30_000);
  if (typeof lease === 'string' || 'leasedForSeconds' in lease) throw new Error('There is no lease.');
  start = lease.position;
});
afterEach(() => {
  vi.restoreAllMocks();
});
afterAll(() => world.close());

/** At each look at the clock the slice has taken its time. @returns how many pauses work takes */
async function pausesOf(work: () => Promise<unknown>): Promise<number> {
  vi.spyOn(TimeSlice.prototype, 'isOver', 'get').mockReturnValue(true);
  const pauses = vi.spyOn(TimeSlice.prototype, 'next');
  await work();
  return pauses.mock.calls.length;
}

const reader = () => world.storage.reader(world.sql);

test('a step of a search pauses, whether its rows match or not', async () => {
  const none = { contains: [], matches: () => false };
  for (const [filter, found] of [
    [null, EVENTS],
    [none, 0],
  ] as const) {
    const pauses = await pausesOf(async () => {
      expect((await reader().search(SCOPE, filter).step(EVENTS)).events).toHaveLength(found);
    });
    expect(pauses).toBeGreaterThanOrEqual(EVENTS / STEPS);
    vi.restoreAllMocks();
  }
});

test('a page of a search pauses among the events that it has found', async () => {
  const options = { budget: { rows: EVENTS, ms: 1_000 }, now: () => 0, pass: async () => true };
  const { events } = await reader().search(SCOPE, null).step(EVENTS);
  const step = async () => ({ events, looked: EVENTS, position: null, searchedBy: null });
  const found = { ...reader(), search: () => ({ ...reader().search(SCOPE, null), step }) };
  const pauses = await pausesOf(async () => {
    const page = await readSearchPage(found, { ...SCOPE, ...LIMITS }, EVERY_ROW, options);
    expect(page.events).toEqual(events);
  });
  expect(pauses).toBe(EVENTS / STEPS);
});

test('few large events are as much as many small ones', async () => {
  const payload = `{"long":"${'x'.repeat(40_000)}"}`;
  const id = '0'.repeat(36);
  const line = `{"id":"${id}","typeId":"t","type":"one","createdAt":"2026-01-31T08:30:00.123Z","payload":${payload}}\n`;
  const csv = new CsvLines({ formulas: 'keep', separator: 'comma', bom: false, texts: 'exact' });
  const lines = Buffer.from(line.repeat(20));
  expect(await pausesOf(() => csv.convert(lines, new TimeSlice()))).toBe(10);
  vi.restoreAllMocks();
  const event = { id, typeId: 't', createdAt: new Date(0), payload };
  const step = async () => ({ events: Array(20).fill(event), looked: 20, position: null, searchedBy: null });
  const found = { ...reader(), search: () => ({ ...reader().search(SCOPE, null), step }) };
  const options = { budget: { rows: EVENTS, ms: 1_000 }, now: () => 0, pass: async () => true };
  expect(await pausesOf(() => readSearchPage(found, { ...SCOPE, ...LIMITS }, EVERY_ROW, options))).toBe(10);
});

test('a part of an export pauses among its lines', async () => {
  const pauses = await pausesOf(async () => {
    expect((await reader().lines(SCOPE, null).next())?.events).toBe(EVENTS);
  });
  expect(pauses).toBeGreaterThanOrEqual(EVENTS / STEPS);
});

test('rows that a filtered list tests are tested in slices, in the turn of the account', async () => {
  const all = [{ from: 0, until: Date.now() + 60_000 }];
  const waiter = { settled: false, whenSettled: () => () => undefined };
  const turns = ['an account', 1] as const;
  const pool = poolFor(waiter, world.sql, { turns, isAdmitted: () => false, outside: (work) => work() });
  let found = 0;
  const pauses = await pausesOf(() =>
    readSnapshot(pool, async (tx) => {
      expect(tx.turns).toEqual(turns);
      for await (const rows of matchingRows(tx, { appId: 1, typeIds: null, filter: EVERY_ROW }, all, 'asc'))
        found += rows.length;
    }),
  );
  expect(found).toBe(EVENTS);
  expect(pauses).toBe(EVENTS);
});

test('a page of a consumer pauses among its rows, and among those that its filter tests', async () => {
  const written = await pausesOf(async () => {
    expect((await world.store.write(1, start, LIMITS, new RowBuffer())).length).toBe(EVENTS);
  });
  expect(written).toBe(EVENTS / STEPS);
  vi.restoreAllMocks();
  const read = await pausesOf(async () => {
    const batch = await readBatch(world.store, 1, start, { ...LIMITS, matches: () => false });
    expect(batch).toMatchObject({ events: [], hasMore: false });
  });
  expect(read).toBe(EVENTS + EVENTS / STEPS);
});

test('the memory of a page whose connection is lost among its rows becomes nobody else’s', async () => {
  const pool = connect(world.database.address, { connections: 1, name: 'test lost' });
  const store = new ConsumerStore(world.storage.engine, pool);
  vi.spyOn(TimeSlice.prototype, 'isOver', 'get').mockReturnValue(true);
  let goOn = (): void => undefined;
  const isLost = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  const pauses = vi.spyOn(TimeSlice.prototype, 'next').mockImplementation(() => {
    pool.pool.sockets.close();
    return isLost;
  });
  await expect(store.write(1, start, LIMITS, new RowBuffer())).rejects.toThrow();
  expect(pauses).toHaveBeenCalledTimes(1);
  const others = new RowBuffer().withRoom(1).fill('.');
  goOn();
  // The rest of the rows comes without a turn of the event loop.
  await new Promise((resolve) => setImmediate(resolve));
  expect(pauses).toHaveBeenCalledTimes(EVENTS / STEPS);
  expect(others.every((byte) => byte === '.'.charCodeAt(0))).toBe(true);
  await endPool(pool);
});
