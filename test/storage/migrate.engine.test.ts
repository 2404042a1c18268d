import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { afterEach, describe, expect, test } from 'vitest';
import { OperatorError } from '../../src/errors.ts';
import { readVersion } from '../../src/process/version.ts';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { chooseEngine } from '../../src/storage/database/engine.ts';
import { type Migration, migrate, readMigrations } from '../../src/storage/migrate.ts';
import { addressWith } from '../support/cluster.ts';
import { availableEngines, type TestDatabase, type TestEngine, testDatabase } from '../support/database.ts';
import { dumpSchema } from '../support/schema-dump.ts';

const COMMITTED = {
  postgres: new URL('./schema.postgres.txt', import.meta.url),
  timescale: new URL('./schema.timescale.txt', import.meta.url),
};

const open: TestDatabase[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((database) => database.drop()));
});

async function database(engine: TestEngine, options: { empty: boolean }): Promise<TestDatabase> {
  const made = await testDatabase(engine, options);
  open.push(made);
  // On an empty database that can have TimescaleDB this makes the extension.
  if (options.empty) await chooseEngine(made.sql);
  return made;
}

function migration(number: number, text: string): Migration {
  const name = `${String(number).padStart(4, '0')}_test.sql`;
  return { number, name, text, checksum: createHash('sha256').update(text).digest('hex') };
}

/** What came later is a migration of data that somebody has. */
const LAST_OF_FIRST_RELEASE = 40;

async function refusal(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(OperatorError);
  return error instanceof Error ? error.message : '';
}

const ENGINES = ['postgres', 'timescale', 'citus'] as const;

describe.each(availableEngines())('migrations on %s', (engine) => {
  const [kind, other] =
    engine === 'timescale' ? (['timescale', 'postgres'] as const) : (['postgres', 'timescale'] as const);

  test('are applied in order, once, and named, and make the schema that is committed', async () => {
    const { sql } = await database(engine, { empty: true });
    const names = (await readMigrations(kind)).map(({ name }) => name);
    expect((await migrate(sql, kind)).applied).toEqual(names);
    expect((await migrate(sql, kind)).applied).toEqual([]);
    const stored = await sql<{ name: string }[]>`SELECT name FROM schema_migrations ORDER BY number`;
    expect(stored.map(({ name }) => name)).toEqual(names);
    const dump = await dumpSchema(sql);
    if (process.env.UPDATE_SCHEMA === '1' && engine !== 'postgres15') await writeFile(COMMITTED[kind], dump);
    expect(
      dump,
      'UPDATE_SCHEMA=1 npx vitest run test/storage/migrate.engine.test.ts brings it up to date',
    ).toBe(await readFile(COMMITTED[kind], 'utf8'));
  });

  test('of four starts at once are each applied by one of them, whatever the default isolation', async () => {
    const { sql, address } = await database(engine, { empty: true });
    const [{ name }] = await sql<[{ name: string }]>`SELECT current_database() AS name`;
    await sql`ALTER DATABASE ${sql(name)} SET default_transaction_isolation = 'serializable'`;
    const starts = Array.from({ length: 4 }, () => connect(address, { connections: 1, name: 'start' }));
    const results = await Promise.all(starts.map((start) => migrate(start, kind)));
    await Promise.all(starts.map((start) => start.end()));
    expect(results.flatMap(({ applied }) => applied).sort()).toEqual(
      (await readMigrations(kind)).map(({ name: file }) => file),
    );
  });

  test('that fail leave nothing behind and name the file; what is not as it was applied is refused', async () => {
    const { sql } = await database(engine, { empty: false });
    const known = await readMigrations(kind);
    const broken = migration(9001, 'CREATE TABLE half (a int); SELECT 1 / 0;');
    await expect(migrate(sql, kind, [...known, broken])).rejects.toThrow(
      'sql/9001_test.sql: division by zero',
    );
    expect(await exists(sql, 'half')).toBe(false);
    const [first, ...others] = known;
    const changed = { ...migration(1, '-- changed'), name: first?.name ?? '' };
    expect(await refusal(migrate(sql, kind, [changed, ...others]))).toContain(
      'sql/0001_accounts_and_apps.sql is not the file that was applied',
    );
    expect(await refusal(migrate(sql, other))).toContain(`migrated for the engine "${kind}"`);

    const mended = migration(9001, 'CREATE TABLE half (a int);');
    expect((await migrate(sql, kind, [...known, mended])).applied).toEqual(['9001_test.sql']);
    // A newer release made it.
    await sql`UPDATE installation SET value = '9.9.0' WHERE name = 'release'`;
    expect(await refusal(migrate(sql, kind))).toBe(
      `the database has the migration 9001_test.sql, which Tidemark ${readVersion()} does not know: ` +
        'use Tidemark 9.9.0, which applied it, or a newer one',
    );
  });

  test('refuse a database that is not UTF-8', async () => {
    const { sql: admin, address } = await database(engine, { empty: true });
    await admin`CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0 ${
      engine !== 'postgres15' ? admin`LOCALE_PROVIDER libc` : admin``
    }`;
    const sql = connect(addressWith(address, { database: 'latin' }), { connections: 1, name: 'test' });
    try {
      expect(await refusal(migrate(sql, kind))).toMatch(/encoding LATIN1: create one with CREATE DATABASE/);
    } finally {
      await sql.end();
      await admin`DROP DATABASE latin`;
    }
  });

  test('name the right that is missing', async () => {
    const { sql, address } = await database(engine, { empty: true });
    const role = `weak_${engine}`;
    await sql`CREATE ROLE ${sql(role)} LOGIN PASSWORD 'weak'`;
    const weak = connect(addressWith(address, { user: role, password: 'weak' }), {
      connections: 1,
      name: 'test',
    });
    try {
      expect(await refusal(migrate(weak, kind))).toContain(`GRANT CREATE, USAGE ON SCHEMA public TO ${role}`);
      await sql`GRANT CREATE ON SCHEMA public TO ${sql(role)}`;
      expect((await migrate(weak, kind)).applied.length).toBeGreaterThan(0);
      await sql`ALTER TABLE schema_migrations OWNER TO CURRENT_USER`;
      expect(await refusal(migrate(weak, kind))).toContain("connect as the user that owns Tidemark's tables");
    } finally {
      await weak.end();
      await sql`DROP OWNED BY ${sql(role)}`;
      await sql`DROP ROLE ${sql(role)}`;
    }
  });
});

test('all engines have files of the same numbers: a schema is one state of the service, whatever the engine', async () => {
  const [postgres, timescale, citus] = await Promise.all(
    ENGINES.map(async (kind) => (await readMigrations(kind)).map(({ number }) => number)),
  );
  expect(timescale).toEqual(postgres);
  expect(citus).toEqual(postgres);
});

async function exists(sql: Sql, table: string): Promise<boolean> {
  const [row] = await sql<[{ found: boolean }]>`SELECT to_regclass(${table}) IS NOT NULL AS found`;
  return row.found;
}

test('every migration since the first release says whether the previous release can run beside it', async () => {
  for (const engine of ENGINES) {
    for (const { number, name, text } of await readMigrations(engine)) {
      if (number <= LAST_OF_FIRST_RELEASE) continue;
      expect(text.slice(0, 400), name).toMatch(/^-- Beside the previous release: (yes|no: .+)$/m);
    }
  }
});
