/** Which commands change the schema of a database: those of a newer release meet servers of an older one. */
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { readVersion } from '../../src/process/version.ts';
import { migrate, readMigrations } from '../../src/storage/migrate.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { type Outcome, tidemark } from '../support/command-line.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../support/database.ts';
import { first } from '../support/fuzz.ts';
import { testSecret } from '../support/service.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-schema-'));
  await writeFile(join(folder, 'lines.ndjson'), '');
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const APP = ['--app', 'app_1'];
/** One command of each way to open the database; the first four also where all of them have been tried. */
const COMMANDS: readonly (readonly string[])[] = [
  ['app', 'create', '--name', 'Shop'],
  ['backup', '-'],
  ['import', 'FOLDER/lines.ndjson', ...APP],
  ['journal', 'import'],
  ['app', 'list'],
  ['field', 'list', ...APP],
  ['export', '-', ...APP],
  ['audit', 'export', '-'],
  ['recount', '--from', '2026-01-31'],
  ['recover-rows'],
];

describe.each(first(availableEngines()))('on %s', (engine) => {
  const run = (database: TestDatabase, args: readonly string[]): Promise<Outcome> =>
    tidemark(
      args.map((arg) => arg.replace('FOLDER', folder)),
      { DATABASE_URL: database.url, DATA_DIR: join(folder, 'data'), JOURNAL_DIR: join(folder, 'journal') },
    );

  /** Runs commands and expects them to refuse with one sentence. */
  async function expectRefusals(
    database: TestDatabase,
    sentence: string,
    commands: typeof COMMANDS = COMMANDS.slice(0, 4),
  ): Promise<void> {
    const outcomes = [];
    for (const args of commands) outcomes.push({ args, ...(await run(database, args)) });
    expect(outcomes).toEqual(
      commands.map((args) => ({ args, code: 1, stdout: '', stderr: `tidemark: ${sentence}\n` })),
    );
  }

  test('an empty database stays as it is, also without an extension', async () => {
    const database = await testDatabase(engine, { empty: true });
    const { sql } = database;
    const inventory = () => sql`
      SELECT relname AS name FROM pg_class WHERE relnamespace = 'public'::regnamespace
      UNION ALL SELECT extname FROM pg_extension ORDER BY name`;
    try {
      const before = await inventory();
      await expectRefusals(
        database,
        'the database does not have the tables of Tidemark: start the service or run "tidemark migrate", which make them, ' +
          'or correct DATABASE_URL or DATA_DIR',
      );
      expect([...(await inventory())]).toEqual([...before]);
    } finally {
      await database.drop();
    }
  });

  test('an older schema is not upgraded, except by migrate', async () => {
    const database = await testDatabase(engine, { empty: true });
    const { sql } = database;
    try {
      const { engine: kind } = await openStorage(sql);
      const known = await readMigrations(kind);
      await migrate(sql, kind, known.slice(0, -1));
      await sql`UPDATE installation SET value = '0.0.1' WHERE name = 'release'`;
      await expectRefusals(
        database,
        `the database has the schema of Tidemark 0.0.1, 1 migration behind Tidemark ${readVersion()}, and this command does ` +
          'not change it: run "tidemark migrate" or start this release to upgrade the database, or run this command with Tidemark 0.0.1',
        COMMANDS,
      );
      expect(await sql`SELECT FROM schema_migrations`).toHaveLength(known.length - 1);

      const migrated = JSON.parse((await run(database, ['migrate', '--json'])).stdout);
      expect(migrated.applied).toEqual(known.slice(-1).map(({ name }) => name));
      expect(await run(database, ['app', 'list'])).toMatchObject({ code: 0, stderr: '' });
    } finally {
      await database.drop();
    }
  });

  test('a schema of a version before the first release is refused with the way', async () => {
    const database = await testDatabase(engine);
    try {
      await database.sql`UPDATE schema_migrations SET name = '0001_people_and_apps.sql', checksum = 'x' WHERE number = 1`;
      const sentence =
        'the database was made by a version of Tidemark before the first release: write a backup with that version ' +
        '("tidemark backup"), and restore it with this one ("tidemark restore") into an empty database, with another ' +
        'DATABASE_URL or DATA_DIR';
      await expectRefusals(database, sentence);
      expect(await run(database, ['migrate'])).toEqual({
        code: 1,
        stdout: '',
        stderr: `tidemark: ${sentence}\n`,
      });
      const { stdout } = await run(database, ['doctor', '--json']);
      expect(JSON.parse(stdout).findings).toContainEqual(
        expect.objectContaining({
          check: 'database',
          level: 'problem',
          found: expect.stringContaining(sentence),
        }),
      );
    } finally {
      await database.drop();
    }
  });

  test('a newer schema is refused with the release that made it', async () => {
    const database = await testDatabase(engine);
    const { sql } = database;
    try {
      await sql`INSERT INTO schema_migrations (number, name, checksum) VALUES (9000, '9000_later.sql', 'x')`;
      await sql`UPDATE installation SET value = '99.0.0' WHERE name = 'release'`;
      await expectRefusals(
        database,
        `the database has the migration 9000_later.sql, which Tidemark ${readVersion()} does not know: use Tidemark 99.0.0, ` +
          'which applied it, or a newer one',
      );
    } finally {
      await database.drop();
    }
  });
});

