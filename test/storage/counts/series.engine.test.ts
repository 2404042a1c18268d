import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../../src/apps/apps.ts';
import { bucketsOf, WIDTHS, type WidthName } from '../../../src/storage/counts/buckets.ts';
import { profileDay, unprofiledDays } from '../../../src/storage/counts/daily-prefix-sums.ts';
import { readSeries, type Series } from '../../../src/storage/counts/series.ts';
import { readEventPage } from '../../../src/storage/read/event-page.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { runs, sized } from '../../support/fuzz.ts';
import { insertSelected } from '../../support/insert-selected.ts';
import { testSecret } from '../../support/service.ts';
import { upkeepOf } from '../../support/upkeep.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** Both changes of the clock of 2026 in Berlin and New York lie between. */
const START = Date.UTC(2026, 0, 28);
const DAYS = 300;
const END = START + DAYS * DAY_MS;
const TYPES = 12;
const EVENTS = 3_000;
const ZONES = [
  'UTC',
  'Europe/Berlin',
  'America/New_York',
  'Asia/Kolkata',
  'Asia/Kathmandu',
  'Pacific/Auckland',
  'Australia/Lord_Howe',
  'America/Havana',
  'Africa/Casablanca',
  'America/St_Johns',
];

const sum = (counts: readonly number[]): number => counts.reduce((total, count) => total + count, 0);

