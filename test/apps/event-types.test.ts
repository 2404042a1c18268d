/** The ceiling of an app's event types: exact over processes that remember counts, at a cost that does not grow. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { getOrCreateEventType, getOrCreateEventTypes, TypeCounts } from '../../src/apps/event-types.ts';
import { connect } from '../../src/storage/database/connect.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { testSecret } from '../support/service.ts';

let database: TestDatabase;

beforeEach(async () => {
  database = await testDatabase();
});
afterEach(() => database.drop());

async function newApp(): Promise<number> {
  const { appId } = await createApp(database.sql, await testSecret(), { name: 'Many types' });
  const [app] = await database.sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
  return app?.id ?? 0;
}

test('processes that remember their counts make exactly as many types as an app may have', async () => {
  const { sql } = database;
  const [appId, other] = [await newApp(), await newApp()];
  const processes = [new TypeCounts(), new TypeCounts()];
  const make = (app: number, name: string, index: number) =>
    getOrCreateEventType(sql, {
      appId: app,
      name,
      maxTypes: 40,
      counts: processes[index % 2] ?? new TypeCounts(),
    });
  const outcomes: unknown[] = [];
  for (let round = 0; round < 15; round += 1) {
    const names = Array.from({ length: 4 }, (_, index) => `${round}-${index}`);
    // Ids go to the other app, too, and to nobody where two ask for one name.
    outcomes.push(...(await Promise.all(names.map((name, index) => make(appId, name, index)))));
    if (round % 3 === 0) await Promise.all(names.map((name, index) => make(other, name, index)));
  }
  expect(outcomes.filter((outcome) => outcome !== 'too-many')).toHaveLength(40);
  const [row] = await sql`SELECT count(*)::int AS types FROM event_types WHERE app_id = ${appId}`;
  expect(row?.types).toBe(40);
});

test('processes that make types of several apps together make exactly as many as each may have', async () => {
  const { sql } = database;
  const apps = [await newApp(), await newApp(), await newApp()];
  const processes = [new TypeCounts(), new TypeCounts(), new TypeCounts()];
  const made = new Map<number, Set<string>>(apps.map((appId) => [appId, new Set()]));
  let refused = 0;
  for (let round = 0; round < 12; round += 1) {
    const outcomes = await Promise.all(
      processes.map((counts, index) => {
        // Some names are of one process alone, some of all.
        const names = [`${round}`, `${round} ${index}`, `${round} ${index} more`];
        const all = new Map(apps.map((appId) => [appId, names]));
        return getOrCreateEventTypes(sql, { apps: all, maxTypes: 30, counts });
      }),
    );
    for (const outcome of outcomes)
      for (const [appId, types] of outcome) {
        if (types === 'locked') continue;
        if (types instanceof Error) throw types;
        refused += 3 - types.size;
        for (const { publicId } of types.values()) made.get(appId)?.add(publicId);
      }
  }
  expect(refused).toBeGreaterThan(0);
  const rows = await sql<{ appId: number; types: number }[]>`
    SELECT app_id AS "appId", count(*)::int AS types FROM event_types GROUP BY app_id ORDER BY app_id`;
  expect(rows).toEqual(apps.map((appId) => ({ appId, types: 30 })));
  expect([...made.values()].map(({ size }) => size)).toEqual([30, 30, 30]);
});

test('of several apps the one that is locked or gone keeps the others from nothing', async () => {
  const { sql } = database;
  const [good, locked] = [await newApp(), await newApp()];
  const gone = locked + 1_000;
  const outcomes = await sql.begin(async (tx) => {
    await tx`SELECT FROM apps WHERE id = ${locked} FOR UPDATE`;
    const apps = new Map([gone, locked, good].map((appId) => [appId, ['a', 'b']]));
    return await getOrCreateEventTypes(sql, { apps, maxTypes: 10 });
  });
  expect(outcomes.get(good)).toEqual(
    new Map(['a', 'b'].map((name) => [name, expect.objectContaining({ name })])),
  );
  expect(outcomes.get(locked)).toBe('locked');
  expect(outcomes.get(gone)).toMatchObject({ rejection: { reason: 'appNotFound' } });
  const invalid = await getOrCreateEventTypes(sql, {
    apps: new Map([
      [good, ['']],
      [locked, ['c']],
    ]),
    maxTypes: 10,
  });
  expect(invalid.get(good)).toMatchObject({ rejection: { reason: 'invalidBody' } });
  expect(invalid.get(locked)).toEqual(new Map([['c', expect.objectContaining({ name: 'c' })]]));
});

test('the hundred-thousandth type costs as much as the first: types are counted once', async () => {
  const appId = await newApp();
  await database.sql`
    INSERT INTO event_types (public_id, app_id, name)
    SELECT 'typ_' || i, ${appId}, 'type ' || i FROM generate_series(1, 20_000) AS i`;
  // One connection, whose statistics are told when asked for.
  const sql = connect(database.address, { connections: 1, name: 'test' });
  const entriesRead = async (): Promise<number> => {
    await sql`SELECT pg_stat_force_next_flush()`;
    const [row] = await sql<{ entries: number }[]>`
      SELECT idx_tup_read::int AS entries FROM pg_stat_user_indexes WHERE indexrelname = 'event_types_app_id_name_key'`;
    return row?.entries ?? 0;
  };
  const counts = new TypeCounts();
  const make = (name: string): Promise<unknown> =>
    getOrCreateEventType(sql, { appId, name, maxTypes: 100_000, counts });
  await make('the first of this process');
  const before = await entriesRead();
  for (let index = 0; index < 100; index += 1) expect(await make(`new ${index}`)).not.toBe('too-many');
  expect((await entriesRead()) - before).toBeLessThan(1_000);
  await sql.end();
});

test('a role with rights on the tables alone makes types, and no more than an app may have', async () => {
  const appId = await newApp();
  const role = `tables_only_${appId}_${process.pid}`;
  await database.sql.unsafe(
    `CREATE ROLE ${role}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ${role}`,
  );
  const sql = connect(database.address, { connections: 1, name: 'test' });
  try {
    await sql.unsafe(`SET ROLE ${role}`);
    const counts = new TypeCounts();
    const make = (name: string): Promise<unknown> =>
      getOrCreateEventType(sql, { appId, name, maxTypes: 2, counts });
    expect(await make('first')).toMatchObject({ publicId: expect.any(String) });
    expect(await make('second')).toMatchObject({ publicId: expect.any(String) });
    expect(await make('third')).toBe('too-many');
  } finally {
    await sql.end();
    await database.sql.unsafe(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
  }
});
