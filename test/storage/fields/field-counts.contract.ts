/** Counts of declared fields stay what the rows say, while fields are declared, filled and removed beside writers. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { declareField, listFields, removeField } from '../../../src/apps/fields.ts';
import { DAY_MS, MINUTE_MS } from '../../../src/storage/counts/levels.ts';
import type { Sql } from '../../../src/storage/database/connect.ts';
import { PayloadValues } from '../../../src/storage/fields/payload-values.ts';
import { readSnapshot } from '../../../src/storage/read/snapshot.ts';
import { availableEngines } from '../../support/database.ts';
import { type FieldDatabase, fieldDatabase, type OpenFieldDatabase } from '../../support/field-database.ts';

const NOW = Math.floor(Date.now() / DAY_MS) * DAY_MS + DAY_MS / 2;
const LEVELS = ['minute', 'quarter_hour', 'hour', 'day'] as const;

function fieldCounts(open: OpenFieldDatabase): void {
  let fields: FieldDatabase;
  let sql: Sql;
  let upkeep: FieldDatabase['upkeep'];

  beforeAll(async () => {
    fields = await open({ now: NOW, from: NOW - 3 * DAY_MS, until: NOW + DAY_MS });
    ({ sql, upkeep } = fields);
  });
  afterAll(() => fields.close());

  const field = (path: string, typeName: string | null = null) =>
    ({ appId: 1, path: path.split('.'), kind: 'value', typeName }) as const;

  async function write(times: readonly number[], payloadOf: (n: number) => string, appId = 1): Promise<void> {
    const events = times.map((at, n) => {
      return { id: fields.newId(at), at, typeId: 2 * appId - (n % 2), payload: payloadOf(n) };
    });
    await fields.write(events);
  }

  /** What readers have of the counts from an instant on, but for minutes that they count from rows; and what the rows say. */
  async function compare(): Promise<number> {
    return await readSnapshot(fields.counts, async (tx) => {
      const declared = await tx<
        { id: number; appId: number; typeId: number | null; path: string; from: Date }[]
      >`
        SELECT id, app_id AS "appId", type_id AS "typeId", path, complete_from AS from FROM declared_fields
         WHERE removed_at IS NULL AND complete_from IS NOT NULL AND full_since IS NULL`;
      let compared = 0;
      for (const { id, appId, typeId, path, from } of declared) {
        const uncounted = await tx<{ bucket: Date }[]>`
          SELECT bucket FROM uncounted_minutes WHERE app_id = ${appId}
          UNION SELECT bucket FROM stamped_minutes
                 WHERE app_id = ${appId} AND fields < (SELECT generation FROM declared_fields WHERE id = ${id})`;
        const stale = new Set(uncounted.map(({ bucket }) => bucket.getTime()));
        for (const [level, name] of LEVELS.entries()) {
          const width = [1, 15, 60, 1_440][level] ?? 1;
          const ms = width * MINUTE_MS;
          const start = Math.ceil(from.getTime() / ms) * ms;
          const expected = new Map<string, number>();
          const add = (at: number, type: number, value: string, count: number): void => {
            const bucket = Math.floor(at / ms) * ms;
            if (bucket < start || [...stale].some((minute) => minute >= bucket && minute < bucket + ms))
              return;
            const key = `${bucket} ${typeId === null ? type : 0} ${value}`;
            const sum = (expected.get(key) ?? 0) + count;
            if (sum === 0) expected.delete(key);
            else expected.set(key, sum);
          };
          const rows = await tx<{ at: Date; typeId: number; payload: string }[]>`
            SELECT created_at AS at, type_id AS "typeId", payload::text AS payload FROM events
             WHERE app_id = ${appId} ${typeId === null ? tx`` : tx`AND type_id = ${typeId}`}`;
          const values = new PayloadValues([JSON.parse(path)]);
          for (const row of rows) {
            const value = values.read(row.payload)[0] ?? null;
            if (value !== null) add(row.at.getTime(), row.typeId, value, 1);
          }
          compared += expected.size;
          const counted = await tx<{ value: string; typeId: number; bucket: Date; count: number }[]>`
            SELECT value, series.type_id AS "typeId", bucket, sum(count)::float8 AS count
              FROM ${tx(`fields_per_${name}`)} AS counts JOIN field_series AS series ON series.id = counts.type_id
             WHERE field_id = ${id} AND app_id = ${appId} AND (series.type_id = 0) = ${typeId !== null}
             GROUP BY 1, 2, 3`;
          for (const row of counted) add(row.bucket.getTime(), row.typeId, row.value, -row.count);
          expect([...expected], `${path} by ${name}`).toEqual([]);
        }
        // Each value's counts with all types are the sums of those with single types.
        const sums =
          typeId === null
            ? await tx`
              SELECT value, bucket FROM fields_per_day AS counts JOIN field_series AS series ON series.id = counts.type_id
               WHERE field_id = ${id} GROUP BY 1, 2
              HAVING sum(count) FILTER (WHERE series.type_id = 0) <> sum(count) FILTER (WHERE series.type_id > 0)`
            : [];
        expect(sums).toHaveLength(0);
      }
      return compared;
    });
  }

  const payloads = (n: number): string =>
    [
      `{"country":"${['DE', 'FR', 'IT'][n % 3]}","status":${n % 5}}`,
      '{"country":["DE","FR"],"status":200.0}',
      '{"status":"200"}',
      '{"country":{"a":1},"status":null}',
      `{"country":"D\\u0045","status":${n}}`,
    ][n % 5] ?? '{}';

  const times = (count: number, from: number, step = 7_919): number[] =>
    Array.from({ length: count }, (_, n) => Math.floor(from + n * step));

  test('a field that is declared counts from then on, whatever its writer knew', async () => {
    await write(times(300, NOW - DAY_MS, 280_000), payloads);
    await declareField(sql, { ...field('country'), backfill: false });
    await write(times(50, NOW), payloads);
    await upkeep.everySecond();
    // Does not know it yet.
    await write(times(50, NOW + 1_000), payloads);
    await write(times(50, NOW + 2_000), payloads);
    expect(await compare()).toBeGreaterThanOrEqual(0);
    await fields.settle();
    await compare();
    fields.clock.now = NOW + 20 * MINUTE_MS;
    await upkeep.everySecond();
    expect(await compare()).toBeGreaterThan(20);
    expect(await sql`SELECT FROM uncounted_minutes`).toHaveLength(0);
    const [declared] = await listFields(sql, 1);
    expect(declared).toMatchObject({
      path: ['country'],
      completeFrom: new Date(NOW),
      backfill: false,
      values: 3,
    });
  });

  test('a backfill comes to the first event, and new fields join it', async () => {
    await declareField(sql, { ...field('country'), backfill: true });
    await declareField(sql, { ...field('status'), backfill: true });
    await declareField(sql, { ...field('status', 'type2'), backfill: true });
    for (
      let rounds = 0;
      (await listFields(sql, 1)).some(({ backfill, completeFrom }) => backfill || completeFrom === null);
      rounds += 1
    ) {
      expect(rounds).toBeLessThan(100);
      await upkeep.everySecond();
      await write([NOW - DAY_MS + rounds * MINUTE_MS, fields.clock.now], payloads);
      await compare();
    }
    expect(await compare()).toBeGreaterThan(500);
    for (const { completeFrom } of await listFields(sql, 1)) expect(completeFrom).toEqual(new Date(0));
  });

  test('rows that are inserted without their values are counted from the rows', async () => {
    const at = NOW + 3 * MINUTE_MS;
    await fields.store([
      { id: fields.newId(at), at, typeId: 1, payload: '{"country":"SE"}' },
      {
        id: fields.newId(at),
        typeId: 2,
        at: NOW - 2 * DAY_MS,
        payload: '{"country":"SE","status":1e2}',
      },
    ]);
    const uncounted = () =>
      sql`SELECT FROM uncounted_minutes WHERE bucket = ANY(${[at, NOW - 2 * DAY_MS].map((time) => new Date(time).toISOString())}::timestamptz[])`;
    await fields.settle();
    expect(await uncounted()).toHaveLength(2);
    await compare();
    await upkeep.everySecond();
    expect(await uncounted()).toHaveLength(0);
    await compare();
    await compare();
  });

  test('values beyond their number are counted as other', async () => {
    await declareField(sql, { ...field('user'), backfill: false });
    await upkeep.everySecond();
    await write(times(1_200, fields.clock.now, 10), (n) => `{"user":${n}}`);
    await fields.settle();
    await upkeep.everySecond();
    const [user] = (await listFields(sql, 1)).filter(({ path }) => path[0] === 'user');
    expect(user).toMatchObject({ values: 1_000 });
    expect(user?.otherSince).not.toBeNull();
    const [other] = await readSnapshot(
      fields.counts,
      (tx) => tx`
      SELECT sum(count)::int AS count FROM fields_per_day AS counts JOIN field_series AS series ON series.id = counts.type_id
       WHERE series.value = 'other' AND series.type_id = 0`,
    );
    expect(other?.count).toBe(200);
    // The next day has room for more.
    fields.clock.now += DAY_MS;
    await write(times(10, fields.clock.now, 10), (n) => `{"user":${2_000 + n}}`);
    await fields.settle();
    await upkeep.everySecond();
    const [later] = (await listFields(sql, 1)).filter(({ path }) => path[0] === 'user');
    expect(later?.values).toBe(1_010);
  });

  test('a removed field takes its counts with it, and its name is free again', async () => {
    await removeField(sql, field('status'));
    await write(times(20, fields.clock.now), payloads);
    await upkeep.everyTenMinutes();
    await compare();
    const series = await readSnapshot(
      fields.counts,
      (tx) => tx`SELECT FROM field_day_counts WHERE series_id NOT IN (SELECT id FROM field_series)`,
    );
    expect(series).toHaveLength(0);
    expect((await listFields(sql, 1)).map(({ path, typeName }) => [path.join('.'), typeName])).toEqual([
      ['country', null],
      ['status', 'type2'],
      ['user', null],
    ]);
    await declareField(sql, { ...field('status'), backfill: false });
  });
}

describe.each(availableEngines())('on %s', (engine) => fieldCounts((time) => fieldDatabase(engine, time)));
