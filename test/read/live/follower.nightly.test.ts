/** The follower where counting the minutes takes long, as on TimescaleDB under much load: it seeks rows, and stays exact. */
import { randomUUID } from 'node:crypto';
import pino from 'pino';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Follower, type Watcher } from '../../../src/read/live/follower.ts';
import type { Sql } from '../../../src/storage/database/connect.ts';
import { ensurePartitions } from '../../../src/storage/engines/postgres/maintenance.ts';
import { openStorage } from '../../../src/storage/storage.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { insertSelected } from '../../support/insert-selected.ts';
import { until } from '../../support/service.ts';

const APP = 1;

describe.each(availableEngines())('on %s', (engine) => {
  let database: TestDatabase;
  let sql: Sql;
  let follower: Follower;
  let messages: { event: string; ids: string[] }[];
  /** By how much the clock goes on whenever it is looked at. */
  let tick: number;

  beforeAll(async () => {
    database = await testDatabase(engine);
    sql = database.sql;
    await sql`INSERT INTO apps (public_id, name) VALUES ('a', 'a')`;
    await sql`INSERT INTO event_types (public_id, app_id, name) VALUES ('t', ${APP}, 't')`;
    if (engine !== 'timescale') await ensurePartitions(sql, Date.now() - 300_000, Date.now());
    // A chunk that is being made in one transaction would hold up the others.
    await insertWith(sql, 1, 0);
    await insertWith(sql, 1, 120_000);
  });
  afterEach(() => follower.stop());
  afterAll(() => database.drop());

  async function follow(): Promise<Watcher> {
    messages = [];
    let time = 0;
    follower = new Follower({
      events: (await openStorage(sql)).reader(sql),
      appId: APP,
      now: Date.now,
      monotonic: () => {
        time += tick;
        return time;
      },
      log: pino({ level: 'silent' }),
    });
    const watcher: Watcher = {
      from: 'now',
      send: (bytes) => {
        const text = bytes.toString();
        const event = /^event: (\w+)$/m.exec(text)?.[1];
        if (event === undefined) return; // The cursor alone.
        const data = /^data: (.*)$/m.exec(text)?.[1] ?? '{}';
        const { events = [] } = JSON.parse(data) as { events?: { id: string }[] };
        messages.push({ event, ids: events.map(({ id }) => id) });
      },
    };
    follower.join(watcher);
    await until(() => messages.length === 1, 'the follower stands');
    return watcher;
  }
  const told = (): string[] => messages.flatMap(({ ids }) => ids);
  const insertWith = async (connection: Sql, count: number, ageMs: number): Promise<string[]> => {
    const ids = Array.from({ length: count }, () => randomUUID());
    const rows = connection`
      SELECT id, ${APP}::integer, 1, ${new Date(Date.now() - ageMs).toISOString()}::timestamptz, '{}'::json FROM unnest(${ids}::uuid[]) id`;
    await insertSelected(connection, database.engine, rows);
    return ids;
  };

  test('overlapping transactions are told once, with counting and without', async () => {
    tick = 0;
    await follow();
    const expected: string[] = [];
    const slow = await sql.reserve();
    for (let round = 0; round < 4; round += 1) {
      // Counting takes 400 ms by the clock in every other round.
      tick = round % 2 === 0 ? 400 : 0;
      await slow`BEGIN`;
      const late = await insertWith(slow, 3, 30_000 * round);
      expected.push(...(await insertWith(sql, 5, 0)));
      await until(() => told().length === expected.length, 'the quick ones have come');
      await slow`COMMIT`;
      expected.push(...late);
      await until(() => told().length >= expected.length, 'the slow ones have come');
    }
    slow.release();
    expect(told().sort()).toEqual(expected.sort());
    expect(messages.filter(({ event }) => event !== 'events')).toEqual([{ event: 'ready', ids: [] }]);
  });

  test('more events than can be searched for cause a reset, and the feed continues exactly', async () => {
    tick = 400;
    await follow();
    const [first] = await insertWith(sql, 1, 0);
    await until(() => told().length === 1, 'the first one has come');
    await insertWith(sql, 1_001, 0);
    await until(() => messages.some(({ event }) => event === 'reset'), 'the reader is told to begin again');
    const [last] = await insertWith(sql, 1, 0);
    await until(() => told().length === 2, 'the last one has come');
    expect(told()).toEqual([first, last]);
  });
});