describe.each(availableEngines())('on %s', (engine) => {
  const { prepare, settle } = upkeepOf(engine);
  let database: TestDatabase;
  let appId: number;
  let typeIds: number[];
  beforeAll(async () => {
    database = await testDatabase(engine);
    const { sql } = database;
    const made = await createApp(sql, await testSecret(), { name: 'Series' });
    const [app] = await sql<[{ id: number }]>`SELECT id FROM apps WHERE public_id = ${made.appId}`;
    appId = app.id;
    const types = await sql<{ id: number }[]>`
      INSERT INTO event_types (public_id, app_id, name)
      SELECT 'typ_' || n, ${appId}, 'type ' || n FROM generate_series(1, ${TYPES}::integer) n RETURNING id`;
    typeIds = types.map(({ id }) => id);
    // Three hundred chunks would be made, refreshed and planned for three thousand events.
    if (engine === 'timescale') await sql`SELECT set_chunk_time_interval('events', INTERVAL '60 days')`;
    await prepare(sql, START, END + DAY_MS);
    await insert(EVENTS);
    await settle(sql);
    // Some days are profiled, some of these get more events, settled or still pending, and some never are profiled.
    if (engine !== 'timescale') {
      const days = await unprofiledDays(sql, END + 2 * DAY_MS);
      expect(days.length).toBeGreaterThan(250);
      for (const day of days) if (day.day % (7 * DAY_MS) !== 0) await profileDay(sql, day);
    }
    await insert(40);
    await settle(sql);
    await insert(40);
  }, 120_000);
  afterAll(() => database.drop());

  /** Events at random times, the first types more often. */
  const insert = async (count: number): Promise<void> => {
    const rows = Array.from({ length: count }, () => ({
      id: randomUUID(),
      type: typeIds[Math.floor(Math.random() ** 2 * TYPES)] ?? 0,
      at: new Date(START + Math.floor(Math.random() * (END - START))).toISOString(),
    }));
    const { sql } = database;
    const selected = sql`
      SELECT id, ${appId}::integer, type, at, '{}'::json
        FROM unnest(${rows.map(({ id }) => id)}::uuid[], ${rows.map(({ type }) => type)}::integer[],
                    ${rows.map(({ at }) => at)}::timestamptz[]) AS row (id, type, at)`;
    await insertSelected(sql, database.engine, selected);
  };

  const totalOf = async (typeId: number | null, from: number | null, until: number): Promise<number> =>
    (
      await readEventPage(database.sql, {
        scope: { appId, typeIds: typeId === null ? null : [typeId], from, until },
        offset: 0,
        limit: 1,
        order: 'asc',
        maxBytes: 1,
      })
    ).total;

  const read = async (request: {
    from: number | null;
    until: number;
    timezone?: string;
    buckets?: number | WidthName;
    typeIds?: readonly number[];
    exactEnds?: 'start' | 'both';
    topTypes?: number;
    exceptTypes?: readonly number[];
  }): Promise<Series> => {
    const { timezone = 'UTC', buckets = 200, typeIds: chosen = null, ...range } = request;
    const series = await readSeries(database.sql, { appId, typeIds: chosen, timezone, buckets, ...range });
    if (typeof series === 'string') throw new Error(series);
    return series;
  };

  test('the sums of a series equal the total of get_events for its range, in any zone and width', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: START - 3 * DAY_MS, max: END - 1 }),
        fc.oneof(
          fc.integer({ min: MINUTE_MS, max: 6 * HOUR_MS }),
          fc.integer({ min: HOUR_MS, max: 20 * DAY_MS }),
          fc.integer({ min: DAY_MS, max: DAYS * DAY_MS }),
        ),
        fc.constantFrom(...ZONES),
        fc.integer({ min: 5, max: 1_000 }),
        async (from, length, timezone, buckets) => {
          const series = await read({ from, until: from + length, timezone, buckets });
          const [begin = 0] = series.starts;
          expect(begin).toBeLessThanOrEqual(from);
          expect(series.end).toBeGreaterThanOrEqual(from + length);
          expect(series.starts.length).toBeLessThanOrEqual(series.bucket === '1mo' ? 12 : buckets);
          expect(sum(series.all)).toBe(await totalOf(null, begin, series.end));
          expect(series.before.all).toBe(await totalOf(null, null, begin));
          const shown = sum(series.types.map(({ total }) => total)) + sum(series.other ?? []);
          expect(shown).toBe(sum(series.all));
          for (const { counts } of [...series.types, { counts: series.all }])
            expect(counts).toHaveLength(series.starts.length);
        },
      ),
      runs(sized(10, 120)),
    );
  }, 120_000);

  test('each bucket and each type hold what get_events finds in them, and before them', async () => {
    for (const [timezone, from, length, buckets] of [
      ['Europe/Berlin', Date.UTC(2026, 2, 28), 3 * DAY_MS, 12],
      ['America/New_York', Date.UTC(2026, 9, 31), 3 * DAY_MS, 30],
      ['Asia/Kathmandu', Date.UTC(2026, 4, 3), 40 * DAY_MS, 41],
      ['Australia/Lord_Howe', Date.UTC(2026, 3, 4), 2 * DAY_MS, 60],
      ['Pacific/Auckland', START, DAYS * DAY_MS, 14],
    ] as const) {
      const series = await read({
        from,
        until: from + length,
        timezone,
        buckets,
        typeIds: typeIds.slice(0, 2),
      });
      expect(series.other).toBeNull();
      for (const [place, start] of series.starts.entries()) {
        const end = series.starts[place + 1] ?? series.end;
        for (const [i, typeId] of typeIds.slice(0, 2).entries()) {
          const own = series.types.find((type) => type.typeId === `typ_${i + 1}`);
          expect(own?.counts[place]).toBe(await totalOf(typeId, start, end));
        }
      }
      for (const [i, typeId] of typeIds.slice(0, 2).entries())
        expect(series.before.byType[`typ_${i + 1}`]).toBe(await totalOf(typeId, null, series.starts[0] ?? 0));
    }
  }, 60_000);

  test('with exact ends, the first and the last bucket count what lies between them, whatever the width', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: START - 3 * DAY_MS, max: END - 1 }),
        fc.oneof(
          fc.integer({ min: 1, max: 3 * MINUTE_MS }),
          fc.integer({ min: MINUTE_MS, max: 6 * HOUR_MS }),
          fc.integer({ min: HOUR_MS, max: DAYS * DAY_MS }),
        ),
        fc.constantFrom(...ZONES),
        fc.oneof(fc.integer({ min: 5, max: 1_000 }), fc.constantFrom(...WIDTHS)),
        fc.constantFrom('both', 'start'),
        async (from, length, timezone, buckets, exactEnds) => {
          const request = { from, until: from + length, timezone, buckets, exactEnds, topTypes: TYPES };
          const series = await readSeries(database.sql, { appId, typeIds: null, ...request });
          if (series === 'too many' && typeof buckets === 'string') return;
          if (typeof series === 'string') throw new Error(series);
          const until = exactEnds === 'both' ? from + length : series.end;
          expect(series.interval).toEqual({ from, until });
          expect(sum(series.all)).toBe(await totalOf(null, from, until));
          expect(series.all[0]).toBe(
            await totalOf(null, from, Math.min(series.starts[1] ?? series.end, until)),
          );
          expect(series.before.all).toBe(await totalOf(null, null, from));
          expect(series.other).toBeNull();
          const [first] = series.types;
          if (first === undefined) return;
          const typeId = typeIds[Number(first.typeId.slice(4)) - 1] ?? 0;
          expect(first.total).toBe(await totalOf(typeId, from, until));
          expect(series.before.byType[first.typeId]).toBe(await totalOf(typeId, null, from));
        },
      ),
      runs(sized(12, 80)),
    );
  }, 120_000);

  test('a width that would make more than 1,000 buckets is refused', async () => {
    const request = { appId, typeIds: null, timezone: 'UTC', from: START };
    const until = START + 1_001 * MINUTE_MS;
    expect(await readSeries(database.sql, { ...request, until, buckets: '1m' })).toBe('too many');
    expect(await readSeries(database.sql, { ...request, until: until - 1, buckets: '1m' })).toBe('too many');
    expect((await read({ from: START, until: until - MINUTE_MS, buckets: '1m' })).all).toHaveLength(1_000);
  });

  test('without a choice the nine types with the most events are shown, most first, and the rest as other', async () => {
    const series = await read({ from: START, until: END, buckets: 40 });
    const totals = await Promise.all(
      typeIds.map(async (typeId, i) => ({
        typeId: `typ_${i + 1}`,
        total: await totalOf(typeId, START, END),
      })),
    );
    totals.sort((a, b) => b.total - a.total);
    expect(series.types.map(({ total }) => total)).toEqual(totals.slice(0, 9).map(({ total }) => total));
    expect(sum(series.other ?? [])).toBe(sum(totals.slice(9).map(({ total }) => total)));
  });

  test('types that are left out are in no number of a series', async () => {
    const exceptTypes = typeIds.slice(0, 2);
    const range = { from: START + DAY_MS + 1, until: END - HOUR_MS - 1, exactEnds: 'both' } as const;
    const whole = await read({ ...range, buckets: 40 });
    const left = await read({ ...range, buckets: 40, exceptTypes });
    const out = await read({ ...range, buckets: 40, typeIds: exceptTypes });
    expect(sum(out.all)).toBeGreaterThan(0);
    expect(left.all).toEqual(whole.all.map((count, index) => count - (out.all[index] ?? 0)));
    expect(left.before.all).toBe(whole.before.all - out.before.all);
    expect(left.types.some(({ typeId }) => ['typ_1', 'typ_2'].includes(typeId))).toBe(false);
    expect(sum(left.types.map(({ total }) => total)) + sum(left.other ?? [])).toBe(sum(left.all));
  });

  test('without a beginning a series starts with the app, and with nothing before it', async () => {
    const series = await read({ from: null, until: END, buckets: 1_000 });
    expect(series.before.all).toBe(0);
    expect(sum(series.all)).toBe(await totalOf(null, null, END));
  });

  test('an app without events has zeros', async () => {
    const made = await createApp(database.sql, await testSecret(), { name: 'Empty' });
    const [app] = await database.sql<[{ id: number }]>`SELECT id FROM apps WHERE public_id = ${made.appId}`;
    const request = { appId: app.id, typeIds: null, timezone: 'UTC', buckets: 24 };
    const series = await readSeries(database.sql, { ...request, from: END - DAY_MS, until: END });
    expect(series).toMatchObject({ bucket: '1h', types: [], other: null, before: { all: 0, byType: {} } });
    expect(typeof series === 'string' ? [1] : [...new Set(series.all)]).toEqual([0]);
  });

  test('before the retention boundary a series continues from counts and says so', async () => {
    const edge = START + 200 * DAY_MS;
    await database.sql`UPDATE retention SET readable_from = ${edge}`;
    const series = await read({ from: edge - HOUR_MS, until: edge + HOUR_MS, buckets: 1_000 });
    expect(series).toMatchObject({ bucket: '15m', countsOnlyBefore: edge });
    expect((await read({ from: edge, until: edge + HOUR_MS, buckets: 1_000 })).countsOnlyBefore).toBeNull();
    // Rows and minutes are gone before it: an exact end becomes a quarter-hour.
    const quarter = edge - DAY_MS;
    const exact = { from: quarter + MINUTE_MS, until: edge + HOUR_MS + 1, exactEnds: 'both' } as const;
    expect((await read(exact)).interval).toEqual({ from: quarter, until: edge + HOUR_MS + 1 });
    const early = { ...exact, until: edge - HOUR_MS + 1 };
    expect((await read(early)).interval).toEqual({ from: quarter, until: edge - HOUR_MS + 15 * MINUTE_MS });
    const fine = { appId, typeIds: null, timezone: 'UTC', buckets: '5m', ...exact } as const;
    expect(await readSeries(database.sql, fine)).toBe('too fine');
    const long = await read({ from: START, until: END, buckets: 400 });
    expect(sum(long.all)).toBe(EVENTS + 80);
    await database.sql`UPDATE retention SET readable_from = '-infinity'`;
  });
});

