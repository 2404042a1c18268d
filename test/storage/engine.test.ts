import { afterEach, describe, expect, test } from 'vitest';
import { OperatorError } from '../../src/errors.ts';
import { chooseEngine } from '../../src/storage/engine.ts';
import { availableEngines, type TestDatabase, type TestEngine, testDatabase } from '../support/database.ts';
import { startTestService } from '../support/service.ts';

const open: TestDatabase[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((database) => database.drop()));
});

async function database(engine: TestEngine, empty: boolean): Promise<TestDatabase> {
  const made = await testDatabase(engine, { empty });
  open.push(made);
  return made;
}

const engines = availableEngines();
const ofPostgres = engines.filter((engine) => engine !== 'timescale');

test.each(engines)('%s: /readyz names the engine and its version', async (engine) => {
  const service = await startTestService({ engine });
  try {
    const { body } = await service.request({ method: 'GET', path: '/readyz' });
    const name =
      engine === 'timescale' ? /^TimescaleDB \d+\.\d+\.\d+ on PostgreSQL \d+\.\d+$/ : /^PostgreSQL \d+\.\d+$/;
    expect(JSON.parse(body)).toMatchObject({ status: 'ready', engine: expect.stringMatching(name) });
  } finally {
    await service.stop();
  }
});

test.each(ofPostgres)(
  '%s: PostgreSQL without the extension is used as it is, without a word',
  async (engine) => {
    const { sql } = await database(engine, true);
    expect(await chooseEngine(sql)).toMatchObject({ engine: 'postgres', note: null });
  },
);

describe.runIf(engines.includes('timescale'))('TimescaleDB', () => {
  test('is used for an empty database, and the extension is made', async () => {
    const { sql } = await database('timescale', true);
    expect(await chooseEngine(sql)).toMatchObject({ engine: 'timescale', note: null });
    expect(await sql`SELECT FROM pg_extension WHERE extname = 'timescaledb'`).toHaveLength(1);
  });

  test('is named as possible where a database was migrated before the server had it', async () => {
    const { sql } = await database('timescale', true);
    await migratedFor(sql, 'postgres');
    const choice = await chooseEngine(sql);
    expect(choice.engine).toBe('postgres');
    expect(choice.note).toMatch(/"tidemark backup" and "tidemark restore".*PostgreSQL's own way/);
  });

  test('that appears in a database that was migrated for PostgreSQL alone is refused with what to do', async () => {
    const { sql } = await database('timescale', true);
    await migratedFor(sql, 'postgres');
    await sql`CREATE EXTENSION timescaledb`;
    await expect(chooseEngine(sql)).rejects.toThrow(OperatorError);
    await expect(chooseEngine(sql)).rejects.toThrow(/run DROP EXTENSION timescaledb/);
  });

  test('that is gone from a database that was migrated for it is refused with what to do', async () => {
    const { sql } = await database('timescale', true);
    await migratedFor(sql, 'timescale');
    await expect(chooseEngine(sql)).rejects.toThrow(
      /migrated for TimescaleDB, but the extension is gone from it/,
    );
  });

  test('in its Apache edition is left alone with one line that says why', async () => {
    const { sql } = await database('timescale', true);
    const [row] = await sql<{ name: string }[]>`SELECT current_database() AS name`;
    // The edition is a setting of the server; a database may carry one of its own.
    await sql.unsafe(`ALTER DATABASE ${row?.name} SET timescaledb.license = 'apache'`);
    await sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ${row?.name ?? ''} AND pid <> pg_backend_pid()`;
    const { connect } = await import('../../src/storage/connect.ts');
    const apache = connect(open.at(-1)?.address ?? { url: '' }, { connections: 1, name: 'test' });
    try {
      const choice = await chooseEngine(apache);
      expect(choice.engine).toBe('postgres');
      expect(choice.note).toMatch(/is the Apache edition.*PostgreSQL's own way is used/);
    } finally {
      await apache.end();
    }
  });
});

async function migratedFor(sql: TestDatabase['sql'], engine: string): Promise<void> {
  await sql`CREATE TABLE installation (name text PRIMARY KEY, value text NOT NULL)`;
  await sql`INSERT INTO installation VALUES ('engine', ${engine})`;
}
