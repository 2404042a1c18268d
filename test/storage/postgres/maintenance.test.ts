import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Sql, Transaction } from '../../../src/storage/connect.ts';
import { applyRetention, ensurePartitions, foldCounts } from '../../../src/storage/postgres/maintenance.ts';
import { insertSelected } from '../../../src/storage/write/insert-events.ts';
import { type TestDatabase, testDatabase } from '../../support/database.ts';

const DAY_MS = 86_400_000;
const START = Date.UTC(2026, 1, 26);
const NOON = START + DAY_MS / 2;

let database: TestDatabase;
let sql: Sql;

beforeEach(async () => {
  database = await testDatabase();
  sql = database.sql;
});
afterEach(() => database.drop());

async function partitions(): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'events'::regclass ORDER BY 1`;
  return rows.map((row) => row.name);
}

async function insertAt(time: number, into: Sql | Transaction = sql): Promise<void> {
  const row = into`VALUES (gen_random_uuid(), 1, 7, ${time}::timestamptz, '{}'::json)`;
  await insertSelected(into, 'postgres', row);
}

const COUNTS = ['minute_counts', 'quarter_hour_counts', 'hour_counts', 'day_counts'] as const;

/** Sum of the counts of each table, finest first. */
async function sums(typeId: number): Promise<number[]> {
  const found: number[] = [];
  for (const table of COUNTS) {
    const [row] = await sql<{ sum: number }[]>`
      SELECT coalesce(sum(count), 0)::float8 AS sum FROM ${sql(table)} WHERE type_id = ${typeId}`;
    found.push(row?.sum ?? Number.NaN);
  }
  return found;
}

test('partitions are made for every day that the time touches, once', async () => {
  const made = ['events_20260226', 'events_20260227', 'events_20260228', 'events_20260301'];
  await ensurePartitions(sql, START + DAY_MS - 1, START + 3 * DAY_MS);
  expect(await partitions()).toEqual(made);
  await Promise.all([ensurePartitions(sql, START, NOON), ensurePartitions(sql, START, NOON)]);
  expect(await partitions()).toEqual(made);
});

test('a fold moves each delta once, into its type and into all types, at every level', async () => {
  await ensurePartitions(sql, START, START + DAY_MS);
  for (const time of [NOON, NOON, NOON + 60_000, NOON + DAY_MS]) await insertAt(time);
  expect(await foldCounts(sql)).toBe(4);
  await insertAt(NOON);
  expect(await foldCounts(sql)).toBe(1);
  expect(await foldCounts(sql)).toBe(0);
  expect(await sums(7)).toEqual([5, 5, 5, 5]);
  expect(await sums(0)).toEqual([5, 5, 5, 5]);
  const days = await sql`SELECT bucket, count FROM day_counts WHERE type_id = 0 ORDER BY 1`;
  expect([...days]).toEqual([
    { bucket: new Date(START), count: '4' },
    { bucket: new Date(START + DAY_MS), count: '1' },
  ]);
});

test('folds that run at the same time as each other and as writers lose and double nothing', async () => {
  await ensurePartitions(sql, START, START);
  const writing = Array.from({ length: 200 }, (_, i) => insertAt(START + i * 400_000));
  const folding = Array.from({ length: 40 }, () => foldCounts(sql));
  await Promise.all([...writing, ...folding]);
  await foldCounts(sql);
  expect(await sums(7)).toEqual([200, 200, 200, 200]);
});

test('retention moves the boundary first and removes at the next call; coarse counts stay', async () => {
  await ensurePartitions(sql, START, START + 2 * DAY_MS);
  for (const day of [0, 1, 2]) await insertAt(NOON + day * DAY_MS);
  await foldCounts(sql);
  const retention = { days: 2, now: NOON + 3 * DAY_MS };
  expect(await applyRetention(sql, retention)).toEqual({ dropped: [], postponed: [] });
  expect([...(await sql`SELECT readable_from FROM retention`)]).toEqual([
    { readable_from: new Date(START + DAY_MS) },
  ]);
  expect((await partitions()).length).toBe(3);
  expect(await sums(7)).toEqual([3, 3, 3, 3]);
  expect(await applyRetention(sql, retention)).toEqual({ dropped: ['events_20260226'], postponed: [] });
  expect(await partitions()).toEqual(['events_20260227', 'events_20260228']);
  expect(await sums(7)).toEqual([2, 3, 3, 3]);
});

test('the boundary never moves back', async () => {
  await applyRetention(sql, { days: 1, now: NOON });
  const boundary = [{ readable_from: new Date(START - DAY_MS) }];
  await applyRetention(sql, { days: 5, now: NOON });
  expect([...(await sql`SELECT readable_from FROM retention`)]).toEqual(boundary);
  await applyRetention(sql, { days: 0, now: NOON + 9 * DAY_MS });
  expect([...(await sql`SELECT readable_from FROM retention`)]).toEqual(boundary);
});

test('without retention nothing is removed', async () => {
  await ensurePartitions(sql, START, START);
  await applyRetention(sql, { days: 0, now: NOON + 9_999 * DAY_MS });
  expect((await applyRetention(sql, { days: 0, now: NOON + 9_999 * DAY_MS })).dropped).toEqual([]);
});

test('a partition that an older snapshot may still read stays until that has ended', async () => {
  await ensurePartitions(sql, START, START);
  await insertAt(NOON);
  const retention = { days: 1, now: NOON + 2 * DAY_MS };
  await sql.begin('isolation level repeatable read', async (tx) => {
    await tx`SELECT readable_from FROM retention`;
    await applyRetention(sql, retention);
    expect(await applyRetention(sql, retention)).toEqual({ dropped: [], postponed: ['events_20260226'] });
    expect([...(await tx`SELECT count(*)::integer FROM events`)]).toEqual([{ count: 1 }]);
  });
  expect((await applyRetention(sql, retention)).dropped).toEqual(['events_20260226']);
});

test('a partition in use is postponed within a moment, and writers go on', async () => {
  await ensurePartitions(sql, START, START + 2 * DAY_MS);
  const retention = { days: 1, now: NOON + 2 * DAY_MS };
  await applyRetention(sql, retention);
  await sql.begin(async (tx) => {
    // Holds the lock that every reader and writer of events holds; its snapshot ends with the statement.
    await tx`LOCK TABLE events IN ROW EXCLUSIVE MODE`;
    const [result] = await Promise.all([applyRetention(sql, retention), insertAt(NOON + 2 * DAY_MS)]);
    expect(result).toEqual({ dropped: [], postponed: ['events_20260226'] });
  });
  expect((await applyRetention(sql, retention)).dropped).toEqual(['events_20260226']);
});
