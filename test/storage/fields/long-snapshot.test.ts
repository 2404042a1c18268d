/** Filtered reads take as long as before while a snapshot stays in use for minutes: they do not meet what folds leave behind. */
import pino from 'pino';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { declareField } from '../../../src/apps/fields.ts';
import { createEventIds } from '../../../src/ingest/event-id.ts';
import { countedValues } from '../../../src/read/filter/counted-values.ts';
import { parseFilter } from '../../../src/read/filter/parse-filter.ts';
import { payloadFilter } from '../../../src/read/filter/payload-filter.ts';
import { DAY_MS, MINUTE_MS } from '../../../src/storage/counts/levels.ts';
import { connect, type Sql, type Transaction } from '../../../src/storage/database/connect.ts';
import { foldCounts } from '../../../src/storage/engines/postgres/maintenance.ts';
import { mergeMarks } from '../../../src/storage/engines/timescale/maintenance.ts';
import { DeclaredFields } from '../../../src/storage/fields/declared-fields.ts';
import { foldFields } from '../../../src/storage/fields/fold.ts';
import { FieldUpkeep } from '../../../src/storage/fields/upkeep.ts';
import { openStorage } from '../../../src/storage/storage.ts';
import { connectionsTo } from '../../../src/storage/write/copy-connection.ts';
import { EventWriter } from '../../../src/storage/write/event-writer.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { blocksOf, type HeldSnapshot, heldSnapshot, passTransactions } from '../../support/held-snapshot.ts';
import { SOURCE } from '../../support/source.ts';
import { upkeepOf } from '../../support/upkeep.ts';

const NOON = Math.floor(Date.now() / DAY_MS) * DAY_MS + DAY_MS / 2;
/** What a session that reads goes through beside the rows themselves. */
const PENDING = ['field_deltas', 'count_deltas', 'stale_buckets', 'uncounted_minutes'];
const COUNTS = ['minute', 'quarter_hour', 'hour', 'day', 'month'].map((level) => `field_${level}_counts`);