describe('buckets', () => {
  const startsOf = (zone: string, from: string, until: string, most: number, finestMs: number): string[] =>
    (
      bucketsOf({ from: Date.parse(from), until: Date.parse(until) }, { zone, most, finestMs })?.starts ?? []
    ).map((start) => new Date(start).toISOString().slice(5, 16));

  test('days begin at local midnight, and are 23 and 25 hours long where the clock changes', () => {
    expect(startsOf('Europe/Berlin', '2026-03-28T12:00Z', '2026-03-30T12:00Z', 3, DAY_MS)).toEqual([
      '03-27T23:00',
      '03-28T23:00',
      '03-29T22:00',
    ]);
    expect(startsOf('America/New_York', '2026-10-31T12:00Z', '2026-11-02T12:00Z', 3, DAY_MS)).toEqual([
      '10-31T04:00',
      '11-01T04:00',
      '11-02T05:00',
    ]);
  });

  test('of several hours begin at multiples of the local clock; the one with the change is longer or shorter', () => {
    expect(startsOf('Europe/Berlin', '2026-03-28T23:00Z', '2026-03-29T10:00Z', 5, 3 * HOUR_MS)).toEqual([
      '03-28T23:00',
      '03-29T01:00',
      '03-29T04:00',
      '03-29T07:00',
    ]);
    expect(startsOf('Europe/Berlin', '2026-10-24T22:00Z', '2026-10-25T11:00Z', 5, 3 * HOUR_MS)).toEqual([
      '10-24T22:00',
      '10-25T02:00',
      '10-25T05:00',
      '10-25T08:00',
    ]);
  });

  test('hours stay hours, and one happens twice in autumn', () => {
    const starts = startsOf('Europe/Berlin', '2026-10-24T23:00Z', '2026-10-25T03:00Z', 9, HOUR_MS);
    expect(starts).toEqual(['10-24T23:00', '10-25T00:00', '10-25T01:00', '10-25T02:00']);
  });

  test('begin at the jump where midnight does not exist, and once where it happens twice', () => {
    expect(startsOf('America/Havana', '2026-03-07T12:00Z', '2026-03-09T12:00Z', 3, DAY_MS)).toEqual([
      '03-07T05:00',
      '03-08T05:00',
      '03-09T04:00',
    ]);
    expect(startsOf('America/Havana', '2026-10-31T12:00Z', '2026-11-02T12:00Z', 3, DAY_MS)).toEqual([
      '10-31T04:00',
      '11-01T04:00',
      '11-02T05:00',
    ]);
  });

  test('weeks begin on Mondays and months on the first, at +05:45 too', () => {
    expect(startsOf('Asia/Kathmandu', '2026-11-18T12:00Z', '2026-11-24T12:00Z', 2, 7 * DAY_MS)).toEqual([
      '11-15T18:15',
      '11-22T18:15',
    ]);
    expect(startsOf('Asia/Kathmandu', '2026-01-31T19:00Z', '2026-03-01T00:00Z', 3, 28 * DAY_MS)).toEqual([
      '01-31T18:15',
      '02-28T18:15',
    ]);
  });

  test('are never more than asked for, and cover the range without a gap', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: Date.UTC(1971, 0, 1), max: Date.UTC(2035, 0, 1) }),
        fc.integer({ min: 1, max: 30 * 365 * DAY_MS }),
        fc.constantFrom(...ZONES),
        fc.integer({ min: 1, max: 1_000 }),
        (from, length, zone, most) => {
          const buckets = bucketsOf({ from, until: from + length }, { zone, most, finestMs: 0 });
          if (buckets === null) return false;
          const edges = [...buckets.starts, buckets.end];
          return (
            buckets.starts.length <= (buckets.width.name === '1mo' ? 1_000 : most) &&
            (edges[0] ?? 0) <= from &&
            (edges[1] ?? 0) > from &&
            buckets.end >= from + length &&
            (edges.at(-2) ?? 0) < from + length &&
            edges.every((edge, i) => i === 0 || edge > (edges[i - 1] ?? 0)) &&
            edges.every((edge) => edge % MINUTE_MS === 0)
          );
        },
      ),
      { numRuns: 300 },
    );
  });
});
