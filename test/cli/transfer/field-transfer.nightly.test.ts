/** Counts of values and statistics of numbers through backup, restore, export and import. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { declareField } from '../../../src/apps/fields.ts';
import { DAY_MS, HOUR_MS } from '../../../src/storage/counts/levels.ts';
import { connect, type Sql } from '../../../src/storage/database/connect.ts';
import { MOVED_TO, readInstallation } from '../../../src/storage/database/installation-id.ts';
import { compareFieldDay } from '../../../src/storage/fields/recount.ts';
import { FieldUpkeep } from '../../../src/storage/fields/upkeep.ts';
import { readSnapshot } from '../../../src/storage/read/snapshot.ts';
import { moveBoundary } from '../../../src/storage/retention.ts';
import { openStorage } from '../../../src/storage/storage.ts';
import { type Outcome, tidemark } from '../../support/command-line.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { type FieldDatabase, fieldDatabase } from '../../support/field-database.ts';
import { fieldFilter, randomPayload, seededRandom } from '../../support/field-oracle.ts';
import { storeRows } from '../../support/stored-events.ts';

const TODAY = Math.floor(Date.now() / DAY_MS) * DAY_MS;
/** Of the events; all of them are in the past. */
const NOW = TODAY - 12 * HOUR_MS;
const START = NOW - 4 * DAY_MS;
const BOUNDARY = TODAY - 2 * DAY_MS;

const DECLARED = [
  { path: ['country'], kind: 'value', typeName: null },
  { path: ['status'], kind: 'value', typeName: null },
  { path: ['total'], kind: 'number', typeName: null },
  { path: ['user', 'id'], kind: 'number', typeName: 'type1' },
] as const;
const FILTERS = ['country:DE', 'country:FR,IT', 'status:200', 'status:null', 'country:XX'];

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-fields-test-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

function run(database: TestDatabase, ...args: string[]): Promise<Outcome> {
  return tidemark(args, { DATABASE_URL: database.url, DATA_DIR: folder });
}

/** What counts say of an app's fields from a time on, and, without one, of what is before the rows. */
async function readAll(sql: Sql, appId: number, from: number | null): Promise<Record<string, unknown>> {
  const reader = (await openStorage(sql)).reader(sql);
  const interval = { from, until: NOW + HOUR_MS, timezone: 'UTC', buckets: '1d' } as const;
  const request = { appId, typeIds: null, ...interval, exactEnds: 'both', withBefore: false } as const;
  const list = { appId, typeIds: null, from, until: null, order: 'asc', after: null } as const;
  const read: Record<string, unknown> = {};
  for (const text of FILTERS) {
    const filter = fieldFilter(text);
    const page = await reader.filteredList({ ...list, limit: 1, maxBytes: 1e9, withTotal: true }, filter);
    read[`total ${text}`] = typeof page === 'string' ? page : page.total;
    const series = await reader.filteredSeries(request, filter);
    // Of events with several values nothing is known before the rows.
    read[text] = typeof series === 'string' ? series : series.lines.map(({ counts }) => counts);
  }
  for (const path of ['country', 'status']) {
    const series = await reader.valueSeries({ ...request, topTypes: 20 }, [path]);
    if (typeof series === 'string') throw new Error(series);
    // Values with as many events are in any order.
    const lines = series.lines.toSorted((a, b) => String(a.value).localeCompare(String(b.value)));
    read[path] = { ...series, lines: lines.map(({ value, counts }) => ({ value, counts })) };
  }
  read.total = await reader.numberSeries(request, ['total']);
  return read;
}

