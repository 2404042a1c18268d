/** Totals, pages and series of a declared field are what a computation over all payloads gives, whatever is counted yet. */
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { declareField } from '../../../src/apps/fields.ts';
import { createEventIds } from '../../../src/ingest/event-id.ts';
import { countedValues } from '../../../src/read/filter/counted-values.ts';
import { parseFilter } from '../../../src/read/filter/parse-filter.ts';
import { payloadFilter } from '../../../src/read/filter/payload-filter.ts';
import { connect, type Sql } from '../../../src/storage/connect.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../../src/storage/counts/levels.ts';
import { readPageIn } from '../../../src/storage/event-page.ts';
import { DeclaredFields } from '../../../src/storage/fields/declared-fields.ts';
import { type FieldFilter, resolveFieldScope } from '../../../src/storage/fields/field-scope.ts';
import { foldFields } from '../../../src/storage/fields/fold.ts';
import { PayloadValues } from '../../../src/storage/fields/payload-values.ts';
import { FieldUpkeep } from '../../../src/storage/fields/upkeep.ts';
import { MANY } from '../../../src/storage/fields/value-text.ts';
import { moveBoundary } from '../../../src/storage/retention.ts';
import { readSnapshot } from '../../../src/storage/snapshot.ts';
import { type EventReader, openStorage } from '../../../src/storage/storage.ts';
import { EventWriter } from '../../../src/storage/write/event-writer.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { SOURCE } from '../../support/source.ts';
import { storeRows } from '../../support/stored-events.ts';
import { upkeepOf } from '../../support/upkeep.ts';

const TODAY = Math.floor(Date.now() / DAY_MS) * DAY_MS;
const NOW = TODAY + 12 * HOUR_MS;
const PLENTY = 1_000_000;
const FILTERS = [
  'country:DE',
  'country:FR,IT',
  'status:200',
  'status:"200"',
  'status:null',
  'country:XX',
  'user.id:7',
];
const newId = createEventIds();

interface Row {
  readonly id: string;
  readonly at: number;
  readonly typeId: number;
  readonly payload: string;
}

