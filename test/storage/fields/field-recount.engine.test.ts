/** Counts of declared fields through recounts, adding up under an old snapshot, and the deletion of their app. */
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { declareField, listFields } from '../../../src/apps/fields.ts';
import { createEventIds } from '../../../src/ingest/event-id.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../../src/storage/counts/levels.ts';
import { checkCounts } from '../../../src/storage/counts/recount.ts';
import { connect, type Sql } from '../../../src/storage/database/connect.ts';
import { ENGINES } from '../../../src/storage/engines/engines.ts';
import { countDeltas } from '../../../src/storage/engines/postgres/maintenance.ts';
import { mergeMarks } from '../../../src/storage/engines/timescale/maintenance.ts';
import { compareFieldDay } from '../../../src/storage/fields/recount.ts';
import { EVERY_FIELD } from '../../../src/storage/fields/uncounted-minutes.ts';
import { FieldUpkeep } from '../../../src/storage/fields/upkeep.ts';
import { markAppDeleted, removeDeletedApps } from '../../../src/storage/maintenance/deleted-apps.ts';
import { Folding } from '../../../src/storage/maintenance/folding.ts';
import { readSnapshot } from '../../../src/storage/read/snapshot.ts';
import { openStorage, type Storage } from '../../../src/storage/storage.ts';
import { EventWriter } from '../../../src/storage/write/event-writer.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { countedTotal } from '../../support/field-totals.ts';
import { first } from '../../support/fuzz.ts';
import { heldLock } from '../../support/held-lock.ts';
import { insertSelected } from '../../support/insert-selected.ts';
import { SOURCE } from '../../support/source.ts';
import { upkeepOf } from '../../support/upkeep.ts';
import { writingTo } from '../../support/writers.ts';

const DAY = Math.floor(Date.now() / DAY_MS) * DAY_MS - 2 * DAY_MS;
const EVENTS = 200;
/** Seconds of a snapshot in use that is old. */
const OLD = 30;
const newId = createEventIds();