describe.each(availableEngines())('the counts of fields on %s', (engine) => {
  let source: FieldDatabase;
  let backup: string;
  const random = seededRandom(20_261_122);

  /** Events between two times; the last ones have a value of their own. */
  const newRows = (from: number, until: number, count: number, payload?: string) =>
    Array.from({ length: count }, () => {
      const at = from + random(until - from);
      return { id: source.newId(at), at, typeId: 1 + random(2), payload: payload ?? randomPayload(random) };
    });

  beforeAll(async () => {
    source = await fieldDatabase(engine, { now: NOW, from: START, until: TODAY + DAY_MS });
    const { sql, upkeep, database } = source;
    for (const field of DECLARED) await declareField(sql, { appId: 1, ...field, backfill: true });
    await upkeep.everySecond();
    await source.write(newRows(START, NOW, 400));
    await source.settle();
    await upkeep.everySecond();
    await moveBoundary(sql, { days: 2, now: TODAY });
    await upkeep.everyTenMinutes();
    // Pending: of a value that has no id yet, too. And uncounted: what has no values with it.
    await source.write(newRows(BOUNDARY, NOW, 100));
    await source.write(newRows(BOUNDARY, NOW, 7, '{"country":"XX","total":1e3}'));
    const unaware = newRows(BOUNDARY, NOW, 90).map((row) => ({ ...row, appId: 1 }));
    await storeRows(sql, database.engine, unaware);
    backup = join(folder, `${engine}.backup`);
    expect(await run(database, 'backup', backup)).toMatchObject({ code: 0 });
    // A value that has no id yet has no line of its own.
  });
  afterAll(() => source.close());

  test('are those of the rows and of the days before them', async () => {
    const { overall } = (await readAll(source.sql, 1, null)).total as { overall: { count: number } };
    const rows = (await readAll(source.sql, 1, BOUNDARY)).total as { overall: { count: number } };
    expect(overall.count).toBeGreaterThan(rows.overall.count + 50);
    expect(rows.overall.count).toBeGreaterThan(50);
    expect((await readAll(source.sql, 1, BOUNDARY))['total country:XX']).toBe(7);
    expect((await readAll(source.sql, 1, null))['status:200']).toHaveLength(1);
  });

  /** That a database has the same counts, and that they stay exact. */
  async function expectSame(target: TestDatabase): Promise<void> {
    const alone = connect(target.address, { connections: 1, name: 'test upkeep' });
    try {
      const before = await readAll(source.sql, 1, null);
      expect(await readAll(target.sql, 1, null)).toEqual(before);
      const upkeep = new FieldUpkeep(alone, () => TODAY);
      for (let rounds = 0; rounds < 3; rounds += 1) await upkeep.everySecond();
      expect(await readAll(target.sql, 1, null)).toEqual(before);
      expect(await target.sql`SELECT FROM uncounted_minutes`).toHaveLength(0);
      for (let day = BOUNDARY; day <= NOW; day += DAY_MS)
        expect(await readSnapshot(target.sql, (tx) => compareFieldDay(tx, day, null))).toEqual({
          differing: 0,
          examples: [],
        });
    } finally {
      await alone.end();
    }
  }

  describe.each(availableEngines())('after a restore on %s', (targetEngine) => {
    test('are all there, before the retention boundary too, and stay exact', async () => {
      const target = await testDatabase(targetEngine, { empty: true });
      try {
        expect(await run(target, 'restore', backup)).toMatchObject({ code: 0 });
        await expectSame(target);
      } finally {
        await target.drop();
      }
    });

    test('are those of an export that is imported there', async () => {
      const file = join(folder, `${engine}.${targetEngine}.ndjson`);
      const target = await fieldDatabase(targetEngine, { now: NOW, from: START, until: TODAY + DAY_MS });
      try {
        expect(await run(source.database, 'export', file, '--app', 'app1')).toMatchObject({ code: 0 });
        for (const field of DECLARED) await declareField(target.sql, { appId: 1, ...field, backfill: true });
        await target.upkeep.everySecond();
        expect(await run(target.database, 'import', file, '--app', 'app1')).toMatchObject({ code: 0 });
        const before = await readAll(source.sql, 1, BOUNDARY);
        expect(await readAll(target.sql, 1, BOUNDARY)).toEqual(before);
        await target.upkeep.everySecond();
        expect(await readSnapshot(target.sql, (tx) => compareFieldDay(tx, BOUNDARY, null))).toEqual({
          differing: 0,
          examples: [],
        });
      } finally {
        await target.close();
      }
    });
  });

  // After everything else: the original is left.
  test.each(availableEngines())(
    'are all there after a switch to a copy on %s, and stay exact',
    async (targetEngine) => {
      const { database, sql } = source;
      const target = await testDatabase(targetEngine, { empty: true });
      try {
        await readInstallation(sql);
        const args = ['copy', '--from', database.url, '--to', target.url];
        expect(await run(database, ...args)).toMatchObject({ code: 0 });
        // Found by a later round: in minutes that have others.
        const more = newRows(BOUNDARY, NOW, 20);
        await source.write(more);
        expect(await run(database, ...args, '--switch')).toMatchObject({ code: 0 });
        // The original is compared with it, and copied again by the next test.
        await sql`DELETE FROM installation WHERE name = ${MOVED_TO}`;
        const [found] =
          await target.sql`SELECT count(*)::int AS events FROM events WHERE id = ANY(${more.map(({ id }) => id)})`;
        expect(found).toEqual({ events: more.length });
        await expectSame(target);
      } finally {
        await target.drop();
      }
    },
  );
});
