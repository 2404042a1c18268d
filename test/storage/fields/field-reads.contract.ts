/** Totals, pages and series of a declared field are what a computation over all payloads gives, whatever is counted yet. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { declareField, type Field, listFields } from '../../../src/apps/fields.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../../src/storage/counts/levels.ts';
import type { RowFilter } from '../../../src/storage/fields/row-filter.ts';
import type { EventReader } from '../../../src/storage/read/event-reader.ts';
import { moveBoundary } from '../../../src/storage/retention.ts';
import { openStorage } from '../../../src/storage/storage.ts';
import { availableEngines } from '../../support/database.ts';
import {
  type FieldDatabase,
  type FieldEvent,
  fieldDatabase,
  type OpenFieldDatabase,
} from '../../support/field-database.ts';
import {
  expectLines,
  expectNumbers,
  expectPages,
  expectSeries,
  fieldFilter,
  type Oracle,
  randomPayload,
  seededRandom,
} from '../../support/field-oracle.ts';
import { sized } from '../../support/fuzz.ts';
import { patient } from '../../support/patience.ts';

const TODAY = Math.floor(Date.now() / DAY_MS) * DAY_MS;
const NOW = TODAY + 12 * HOUR_MS;
const PLENTY = 1_000_000;
/** Age of a snapshot that is old. */
const OLD_SECONDS = 30;

