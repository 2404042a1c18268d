/** What every engine promises of erased events. Not a test file: erasing.test.ts calls it for each. */
import { hash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { declareField } from '../../../src/apps/fields.ts';
import { DAY_MS, HOUR_MS } from '../../../src/storage/counts/levels.ts';
import { checkCounts } from '../../../src/storage/counts/recount.ts';
import { connect, type Sql } from '../../../src/storage/database/connect.ts';
import { ENGINES } from '../../../src/storage/engines/engines.ts';
import {
  digestOfErased,
  forgetAnswers,
  readErased,
  readErasedSummary,
  readPayloads,
} from '../../../src/storage/maintenance/erasing.ts';
import type { EventReader } from '../../../src/storage/read/event-reader.ts';
import { openStorage, type Storage } from '../../../src/storage/storage.ts';
import { availableEngines } from '../../support/database.ts';
import {
  type FieldDatabase,
  type FieldEvent,
  fieldDatabase,
  type OpenFieldDatabase,
} from '../../support/field-database.ts';
import {
  expectLines,
  expectPages,
  expectSeries,
  type Oracle,
  randomPayload,
  seededRandom,
} from '../../support/field-oracle.ts';
import { isLong } from '../../support/fuzz.ts';

const NOW = Math.floor(Date.now() / DAY_MS) * DAY_MS + 12 * HOUR_MS;
const ALL_DAYS = { limits: { events: Number.POSITIVE_INFINITY, ms: 60_000 }, random: () => 0.5 };
const OF_APP = { typeIds: null, from: null, until: null } as const;
const USER = 7;

/** @param compress brings the rows of whole days into a columnstore, where the engine has one */
function erasing(open: OpenFieldDatabase, compress?: (sql: Sql) => Promise<unknown>): void {
  let fields: FieldDatabase;
  let storage: Storage;
  let reader: EventReader;
  let rows: FieldEvent[] = [];
  const random = seededRandom(20_261_126);

  beforeAll(async () => {
    fields = await open({ now: NOW, from: NOW - 4 * DAY_MS, until: NOW + DAY_MS });
    storage = await openStorage(fields.sql);
    reader = storage.reader(fields.sql);
    for (const [path, kind] of [
      [['country'], 'value'],
      [['user', 'id'], 'value'],
      [['total'], 'number'],
      [['user', 'id'], 'distinct'],
    ] as const)
      await declareField(fields.sql, { appId: 1, path, kind, typeName: null, backfill: true });
    await write(600);
    await fields.settle();
    await fields.upkeep.everySecond();
    await compress?.(fields.sql);
    await write(200);
  });
  afterAll(() => fields.close());

  /** Events of three days of both apps, some of them now. */
  async function write(count: number): Promise<void> {
    const made = Array.from({ length: count }, (_, n): FieldEvent => {
      const at = n % 10 === 0 ? NOW - random(30_000) : NOW - random(3 * DAY_MS);
      return { id: fields.newId(at), at, typeId: 1 + (n % 4), payload: randomPayload(random) };
    });
    await fields.write(made);
    rows.push(...made);
  }

  const isOfUser = ({ typeId, payload }: FieldEvent): boolean =>
    typeId <= 2 && payload.includes(`"id":${USER}}`);
  const byTime = (some: readonly FieldEvent[]): FieldEvent[] => some.toSorted((a, b) => a.at - b.at);

  async function erase(erasureId: number, events: readonly FieldEvent[], payload?: string): Promise<number> {
    const payloads = payload === undefined ? null : events.map(() => payload);
    return await storage.erase(fields.alone, { appId: 1, erasureId, events, payloads });
  }

  /** Whatever is read of both apps is what the rows say. */
  async function expectExact(): Promise<void> {
    const ofApp = rows.filter(({ typeId }) => typeId <= 2);
    const oracle: Oracle = { counts: fields.counts, reader, events: ofApp, random, now: NOW };
    await expectPages(oracle);
    await expectSeries(oracle);
    await expectLines(oracle);
    for (const appId of [1, 2]) {
      const some = byTime(rows.filter(({ typeId }) => Math.ceil(typeId / 2) === appId));
      const span = await reader.appSpan(appId);
      const [first, last] = [some[0], some.at(-1)].map((row) =>
        row === undefined ? null : new Date(row.at),
      );
      expect(span).toEqual({ total: some.length, firstEventAt: first, lastEventAt: last });
      const stats = await reader.appStats([appId], { timezone: 'UTC', now: NOW });
      expect(stats.get(appId)).toMatchObject({ total: some.length, lastEventAt: last });
      const scope = { appId, ...OF_APP };
      const order = { order: 'asc', limit: 1_000, maxBytes: 1e9, offset: 0 } as const;
      const page = await reader.page({ scope, ...order });
      expect(page.events.map(({ id }) => id).sort()).toEqual(some.map(({ id }) => id).sort());
      expect(page.total).toBe(some.length);
      for (const typeId of [2 * appId - 1, 2 * appId]) {
        const ofType = some.filter((row) => row.typeId === typeId);
        const { total } = await reader.page({ scope: { ...scope, typeIds: [typeId] }, ...order });
        expect(total).toBe(ofType.length);
      }
    }
  }

  test('events go with all of their counts, while others come', async () => {
    const wanted = byTime(rows.filter(isOfUser));
    expect(wanted.length).toBeGreaterThan(20);
    for (let from = 0; from < wanted.length; from += 15) {
      const some = wanted.slice(from, from + 15);
      expect(await erase(1, some)).toBe(some.length);
      const gone = new Set(some.map(({ id }) => id));
      rows = rows.filter(({ id }) => !gone.has(id));
      await write(6);
      if (isLong && from === 15) await expectExact();
    }
    // What is gone is not counted twice.
    expect(await erase(1, wanted)).toBe(0);
    await expectExact();
    const { events, days } = await readErasedSummary(await storage.poolOfApp(fields.sql, 1), 1, 1);
    expect(events).toBe(wanted.length);
    const ofDays = new Map<string, number>();
    for (const { at } of wanted) {
      const day = new Date(at).toISOString().slice(0, 10);
      ofDays.set(day, (ofDays.get(day) ?? 0) + 1);
    }
    expect(days).toEqual([...ofDays].sort().map(([day, count]) => ({ day, events: count })));
    const pool = await storage.poolOfApp(fields.sql, 1);
    const found: string[] = [];
    for await (const some of readErased(pool, 1, 1)) found.push(...some.map(({ id }) => id));
    const ids = wanted.map(({ id }) => id).sort();
    expect(found.toSorted()).toEqual(ids);
    const text = ids.map((id) => `${id}\n`).join('');
    expect(await digestOfErased(pool, 1, 1)).toBe(hash('sha256', text));
  });

  test('values that no event has any more are forgotten, and all counts are those of the rows', async () => {
    const left = byTime(rows.filter(isOfUser));
    await erase(1, left);
    rows = rows.filter((row) => !isOfUser(row));
    const known = (): Promise<readonly { readonly value: string }[]> =>
      fields.counts.begin(
        'isolation level read committed',
        async (tx) =>
          await tx<{ value: string }[]>`
        SELECT value FROM field_series AS series JOIN declared_fields AS field ON field.id = field_id
         WHERE field.path = '["user","id"]' AND series.type_id = 0`,
      );
    await fields.settle();
    await fields.upkeep.everySecond();
    expect((await known()).map(({ value }) => value)).toContain(String(USER));
    const of = { appId: 1, erasureId: 1, name: 'erased' };
    await storage.recountErased(fields.alone, of, { values: [], named: [] }, NOW);
    await expectExact();
    const values = (await known()).map(({ value }) => value);
    expect(values).not.toContain(String(USER));
    expect(values).toContain('3');
    await fields.settle();
    await fields.upkeep.everySecond();
    await expectExact();
    const engine = ENGINES[fields.database.engine];
    const { days, unfinished } = await checkCounts(fields.sql, engine, NOW + DAY_MS, ALL_DAYS);
    expect(unfinished).toEqual([]);
    expect(days.flatMap(({ examples }) => examples)).toEqual([]);
    expect(days.length).toBeGreaterThan(2);
  });

  test('new payloads take the place of the old ones, and are counted', async () => {
    const wanted = byTime(rows.filter(({ typeId, payload }) => typeId <= 2 && payload.includes('"id":5}')));
    const payload = '{"country":"DE","status":200,"user":{"id":"hmac:x"},"total":1}';
    expect(await erase(2, wanted, payload)).toBe(wanted.length);
    const changed = new Set(wanted.map(({ id }) => id));
    rows = rows.map((row) => (changed.has(row.id) ? { ...row, payload } : row));
    await expectExact();
    await storage.recountErased(
      fields.alone,
      { appId: 1, erasureId: 2, name: 'erased' },
      { values: [], named: [] },
      NOW,
    );
    await expectExact();
    const found = await readPayloads(await storage.poolOfApp(fields.sql, 1), 1, wanted);
    expect(new Set(found.map((event) => event.payload))).toEqual(new Set([payload]));
    expect(found).toHaveLength(wanted.length);
  });

  test('a recount of the same days at the same time neither brings counts back nor takes any twice', async () => {
    const wanted = byTime(rows.filter(({ typeId, payload }) => typeId <= 2 && payload.includes('"id":3}')));
    expect(wanted.length).toBeGreaterThan(10);
    const own = connect(fields.sql.pool.database, { connections: 1, name: 'test recount' });
    let isErasing = true;
    let recounted = 0;
    const recounts = (async () => {
      while (isErasing || recounted === 0) {
        const interval = { from: NOW - 4 * DAY_MS - 12 * HOUR_MS, until: NOW + 12 * HOUR_MS };
        await storage.recount(own, interval, () => undefined);
        recounted += 1;
      }
    })();
    for (let from = 0; from < wanted.length; from += 4) {
      const some = wanted.slice(from, from + 4);
      expect(await erase(3, some)).toBe(some.length);
      const gone = new Set(some.map(({ id }) => id));
      rows = rows.filter(({ id }) => !gone.has(id));
      await write(2);
    }
    isErasing = false;
    await recounts;
    await own.end();
    await fields.settle();
    await fields.upkeep.everySecond();
    await expectExact();
    const { days, unfinished } = await checkCounts(
      fields.sql,
      ENGINES[fields.database.engine],
      NOW + DAY_MS,
      ALL_DAYS,
    );
    expect(unfinished).toEqual([]);
    expect(days.flatMap(({ examples }) => examples)).toEqual([]);
  });

  test('answers of requests that stored erased events are gone, and their keys are kept', async () => {
    const pool = await storage.poolOfApp(fields.sql, 1);
    const erased = (await readErased(pool, 1, 1).next()).value?.[0]?.id ?? '';
    const other = rows.find(({ typeId }) => typeId <= 2)?.id ?? '';
    for (const [key, id] of [
      ['1', erased],
      ['2', other],
    ] as const)
      await pool`
        INSERT INTO idempotency_keys (app_id, key_digest, body_digest, status, answer, created_at)
        VALUES (1, decode(repeat(${`0${key}`}, 32), 'hex'), decode(repeat('ff', 32), 'hex'), 201, ${`{"data":{"eventId":"${id}"}}`}, now())`;
    // Far more than are looked at at once, between which others may work.
    await pool`
      INSERT INTO idempotency_keys (app_id, key_digest, body_digest, status, answer, created_at)
      SELECT 1, sha256(convert_to(n::text, 'UTF8')), sha256('x'), 201, ${`{"data":{"eventId":"${erased}"}}`}, now() FROM generate_series(1, 250) AS n`;
    let passes = 0;
    const pass = async (): Promise<void> => {
      passes += 1;
    };
    expect(await forgetAnswers(pool, 1, 1, pass)).toBe(251);
    expect(passes).toBe(3);
    expect(await forgetAnswers(pool, 1, 1, pass)).toBe(0);
    await pool`DELETE FROM idempotency_keys WHERE app_id = 1 AND body_digest = sha256('x')`;
    await pool`DELETE FROM idempotency_keys WHERE app_id = 1 AND answer = '' AND key_digest <> decode(repeat('01', 32), 'hex')`;
    const kept = await pool<{ answer: string }[]>`
      SELECT answer FROM idempotency_keys WHERE app_id = 1 ORDER BY key_digest`;
    expect(kept.map(({ answer }) => answer)).toEqual(['', `{"data":{"eventId":"${other}"}}`]);
  });
}

describe.each(availableEngines())('erased events on %s', (engine) =>
  erasing(
    (time) => fieldDatabase(engine, time),
    engine === 'timescale'
      ? (sql) =>
          sql`SELECT compress_chunk(chunk) FROM show_chunks('events', older_than => now() - interval '1 day') AS chunk`
      : undefined,
  ),
);