describe.each(availableEngines())('on %s', (engine) => {
  const { prepare, settle } = upkeepOf(engine);
  let database: TestDatabase;
  let sql: Sql;
  let alone: Sql;
  let upkeep: FieldUpkeep;
  let writer: EventWriter;
  let reader: EventReader;
  const known = new DeclaredFields();
  let rows: Row[] = [];
  let now = NOW;
  /** A number that follows from the ones before. */
  let seed = 20_261_122;
  const random = (below: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((seed / 2_147_483_648) * below);
  };

  beforeAll(async () => {
    database = await testDatabase(engine);
    sql = database.sql;
    alone = connect(database.address, { connections: 1, name: 'test upkeep' });
    upkeep = new FieldUpkeep(alone, () => now);
    reader = (await openStorage(sql)).reader(sql);
    writer = new EventWriter({
      address: database.address,
      engine: database.engine,
      connections: 2,
      fields: known,
      log: pino({ level: 'silent' }),
      now: () => performance.now(),
    });
    await sql`INSERT INTO apps (public_id, name) SELECT 'app' || n, 'app' FROM generate_series(1, 2) n`;
    await sql`
      INSERT INTO event_types (public_id, app_id, name)
      SELECT 'type' || n, 1 + (n - 1) / 2, 'type' || n FROM generate_series(1, 4) n`;
    await prepare(sql, NOW - 4 * DAY_MS, NOW + DAY_MS);
  });
  afterAll(async () => {
    await writer.close();
    await alone.end();
    await database.drop();
  });

  const payload = (): string => {
    const country = [
      '"DE"',
      '"D\\u0045"',
      '"FR"',
      '"IT"',
      'null',
      '["IT"]',
      '{}',
      random(9) > 0 ? '[]' : '["DE","FR"]',
    ][random(8)];
    const status = ['200', '2e2', '"200"', '404', 'null', 'true', `"${'x'.repeat(201)}"`][random(7)];
    return `{"country":${country},"status":${status},"user":{"id":${random(12)}}}`;
  };

  /** Rows of the recent past, now and then of days ago, or some minutes ahead. */
  const newRows = (count: number): Row[] =>
    Array.from({ length: count }, () => {
      const ago = [random(20 * MINUTE_MS), random(3 * HOUR_MS), random(3 * DAY_MS), -random(3 * MINUTE_MS)][
        random(4)
      ];
      const at = now - (ago ?? 0);
      return { id: newId(at), at, typeId: 1 + random(2), payload: payload() };
    });

  async function write(count: number): Promise<void> {
    const made = newRows(count);
    const events = made.map(({ id, at, typeId, payload: text }) => ({
      id,
      appId: 1,
      typeId,
      createdAt: at,
      payload: text,
      source: SOURCE,
    }));
    expect(new Set(await writer.write(events))).toEqual(new Set([null]));
    rows.push(...made);
  }

  async function insert(count: number): Promise<void> {
    const made = newRows(count);
    await storeRows(
      sql,
      database.engine,
      made.map((row) => ({ ...row, appId: 1 })),
    );
    rows.push(...made);
  }

  function fieldFilter(text: string): FieldFilter {
    const condition = parseFilter(text);
    if ('problem' in condition) throw new Error(condition.problem);
    const values = countedValues(condition);
    const filter = payloadFilter([condition], null);
    if (values === null || filter === null) throw new Error(`${text} is not about values`);
    return { path: condition.path, values, rows: filter };
  }

  interface Scope {
    readonly typeIds: readonly number[] | null;
    readonly from: number | null;
    readonly until: number | null;
  }

  const within = ({ typeIds, from, until }: Scope, { at, typeId }: Row): boolean =>
    (typeIds === null || typeIds.includes(typeId)) &&
    at >= (from ?? 0) &&
    at < (until ?? Number.POSITIVE_INFINITY);
  const ordered = (found: readonly Row[]): Row[] =>
    found.toSorted((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));

  const scopes = (): Scope[] => [
    { typeIds: null, from: null, until: null },
    { typeIds: [1], from: now - 2 * HOUR_MS - random(MINUTE_MS), until: null },
    { typeIds: null, from: TODAY + random(HOUR_MS), until: now - random(HOUR_MS) },
    { typeIds: [1, 2], from: now - random(DAY_MS), until: now + 1 },
    { typeIds: [2], from: null, until: now - random(20) * MINUTE_MS },
  ];

  /** @returns how many scopes the counts have answered */
  async function expectPages(): Promise<number> {
    let answered = 0;
    for (const scope of scopes()) {
      const filter = fieldFilter(FILTERS[random(FILTERS.length)] ?? '');
      const expected = ordered(rows.filter((row) => within(scope, row) && filter.rows.matches(row.payload)));
      const order = random(2) === 0 ? 'asc' : 'desc';
      const inOrder = order === 'asc' ? expected : expected.toReversed();
      const limit = 1 + random(80);
      const request = { appId: 1, ...scope, order, limit, maxBytes: PLENTY, withTotal: true } as const;
      const seen: string[] = [];
      let list = await reader.filteredList({ ...request, after: null }, filter);
      if (list === null) continue;
      answered += 1;
      for (; list !== null; list = await reader.filteredList({ ...request, after: list.next }, filter)) {
        expect(list.total).toBe(expected.length);
        seen.push(...list.events.map(({ id }) => id));
        if (list.next === null) break;
      }
      expect(seen).toEqual(inOrder.map(({ id }) => id));
      await expectPageAtOffset(scope, filter, order, inOrder);
    }
    return answered;
  }

  async function expectPageAtOffset(
    scope: Scope,
    filter: FieldFilter,
    order: 'asc' | 'desc',
    expected: readonly Row[],
  ): Promise<void> {
    const offset = random(expected.length + 1);
    const page = await readSnapshot(sql, async (tx) => {
      const field = await resolveFieldScope(tx, { appId: 1, ...scope }, filter);
      if (field === null) throw new Error('the counts have answered it before');
      const { from, until } = scope;
      return await readPageIn(tx, {
        scope: { appId: 1, typeId: null, from, until, field },
        order,
        offset,
        limit: 7,
        maxBytes: PLENTY,
      });
    });
    expect(page.events.map(({ id, payload: text }) => [id, text])).toEqual(
      expected.slice(offset, offset + 7).map(({ id, payload: text }) => [id, text]),
    );
    expect(page.hasMore).toBe(offset + 7 < expected.length);
  }

  async function expectSeries(): Promise<number> {
    let answered = 0;
    for (const [from, until, buckets, timezone] of [
      [now - 2 * HOUR_MS - random(MINUTE_MS), now + random(MINUTE_MS), 60, 'UTC'],
      [NOW - 3 * DAY_MS + random(HOUR_MS), now, 50, 'Asia/Kathmandu'],
      [null, now + 5 * MINUTE_MS, 5, 'Europe/Berlin'],
    ] as const) {
      const typeIds = [null, [1], [2, 1]][random(3)] ?? null;
      const request = {
        appId: 1,
        typeIds,
        from,
        until,
        buckets,
        timezone,
        exactEnds: 'both',
        withBefore: true,
      } as const;
      const filter = fieldFilter(FILTERS[random(FILTERS.length)] ?? '');
      const series = await reader.filteredSeries(request, filter);
      if (series !== 'not counted') {
        if (typeof series === 'string') throw new Error(series);
        answered += 1;
        const matching = rows.filter(
          (row) => within({ typeIds, from: null, until: null }, row) && filter.rows.matches(row.payload),
        );
        const [line] = series.lines;
        expect(line?.counts).toEqual(inBuckets(series, matching));
        expect(line?.before).toBe(matching.filter(({ at }) => at < series.interval.from).length);
      }
      answered += await expectValues({ ...request, typeIds: typeIds?.length === 1 ? typeIds : null });
    }
    return answered;
  }

  function inBuckets(
    {
      starts,
      end,
      interval,
    }: { starts: readonly number[]; end: number; interval: { from: number; until: number } },
    found: readonly Row[],
  ): number[] {
    return starts.map((start, index) => {
      const [from, until] = [
        Math.max(start, interval.from),
        Math.min(starts[index + 1] ?? end, interval.until),
      ];
      return found.filter(({ at }) => at >= from && at < until).length;
    });
  }

  async function expectValues(request: Parameters<EventReader['valueSeries']>[0]): Promise<number> {
    const path = [['country'], ['status'], ['user', 'id']][random(3)] ?? [];
    const series = await reader.valueSeries({ ...request, topTypes: 3 }, path);
    if (series === 'not counted') return 0;
    if (typeof series === 'string') throw new Error(series);
    const values = new PayloadValues([path]);
    const ofTypes = rows.filter((row) => within({ typeIds: request.typeIds, from: null, until: null }, row));
    const valued = ofTypes.map((row) => ({ row, value: values.read(row.payload)[0] ?? null }));
    const shown = series.lines.map(({ value }) => value);
    for (const { value, counts, before } of series.lines) {
      const own = valued.filter((one) =>
        value === null
          ? one.value === null || one.value === MANY || !shown.includes(one.value)
          : one.value === value,
      );
      const found = own.map(({ row }) => row);
      expect(counts).toEqual(inBuckets(series, found));
      expect(before).toBe(found.filter(({ at }) => at < series.interval.from).length);
    }
    return 1;
  }

  test('reads are exact in any state of counts, fields and backfills', async () => {
    await write(150);
    let answered = 0;
    const fields = [
      { path: ['country'], typeName: null, backfill: true },
      { path: ['status'], typeName: null, backfill: false },
      { path: ['user', 'id'], typeName: 'type1', backfill: true },
    ];
    const actions: (() => Promise<unknown>)[] = [
      () => write(40),
      () => write(40),
      () => insert(3),
      () => settle(sql),
      () => foldFields(alone, now),
      () => upkeep.everySecond(),
      () => upkeep.everySecond(60),
      () => known.load(sql),
      async () => {
        now += random(10 * MINUTE_MS);
      },
    ];
    for (let round = 0; round < 40; round += 1) {
      if (round % 12 === 4) {
        const field = fields.shift();
        if (field !== undefined) await declareField(sql, { appId: 1, kind: 'value', ...field });
      }
      await actions[random(actions.length)]?.();
      if (round % 3 === 0) answered += (await expectPages()) + (await expectSeries());
    }
    // Until all is counted, and some rows more.
    for (let rounds = 0; rounds < 30; rounds += 1) {
      await known.load(sql);
      await settle(sql);
      await upkeep.everySecond();
      if (rounds % 10 === 0) await write(3);
      now += 2 * MINUTE_MS;
    }
    answered = 0;
    for (let rounds = 0; rounds < 4; rounds += 1) answered += (await expectPages()) + (await expectSeries());
    expect(answered).toBeGreaterThan(4);
  });

  test('and when retention has passed', async () => {
    const boundary = TODAY - DAY_MS;
    await moveBoundary(sql, { days: 1, now: NOW });
    rows = rows.filter(({ at }) => at >= boundary);
    await expectPages();
    await upkeep.everyTenMinutes();
    for (let round = 0; round < 3; round += 1) {
      await write(20);
      rows = rows.filter(({ at }) => at >= boundary);
      await upkeep.everySecond();
      await expectPages();
    }
  });

  test('a field is not counted for the time before it was declared', async () => {
    await declareField(sql, { appId: 2, path: ['a'], kind: 'value', typeName: null, backfill: false });
    const old = now - HOUR_MS;
    await storeRows(sql, database.engine, [
      { id: newId(old), appId: 2, typeId: 3, at: old, payload: '{"a":1}' },
    ]);
    await upkeep.everySecond();
    const request = {
      appId: 2,
      typeIds: null,
      until: null,
      order: 'asc',
      after: null,
      limit: 10,
      maxBytes: PLENTY,
    } as const;
    const filter = fieldFilter('a:1');
    expect(await reader.filteredList({ ...request, from: null, withTotal: true }, filter)).toBeNull();
    expect(await reader.filteredList({ ...request, from: now, withTotal: true }, filter)).toMatchObject({
      total: 0,
    });
    expect(await reader.filteredList({ ...request, from: now }, fieldFilter('b:1'))).toBeNull();
  });
});
