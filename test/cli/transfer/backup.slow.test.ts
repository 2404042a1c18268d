import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import {
  copyFile,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../../src/apps/apps.ts';
import { createEventType } from '../../../src/apps/event-types.ts';
import { createResourceToken } from '../../../src/apps/resource-tokens.ts';
import { openSealed, openSecret } from '../../../src/apps/secret.ts';
import { DERIVED_TABLES, readTables } from '../../../src/storage/backup/catalog.ts';
import { SEQUENCE_GAP } from '../../../src/storage/backup/restore.ts';
import type { Sql } from '../../../src/storage/database/connect.ts';
import { openCopyClient } from '../../../src/storage/database/copy-client.ts';
import { readInstallation } from '../../../src/storage/database/installation-id.ts';
import { decodeCursor, encodeCursor, readEventList } from '../../../src/storage/read/event-list.ts';
import { readEventPage } from '../../../src/storage/read/event-page.ts';
import { LAUNCHER, type Outcome, tidemark } from '../../support/command-line.ts';
import {
  availableEngines,
  everyEngine,
  type TestDatabase,
  type TestEngine,
  testDatabase,
} from '../../support/database.ts';
import { first } from '../../support/fuzz.ts';
import { insertSelected } from '../../support/insert-selected.ts';
import { testSecret } from '../../support/service.ts';
import { upkeepOf } from '../../support/upkeep.ts';

const DAY = 86_400_000;
const START = Date.UTC(2026, 0, 30);
const BOUNDARY = START + 2 * DAY;
const DAYS = 5;
const EVENTS = 3_000;
const NO_END = 1_000_000_000;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-backup-test-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

function run(database: TestDatabase, ...args: string[]): Promise<Outcome> {
  return tidemark([...args, '--json'], { DATABASE_URL: database.url, DATA_DIR: folder });
}

/** A database that has been used: apps, people, tokens, and events of which retention has removed the first days. */
async function usedDatabase(engine: TestEngine): Promise<TestDatabase> {
  const database = await testDatabase(engine);
  const { sql } = database;
  const secret = await testSecret();
  const apps = [await createApp(sql, secret, { name: 'One' }), await createApp(sql, secret, { name: 'Two' })];
  for (const { appId } of apps)
    for (const name of ['a', 'b\t\\.\n\\.\n']) await createEventType(sql, { appId, name, maxTypes: 10 });
  await createResourceToken(sql, {
    name: 'reader',
    appIds: apps.map(({ appId }) => appId),
    expiresInSeconds: null,
  });
  await sql`INSERT INTO users (public_id, email, email_key, password_hash) VALUES ('usr_1', 'A@b', 'a@b', 'hash')`;
  await sql`INSERT INTO second_factors (user_id, sealed, started_at, enabled_at) SELECT id, 'sealed', now(), now() FROM users`;
  await sql`INSERT INTO recovery_codes (user_id, digest) SELECT id, sha256('code') FROM users`;
  await sql`INSERT INTO known_devices (user_id, digest, last_seen_at) SELECT id, sha256('device'), now() FROM users`;
  await sql`INSERT INTO sessions (digest, user_id, created_at, last_seen_at) SELECT sha256('cookie'), id, now(), now() FROM users`;
  await sql`INSERT INTO app_members (app_id, user_id, role) SELECT apps.id, users.id, 'owner' FROM apps, users`;
  await createApp(sql, secret, { name: 'Gone' });
  await sql`DELETE FROM apps WHERE name = 'Gone'`;
  await sql`
    INSERT INTO refused_requests (app_id, at, route, code, details, body, is_cut)
    SELECT id, now(), '/v1/events', 'INVALID_REQUEST', '', 'a person', false FROM apps`;
  await upkeepOf(engine).prepare(sql, START, START + DAYS * DAY - 1);
  const rows = sql`
    SELECT gen_random_uuid(), event_types.app_id, event_types.id,
           ${new Date(START)}::timestamptz + n * interval '1 second' * ${(DAYS * 86_400) / EVENTS} + event_types.id * interval '3 ms',
           ('{ "n" : ' || n || ', "text":"\\u0000 \\n \\\\. ä' || chr(8232) || '" }')::json
      FROM generate_series(0, ${EVENTS - 1}) AS n
      JOIN event_types ON event_types.id = 1 + n % 3`;
  await insertSelected(sql, database.engine, rows);
  await upkeepOf(engine).settle(sql);
  await sql`UPDATE retention SET readable_from = ${new Date(BOUNDARY)}`;
  return database;
}

/** Everything that a backup is to bring back. */
async function contentOf(sql: Sql): Promise<Record<string, unknown>> {
  const plain = [
    'apps',
    'event_types',
    'logging_tokens',
    'resource_tokens',
    'resource_token_apps',
    'users',
    'app_members',
    'second_factors',
    'recovery_codes',
    'known_devices',
  ];
  const content: Record<string, unknown> = {};
  for (const table of [...plain, 'audit_entries', 'retention'])
    content[table] = await sql`SELECT * FROM ${sql(table)} ORDER BY 1, 2`;
  content.events = await sql`
    SELECT id, app_id, type_id, created_at, payload::text FROM events, retention WHERE created_at >= readable_from
     ORDER BY created_at, id`;
  for (const level of ['quarter_hour', 'hour', 'day', 'month']) {
    content[level] = await sql`
      SELECT app_id, type_id, bucket, sum(count)::float8 AS count FROM ${sql(`events_per_${level}`)} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`;
  }
  content.totals = await totalsOf(sql);
  return content;
}

async function totalsOf(sql: Sql): Promise<number[]> {
  const totals: number[] = [];
  for (const appId of [1, 2]) {
    for (const typeId of [null, 1, 2]) {
      const scope = { appId, typeIds: typeId === null ? null : [typeId], from: null, until: null };
      const page = await readEventPage(sql, { scope, offset: 0, limit: 1, order: 'asc', maxBytes: NO_END });
      totals.push(page.total);
    }
  }
  return totals;
}

/** The ids of app 1 from a cursor's text on, in pages of 300. */
async function idsFrom(
  sql: Sql,
  order: 'asc' | 'desc',
  from: string | null,
  pages: number,
): Promise<{ ids: string[]; next: string | null }> {
  const ids: string[] = [];
  let next = from;
  for (let page = 0; page < pages && (page === 0 || next !== null); page += 1) {
    const after = next === null ? null : decodeCursor(next);
    const scope = { appId: 1, typeIds: null, from: null, until: null, order };
    const list = await readEventList(sql, { ...scope, after, limit: 300, maxBytes: NO_END });
    ids.push(...list.events.map(({ id }) => id));
    next = list.next === null ? null : encodeCursor(list.next);
  }
  return { ids, next };
}

async function appsOf(database: TestDatabase): Promise<number> {
  const [row] = await database.sql<{ count: number }[]>`SELECT count(*)::int AS count FROM apps`;
  return row?.count ?? 0;
}

describe.each(first(availableEngines()))('a backup of %s', (engine) => {
  let source: TestDatabase;
  let content: Record<string, unknown>;
  let file: string;
  beforeAll(async () => {
    source = await usedDatabase(engine);
    await readInstallation(source.sql);
    content = await contentOf(source.sql);
    file = join(folder, `${engine}.backup`);
    const outcome = await run(source, 'backup', file);
    expect(outcome).toMatchObject({ code: 0, stderr: '' });
    const readable = (EVENTS * (DAYS - 2)) / DAYS;
    expect(JSON.parse(outcome.stdout)).toEqual({
      events: readable,
      bytes: (await stat(file)).size,
      seconds: expect.any(Number),
      keepToo: join(folder, 'secret'),
    });
  });
  afterAll(() => source.drop());

  test('can be read by its owner alone, and leaves nothing else behind', async () => {
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect((await readdir(folder)).filter((name) => name.endsWith('.part'))).toEqual([]);
  });

  test('into a pipe, a device or /dev/stdout is written to it, which stays what it is', async () => {
    const own = await mkdtemp(join(folder, 'own-'));
    const pipe = join(own, 'pipe');
    execFileSync('mkfifo', [pipe]);
    const [piped, read] = await Promise.all([run(source, 'backup', pipe), readFile(pipe)]);
    expect(piped).toMatchObject({ code: 0, stderr: '' });
    expect(gunzipSync(read).toString('latin1')).toContain('{"section":"end"');
    expect((await lstat(pipe)).isFIFO()).toBe(true);

    const settings = { DATABASE_URL: source.url, DATA_DIR: folder };
    const shell = `"$0" "$1" backup /dev/stdout --json | cat`;
    const printed = execFileSync('sh', ['-c', shell, process.execPath, LAUNCHER], {
      env: { PATH: process.env.PATH ?? '', ...settings },
      maxBuffer: 100_000_000,
    });
    // The answer follows the backup.
    expect(gunzipSync(printed.subarray(0, printed.lastIndexOf('{"events"'))).toString('latin1')).toContain(
      '{"section":"end"',
    );

    const device = join(own, 'null');
    // Without the right to make devices the pipes have to do.
    if (spawnSync('mknod', [device, 'c', '1', '3']).status === 0) {
      expect(await run(source, 'backup', device)).toMatchObject({ code: 0, stderr: '' });
      expect((await lstat(device)).isCharacterDevice()).toBe(true);
    }
  });

  test('in place of a symbolic link or a folder is refused, and neither is touched', async () => {
    const own = await mkdtemp(join(folder, 'own-'));
    const kept = join(own, 'kept');
    await writeFile(kept, 'kept');
    for (const [name, target] of [
      ['link', kept],
      ['dangling', join(own, 'missing')],
    ] as const) {
      const link = join(own, name);
      await symlink(target, link);
      const outcome = await run(source, 'backup', link);
      expect(outcome).toMatchObject({ code: 1, stdout: '' });
      expect(outcome.stderr).toContain(
        `${link} is a symbolic link: name the file itself, or - for standard output`,
      );
      expect(await readlink(link)).toBe(target);
    }
    expect(await readFile(kept, 'utf8')).toBe('kept');
    const refused = await run(source, 'backup', folder);
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(refused.stderr).toContain(`${folder} is a folder: name a file`);
    expect((await readdir(folder)).filter((name) => name.endsWith('.part') || name === 'missing')).toEqual(
      [],
    );
  });

  test.each(everyEngine())(
    'brings events, counts, totals, people and tokens back on %s, also counts without rows',
    async (targetEngine) => {
      const target = await testDatabase(targetEngine, { empty: true });
      try {
        const outcome = await run(target, 'restore', file);
        expect(outcome).toMatchObject({ code: 0, stderr: '' });
        const restored = await contentOf(target.sql);
        // Nobody is signed in to a copy.
        expect(await source.sql`SELECT FROM sessions`).toHaveLength(1);
        expect(await target.sql`SELECT FROM sessions`).toHaveLength(0);
        // A person may have been erased from them meanwhile.
        expect(await source.sql`SELECT FROM refused_requests`).toHaveLength(2);
        expect(await target.sql`SELECT FROM refused_requests`).toHaveLength(0);
        for (const [what, rows] of Object.entries(content))
          expect({ [what]: restored[what] }).toEqual({ [what]: rows });
        await upkeepOf(targetEngine).settle(target.sql);
        expect(await totalsOf(target.sql)).toEqual(content.totals);
        for (const order of ['asc', 'desc'] as const) {
          const begun = await idsFrom(source.sql, order, null, 2);
          const finished = await idsFrom(target.sql, order, begun.next, Number.POSITIVE_INFINITY);
          expect([...begun.ids, ...finished.ids]).toEqual(
            (await idsFrom(source.sql, order, null, Number.POSITIVE_INFINITY)).ids,
          );
        }
        // Three apps were made, one of which is gone, and any number after the backup: no identifier is given twice.
        const [app] =
          await target.sql`INSERT INTO apps (public_id, name) VALUES ('app_new', 'new') RETURNING id`;
        expect(app).toEqual({ id: 3 + SEQUENCE_GAP + 1 });
        const sequences = await target.sql<{ name: string; last: string }[]>`
          SELECT sequencename AS name, last_value::text AS last FROM pg_sequences WHERE sequencename IN
            ('event_types_id_seq', 'users_id_seq', 'resource_tokens_id_seq', 'audit_entries_id_seq', 'invitations_id_seq')`;
        expect(sequences).toHaveLength(5);
        for (const { last } of sequences) expect(Number(last)).toBeGreaterThanOrEqual(SEQUENCE_GAP);
        const installation = await readInstallation(target.sql);
        const before = await readInstallation(source.sql);
        expect(installation.identity).toBe(before.identity);
        expect(installation.generation).not.toBe(before.generation);
        const [engineRow] = await target.sql`SELECT value FROM installation WHERE name = 'engine'`;
        expect(engineRow).toEqual({ value: targetEngine === 'timescale' ? 'timescale' : 'postgres' });
      } finally {
        await target.drop();
      }
    },
  );

  test('holds every table that is not made from others', async () => {
    const client = await openCopyClient(source.address, 'test');
    const kept = (await readTables(client)).map(({ name }) => name);
    await client.end();
    const all = await source.sql<{ name: string }[]>`
      SELECT relname AS name FROM pg_class
       WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition`;
    expect([...kept].sort()).toEqual(
      all
        .map(({ name }) => name)
        .filter((name) => !DERIVED_TABLES.has(name))
        .sort(),
    );
    for (const level of ['quarter_hour', 'hour', 'day']) expect(content[level]).not.toEqual([]);
  });

  test('is one moment, whatever is written meanwhile', async () => {
    const { sql } = source;
    const child = spawn(process.execPath, [LAUNCHER, 'backup', '-'], {
      env: { PATH: process.env.PATH ?? '', DATABASE_URL: source.url, DATA_DIR: folder },
    });
    const chunks: Buffer[] = [];
    let running = true;
    child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
    const ended = once(child, 'close').then(() => {
      running = false;
    });
    // Each app with its event in one transaction: a backup has both or neither.
    const names: string[] = [];
    while (running) {
      const name = `app_during_${names.length}`;
      names.push(name);
      await sql.begin(async (tx) => {
        const [app] = await tx<
          { id: number }[]
        >`INSERT INTO apps (public_id, name) VALUES (${name}, 'x') RETURNING id`;
        const row = tx`VALUES (gen_random_uuid(), ${app?.id ?? 0}::integer, 1, ${new Date(BOUNDARY)}::timestamptz, '{}'::json)`;
        await insertSelected(tx, source.engine, row);
      });
    }
    await ended;
    const target = await testDatabase(engine);
    try {
      const path = join(folder, `${engine}.moment`);
      await writeFile(path, Buffer.concat(chunks));
      expect((await run(target, 'restore', path)).code).toBe(0);
      const [halves] = await target.sql`
        SELECT count(*)::int AS count FROM apps FULL JOIN (SELECT DISTINCT app_id FROM events) seen ON seen.app_id = apps.id
         WHERE apps.id IS NULL OR seen.app_id IS NULL`;
      expect(halves).toEqual({ count: 0 });
    } finally {
      await target.drop();
      await sql`DELETE FROM apps WHERE public_id LIKE 'app_during_%'`;
    }
  });

  describe('is refused, and nothing becomes visible,', () => {
    let target: TestDatabase;
    beforeAll(async () => {
      target = await testDatabase(engine);
    });
    afterAll(() => target.drop());

    const edited = (edit: (text: string) => string) => (bytes: Buffer) =>
      gzipSync(Buffer.from(edit(gunzipSync(bytes).toString('latin1')), 'latin1'));
    const flipped = (bytes: Buffer): Buffer => {
      const copy = Buffer.from(bytes);
      const middle = copy.length >> 1;
      copy.writeUInt8(copy.readUInt8(middle) ^ 0x10, middle);
      return copy;
    };
    const cases: readonly [string, (bytes: Buffer) => Buffer, RegExp][] = [
      ['cut off', (bytes) => bytes.subarray(0, bytes.length >> 1), /cut off or damaged/],
      ['cut off by a byte', (bytes) => bytes.subarray(0, -1), /cut off or damaged/],
      [
        'without its trailer',
        edited((text) => text.replace(/\{"section":"end".*\n$/, '')),
        /cut off or damaged \(it ends before/,
      ],
      ['with a bit that has flipped', flipped, /cut off or damaged/],
      [
        'with another digit in a row',
        edited((text) => text.replace('"n" : 2999', '"n" : 2998')),
        /its checksum does not match/,
      ],
      ['with something behind its end', edited((text) => `${text}x`), /data after its end/],
      [
        'of a newer schema',
        edited((text) => text.replace(/"schema":\d+/, '"schema":9999')),
        /schema 9999, which this release/,
      ],
      [
        'of a newer format',
        edited((text) => text.replace('"format":1', '"format":2')),
        /format 2, which this release/,
      ],
      [
        'whose events span the years 1 to 9999',
        edited((text) =>
          text.replace(
            /("section":"events","from":")[^"]*(","until":")[^"]*/,
            '$10001-01-01T00:00:00.000Z$29999-12-31T00:00:00.000Z',
          ),
        ),
        /has events from 0001-01-01T00:00:00\.000Z to 9999-12-31T00:00:00\.000Z: they can be between 1970 and now/,
      ],
      ['that is no backup', () => gzipSync('{"hello":1}\n'), /not a backup made by/],
      ['that is no gzip', () => Buffer.from('hello'), /cut off or damaged/],
    ];
    test.each(cases)('%s', async (what, damage, reason) => {
      const path = join(folder, `${engine} ${what}`);
      await writeFile(path, damage(await readFile(file)));
      const { code, stdout, stderr } = await run(target, 'restore', path);
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
      expect(stderr).toMatch(reason);
      expect(stderr.trimEnd().split('\n')).toHaveLength(1);
      expect(await appsOf(target)).toBe(0);
    });

    test('where the database is in use, and not where it is just migrated and started', async () => {
      await target.sql`INSERT INTO account_links (digest, purpose, expires_at) VALUES (sha256(''), 'setup', now())`;
      await target.sql`INSERT INTO installation (name, value) VALUES ('secret_fingerprint', 'other')`;
      expect((await run(target, 'restore', file)).code).toBe(0);
      expect((await contentOf(target.sql)).totals).toEqual(content.totals);
      const { code, stderr } = await run(target, 'restore', file);
      expect(code).toBe(1);
      expect(stderr).toContain('the database is in use: its table apps has rows');
      expect((await contentOf(target.sql)).totals).toEqual(content.totals);
    });
  });

  test('fails as a whole when its connection breaks, and leaves the older file as it was', async () => {
    const path = join(folder, `${engine}.older`);
    await writeFile(path, 'older');
    const started = tidemark(['backup', path], { DATABASE_URL: source.url, DATA_DIR: folder });
    // Held at its first statement, so that it is there to be broken.
    await source.sql.begin(async (tx) => {
      await tx`LOCK TABLE events IN ACCESS EXCLUSIVE MODE`;
      for (let ended = 0; ended === 0; ) {
        const rows = await tx`
          SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE application_name = 'tidemark backup' AND wait_event_type = 'Lock' AND datname = current_database()`;
        ended = rows.length;
        await tx`SELECT pg_stat_clear_snapshot()`;
      }
    });
    expect((await started).code).toBe(1);
    expect(await readFile(path, 'utf8')).toBe('older');
    expect((await readdir(folder)).filter((name) => name.endsWith('.part'))).toEqual([]);
  });
});

describe('SECRET, which no backup holds', () => {
  test('is named by the backup, and with it old logging tokens are shown after a restore', async () => {
    const [source, target] = [await testDatabase(), await testDatabase()];
    const [old, fresh] = [join(folder, 'old-data'), join(folder, 'fresh-data')];
    const file = join(folder, 'with-secret.backup');
    const json = async (
      database: TestDatabase,
      settings: Record<string, string>,
      ...args: string[]
    ): Promise<Record<string, unknown>> => {
      const { code, stdout, stderr } = await tidemark([...args, '--json'], {
        DATABASE_URL: database.url,
        ...settings,
      });
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      return JSON.parse(stdout);
    };
    try {
      const made = await json(source, { DATA_DIR: old }, 'app', 'create', '--name', 'Shop');
      const { keepToo } = await json(source, { DATA_DIR: old }, 'backup', file);
      expect(keepToo).toBe(join(old, 'secret'));
      // As the recipes of docs/deployment.md do: the file that was named goes into the new DATA_DIR.
      await mkdir(fresh, { mode: 0o700 });
      await copyFile(String(keepToo), join(fresh, 'secret'));
      expect(await json(target, { DATA_DIR: fresh }, 'restore', file)).toMatchObject({ secret: 'same' });
      const [row] = await target.sql<
        { digest: Buffer; sealed: Buffer }[]
      >`SELECT digest, sealed FROM logging_tokens`;
      const secret = await openSecret({ configured: '', dataDir: fresh });
      expect(row && openSealed(secret, row.sealed, row.digest)).toBe(made.loggingToken);
    } finally {
      await Promise.all([source.drop(), target.drop()]);
    }
  });

  test.each([
    ['missing', {}],
    ['different', { SECRET: 'another secret of more than thirty-two characters' }],
  ])('that is %s is told by the restore, which does not make one', async (secret, settings) => {
    const [source, target] = [await testDatabase(), await testDatabase()];
    const file = join(folder, `${secret}.backup`);
    const dataDir = join(folder, `${secret}-data`);
    try {
      await tidemark(['app', 'create', '--name', 'Shop'], { DATABASE_URL: source.url, DATA_DIR: folder });
      expect((await run(source, 'backup', file)).code).toBe(0);
      const restored = await tidemark(['restore', file, '--json'], {
        DATABASE_URL: target.url,
        DATA_DIR: dataDir,
        ...settings,
      });
      expect(JSON.parse(restored.stdout)).toMatchObject({ apps: 1, secret });
      expect(existsSync(join(dataDir, 'secret'))).toBe(false);
    } finally {
      await Promise.all([source.drop(), target.drop()]);
    }
  });
});
