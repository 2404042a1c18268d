/** Summaries of numbers through recounts, deletions, retention and removals. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { declareField, listFields, removeField } from '../../../src/apps/fields.ts';
import { DAY_MS, HOUR_MS, LEVELS, MINUTE_MS } from '../../../src/storage/counts/levels.ts';
import { checkCounts } from '../../../src/storage/counts/recount.ts';
import type { NumberStats } from '../../../src/storage/counts/summary-series.ts';
import { ENGINES } from '../../../src/storage/engines/engines.ts';
import { compareFieldDay } from '../../../src/storage/fields/recount.ts';
import { markAppDeleted, removeDeletedApps } from '../../../src/storage/maintenance/deleted-apps.ts';
import { readSnapshot } from '../../../src/storage/read/snapshot.ts';
import { moveBoundary } from '../../../src/storage/retention.ts';
import { openStorage, type Storage } from '../../../src/storage/storage.ts';
import { availableEngines } from '../../support/database.ts';
import {
  type FieldDatabase,
  type FieldEvent,
  fieldDatabase,
  type OpenFieldDatabase,
} from '../../support/field-database.ts';

const DAY = Math.floor(Date.now() / DAY_MS) * DAY_MS - 2 * DAY_MS;
const EVENTS = 96;
const TABLES = LEVELS.map(({ name }) => `field_${name}_counts`);

function fieldNumbers(open: OpenFieldDatabase): void {
  let fields: FieldDatabase;
  let storage: Storage;
  let events: FieldEvent[] = [];

  beforeAll(async () => {
    fields = await open({ now: DAY + 2 * DAY_MS, from: DAY, until: DAY + 4 * DAY_MS });
    storage = await openStorage(fields.sql);
    for (const appId of [1, 2])
      await declareField(fields.sql, { ...amount, appId, typeName: null, backfill: true });
    await declareField(fields.sql, { ...amount, typeName: 'type2', backfill: true });
    await fields.upkeep.everySecond();
    await write(Array.from({ length: EVENTS }, (_, n) => DAY + Math.floor((n * DAY_MS) / EVENTS)));
    await write([DAY + 1, DAY + HOUR_MS], 3);
    await settleAll();
  });
  afterAll(() => fields.close());

  const amount = { appId: 1, path: ['amount'], kind: 'number' } as const;

  async function write(times: readonly number[], firstType = 1): Promise<void> {
    const made = times.map((at, n) => {
      const value = `${(n * 37) % 101}.${n % 10}`;
      return { id: fields.newId(at), at, typeId: firstType + (n % 2), payload: `{"amount":${value}}` };
    });
    await fields.write(made);
    if (firstType === 1) events.push(...made);
  }

  async function settleAll(): Promise<void> {
    await fields.settle();
    await fields.upkeep.everySecond();
  }

  /** Of all numbers of app 1, from summaries of days, quarter-hours and minutes. */
  async function statsOf(typeIds: readonly number[] | null): Promise<NumberStats[]> {
    const reader = storage.reader(fields.sql);
    const all = await Promise.all(
      [DAY, DAY - 1, DAY - 15 * MINUTE_MS + 7].map((from) =>
        reader.numberSeries(
          {
            ...{ appId: 1, typeIds, from, until: DAY + 2 * DAY_MS },
            timezone: 'UTC',
            buckets: 3,
            exactEnds: 'both',
          },
          ['amount'],
        ),
      ),
    );
    return all.map((series) => {
      if (typeof series === 'string') throw new Error(series);
      return series.overall;
    });
  }

  async function expectExact(what: string): Promise<void> {
    for (const typeIds of [null, [2], [1, 2]]) {
      const tenths = events
        .filter(({ typeId }) => typeIds?.includes(typeId) ?? true)
        .map(({ payload }) => Math.round(Number(payload.slice(10, -1)) * 10))
        .sort((a, b) => a - b);
      const text = (value: number | undefined): string => String((value ?? 0) / 10);
      const expected = {
        count: tenths.length,
        sum: text(tenths.reduce((sum, value) => sum + value, 0)),
        min: text(tenths[0]),
        max: text(tenths.at(-1)),
      };
      for (const stats of await statsOf(typeIds)) expect(stats, what).toMatchObject(expected);
    }
  }

  const differing = async (): Promise<number | undefined> => (await compare())?.differing;

  const compare = () =>
    readSnapshot(fields.counts, (tx) => compareFieldDay(tx, DAY, null, () => false, fields.sql));

  async function recount(): Promise<number> {
    let found = 0;
    await storage.recount(fields.alone, { from: DAY, until: DAY + DAY_MS }, (day) => {
      found += day.differing;
    });
    return found;
  }

  test('what is kept agrees with the rows, folded or not', async () => {
    await expectExact('folded');
    await write([DAY + 7, DAY + HOUR_MS, DAY + HOUR_MS + 1]);
    await expectExact('pending');
    expect(await differing()).toBe(0);
    for (let n = 0; n < 30; n += 1) await write([DAY + 7 + n, DAY + HOUR_MS + n]);
    await fields.upkeep.everySecond();
    await expectExact('counted in part');
    await settleAll();
    await expectExact('folded again');
    expect(await differing()).toBe(0);
  });

  const ofApp = "app_id = 1 AND bucket > '1970-01-01' AND summary IS NOT NULL";
  const another = `(SELECT summary FROM field_hour_counts WHERE ${ofApp} ORDER BY length(summary) DESC LIMIT 1)`;
  test.each([
    [
      'minutes that are missing',
      'minute',
      `DELETE FROM field_minute_counts WHERE ${ofApp}
         AND series_id IN (SELECT id FROM field_series WHERE type_id = 1)`,
    ],
    [
      'quarter-hours',
      'quarter_hour',
      `UPDATE field_quarter_hour_counts SET summary = ${another} WHERE ${ofApp}`,
    ],
    ['days', 'day', `UPDATE field_day_counts SET summary = summary || summary WHERE ${ofApp}`],
  ])('%s that are wrong are found, and recounted', async (_name, level, corruption) => {
    await settleAll();
    // Something is pending while it is recounted.
    await write([DAY + 11, DAY + 13 * HOUR_MS]);
    const corrupt = await fields.counts.begin('isolation level read committed', async (tx) => {
      return (await tx.unsafe(corruption)).count;
    });
    expect(corrupt).toBeGreaterThan(0);
    const found = await compare();
    expect(found?.examples[0]).toMatchObject({ level, app: 'app1', field: { path: ['amount'] } });
    const { alone, clock, database } = fields;
    const kind = ENGINES[database.engine];
    const checked = await checkCounts(alone, kind, clock.now);
    expect(checked.days.find(({ day }) => day === DAY)).toMatchObject({ differing: found?.differing });

    expect(await recount()).toBe(found?.differing);
    expect(await differing()).toBe(0);
    await expectExact('recounted');
    await settleAll();
    expect(await differing()).toBe(0);
    await expectExact('folded');
  });

  test('a minimum and a maximum whose events are deleted are gone after a recount', async () => {
    await settleAll();
    const extremes = [
      { id: fields.newId(DAY + 5), at: DAY + 5, typeId: 1, payload: '{"amount":-999.5}' },
      { id: fields.newId(DAY + 6), at: DAY + 6, typeId: 2, payload: '{"amount":100000.1}' },
    ];
    await fields.write(extremes);
    events.push(...extremes);
    await expectExact('with them');
    await settleAll();
    await fields.sql`DELETE FROM events WHERE id = ANY(${extremes.map(({ id }) => id)}::uuid[])`;
    events = events.filter((event) => !extremes.includes(event));
    expect(await differing()).toBeGreaterThan(0);
    await recount();
    await expectExact('without them');
    await settleAll();
    expect(await differing()).toBe(0);
    await expectExact('folded');
  });

  test('what retention leaves is by the quarter-hour, and exact', async () => {
    await settleAll();
    await moveBoundary(fields.sql, { days: 1, now: DAY + 2 * DAY_MS });
    await fields.upkeep.everyTenMinutes();
    const [minutes] = await fields.sql`SELECT count(*)::int AS count FROM field_minute_counts`;
    expect(minutes?.count).toBe(0);
    await expectExact('from coarser summaries');
    expect(await recount()).toBe(0);
    await fields.upkeep.everySecond();
    await expectExact('after a recount');
  });

  test('a removed field, and a deleted app, take their numbers with them', async () => {
    const { sql, alone, upkeep, database } = fields;
    const left = async (): Promise<string[]> => {
      // Joined here: a cluster joins no tables that are distributed in different ways.
      const series = await sql<
        { app_id?: number; id: number; field_id: number }[]
      >`SELECT * FROM field_series`;
      // In a cluster an id is one of its app alone.
      const fieldOf = (appId: number, seriesId: number): number | undefined =>
        series.find(({ app_id = appId, id }) => app_id === appId && id === seriesId)?.field_id;
      const counts = await Promise.all(
        TABLES.map(
          (table) => sql<{ appId: number; seriesId: number }[]>`
            SELECT DISTINCT app_id AS "appId", series_id AS "seriesId" FROM ${sql(table)}`,
        ),
      );
      const keys = counts
        .flat()
        .map(({ appId, seriesId }) => `${appId} ${fieldOf(appId, seriesId) ?? 'none'}`);
      return [...new Set(keys)].sort();
    };
    expect(await left()).toEqual(['1 1', '1 3', '2 2']);
    await removeField(sql, { ...amount, typeName: 'type2' });
    await upkeep.everyTenMinutes();
    expect(await left()).toEqual(['1 1', '2 2']);
    expect(await listFields(sql, 1)).toHaveLength(1);
    await write([DAY + 2 * DAY_MS + 1], 3);
    await sql.begin(async (tx) => {
      await tx`DELETE FROM apps WHERE id = 2`;
      await markAppDeleted(tx, 2);
    });
    expect(await removeDeletedApps(alone, ENGINES[database.engine].removal, () => 0, 1)).toBe(true);
    expect(await left()).toEqual(['1 1']);
  });
}

describe.each(availableEngines())('on %s', (engine) => fieldNumbers((time) => fieldDatabase(engine, time)));
