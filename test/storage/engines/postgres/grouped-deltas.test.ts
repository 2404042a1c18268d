import { afterEach, beforeEach, expect, test } from 'vitest';
import { readAppStats } from '../../../../src/storage/counts/app-stats.ts';
import { compareDay } from '../../../../src/storage/counts/differences.ts';
import { ALL_TIME } from '../../../../src/storage/counts/intervals.ts';
import { ALL_TYPES } from '../../../../src/storage/counts/levels.ts';
import { coarseSources } from '../../../../src/storage/counts/stale.ts';
import { selectLastEvents } from '../../../../src/storage/counts/type-stats.ts';
import type { Sql, Transaction } from '../../../../src/storage/database/connect.ts';
import { CopyConnection } from '../../../../src/storage/database/copy-connection.ts';
import {
  countDeltas,
  ensurePartitions,
  foldCounts,
} from '../../../../src/storage/engines/postgres/maintenance.ts';
import { postgres } from '../../../../src/storage/engines/postgres/postgres.ts';
import { readEventPage } from '../../../../src/storage/read/event-page.ts';
import { readAppSnapshot, readSnapshot } from '../../../../src/storage/read/snapshot.ts';
import { copyGroup } from '../../../../src/storage/write/engine-writes.ts';
import { type TestDatabase, testDatabase } from '../../../support/database.ts';

const DAY_MS = 86_400_000;
const START = Date.UTC(2026, 1, 26);
const NOON = START + DAY_MS / 2;
const APPS = 200;

let database: TestDatabase;
let connection: CopyConnection;
beforeEach(async () => {
  database = await testDatabase();
  connection = new CopyConnection(database.address, 'test writer');
  await ensurePartitions(database.sql, START, START);
});
afterEach(async () => {
  await connection.close();
  await database.drop();
});

let made = 0;

/** Stores a group: an event of the type 7 of each app, a second one of the type 9 of every tenth. */
async function store(createdAt: number): Promise<void> {
  const event = (appId: number, typeId: number) => {
    made += 1;
    const id = `00000000-0000-7000-8000-${String(made).padStart(12, '0')}`;
    return { id, appId, typeId, createdAt, payload: '{}' };
  };
  const apps = Array.from({ length: APPS }, (_, n) => n + 1);
  const events = [
    ...apps.map((appId) => event(appId, 7)),
    ...apps.filter((appId) => appId % 10 === 0).map((appId) => event(appId, 9)),
  ];
  await connection.copy(copyGroup(postgres.writes, events));
}

async function total(
  appId: number,
  typeIds: readonly number[] | null = null,
  sql: Sql = database.sql,
): Promise<number> {
  const scope = { appId, typeIds, from: START, until: START + DAY_MS };
  const page = await readEventPage(sql, { scope, offset: 0, limit: 1, order: 'asc', maxBytes: 1e6 });
  return page.total;
}

async function rowsOf(table: string): Promise<number> {
  return (await database.sql`SELECT FROM ${database.sql(table)}`).length;
}

async function expectTotals(groups: number): Promise<void> {
  expect([await total(1), await total(160), await total(160, [9]), await total(APPS + 1)]).toEqual([
    groups,
    2 * groups,
    groups,
    0,
  ]);
  const stats = await readAppStats(database.sql, [1, 160], { timezone: 'UTC', now: NOON });
  expect([stats.get(1)?.total, stats.get(160)?.today]).toEqual([groups, 2 * groups]);
  expect((await readSnapshot(database.sql, (tx) => compareDay(tx, START, null))).differing).toBe(0);
}

test('deltas of many apps share rows, and count before they are added up, after it, and once they are folded', async () => {
  await store(NOON);
  await store(NOON + 60_000);
  expect([await rowsOf('grouped_deltas'), await rowsOf('count_deltas')]).toEqual([8, 0]);
  expect(await postgres.pending(database.sql)).toBe(440);
  await expectTotals(2);
  expect(await countDeltas(database.sql).compact()).toMatchObject({ deltas: 440, sums: 440 });
  expect([await rowsOf('grouped_deltas'), await rowsOf('count_deltas')]).toEqual([0, 440]);
  await store(NOON);
  await expectTotals(3);
  expect(await foldCounts(database.sql)).toBe(660);
  expect([await rowsOf('grouped_deltas'), await rowsOf('count_deltas')]).toEqual([0, 0]);
  await expectTotals(3);
});

test('a reader of one app unpacks them once, and what there is of the app alone', async () => {
  await store(NOON);
  await store(NOON);
  const read = (tx: Sql | Transaction) => tx<object[]>`
    SELECT app_id AS app, type_id AS type, count::integer FROM pending_deltas ORDER BY 1, 2`;
  expect([...(await readAppSnapshot(database.sql, 160, read))]).toEqual([
    { app: 160, type: 7, count: 2 },
    { app: 160, type: 9, count: 2 },
  ]);
  expect(await readAppSnapshot(database.sql, APPS + 4, read)).toHaveLength(0);
  expect(await read(database.sql)).toHaveLength(440);
  await foldCounts(database.sql);
  expect(await readAppSnapshot(database.sql, 160, read)).toHaveLength(0);
});

test('the last events of many apps are found with few looks at the deltas, however many apps there are', async () => {
  await store(NOON);
  await foldCounts(database.sql);
  await store(NOON + 60_000);
  const apps = Array.from({ length: APPS }, (_, n) => n + 1);
  const plan = await readSnapshot(database.sql, async (tx) => {
    const scope = { apps: tx`${apps}::integer[]`, types: tx`${[ALL_TYPES]}::integer[]` };
    const sources = await coarseSources(tx, ALL_TIME);
    const rows = await tx<
      { 'QUERY PLAN': string }[]
    >`EXPLAIN (ANALYZE, TIMING OFF) ${selectLastEvents(tx, scope, sources)}`;
    return rows.map((row) => row['QUERY PLAN']);
  });
  const looks = plan
    .filter((line) => line.includes('grouped_of_reader'))
    .map((line) => /loops=(\d+)/.exec(line)?.[1]);
  expect(looks.length).toBeGreaterThan(0);
  expect(looks.reduce((sum, loops) => sum + Number(loops ?? 0), 0)).toBeLessThan(10);
  const stats = await readAppStats(database.sql, apps, { timezone: 'UTC', now: NOON });
  expect([...stats.values()].map(({ lastEventAt }) => lastEventAt)).toEqual(
    apps.map(() => new Date(NOON + 60_000)),
  );
});

test('a fold of an earlier release, which knows nothing of them, hides none', async () => {
  await store(NOON);
  await database.sql`UPDATE folds SET (pending_from, running) = (SELECT pending_from, running FROM next_fold)`;
  await expectTotals(1);
});

test('few deltas have rows of their own, which cost a reader less', async () => {
  const event = { appId: 1, typeId: 7, createdAt: NOON, payload: '{}' };
  const ids = ['00000000-0000-7000-8000-000000000001', '00000000-0000-7000-8000-000000000002'];
  await connection.copy(
    copyGroup(
      postgres.writes,
      ids.map((id, n) => ({ ...event, id, appId: 1 + n })),
    ),
  );
  expect([await rowsOf('grouped_deltas'), await rowsOf('count_deltas')]).toEqual([0, 2]);
});