describe.each(availableEngines())('on %s', (engine) => {
  const { prepare, settle } = upkeepOf(engine);
  let database: TestDatabase;
  let sql: Sql;
  let alone: Sql;
  let storage: Storage;
  let upkeep: FieldUpkeep;
  const writers: EventWriter[] = [];
  let now = DAY + 2 * DAY_MS;
  /** Of app 1, by country. */
  const stored = new Map<string, number>();

  beforeAll(async () => {
    database = await testDatabase(engine);
    sql = database.sql;
    alone = connect(database.address, { connections: 1, name: 'test upkeep' });
    storage = await openStorage(sql);
    upkeep = new FieldUpkeep(alone, () => now);
    for (let made = 0; made < 2; made += 1)
      writers.push(
        new EventWriter({
          ...writingTo(database),
          connections: 1,
          log: pino({ level: 'silent' }),
          now: () => performance.now(),
        }),
      );
    await sql`INSERT INTO apps (public_id, name) SELECT 'app' || n, 'app' FROM generate_series(1, 2) n`;
    await sql`
      INSERT INTO event_types (public_id, app_id, name)
      SELECT 'type' || n, 1 + (n - 1) / 2, 'type' || n FROM generate_series(1, 4) n`;
    await prepare(sql, DAY, DAY + 4 * DAY_MS);
    for (const appId of [1, 2])
      await declareField(sql, { appId, path: ['country'], kind: 'value', typeName: null, backfill: true });
    await declareField(sql, {
      appId: 1,
      path: ['country'],
      kind: 'value',
      typeName: 'type2',
      backfill: true,
    });
    await upkeep.everySecond();
    for (const appId of [1, 2])
      await write(
        Array.from({ length: EVENTS }, (_, n) => DAY + Math.floor((n * DAY_MS) / EVENTS)),
        appId,
      );
    await settleAll();
  });
  afterAll(async () => {
    for (const writer of writers) await writer.close();
    await alone.end();
    await database.drop();
  });

  async function write(times: readonly number[], appId = 1, writer = writers[0]): Promise<void> {
    const events = times.map((createdAt, n) => {
      const country = ['DE', 'FR', 'IT', 'SE', 'PL'][n % 5] ?? '';
      if (appId === 1) stored.set(country, (stored.get(country) ?? 0) + 1);
      const payload = JSON.stringify({ country });
      return { id: newId(createdAt), appId, typeId: 2 * appId - (n % 2), createdAt, payload, source: SOURCE };
    });
    expect(new Set(await writer?.write(events))).toEqual(new Set([null]));
  }

  async function settleAll(): Promise<void> {
    await settle(sql);
    await upkeep.everySecond();
  }

  /** Totals of a filter by country, from the counts alone, are those of what was stored. */
  async function expectExact(what: string): Promise<void> {
    for (const [country, count] of stored)
      expect(await countedTotal(sql, 1, `country:${country}`), `${country} ${what}`).toBe(count);
  }

  const differing = async (appId: number | null = null): Promise<number | undefined> =>
    (await readSnapshot(sql, (tx) => compareFieldDay(tx, DAY, appId)))?.differing;

  async function recount(): Promise<number> {
    let found = 0;
    const count = (day: { readonly differing: number }): void => {
      found += day.differing;
    };
    await storage.recount(alone, { from: DAY, until: DAY + DAY_MS }, count);
    return found;
  }

  test('what is counted agrees with the rows', async () => {
    await expectExact('at first');
    expect(await differing()).toBe(0);
    await write([DAY + 7, DAY + HOUR_MS]);
    expect(await differing()).toBe(0);
    await settleAll();
    expect(await differing()).toBe(0);
  });

  const ofApp = (condition: string): string =>
    `app_id = 1 AND series_id IN (SELECT id FROM field_series WHERE ${condition})`;
  const noon = new Date(DAY + 12 * HOUR_MS).toISOString();
  const WRONG = [
    [
      'by the minute with one type',
      'minute',
      `UPDATE field_minute_counts SET count = count + 3 WHERE ${ofApp('type_id = 1')}`,
    ],
    ['by the month', 'month', `UPDATE field_month_counts SET count = 0 WHERE ${ofApp('true')}`],
    [
      'by the minute with all types',
      'minute',
      `DELETE FROM field_minute_counts WHERE ${ofApp('type_id = 0')}`,
    ],
    [
      'by the quarter-hour',
      'quarter_hour',
      `DELETE FROM field_quarter_hour_counts WHERE ${ofApp('true')} AND bucket > '${noon}'`,
    ],
    ['by the hour', 'hour', `UPDATE field_hour_counts SET count = count + 1 WHERE ${ofApp('true')}`],
    ['by the day', 'day', `DELETE FROM field_day_counts WHERE ${ofApp(`value = '"DE"'`)}`],
  ] as const;
  test.each(first(WRONG, 3))(
    'counts of values %s that are wrong are found, and recounted',
    async (_name, level, corruption) => {
      await settleAll();
      expect((await sql.unsafe(corruption)).count).toBeGreaterThan(0);
      const found = await readSnapshot(sql, (tx) => compareFieldDay(tx, DAY, null));
      expect(found?.examples.map((example) => example.level)).toContain(level);
      expect(found?.examples[0]).toMatchObject({ app: 'app1', field: { path: ['country'] } });
      expect(await differing(2)).toBe(0);
      const checked = await checkCounts(alone, ENGINES[database.engine], now);
      expect(checked.days.find(({ day }) => day === DAY)).toMatchObject({ differing: found?.differing });

      expect(await recount()).toBe(found?.differing);
      expect(await differing()).toBe(0);
      await expectExact('recounted');
      await settleAll();
      expect(await differing()).toBe(0);
      await expectExact('folded');
    },
  );

  test('a comparison that takes too long is not said to agree', async () => {
    expect(await readSnapshot(sql, (tx) => compareFieldDay(tx, DAY, null, () => true))).toBeNull();
  });

  test('values counted as "other" are no difference', async () => {
    await sql`UPDATE declared_fields SET known_values = 10000 WHERE app_id = 2`;
    const events = [1, 2, 3].map((n) => ({
      id: newId(DAY + n),
      appId: 2,
      typeId: 3,
      createdAt: DAY + n,
      payload: `{"country":"X${n}"}`,
      source: SOURCE,
    }));
    expect(new Set(await writers[0]?.write(events))).toEqual(new Set([null]));
    expect(await differing()).toBe(0);
    await settleAll();
    expect(await sql`SELECT FROM field_series WHERE value = 'other'`).not.toHaveLength(0);
    expect(await differing()).toBe(0);
    expect(await recount()).toBe(0);
  });

  test('adding up what is pending under an old snapshot keeps totals of values exact', async () => {
    const folding = new Folding(
      countDeltas(sql),
      () => now,
      async () => false,
    );
    if (database.engine === 'postgres') await folding.fold(OLD);
    const minutes = Array.from({ length: 40 }, (_, n) => now - HOUR_MS + (n % 20) * MINUTE_MS);
    await write(minutes, 1, writers[1]);
    await write(minutes, 1, writers[1]);
    await expectExact('before');
    expect(await sql`SELECT FROM uncounted_minutes`).toHaveLength(0);

    if (database.engine === 'postgres') expect(await folding.fold(OLD)).toBeGreaterThan(0);
    else expect(await mergeMarks(sql, 1_000)).not.toBeNull();
    await expectExact('after');
    const stamps = await sql<{ fields: number }[]>`SELECT DISTINCT fields FROM stamped_minutes`;
    const generation = Math.max(...stamps.map(({ fields }) => fields));
    expect(stamps.every(({ fields }) => fields === generation)).toBe(true);
    expect(generation).toBe(EVERY_FIELD);

    // A second time: what the stamps told is not lost, nor told again.
    await write(minutes, 1, writers[0]);
    if (database.engine === 'postgres') await folding.fold(OLD);
    else await mergeMarks(sql, 1_000);
    await expectExact('after the second');
    await settleAll();
    expect(await sql`SELECT FROM uncounted_minutes`).toHaveLength(0);
    await expectExact('counted');
  });

  test('what waits and what is counted as "other" is told to the metrics', async () => {
    await settleAll();
    const others = upkeep.others;
    expect([upkeep.waitingSeconds, upkeep.uncountedMinutes]).toEqual([0, 0]);
    const long = { id: newId(DAY), appId: 2, typeId: 3, createdAt: DAY, source: SOURCE };
    await writers[0]?.write([{ ...long, payload: JSON.stringify({ country: 'x'.repeat(201) }) }]);
    await settle(sql);
    await upkeep.everySecond();
    await sql`INSERT INTO uncounted_minutes (app_id, bucket) SELECT 2, ${new Date(DAY)}::timestamptz FROM generate_series(1, 3)`;
    const lock = await heldLock(sql, 'field_folds', 'SHARE');
    const began = now;
    try {
      await expect(upkeep.everySecond()).resolves.toBeUndefined();
      now += 7_000;
      expect(upkeep.waitingSeconds).toBe(7);
      await upkeep.everySecond();
      expect(upkeep.waitingSeconds).toBe(7);
      expect(upkeep.uncountedMinutes).toBe(3);
      expect(upkeep.others).toBe(others + 1);
    } finally {
      await lock.release();
    }
    await upkeep.everySecond();
    expect(upkeep.waitingSeconds).toBe(0);
    expect(upkeep.others).toBe(others + 1);
    await upkeep.everySecond();
    expect(upkeep.uncountedMinutes).toBe(0);
    expect(now).toBe(began + 7_000);
  });

  test('a backfill goes on however many minutes are uncounted', async () => {
    // Each look at the clock takes so long that a round counts no more than once.
    const slow = new FieldUpkeep(alone, () => {
      now += 100;
      return now;
    });
    await declareField(sql, { appId: 2, path: ['n'], kind: 'value', typeName: null, backfill: true });
    const completeFrom = async (): Promise<number> => {
      const declared = (await listFields(sql, 2)).find(({ path }) => path[0] === 'n');
      return declared?.completeFrom?.getTime() ?? Number.POSITIVE_INFINITY;
    };
    for (let rounds = 0; (await completeFrom()) > DAY; rounds += 1) {
      expect(rounds).toBeLessThan(40);
      await sql`
        INSERT INTO uncounted_minutes (app_id, bucket)
        SELECT 2, ${new Date(DAY)}::timestamptz + n * interval '1 minute' FROM generate_series(1, 1500) AS n`;
      await slow.everySecond();
    }
    await upkeep.everySecond();
    expect(await differing(2)).toBe(0);
  });

  test('days before the retention boundary keep their counts of values', async () => {
    const counts = () => sql`
      SELECT series_id, bucket, count FROM field_day_counts WHERE bucket <= ${new Date(DAY)} ORDER BY 1, 2`;
    await settleAll();
    const before = await counts();
    expect(before.length).toBeGreaterThan(0);
    await sql.begin(async (tx) => {
      await tx`UPDATE retention SET readable_from = ${new Date(DAY + DAY_MS)}`;
    });
    await sql`DELETE FROM field_minute_counts WHERE bucket < ${new Date(DAY + DAY_MS)}`;
    expect(await recount()).toBe(0);
    expect(await counts()).toEqual(before);
    await sql`UPDATE retention SET readable_from = '-infinity'`;
    await recount();
    await settleAll();
    await expectExact('after the boundary is back');
  });

  test('a deleted app takes its values, deltas and uncounted minutes with it', async () => {
    await write([DAY + 11, DAY + HOUR_MS + 11], 2);
    await write([DAY + 12], 1);
    await settle(sql);
    await upkeep.everySecond();
    await sql`INSERT INTO uncounted_minutes (app_id, bucket) VALUES (2, now()), (1, ${new Date(DAY)})`;
    const tables = ['minute', 'quarter_hour', 'hour', 'day', 'month'].map((level) => `field_${level}_counts`);
    const all = [...tables, 'uncounted_minutes', 'declared_fields'];
    const left = async (appId: number): Promise<string[]> => {
      const found = await Promise.all(
        all.map(async (table) => {
          const [row] = await sql`SELECT FROM ${sql(table)} WHERE app_id = ${appId} LIMIT 1`;
          return row === undefined ? [] : [table];
        }),
      );
      return found.flat();
    };
    expect([await left(1), await left(2)]).toEqual([all, all]);
    await sql.begin(async (tx) => {
      await tx`DELETE FROM apps WHERE id = 2`;
      await markAppDeleted(tx, 2);
    });
    const { removal } = ENGINES[database.engine];
    expect(await removeDeletedApps(alone, removal, () => 0, 1)).toBe(true);
    expect([await left(1), await left(2)]).toEqual([all, []]);
    const series = await sql`SELECT FROM field_series WHERE field_id NOT IN (SELECT id FROM declared_fields)`;
    expect(series).toHaveLength(0);
    // What was written for it and is folded later leaves nothing either.
    await settleAll();
    expect(await left(2)).toEqual([]);
    expect(await listFields(sql, 1)).toHaveLength(2);
    await expectExact('of the other app');
  });

  /**
   * Notes, for as long as it is asked, how many rows each transaction takes from a table.
   * @param rows an expression of a row of it
   * @returns what each transaction took so far, oldest first
   */
  async function takenFrom(table: string, rows = '1'): Promise<() => Promise<number[]>> {
    await sql.unsafe(`
      CREATE TABLE taken (id bigserial, transaction xid8 DEFAULT pg_current_xact_id(), rows bigint);
      CREATE FUNCTION note_taken() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        INSERT INTO taken (rows) SELECT coalesce(sum(${rows}), 0) FROM old_rows;
        RETURN NULL;
      END $$;
      CREATE TRIGGER note_taken AFTER DELETE ON ${table} REFERENCING OLD TABLE AS old_rows
        FOR EACH STATEMENT EXECUTE FUNCTION note_taken()`);
    onTestFinished(async () => {
      await sql.unsafe('DROP FUNCTION note_taken CASCADE; DROP TABLE taken');
    });
    return async () => {
      const taken = await sql<{ rows: number }[]>`
        SELECT sum(rows)::float8 AS rows FROM taken GROUP BY transaction HAVING sum(rows) > 0 ORDER BY min(id)`;
      return taken.map(({ rows }) => rows);
    };
  }

  test('a busy hour is counted in steps of few rows, by the upkeep and by a recount', async () => {
    await settleAll();
    const hour = DAY + 3 * HOUR_MS;
    const perMinute = 750;
    await sql`INSERT INTO apps (id, public_id, name) OVERRIDING SYSTEM VALUE VALUES (3, 'app3', 'app')`;
    await sql`
      INSERT INTO event_types (id, public_id, app_id, name) OVERRIDING SYSTEM VALUE VALUES (5, 'type5', 3, 'type5')`;
    await declareField(sql, { appId: 3, path: ['country'], kind: 'value', typeName: null, backfill: true });
    await upkeep.everySecond();
    const rows = sql`
      SELECT gen_random_uuid(), 3, 5, ${new Date(hour)}::timestamptz + n % 60 * interval '1 minute', '{"country":"DE"}'::json
        FROM generate_series(1, ${60 * perMinute}::integer) n`;
    await insertSelected(sql, database.engine, rows);
    await settle(sql);
    // On TimescaleDB marks do not tell their apps, so that the minutes are noted for other apps, too.
    const steps = await takenFrom('uncounted_minutes', `CASE app_id WHEN 3 THEN ${perMinute} ELSE 0 END`);
    while ((await sql`SELECT FROM uncounted_minutes WHERE app_id = 3`).length > 0) await upkeep.everySecond();
    expect(await steps()).toEqual([19_500, 19_500, 6_000]);
    expect(await countedTotal(sql, 3, 'country:DE')).toBe(60 * perMinute);

    await sql`DELETE FROM field_minute_counts WHERE app_id = 3`;
    await sql`
      INSERT INTO uncounted_minutes (app_id, bucket)
      SELECT 3, ${new Date(hour)}::timestamptz + n * interval '1 minute' FROM generate_series(0, 59) n`;
    await recount();
    expect((await steps()).slice(3)).toEqual([19_500, 19_500, 6_000]);
    await settleAll();
    expect(await countedTotal(sql, 3, 'country:DE')).toBe(60 * perMinute);
    expect(await differing(3)).toBe(0);
  });

  test('minutes that retention has passed are removed a part at a time', async () => {
    await sql`
      INSERT INTO field_minute_counts (app_id, series_id, bucket, count)
      SELECT 3, -n, ${new Date(DAY - DAY_MS)}::timestamptz + n % 2 * interval '1 hour', 1 FROM generate_series(1, 50000) n`;
    const removals = await takenFrom('field_minute_counts');
    await sql`UPDATE retention SET readable_from = ${new Date(DAY)}`;
    await upkeep.everyTenMinutes();
    expect(await removals()).toEqual([20_000, 5_000, 20_000, 5_000]);
    expect(await sql`SELECT FROM field_minute_counts WHERE bucket < ${new Date(DAY)}`).toHaveLength(0);
    expect(await sql`SELECT FROM field_minute_counts WHERE app_id = 3 LIMIT 1`).toHaveLength(1);
    await sql`UPDATE retention SET readable_from = '-infinity'`;
  });
});