describe.each(
  availableEngines().flatMap((engine) => [
    [engine, 'a snapshot stays in use', false] as const,
    [engine, 'a transaction that has written stays open', true] as const,
  ]),
)('on %s, while %s', (engine, _, hasWritten) => {
  const known = new DeclaredFields();
  const newId = createEventIds();
  let now = NOON;
  let database: TestDatabase;
  let sql: Sql;
  let writer: EventWriter;
  let upkeep: FieldUpkeep;
  let holder: HeldSnapshot;
  /** Of one connection each. */
  let alone: Sql;
  let session: Sql;

  beforeEach(async () => {
    now = NOON;
    database = await testDatabase(engine);
    sql = database.sql;
    alone = connect(database.address, { connections: 1, name: 'test upkeep' });
    session = connect(database.address, { connections: 1, name: 'test reader' });
    upkeep = new FieldUpkeep(alone, () => now);
    writer = new EventWriter({
      connect: connectionsTo(database.address),
      engine: database.engine,
      connections: 1,
      fields: known,
      log: pino({ level: 'silent' }),
      now: () => performance.now(),
    });
    await sql`INSERT INTO apps (public_id, name) VALUES ('app', 'app')`;
    await sql`INSERT INTO event_types (public_id, app_id, name) VALUES ('type', 1, 'type')`;
    await upkeepOf(engine).prepare(sql, NOON, NOON + DAY_MS / 4);
    await declareField(sql, { appId: 1, path: ['country'], kind: 'value', typeName: null, backfill: false });
    await declareField(sql, { appId: 1, path: ['amount'], kind: 'number', typeName: null, backfill: false });
    await upkeep.everySecond();
    await known.load(sql);
    holder = await heldSnapshot(database.address, { hasWritten });
    await passTransactions(sql, 1_100);
  });
  afterEach(async () => {
    await holder.release();
    await writer.close();
    await session.end();
    await alone.end();
    await database.drop();
  });

  async function write(
    count: number,
    at: (n: number) => number,
    value: (n: number) => string,
    withAmount = false,
  ): Promise<void> {
    const events = Array.from({ length: count }, (__, n) => ({
      id: newId(at(n)),
      appId: 1,
      typeId: 1,
      createdAt: at(n),
      payload: `{"country":"${value(n)}"${withAmount ? `,"amount":${n}` : ''}}`,
      source: SOURCE,
    }));
    expect(new Set(await writer.write(events))).toEqual(new Set([null]));
  }

  /** How many events have a value, as a filtered read counts them. */
  async function readTotal(value: string, from: Sql = sql): Promise<number> {
    const condition = parseFilter(`country:${value}`);
    if ('problem' in condition) throw new Error(condition.problem);
    const values = countedValues(condition);
    const rows = payloadFilter([condition], null);
    if (values === null || rows === null) throw new Error('it is not about values');
    const request = {
      appId: 1,
      typeIds: null,
      from: null,
      until: null,
      after: null,
      withTotal: true,
    } as const;
    const list = await (await openStorage(from)).reader(from).filteredList(
      { ...request, order: 'asc', limit: 1, maxBytes: 1_000 },
      {
        path: condition.path,
        values,
        rows,
      },
    );
    if (typeof list === 'string') throw new Error('the counts have not answered it');
    return list.total ?? Number.NaN;
  }

  /** The sum of all amounts, as a statistic of numbers has it. */
  async function readSum(): Promise<string> {
    const interval = {
      from: NOON - DAY_MS / 2,
      until: NOON + DAY_MS / 2,
      timezone: 'UTC',
      buckets: 3,
    } as const;
    const request = { appId: 1, typeIds: null, ...interval, exactEnds: 'both' } as const;
    const series = await (await openStorage(sql)).reader(sql).numberSeries(request, ['amount']);
    if (typeof series === 'string') throw new Error(series);
    return series.overall.sum;
  }

  /** The marks and deltas of events, which tell what writers knew of fields. */
  const foldStamps = async (into: Sql): Promise<unknown> =>
    database.engine === 'timescale' ? await mergeMarks(into, 1_000) : await foldCounts(into);

  test('reads and folds do not go through the dead rows of what is folded', async () => {
    const costs: { read: number; fold: number }[] = [];
    for (let round = 1; round <= 20; round += 1) {
      const isMeasured = round === 10 || round > 16;
      if (isMeasured) await passTransactions(sql, 1_100);
      await write(
        300,
        (n) => NOON + n * MINUTE_MS,
        (n) => (n % 2 === 0 ? 'DE' : 'FR'),
      );
      await foldStamps(sql);
      expect((await foldFields(sql, now))?.deltas).toBe(300);
      if (!isMeasured) continue;
      expect(await readTotal('DE')).toBe(150 * round);
      costs.push({
        read: await blocksOf(session, PENDING, (from) => readTotal('DE', from)),
        fold: await blocksOf(session, PENDING, (into) => foldFields(into, now)),
      });
    }
    // 2,100 dead rows are 17 pages more for every scan of either. A transaction of other tests on this server may add some.
    const [first, ...last] = costs;
    expect(Math.min(...last.map(({ read }) => read))).toBeLessThanOrEqual((first?.read ?? 0) + 10);
    expect(Math.min(...last.map(({ fold }) => fold))).toBeLessThanOrEqual((first?.fold ?? 0) + 10);
  });

  // Whether it has a transaction id too makes no difference here.
  test.skipIf(hasWritten)('reads do not go through a version of each count for each second', async () => {
    const costs: number[] = [];
    for (let second = 1; second <= 40; second += 1) {
      const isMeasured = second === 20 || second > 36;
      if (isMeasured) await passTransactions(sql, 1_100);
      await write(
        300,
        () => NOON,
        (n) => (n === 0 && second % 20 === 15 ? `new${second}` : `v${n}`),
        true,
      );
      await foldStamps(sql);
      await upkeep.everySecond(60);
      now += 1_000;
      if (!isMeasured) continue;
      expect(await readTotal('v7')).toBe(second);
      expect(await readSum()).toBe(String(second * ((299 * 300) / 2)));
      // A value that is new is not looked for in rows.
      const newest = second - ((second + 5) % 20);
      expect(await sql`SELECT FROM field_series WHERE value = ${`"new${newest}"`}`).not.toHaveLength(0);
      expect(await readTotal(`new${newest}`)).toBe(1);
      costs.push(
        await blocksOf(session, [...COUNTS, ...PENDING, 'declared_fields'], (from) => readTotal('v7', from)),
      );
    }
    // Each second's versions of 300 counts are three pages more in each table.
    const [first, ...last] = costs;
    expect(Math.min(...last)).toBeLessThanOrEqual((first ?? 0) + 15);
    // Once a minute all the same, and every second as soon as the snapshot is gone.
    now += 60_000;
    await upkeep.everySecond(60);
    expect(await sql`SELECT FROM field_deltas`).toHaveLength(0);
    await write(
      30,
      () => NOON,
      (n) => `v${n}`,
    );
    await upkeep.everySecond(60);
    expect(await sql`SELECT FROM field_deltas`).toHaveLength(30);
    await upkeep.everySecond(0);
    expect(await sql`SELECT FROM field_deltas`).toHaveLength(0);
    expect(await readTotal('v7')).toBe(41);
    expect(await readSum()).toBe(String(40 * ((299 * 300) / 2)));
  });

  test('what the open transaction stores after folds is counted at once, and folded', async () => {
    await write(
      40,
      (n) => NOON + n * MINUTE_MS,
      () => 'DE',
    );
    await foldFields(sql, now);
    await passTransactions(sql, 1_100);
    await write(
      40,
      (n) => NOON + n * MINUTE_MS,
      () => 'DE',
    );
    await foldFields(sql, now);
    const [delta] = await sql<
      { fieldId: number }[]
    >`SELECT id AS "fieldId" FROM declared_fields WHERE kind = 'value'`;
    await holder.run(async (tx: Transaction) => {
      await tx`
        INSERT INTO field_deltas (app_id, field_id, type_id, bucket, count, value)
        VALUES (1, ${delta?.fieldId ?? 0}, 1, ${new Date(NOON)}, 2, '"DE"')`;
    });
    expect(await readTotal('DE')).toBe(80);
    await holder.release();
    expect(await readTotal('DE')).toBe(82);
    expect((await foldFields(sql, now))?.deltas).toBe(1);
    expect(await readTotal('DE')).toBe(82);
  });
});
