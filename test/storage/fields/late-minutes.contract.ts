/** What nothing but counts answers is read from rows where minutes are not counted yet, as far as one read may look. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { declareField } from '../../../src/apps/fields.ts';
import { setRetention } from '../../../src/apps/retention.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../../src/storage/counts/levels.ts';
import type { EventReader } from '../../../src/storage/read/event-reader.ts';
import { openStorage } from '../../../src/storage/storage.ts';
import { availableEngines } from '../../support/database.ts';
import {
  type FieldDatabase,
  type FieldEvent,
  fieldDatabase,
  type OpenFieldDatabase,
} from '../../support/field-database.ts';
import {
  expectPages,
  expectSeries,
  fieldFilter,
  numberSeries,
  type Oracle,
  randomPayload,
  seededRandom,
} from '../../support/field-oracle.ts';

const NOW = Math.floor(Date.now() / DAY_MS) * DAY_MS + 12 * HOUR_MS;
/** More minutes than one read may look at. */
const TOO_MANY = 5_100;

function lateMinutes(open: OpenFieldDatabase): void {
  let fields: FieldDatabase;
  let reader: EventReader;
  const rows: FieldEvent[] = [];
  const random = seededRandom(20_261_122);
  const filter = fieldFilter('status:200');
  const list = { appId: 1, typeIds: null, from: null, until: null, order: 'asc', after: null } as const;
  const page = { ...list, limit: 5, maxBytes: 1_000_000 };
  const withTotal = { ...page, withTotal: true };

  beforeAll(async () => {
    fields = await open({ now: NOW, from: NOW - 5 * DAY_MS, until: NOW + DAY_MS });
    reader = (await openStorage(fields.sql)).reader(fields.sql);
    for (const [path, kind] of [
      ['status', 'value'],
      ['total', 'number'],
    ] as const)
      await declareField(fields.sql, { appId: 1, path: [path], kind, typeName: null, backfill: true });
    await fields.upkeep.everySecond();
  });
  afterAll(() => fields.close());

  /** Events a minute apart whose values are left to maintenance, as a replay leaves them. */
  async function insert(count: number, ago: number, payload?: string): Promise<void> {
    const made = Array.from({ length: count }, (_, n) => {
      const at = NOW - ago - n * MINUTE_MS;
      return { id: fields.newId(at), at, typeId: 1 + (n % 2), payload: payload ?? randomPayload(random) };
    });
    await fields.store(made);
    rows.push(...made);
  }

  const oracle = (): Oracle => ({ counts: fields.counts, reader, events: rows, random, now: NOW });
  const matching = (): number => rows.filter(({ payload }) => filter.rows.matches(payload)).length;

  test('do not keep totals and series from being read', async () => {
    await insert(300, 10 * MINUTE_MS);
    // A search finds the page as well.
    expect(await reader.filteredList(page, filter)).toBe('not counted yet');
    expect(await reader.filteredList(withTotal, filter)).toMatchObject({ total: matching() });
    for (let rounds = 0; rounds < 3; rounds += 1) {
      expect(await expectPages(oracle())).toBeGreaterThan(0);
      expect(await expectSeries(oracle())).toBeGreaterThan(0);
    }
  });

  test('are to be waited for where they are too many, and counted within seconds', async () => {
    const { sql, upkeep, clock } = fields;
    await insert(TOO_MANY, 9 * MINUTE_MS + 1, '{"status":200,"total":2}');
    const series = {
      ...{ appId: 1, typeIds: null, from: NOW - 4 * DAY_MS, until: NOW },
      ...({ timezone: 'UTC', buckets: 10, exactEnds: 'both', withBefore: true } as const),
    };
    for (const read of [
      () => reader.filteredList(withTotal, filter),
      () => reader.filteredSeries(series, filter),
      () => reader.valueSeries({ ...series, topTypes: 3 }, ['status']),
      () => numberSeries(reader, series, ['total']),
    ])
      expect(await read()).toBe('not counted yet');
    await upkeep.everySecond();
    await fields.settle();
    clock.now += 2 * MINUTE_MS;
    await upkeep.everySecond();
    await upkeep.everySecond();
    expect(await sql`SELECT FROM uncounted_minutes WHERE app_id = 1`).toHaveLength(0);
    expect(await reader.filteredList(withTotal, filter)).toMatchObject({ total: matching() });
    expect(await reader.filteredList(page, filter)).toHaveProperty('events');
    const numbers = await numberSeries(reader, series, ['total']);
    expect(numbers).toHaveProperty('overall.count');
  });

  test('are looked at only while they have few rows, however few minutes they are', async () => {
    const { sql, upkeep, clock } = fields;
    const at = NOW - 2 * HOUR_MS;
    const made = Array.from({ length: 50_001 }, (_, n) => {
      const time = at + n;
      return { id: fields.newId(time), at: time, typeId: 1, payload: '{"status":200,"total":2}' };
    });
    await fields.store(made);
    rows.push(...made);
    const around = { from: at - MINUTE_MS, until: at + MINUTE_MS };
    const series = {
      ...{ appId: 1, typeIds: null, ...around },
      ...({ timezone: 'UTC', buckets: 10, exactEnds: 'both', withBefore: false } as const),
    };
    expect(await reader.filteredList({ ...page, ...around }, filter)).toBe('not counted yet');
    expect(await reader.filteredList({ ...withTotal, ...around }, filter)).toBe('not counted yet');
    expect(await reader.filteredSeries(series, filter)).toBe('not counted yet');
    expect(await numberSeries(reader, series, ['total'])).toBe('not counted yet');
    // Those of another type are not among them.
    expect(await reader.filteredList({ ...withTotal, ...around, typeIds: [2] }, filter)).toHaveProperty(
      'total',
    );
    await upkeep.everySecond();
    await fields.settle();
    clock.now += 2 * MINUTE_MS;
    await upkeep.everySecond();
    await upkeep.everySecond();
    expect(await sql`SELECT FROM uncounted_minutes WHERE app_id = 1`).toHaveLength(0);
    const inMinute = rows.filter((row) => row.at >= around.from && row.at < around.until);
    expect(await reader.filteredList({ ...withTotal, ...around }, filter)).toMatchObject({
      total: inMinute.filter(({ payload }) => filter.rows.matches(payload)).length,
    });
  });

  test('a minute that an end of the interval cuts is looked at only while it has few rows', async () => {
    const { sql } = fields;
    const at = NOW - 4 * DAY_MS;
    // What counts have of them does not matter: nothing of the minute is left to maintenance.
    await sql`
      INSERT INTO events (id, app_id, type_id, created_at, payload)
      SELECT gen_random_uuid(), 1, 1, ${new Date(at)}::timestamptz + n * interval '0.2 milliseconds', '{"status":200}'
        FROM generate_series(1, 200001) AS n`;
    const inside = at + 30_000;
    const scope = { ...withTotal, typeIds: [1] };
    expect(await reader.filteredList({ ...scope, from: inside }, filter)).toBe('not counted');
    expect(await reader.filteredList({ ...scope, until: inside }, filter)).toBe('not counted yet');
    const before = { from: at - MINUTE_MS + 1, until: at };
    expect(await reader.filteredList({ ...scope, ...before }, filter)).toHaveProperty('total', 0);
  });

  test('have what retention hides in them: before they are counted, after it, and once the rows are gone', async () => {
    const { sql, upkeep, clock } = fields;
    for (const [path, kind] of [
      ['status', 'value'],
      ['total', 'number'],
      ['user', 'distinct'],
    ] as const)
      await declareField(sql, { appId: 2, path: [path], kind, typeName: null, backfill: true });
    for (const typeName of ['type3', 'type4'])
      await declareField(sql, { appId: 2, path: ['total'], kind: 'number', typeName, backfill: true });
    for (let second = 0; second < 3; second += 1) await upkeep.everySecond();
    const start = NOW - 3 * DAY_MS + 5 * MINUTE_MS;
    let stored = 0;
    const store = async (...typeIds: number[]): Promise<void> => {
      const made = typeIds.map((typeId) => {
        const at = start + stored++;
        return { id: fields.newId(at), at, typeId, payload: `{"status":200,"total":2,"user":${stored}}` };
      });
      await fields.store(made);
    };
    const count = async (): Promise<void> => {
      await fields.settle();
      clock.now += 2 * MINUTE_MS;
      for (let second = 0; second < 3; second += 1) await upkeep.everySecond();
      expect(await sql`SELECT FROM uncounted_minutes WHERE app_id = 2`).toHaveLength(0);
    };
    const series = {
      ...{ appId: 2, typeIds: null, from: NOW - 4 * DAY_MS, until: NOW },
      ...({ timezone: 'UTC', buckets: 10, exactEnds: 'both', withBefore: false } as const),
    };
    const sum = (counts: readonly number[] = []): number => counts.reduce((all, one) => all + one, 0);
    const numbers = async (typeIds: readonly number[] | null): Promise<unknown> => {
      const found = await numberSeries(reader, { ...series, typeIds }, ['total']);
      return typeof found === 'string' ? found : Number(found.overall.sum);
    };
    const expectAll = async (ofThree: number, ofFour: number): Promise<void> => {
      const all = ofThree + ofFour;
      expect([await numbers(null), await numbers([3]), await numbers([4])]).toEqual([
        2 * all,
        2 * ofThree,
        2 * ofFour,
      ]);
      const question = { kind: 'distinct', of: ['user'], by: null, filter: null } as const;
      expect(await reader.summarySeries({ ...series, question })).toMatchObject({
        lines: [{ overall: { distinct: all } }],
      });
      for (const found of [
        await reader.valueSeries({ ...series, topTypes: 3 }, ['status']),
        await reader.filteredSeries(series, filter),
      ]) {
        if (typeof found === 'string') throw new Error(found);
        expect(found.lines.reduce((every, { counts }) => every + sum(counts), 0)).toBe(all);
      }
    };
    const settings = { RETENTION_DAYS: 0, CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 0, CONSUMER_REACH_HOURS: 1 };
    const storage = await openStorage(sql);
    const tasks = storage.maintenance({ sql: fields.alone, slow: sql }, settings, () => clock.now);
    const rowsLeft = async (): Promise<number> => {
      await tasks.everyTenMinutes();
      return (await sql`SELECT FROM events WHERE app_id = 2 AND type_id = 3`).length;
    };
    await store(3, 3, 3, 4);
    await setRetention(sql, settings, { appId: 'app2', type: 'type3', days: 1, now: clock.now });
    expect(await rowsLeft()).toBe(3);
    await count();
    await expectAll(3, 1);
    expect(await rowsLeft()).toBe(0);
    await expectAll(3, 1);
    await store(4);
    await expectAll(3, 2);
    await count();
    await expectAll(3, 2);
  });
}

describe.each(availableEngines())('minutes that are counted late on %s', (engine) =>
  lateMinutes((time) => fieldDatabase(engine, time)),
);
