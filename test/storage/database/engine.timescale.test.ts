/** TimescaleDB beside PostgreSQL: when it is used, and what is said where it cannot be. */
import { join } from 'node:path';
import { afterEach, describe, expect, inject, test } from 'vitest';
import { isRoot, unprivilegedUser } from '../../../src/embedded/user.ts';
import { OperatorError } from '../../../src/errors.ts';
import { connect, type Sql } from '../../../src/storage/database/connect.ts';
import { chooseEngine } from '../../../src/storage/database/engine.ts';
import { openDatabase } from '../../../src/storage/database/open.ts';
import {
  addressOf,
  BUILTIN_LOCALE,
  type Cluster,
  type ClusterAddress,
  startCluster,
  urlOf,
} from '../../support/cluster.ts';
import { type TestDatabase, testDatabase } from '../../support/database.ts';

const open: TestDatabase[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((database) => database.drop()));
});

async function database(): Promise<TestDatabase> {
  const made = await testDatabase('timescale', { empty: true });
  open.push(made);
  return made;
}

describe('TimescaleDB', () => {
  test('is used for an empty database, and the extension is made', async () => {
    const { sql } = await database();
    expect(await chooseEngine(sql)).toMatchObject({ engine: 'timescale', note: null });
    expect(await sql`SELECT FROM pg_extension WHERE extname = 'timescaledb'`).toHaveLength(1);
  });

  test('is named as possible where a database was migrated before the server had it', async () => {
    const { sql } = await database();
    await migratedFor(sql, 'postgres');
    const choice = await chooseEngine(sql);
    expect(choice.engine).toBe('postgres');
    expect(choice.note).toMatch(/"tidemark backup" and "tidemark restore".*using PostgreSQL without it/);
  });

  test('that appears in a database that was migrated for PostgreSQL alone is refused with what to do', async () => {
    const { sql } = await database();
    await migratedFor(sql, 'postgres');
    await sql`CREATE EXTENSION timescaledb`;
    await expect(chooseEngine(sql)).rejects.toThrow(OperatorError);
    await expect(chooseEngine(sql)).rejects.toThrow(/run DROP EXTENSION timescaledb/);
  });

  test('that is gone from a database that was migrated for it is refused with what to do', async () => {
    const { sql } = await database();
    await migratedFor(sql, 'timescale');
    await expect(chooseEngine(sql)).rejects.toThrow(
      /migrated for TimescaleDB, but no longer has the extension/,
    );
  });

  test('in its Apache edition is left alone with one line that says why', async () => {
    const { sql } = await database();
    const [row] = await sql<{ name: string }[]>`SELECT current_database() AS name`;
    // The edition is a setting of the server; a database may carry one of its own.
    await sql.unsafe(`ALTER DATABASE ${row?.name} SET timescaledb.license = 'apache'`);
    await sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ${row?.name ?? ''} AND pid <> pg_backend_pid()`;
    const apache = connect(open.at(-1)?.address ?? { url: '' }, { connections: 1, name: 'test' });
    try {
      const choice = await chooseEngine(apache);
      expect(choice.engine).toBe('postgres');
      expect(choice.note).toMatch(/is the Apache edition.*using PostgreSQL without it/);
    } finally {
      await apache.end();
    }
  });
});

const timescaleHome = inject('timescaleHome');

describe.runIf(timescaleHome !== null)('a server of its own with TimescaleDB', () => {
  const clusters: Cluster[] = [];
  const pools: Sql[] = [];
  afterEach(async () => {
    await Promise.all(pools.splice(0).map((pool) => pool.end({ timeout: 1 })));
    await Promise.all(clusters.splice(0).map((cluster) => cluster.stop()));
  });

  async function start(options: string): Promise<ClusterAddress> {
    const user = isRoot() ? await unprivilegedUser() : undefined;
    const cluster = await startCluster(join(timescaleHome ?? '', 'bin'), BUILTIN_LOCALE, user, options);
    clusters.push(cluster);
    return cluster.address;
  }

  function session(address: ClusterAddress): Sql {
    const sql = connect(addressOf(address, 'postgres'), { connections: 1, name: 'test' });
    pools.push(sql);
    return sql;
  }

  test('that does not load it, although its settings name it, is used as PostgreSQL, with why', async () => {
    const sql = session(
      await start('-c timescaledb.max_background_workers=4 -c timescaledb.license=timescale'),
    );
    expect(await chooseEngine(sql)).toEqual({
      engine: 'postgres',
      description: expect.stringMatching(/^PostgreSQL \d/),
      note: expect.stringMatching(
        /is installed but not in shared_preload_libraries; using PostgreSQL without it$/,
      ),
    });
    await migratedFor(sql, 'timescale');
    await expect(chooseEngine(sql)).rejects.toThrow(
      /was migrated for TimescaleDB, but TimescaleDB [\d.]+ is installed but not in shared_preload_libraries: correct that/,
    );
  });

  test('whose package was upgraded alone is refused with what to run, in one line', async () => {
    const address = await start(
      '-c shared_preload_libraries=timescaledb -c timescaledb.max_background_workers=0',
    );
    const sql = session(address);
    expect(await chooseEngine(sql)).toMatchObject({ engine: 'timescale', note: null });
    await sql`UPDATE pg_extension SET extversion = '2.28.0' WHERE extname = 'timescaledb'`;
    // This session has loaded a library, as every one has while the package of the old version is still there.
    expect((await chooseEngine(sql)).note).toMatch(
      /^this database uses TimescaleDB 2\.28\.0 and the server has [\d.]+: run ALTER EXTENSION timescaledb UPDATE/,
    );
    const advice =
      /uses TimescaleDB 2\.28\.0, whose library the server no longer has: run ALTER EXTENSION timescaledb UPDATE/;
    await expect(chooseEngine(session(address))).rejects.toThrow(OperatorError);
    await expect(chooseEngine(session(address))).rejects.toThrow(advice);
    const config = { DATABASE_URL: urlOf(address, 'postgres'), DATA_DIR: '' };
    const log = { info: () => undefined, warn: () => undefined };
    await expect(openDatabase(config, log, { supervise: false })).rejects.toThrow(advice);
  });
});

async function migratedFor(sql: TestDatabase['sql'], engine: string): Promise<void> {
  await sql`CREATE TABLE installation (name text PRIMARY KEY, value text NOT NULL)`;
  await sql`INSERT INTO installation VALUES ('engine', ${engine})`;
}