function fieldReads(open: OpenFieldDatabase): void {
  let fields: FieldDatabase;
  let reader: EventReader;
  let rows: FieldEvent[] = [];
  const random = seededRandom(20_261_122);

  beforeAll(async () => {
    fields = await open({ now: NOW, from: NOW - 4 * DAY_MS, until: NOW + DAY_MS });
    reader = (await openStorage(fields.sql)).reader(fields.sql);
  });
  afterAll(() => fields.close());

  /** Rows of the recent past, now and then of days ago, or some minutes ahead. */
  const newRows = (count: number): FieldEvent[] =>
    Array.from({ length: count }, () => {
      const ago = [random(20 * MINUTE_MS), random(3 * HOUR_MS), random(3 * DAY_MS), -random(3 * MINUTE_MS)][
        random(4)
      ];
      const at = fields.clock.now - (ago ?? 0);
      return { id: fields.newId(at), at, typeId: 1 + random(2), payload: randomPayload(random) };
    });

  async function write(count: number): Promise<void> {
    const made = newRows(count);
    await fields.write(made);
    rows.push(...made);
  }

  async function insert(count: number): Promise<void> {
    const made = newRows(count);
    await fields.store(made);
    rows.push(...made);
  }

  const oracle = (): Oracle => ({
    counts: fields.counts,
    ...{ reader, events: rows, random, now: fields.clock.now },
  });

  test('reads are exact in any state of counts, fields and backfills', {
    timeout: patient(120_000),
  }, async () => {
    await write(150);
    let answered = 0;
    const { sql, upkeep, clock } = fields;
    const declared = [
      { path: ['country'], kind: 'value', typeName: null, backfill: true },
      { path: ['total'], kind: 'number', typeName: null, backfill: true },
      { path: ['status'], kind: 'value', typeName: null, backfill: false },
      { path: ['user', 'id'], kind: 'value', typeName: 'type1', backfill: true },
      { path: ['user', 'id'], kind: 'number', typeName: 'type1', backfill: true },
    ] as const;
    let next = 0;
    const actions: (() => Promise<unknown>)[] = [
      () => write(40),
      () => write(40),
      () => insert(3),
      () => fields.settle(),
      () => upkeep.everySecond(),
      // As beside an old snapshot: deltas are added up.
      () => upkeep.everySecond(OLD_SECONDS),
      async () => {
        clock.now += random(10 * MINUTE_MS);
      },
    ];
    for (let round = 0; round < 40; round += 1) {
      if (round % 8 === 4) {
        const field = declared[next];
        next += 1;
        if (field !== undefined) await declareField(sql, { appId: 1, ...field });
      }
      await actions[random(actions.length)]?.();
      if (round % 8 === 7) await expectLines(oracle());
      if (round % sized(6, 3) === 0)
        answered += (await expectPages(oracle())) + (await expectSeries(oracle()));
    }
    // Until all is counted, and some rows more.
    for (let rounds = 0; rounds < sized(15, 30); rounds += 1) {
      await fields.settle();
      await upkeep.everySecond();
      if (rounds % 5 === 0) await write(3);
      clock.now += 2 * MINUTE_MS;
    }
    // Their values are not counted yet: reads look at the rows of their minutes.
    await insert(12);
    answered = 0;
    for (let rounds = 0; rounds < sized(2, 4); rounds += 1)
      answered += (await expectPages(oracle())) + (await expectSeries(oracle()));
    expect(answered).toBeGreaterThan(4);
    await expectNumbersOfTypes();
    await expectLines(oracle());
  });

  test('an export of a rare value looks only at minutes that have it', async () => {
    const at = TODAY - 2 * DAY_MS + 7;
    const rare = [0, 5 * HOUR_MS].map((later) => {
      const payload = '{"country":"RARE"}';
      return { id: fields.newId(at + later), at: at + later, typeId: 1, payload };
    });
    await fields.write(rare);
    const filter = fieldFilter('country:RARE');
    let looked = 0;
    const matches: RowFilter['matches'] = (payload) => {
      looked += 1;
      return filter.rows.matches(payload);
    };
    const request = { appId: 1, typeIds: null, from: null, until: null, order: 'asc', after: null } as const;
    const reading = reader.filteredLines(request, { ...filter, rows: { contains: [], matches } });
    const part = await reading.next();
    expect(part?.lines.toString()).toBe(
      rare
        .map(({ id, at: time, payload }) => {
          const createdAt = new Date(time).toISOString();
          return `{"id":"${id}","typeId":"type1","type":"type1","createdAt":"${createdAt}","payload":${payload}}\n`;
        })
        .join(''),
    );
    expect(part?.events).toBe(2);
    expect(await reading.next()).toBeNull();
    rows.push(...rare);
    // Rows of two minutes, and of those whose values are not sure.
    expect(looked).toBeLessThan(rows.length / 3);
  });

  /** The summaries answer for the type that has both fields about numbers. */
  async function expectNumbersOfTypes(): Promise<void> {
    const now = fields.clock.now;
    const request = { appId: 1, typeIds: [1], timezone: 'Asia/Kathmandu', exactEnds: 'both' } as const;
    for (const from of [now - 40 * MINUTE_MS + 1, now - 7 * HOUR_MS, TODAY - DAY_MS])
      for (const buckets of [3, 100])
        expect(await expectNumbers(oracle(), { ...request, from, until: now, buckets })).toBe(1);
  }

  test('and when retention has passed', async () => {
    const boundary = TODAY - DAY_MS;
    await moveBoundary(fields.sql, { days: 1, now: NOW });
    rows = rows.filter(({ at }) => at >= boundary);
    await expectPages(oracle());
    await fields.upkeep.everyTenMinutes();
    for (let round = 0; round < sized(1, 3); round += 1) {
      await write(20);
      rows = rows.filter(({ at }) => at >= boundary);
      await fields.upkeep.everySecond();
      await expectPages(oracle());
      await expectNumbersOfTypes();
    }
  });

  const ofOther = {
    ...({ appId: 2, typeIds: null, until: null, order: 'asc', after: null } as const),
    ...{ limit: 10, maxBytes: PLENTY, withTotal: true },
  };

  test('of an app that has no events when a field is declared, what is dated back is counted, too', async () => {
    const { sql, upkeep, clock, newId } = fields;
    await declareField(sql, { appId: 2, path: ['a'], kind: 'value', typeName: null, backfill: false });
    const old = clock.now - HOUR_MS;
    await fields.store([{ id: newId(old), typeId: 3, at: old, payload: '{"a":1}' }]);
    for (let rounds = 0; (await listFields(sql, 2)).some(isUncounted); rounds += 1) {
      expect(rounds).toBeLessThan(10);
      await upkeep.everySecond();
    }
    const filter = fieldFilter('a:1');
    expect(await reader.filteredList({ ...ofOther, from: null }, filter)).toMatchObject({ total: 1 });
    expect(await reader.filteredList({ ...ofOther, from: clock.now }, filter)).toMatchObject({ total: 0 });
  });

  test('a field is not counted for the time before it was declared', async () => {
    const { sql, upkeep, clock, newId } = fields;
    await declareField(sql, { appId: 2, path: ['c'], kind: 'value', typeName: null, backfill: false });
    const old = clock.now - HOUR_MS;
    await fields.store([{ id: newId(old), typeId: 3, at: old, payload: '{"c":1}' }]);
    for (let rounds = 0; rounds < 3; rounds += 1) await upkeep.everySecond();
    const filter = fieldFilter('c:1');
    expect(await reader.filteredList({ ...ofOther, from: null }, filter)).toBe('not counted');
    expect(await reader.filteredList({ ...ofOther, from: clock.now }, filter)).toMatchObject({ total: 0 });
    expect(await reader.filteredList({ ...ofOther, from: clock.now }, fieldFilter('b:1'))).toBe(
      'not counted',
    );
  });
}

function isUncounted({ completeFrom, backfill }: Field): boolean {
  return completeFrom === null || backfill;
}

describe.each(availableEngines())('on %s', (engine) => fieldReads((time) => fieldDatabase(engine, time)));
