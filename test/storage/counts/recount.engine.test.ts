/** Counts that were corrupted are found by their days, and rebuilt from the rows beside writers. */
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createEventIds } from '../../../src/ingest/event-id.ts';

import { profileDay, unprofiledDays } from '../../../src/storage/counts/daily-prefix-sums.ts';
import { compareDay } from '../../../src/storage/counts/differences.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../../src/storage/counts/levels.ts';
import { type RecountedDay, sampleOf } from '../../../src/storage/counts/recount.ts';
import { connect, type Sql } from '../../../src/storage/database/connect.ts';
import { openStorage, type Storage } from '../../../src/storage/storage.ts';
import { EventWriter } from '../../../src/storage/write/event-writer.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { first, sized } from '../../support/fuzz.ts';
import { SOURCE } from '../../support/source.ts';
import { upkeepOf } from '../../support/upkeep.ts';
import { writingTo } from '../../support/writers.ts';

/** Over the end of a month. */
const START = Date.UTC(2026, 3, 29);
const DAYS = 4;
/** Refreshes by another program beside recounts. */
const MOST_REFRESHES = 6;
const newId = createEventIds();

describe.each(availableEngines())('on %s', (engine) => {
  const { prepare, settle, pending } = upkeepOf(engine);
  let database: TestDatabase;
  let sql: Sql;
  let alone: Sql;
  let storage: Storage;
  let writer: EventWriter;

  beforeAll(async () => {
    database = await testDatabase(engine);
    sql = database.sql;
    alone = connect(database.address, { connections: 1, name: 'test recount' });
    storage = await openStorage(sql);
    writer = new EventWriter({
      ...writingTo(database),
      connections: 2,
      log: pino({ level: 'silent' }),
      now: () => performance.now(),
    });
    await sql`INSERT INTO apps (public_id, name) SELECT 'app' || n, 'app' FROM generate_series(1, 2) n`;
    await sql`
      INSERT INTO event_types (public_id, app_id, name)
      SELECT 'type' || n, 1 + n % 2, 'type' || n FROM generate_series(1, 4) n`;
    await prepare(sql, START, START + DAYS * DAY_MS - 1);
    const times = Array.from({ length: 600 }, (_, n) => START + n * 9.5 * MINUTE_MS);
    await write(times.filter((time) => time < START + DAYS * DAY_MS));
    await settle(sql);
    for (const day of await unprofiledDays(sql, START + 9 * DAY_MS)) await profileDay(sql, day);
  });
  afterAll(async () => {
    await writer.close();
    await alone.end();
    await database.drop();
  });

  async function write(times: readonly number[]): Promise<void> {
    const events = times.map((time, n) => {
      const createdAt = Math.floor(time);
      const row = { id: newId(createdAt), appId: 1 + (n % 2), typeId: 1 + (n % 4), createdAt, payload: '{}' };
      return { ...row, source: SOURCE };
    });
    expect(new Set(await writer.write(events))).toEqual(new Set([null]));
  }

  /** How many counts of each day differ from the rows. */
  async function differing(): Promise<number[]> {
    const found: number[] = [];
    for (let day = 0; day < DAYS; day += 1)
      found.push((await compareDay(sql, START + day * DAY_MS, null)).differing);
    return found;
  }

  async function recountAll(): Promise<RecountedDay[]> {
    const days: RecountedDay[] = [];
    const interval = { from: START + HOUR_MS, until: START + (DAYS - 1) * DAY_MS + 1 };
    expect(await storage.recount(alone, interval, (day) => days.push(day))).toEqual({ leftOut: 0 });
    expect(days.map(({ day }) => day)).toEqual([0, 1, 2, 3].map((day) => START + day * DAY_MS));
    return days;
  }

  /** What holds the counts of a level: a table, or what an aggregate has materialized. */
  async function tableOf(counts: string): Promise<string> {
    if (database.engine === 'postgres' || counts === 'month_counts') return counts;
    const [row] = await sql<{ name: string }[]>`
      SELECT format('%I.%I', materialization_hypertable_schema, materialization_hypertable_name) AS name
        FROM timescaledb_information.continuous_aggregates WHERE view_name = ${counts}`;
    return row?.name ?? '';
  }

  test('what is written and settled agrees with the rows, at every level', async () => {
    expect(await differing()).toEqual([0, 0, 0, 0]);
    expect(await pending(sql)).toBe(0);
    expect(await sql`SELECT FROM daily_prefix_sums`).not.toHaveLength(0);
    // What waits to be settled counts, too.
    await write([START + 5, START + DAY_MS + 5, START + 2 * DAY_MS + 5]);
    expect(await differing()).toEqual([0, 0, 0, 0]);
  });

  test.each(first(['minute', 'month', 'quarter_hour', 'hour', 'day'], 2))(
    'a count by the %s that is too large, missing or of nothing is found, and recounted',
    async (level) => {
      const table = await tableOf(`${level}_counts`);
      await settle(sql);
      const day = new Date(START + DAY_MS);
      const bucket = level === 'month' ? new Date(Date.UTC(2026, 3, 1)) : day;
      const within = `bucket >= '${bucket.toISOString()}' AND bucket < '${bucket.toISOString()}'::timestamptz + interval '1 day'`;
      for (const [what, corruption] of [
        ['too large', `UPDATE ${table} SET count = count + 1 WHERE app_id = 1 AND ${within}`],
        ['missing', `DELETE FROM ${table} WHERE app_id = 2 AND ${within}`],
        [
          'of nothing',
          `INSERT INTO ${table} (app_id, type_id, bucket, count) VALUES (2, 99, '${bucket.toISOString()}', 7)`,
        ],
      ] as const) {
        await sql.unsafe(corruption);
        const found = await compareDay(sql, day.getTime(), null);
        expect(found.differing, what).toBeGreaterThan(0);
        expect(found.examples[0]?.level, what).toBe(level);
        // The first day that is recounted of a month puts that right.
        const recounted = await recountAll();
        expect(recounted[level === 'month' ? 0 : 1]?.differing, what).toBeGreaterThan(0);
        expect(await differing(), what).toEqual([0, 0, 0, 0]);
      }
    },
  );

  test('profiles that tell something else are found, discarded and made again', async () => {
    await settle(sql);
    for (const day of await unprofiledDays(sql, START + 9 * DAY_MS)) await profileDay(sql, day);
    await sql`UPDATE daily_prefix_sums SET running[96] = running[96] + 1 WHERE day = ${new Date(START)} AND type_id = 0`;
    const { differing: found, examples } = await compareDay(sql, START, null);
    expect([found, examples[0]?.level]).toEqual([2, 'profile']);
    expect((await compareDay(sql, START, 1)).differing).toBe(1);
    await recountAll();
    expect(await sql`SELECT FROM ready_profiles WHERE day = ${new Date(START)}`).toHaveLength(0);
    for (const day of await unprofiledDays(sql, START + 9 * DAY_MS)) await profileDay(sql, day);
    expect(await differing()).toEqual([0, 0, 0, 0]);
  });

  test('uncounted rows are found, and counted', async () => {
    await sql`
      INSERT INTO events (id, app_id, type_id, created_at, payload)
      SELECT gen_random_uuid(), 1, 2, ${new Date(START + 5 * HOUR_MS)}::timestamptz + n * interval '1 minute', '{}'
        FROM generate_series(1, 50) n`;
    expect((await differing())[0]).toBeGreaterThan(50);
    await recountAll();
    expect(await differing()).toEqual([0, 0, 0, 0]);
  });

  test('in every snapshot counts stay exact while days are recounted beside writers and settling', async () => {
    let over = false;
    const writing = [0, 1].map(async (lane) => {
      for (let n = 0; !over; n += 1) {
        const at = START + ((n * 37 + lane * 11) % (DAYS * 24)) * HOUR_MS;
        await write([at, at + 1, at + MINUTE_MS]);
      }
    });
    const upkeep = connect(database.address, { connections: 1, name: 'test upkeep' });
    const settling = (async () => {
      while (!over) await storage.settleCounts(upkeep, START + 30 * DAY_MS);
    })();
    const comparing = (async () => {
      const found: number[] = [];
      while (!over) found.push(...(await differing()));
      return found;
    })();
    for (let round = 0; round < sized(2, 5); round += 1)
      expect((await recountAll()).map(({ differing: before }) => before)).toEqual([0, 0, 0, 0]);
    over = true;
    await Promise.all([...writing, settling]);
    await upkeep.end();
    expect(new Set(await comparing)).toEqual(new Set([0]));
    await settle(sql);
    expect(await differing()).toEqual([0, 0, 0, 0]);
  });

  test('counts that are wrong are corrected beside writers and settling', async () => {
    await settle(sql);
    const wrong = await Promise.all(['minute_counts', 'day_counts', 'month_counts'].map(tableOf));
    let over = false;
    const writing = (async () => {
      for (let n = 0; !over; n += 1) {
        const at = START + ((n * 31) % (DAYS * 24)) * HOUR_MS;
        await write([at, at + 1, at + MINUTE_MS]);
      }
    })();
    const upkeep = connect(database.address, { connections: 1, name: 'test upkeep' });
    const settling = (async () => {
      while (!over) await storage.settleCounts(upkeep, START + 30 * DAY_MS);
    })();
    for (let round = 0; round < sized(1, 3); round += 1) {
      // Under a lock of the table: its rows come in no order, and a fold that has some of them would be a deadlock.
      for (const table of wrong)
        await sql.begin(async (tx) => {
          await tx.unsafe(`LOCK TABLE ${table} IN SHARE ROW EXCLUSIVE MODE`);
          await tx.unsafe(`UPDATE ${table} SET count = count + 1`);
        });
      // Where the fold, or a refresh, has not been faster.
      const found = (await recountAll()).reduce((sum, { differing: before }) => sum + before, 0);
      if (engine !== 'timescale') expect(found).toBeGreaterThan(0);
      expect(await differing()).toEqual([0, 0, 0, 0]);
    }
    over = true;
    await Promise.all([writing, settling]);
    await upkeep.end();
    await settle(sql);
    expect(await differing()).toEqual([0, 0, 0, 0]);
  });

  test.runIf(engine === 'timescale')(
    "a recount waits for TimescaleDB's own refreshes",
    async () => {
      let over = false;
      let refreshes = 0;
      const refreshing = (async () => {
        // Not for ever: on a busy machine one after the other would leave a recount no time of its own.
        for (; !over && refreshes < MOST_REFRESHES; refreshes += 1)
          await sql`CALL refresh_continuous_aggregate('minute_counts', NULL, NULL, force => true)`.catch(
            () => undefined,
          );
      })();
      // Until several refreshes were under way beside it, however long each of them takes here.
      const days = await tableOf('day_counts');
      for (let round = 0; round < sized(1, 5) || refreshes <= sized(1, 5); round += 1) {
        await sql.unsafe(`UPDATE ${days} SET count = count + 1`);
        await recountAll();
      }
      over = true;
      await refreshing;
      expect(await differing()).toEqual([0, 0, 0, 0]);
      // On a server that waits for its disk a refresh, and what waits for it, takes many times longer.
    },
    120_000,
  );

  test('days before the retention boundary are left as they are', async () => {
    const [before] = await sql<{ total: number }[]>`
      SELECT sum(count)::float8 AS total FROM events_per_day WHERE type_id = 0`;
    await sql`UPDATE retention SET readable_from = ${new Date(START + DAY_MS)}`;
    await sql`DELETE FROM events WHERE created_at < ${new Date(START + DAY_MS)}`;
    const days: number[] = [];
    const interval = { from: START, until: START + 2 * DAY_MS };
    expect(await storage.recount(alone, interval, ({ day }) => days.push(day))).toEqual({ leftOut: 1 });
    expect(days).toEqual([START + DAY_MS]);
    const [after] = await sql<{ total: number }[]>`
      SELECT sum(count)::float8 AS total FROM events_per_day WHERE type_id = 0`;
    expect(after).toEqual(before);
  });
});

test('a sample has the newest day, and each of the others in time', () => {
  const days = Array.from({ length: 30 }, (_, n) => n);
  expect(sampleOf([], Math.random)).toEqual([]);
  expect(sampleOf([3, 4], () => 0.99)).toEqual([3, 4]);
  expect(sampleOf(days, () => 0)).toEqual([0, 1, 2, 3, 29]);
  const seen = new Set<number>();
  for (let draw = 0; draw < 30; draw += 1) for (const day of sampleOf(days, () => draw / 30)) seen.add(day);
  expect([...seen].sort((a, b) => a - b)).toEqual(days);
});