test('in a folder without data a command makes none, and leaves the file of a backup as it is', async () => {
  const dataDir = join(folder, 'nothing here');
  const file = join(folder, 'good.backup');
  await writeFile(file, 'a good backup');
  const sentence =
    `tidemark: There is no Tidemark database in ${dataDir}: name it with DATA_DIR or DATABASE_URL ` +
    '(only serve, migrate and restore make one)\n';
  const commands = [...COMMANDS, ['backup', file], ['token', 'revoke', 'tok_1'], ['demo', '--remove']];
  for (const args of commands) {
    const settings = { DATA_DIR: dataDir, JOURNAL_DIR: join(folder, 'journal') };
    const outcome = await tidemark(
      args.map((arg) => arg.replace('FOLDER', folder)),
      settings,
    );
    expect({ args, ...outcome }).toEqual({ args, code: 1, stdout: '', stderr: sentence });
  }
  const { stdout } = await tidemark(['doctor'], { DATA_DIR: dataDir, PORT: '0' });
  expect(stdout).toContain(`there is no Tidemark database in ${dataDir}`);
  expect(stdout).not.toContain('Nothing to change');
  expect(existsSync(dataDir)).toBe(false);
  expect(await readFile(file, 'utf8')).toBe('a good backup');
});

test('a backup replaces no file with more events, nor one that is no backup, unless it is forced to', async () => {
  const [many, none] = [await testDatabase('postgres18'), await testDatabase('postgres18')];
  const file = join(folder, 'kept.backup');
  const backup = (database: TestDatabase, ...options: string[]): Promise<Outcome> =>
    tidemark(['backup', file, '--json', ...options], { DATABASE_URL: database.url, DATA_DIR: folder });
  try {
    const { appId } = await createApp(many.sql, await testSecret(), { name: 'Shop' });
    const lines = join(folder, 'events.ndjson');
    const line = (second: number): string =>
      `{"type":"seen","createdAt":"2026-01-31T00:00:0${second}.000Z","payload":{"text":"a\\nb"}}\n`;
    await writeFile(lines, [1, 2, 3].map(line).join(''));
    expect(
      await tidemark(['import', lines, '--app', appId], { DATABASE_URL: many.url, DATA_DIR: folder }),
    ).toMatchObject({ code: 0 });
    expect(JSON.parse((await backup(many)).stdout)).toMatchObject({ events: 3 });
    const good = await readFile(file);
    expect(await backup(none)).toEqual({
      code: 1,
      stdout: '',
      stderr:
        `tidemark: ${file} has 3 events, and this database 0, so it was not replaced: check DATA_DIR and DATABASE_URL, ` +
        'name another file, or give --force\n',
    });
    expect((await readFile(file)).equals(good)).toBe(true);
    expect((await readdir(folder)).filter((name) => name.endsWith('.part'))).toEqual([]);
    // As many events, or more, are the usual case; also over what is left of a damaged backup.
    expect(await backup(many)).toMatchObject({ code: 0 });
    await writeFile(file, good.subarray(0, good.length - 20));
    expect(await backup(many)).toMatchObject({ code: 0 });
    expect(await backup(none, '--force')).toMatchObject({ code: 0 });
    await writeFile(file, 'a letter');
    expect(await backup(many)).toMatchObject({ code: 1, stderr: expect.stringContaining('is no backup') });
    await writeFile(file, '');
    expect(await backup(many)).toMatchObject({ code: 0 });
  } finally {
    await many.drop();
    await none.drop();
  }
});
