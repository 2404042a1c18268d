import { type ChildProcess, execFile, fork, type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import {
  chmod,
  chown,
  cp,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  realpath,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { completeLinks, platformPackage, usableBinaries } from '../../src/embedded/binaries.ts';
import { type EmbeddedPostgres, openEmbedded } from '../../src/embedded/embedded.ts';
import { canReach, unprivilegedUser } from '../../src/embedded/user.ts';
import { OperatorError } from '../../src/errors.ts';
import { atNight } from '../support/fuzz.ts';

const repository = join(import.meta.dirname, '../..');
const root = process.getuid?.() === 0;
/** An ordinary user, as whom root's tests try what root itself is not refused. */
const NOBODY = { uid: 65_534, gid: 65_534 };
/** A child as that user runs this clone's code: not in a clone that only root can enter. */
const hasOrdinaryUser = root && (await canReach(repository, NOBODY));

let programs: string;
let folder: string;
let dataDir: string;
let users: EmbeddedPostgres[];
let children: ChildProcess[];
let said: { info: string[]; warn: string[] };

beforeAll(async () => {
  programs = await mkdtemp(join(tmpdir(), 'embedded-programs-'));
  await chmod(programs, 0o755);
  await compile(programs);
  const quiet = { info: () => undefined, warn: () => undefined };
  await (await openEmbedded({ dataDir: join(programs, 'data'), log: quiet })).close();
});

afterAll(() => rm(programs, { recursive: true, force: true }));

beforeEach(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), 'embedded-')));
  await chmod(folder, 0o755);
  dataDir = join(folder, 'data');
  users = [];
  children = [];
  said = { info: [], warn: [] };
});

afterEach(async () => {
  for (const user of users) await user.close();
  for (const child of children) await kill(child);
  await cleanUp(dataDir);
  await rm(folder, { recursive: true, force: true });
});

test('the first start makes a database that only its owner can reach', async () => {
  const { connection } = await open();
  expect(await query(connection, 'SELECT current_user, current_database()')).toEqual([
    { current_user: 'tidemark', current_database: 'tidemark' },
  ]);
  expect((await stat(connection.host)).mode & 0o777).toBe(0o700);
  expect((await stat(dataDir)).mode & 0o007).toBe(0);
  const settings = `SELECT current_setting('listen_addresses') AS addresses, current_setting('data_checksums') AS checksums,
    current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS commit, current_setting('timezone') AS zone,
    current_setting('server_encoding') AS encoding, current_setting('max_wal_size') AS wal`;
  expect(await query(connection, settings)).toEqual([
    { addresses: '', checksums: 'on', fsync: 'on', commit: 'on', zone: 'UTC', encoding: 'UTF8', wal: '4GB' },
  ]);
});

atNight('settings at the end of postgresql.conf win over ours', async () => {
  await made();
  const path = join(dataDir, 'postgres', 'postgresql.conf');
  await writeFile(path, `${await readFile(path, 'utf8')}\nmax_connections = 37\n`);
  expect(await query((await open()).connection, 'SHOW max_connections')).toEqual([{ max_connections: '37' }]);
});

test.skipIf(process.platform !== 'linux')(
  'nothing of our environment reaches PostgreSQL [needs /proc]',
  async () => {
    await made();
    vi.stubEnv('PGOPTIONS', '-c search_path=nowhere');
    vi.stubEnv('PGSSLMODE', 'require');
    vi.stubEnv('SECRET', 'of the deepest kind');
    try {
      await open();
      const environment = await readFile(`/proc/${await postmaster()}/environ`, 'utf8');
      expect(environment).not.toMatch(/SECRET|PGOPTIONS|PGSSLMODE/);
    } finally {
      vi.unstubAllEnvs();
    }
  },
);

atNight('a start waits for a session that survived kill -9 of PostgreSQL', async () => {
  await made();
  const { connection } = await open();
  // Busy without a pause, it does not notice that PostgreSQL is gone.
  const busy = `DO $$ DECLARE until timestamptz := clock_timestamp() + interval '3 s';
    BEGIN WHILE clock_timestamp() < until LOOP END LOOP; END $$`;
  const survivor = query(connection, busy).catch(() => undefined);
  const seen = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'DO %' AND state = 'active'";
  await until(async () => (await query(connection, seen)).length === 1);
  process.kill(await postmaster(), 'SIGKILL');
  expect(await query((await open()).connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  await survivor;
});

test('after kill -9 of its only user PostgreSQL is stopped in order, with what was committed', async () => {
  await made();
  const child = await openInChild();
  const pid = await postmaster();
  const visitor = await open();
  await query(visitor.connection, 'CREATE TABLE kept AS SELECT 42 AS answer');
  await visitor.close();
  expect(isAlive(pid)).toBe(true);
  await kill(child);
  await until(() => !isAlive(pid));
  expect(await query((await open()).connection, 'SELECT answer FROM kept')).toEqual([{ answer: 42 }]);
  const logs = join(dataDir, 'postgres', 'log');
  const log = await readFile(join(logs, (await readdir(logs))[0] ?? ''), 'utf8');
  expect(log).toContain('received fast shutdown request');
  expect(log).not.toContain('was not properly shut down');
});

atNight('a user that ends during its start leaves no PostgreSQL running', async () => {
  await made();
  const child = startChild();
  await until(async () => isAlive(await postmaster().catch(() => 0)));
  const pid = await postmaster();
  await kill(child);
  await until(() => !isAlive(pid));
});

atNight(
  'of users that are killed and followed by others, some while PostgreSQL is being stopped, the last one has all',
  async () => {
    await made();
    await query((await open()).connection, 'CREATE TABLE kept (round int)');
    await users[0]?.close();
    for (let round = 0; round < 4; round++) {
      const child = await openInChild();
      const pid = await postmaster();
      await kill(child);
      // The odd ones come when the lock file of PostgreSQL goes, at the end of its stop.
      if (round % 2 === 1) await until(async () => (await postmaster().catch(() => 0)) !== pid);
      const user = await open();
      await query(user.connection, `INSERT INTO kept VALUES (${round})`);
      await user.close();
    }
    const user = await open();
    expect(await query(user.connection, 'SELECT count(*)::int FROM kept')).toEqual([{ count: 4 }]);
  },
);

test('a guard leaves PostgreSQL to others, whose sessions and work go on', async () => {
  await made();
  const child = await openInChild();
  const pid = await postmaster();
  const other = await openInChild();
  await kill(child);
  const holders = "SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'tidemark holder'";
  const user = await open();
  const count = async (): Promise<unknown> => (await query(user.connection, holders))[0];
  const seen: unknown[] = [];
  // The guard is a third one for some seconds.
  await until(async () => seen.push(await count()) > 0 && JSON.stringify(seen.at(-1)) === '{"count":3}');
  await until(async () => JSON.stringify(await count()) === '{"count":2}');
  expect(await postmaster()).toBe(pid);
  await user.close();
  await closeInChild(other);
  expect(isAlive(pid)).toBe(false);
});

test('whoever comes while the last one leaves starts PostgreSQL again', async () => {
  await made();
  let leaving = await open();
  for (let round = 0; round < 5; round++) {
    const [, coming] = await Promise.all([leaving.close(), open()]);
    expect(await query(coming.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
    leaving = coming;
  }
});

test('three processes at once on a fresh folder make one database and all use it', async () => {
  const all = await Promise.all([openInChild(), openInChild(), open()]);
  expect(all).toHaveLength(3);
  expect((await readdir(dataDir)).filter((name) => name.includes('.new-'))).toEqual([]);
  const holders = "SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'";
  expect(await query(all[2].connection, holders)).toEqual([{ count: 3 }]);
});

atNight('kill -9 in the middle of making the database leaves nothing in the way', async () => {
  const child = startChild();
  await until(async () => (await readdir(dataDir).catch(() => [])).some((name) => name.includes('.new-')));
  await kill(child);
  const { connection } = await open();
  expect(await query(connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
});

atNight('what killed processes left behind is cleared away in time', async () => {
  const [old, fresh] = [join(dataDir, 'postgres.new-old'), join(dataDir, 'postgres.new-fresh')];
  await mkdir(old, { recursive: true });
  await mkdir(fresh);
  await utimes(old, new Date(0), new Date(0));
  await open();
  expect((await readdir(dataDir)).filter((name) => name.includes('.new-'))).toEqual(['postgres.new-fresh']);
});

test('a lock file whose pid now is another process does not keep PostgreSQL from starting', async () => {
  await made();
  const cluster = join(dataDir, 'postgres');
  const { uid, gid } = await stat(cluster);
  const other = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], {
    stdio: 'ignore',
    ...(root ? { uid, gid } : {}),
  });
  children.push(other);
  for (const name of ['postmaster.pid', '.s.PGSQL.5432.lock']) {
    await writeFile(join(cluster, name), `${other.pid}\n${cluster}\n1\n5432\n${cluster}\n\n`);
    await chown(join(cluster, name), uid, gid);
  }
  const { connection } = await open();
  expect(await query(connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
});

atNight('lock files that a power cut left empty do not keep PostgreSQL from starting', async () => {
  await made();
  const cluster = join(dataDir, 'postgres');
  const { uid, gid } = await stat(cluster);
  for (const name of ['postmaster.pid', '.s.PGSQL.5432.lock']) {
    await writeFile(join(cluster, name), '');
    await chown(join(cluster, name), uid, gid);
  }
  // The first has to be waited for, as it might be one that is just starting.
  await utimes(join(cluster, '.s.PGSQL.5432.lock'), new Date(0), new Date(0));
  const { connection } = await open();
  expect(await query(connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
});

test('a lock file of garbage is named with what to do, and its bytes are not printed', async () => {
  await made();
  const path = join(dataDir, 'postgres', 'postmaster.pid');
  const { uid, gid } = await stat(join(dataDir, 'postgres'));
  await writeFile(path, Buffer.from([0x1b, 0x5b, 0x33, 0x31, 0x6d, 0xff, 0xfe, 0x07, 0x80, 0x0a]));
  await chown(path, uid, gid);
  const reason = await open().then(
    () => '',
    (error: Error) => error.message,
  );
  expect(reason).toMatch(
    /^PostgreSQL does not start: its lock file postmaster\.pid does not begin with a process id: if no PostgreSQL uses this folder, remove that file/,
  );
  expect(reason).not.toMatch(/[\p{Cc}\uFFFD]/u);
});

atNight('another major version is refused with what to do', async () => {
  await made();
  await writeFile(join(dataDir, 'postgres', 'PG_VERSION'), '17\n');
  await expectRefusal(open(), /made by PostgreSQL 17 .* PostgreSQL 18: .*tidemark backup/);
});

test('a DATA_DIR that is a file, or in one, is refused', async () => {
  await writeFile(dataDir, '');
  await expectRefusal(open(), /is a file: set DATA_DIR to a folder/);
  await expectRefusal(open(join(dataDir, 'inside')), /inside a file: set DATA_DIR to a folder/);
});

test.skipIf(root && !hasOrdinaryUser)('a DATA_DIR without the right to write is refused', async () => {
  await mkdir(dataDir, { mode: 0o555 });
  const refusal = root
    ? refusalInChild(startChild(dataDir, NOBODY))
    : open().then(
        () => '',
        (error: Error) => error.message,
      );
  expect(await refusal).toMatch(/cannot be written to: give this user the right/);
});

test('a folder of something else in the place of the database is refused and left alone', async () => {
  await mkdir(join(dataDir, 'postgres'), { recursive: true });
  await writeFile(join(dataDir, 'postgres', 'letters.txt'), 'dear');
  await expectRefusal(open(), /holds something else/);
  expect(await readdir(join(dataDir, 'postgres'))).toEqual(['letters.txt']);
});

test('a link to a database that is gone is refused: it never begins empty by itself', async () => {
  await mkdir(dataDir);
  await symlink(join(folder, 'gone'), join(dataDir, 'postgres'));
  await expectRefusal(open(), /which is not there: bring it back/);
});

test('a broken database is refused with the reason and a log that says it', async () => {
  await made();
  await truncate(join(dataDir, 'postgres', 'global', 'pg_control'), 100);
  const message = await open().then(
    () => '',
    (error: Error) => error.message,
  );
  const [, reason = '', log = ''] = /does not start: \w+: +(.*) \(its log: (.*)\)$/.exec(message) ?? [
    message,
  ];
  expect(reason).toContain('pg_control');
  expect(await readFile(log, 'utf8')).toContain(reason);
});

atNight('a folder that others may write to is refused with the command that closes it', async () => {
  await made();
  const cluster = join(dataDir, 'postgres');
  await chmod(cluster, 0o777);
  await expectRefusal(open(), new RegExp(`invalid permissions.*: chmod 700 ${cluster} `));
});

atNight('a failure after the log was taken over is told from that log', async () => {
  await made();
  const wal = join(dataDir, 'postgres', 'pg_wal');
  for (const name of await readdir(wal)) if (/^[0-9A-F]{24}$/.test(name)) await rm(join(wal, name));
  await expectRefusal(open(), /PANIC: .*checkpoint record.*its log: .*postgres\/log\/postgresql-/);
});

atNight('a path too long for a socket works, and the socket stays where it is over restarts', async () => {
  const long = join(dataDir, 'long'.repeat(25));
  const first = await open(long);
  const { host } = first.connection;
  expect(host.startsWith(long)).toBe(false);
  expect((await stat(host)).mode & 0o777).toBe(0o700);
  await first.close();
  const second = await open(long);
  expect(second.connection.host).toBe(host);
  expect(await query(second.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  await second.close();
  await rm(host, { recursive: true });
});

test('a path with blanks, quotes and commas works', async () => {
  const { connection } = await open(join(folder, 'data', `a, "b" 'c' é`));
  expect(await query(connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  await users[0]?.close();
});

test('supervision starts PostgreSQL again after kill -9, in the same place, with one warning', async () => {
  await made();
  const { connection, close } = bound(await open(dataDir, true));
  const killed = await postmaster();
  process.kill(killed, 'SIGKILL');
  await until(() => said.info.some((line) => line.includes('is back')));
  expect(await query(connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  expect(said.warn).toHaveLength(1);
  const pid = await postmaster();
  expect(pid).not.toBe(killed);
  await close();
  expect(isAlive(pid)).toBe(false);
});

atNight('two who supervise one PostgreSQL end up with one, and the last one out stops it', async () => {
  await made();
  const [first, second] = [await open(dataDir, true), await open(dataDir, true)];
  process.kill(await postmaster(), 'SIGKILL');
  await until(() => said.info.filter((line) => line.includes('is back')).length === 2);
  const pid = await postmaster();
  await first.close();
  expect(await query(second.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  await second.close();
  expect(isAlive(pid)).toBe(false);
});

atNight('supervision holds its share again after only its session was ended', async () => {
  await made();
  const { connection } = await open(dataDir, true);
  const pid = await postmaster();
  const end =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidemark holder'";
  await query(connection, end);
  await until(() => said.info.some((line) => line.includes('is back')));
  const visitor = await open();
  await visitor.close();
  expect(await postmaster()).toBe(pid);
});

atNight('supervision never begins empty in place of a database that vanished', async () => {
  await made();
  const user = await open(dataDir, true);
  const pid = await postmaster();
  await rename(join(dataDir, 'postgres'), join(dataDir, 'away'));
  process.kill(pid, 'SIGKILL');
  await until(() => said.warn.some((line) => line.includes('is gone: bring it back')));
  expect(await readdir(dataDir)).toEqual(['away']);
  await until(() => !isAlive(pid));
  await rename(join(dataDir, 'away'), join(dataDir, 'postgres'));
  await until(() => said.info.some((line) => line.includes('is back')));
  expect(await query(user.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
});

test('nothing is started again after close, even in the middle of a recovery', async () => {
  await made();
  const user = await open(dataDir, true);
  process.kill(await postmaster(), 'SIGKILL');
  await until(() => said.warn.length > 0);
  await user.close();
  const pid = await postmaster().catch(() => 0);
  expect(pid === 0 || !isAlive(pid)).toBe(true);
});

test('where no build of PostgreSQL fits, the way out is DATABASE_URL', async () => {
  await expectRefusal(platformPackage('linux', 'x64', true), /musl: set DATABASE_URL/);
  await expectRefusal(platformPackage('win32', 'x64', false), /win32-x64: set DATABASE_URL/);
});

test('links that npm did not make are made, by several at once', async () => {
  const native = join(folder, 'native');
  const source = await platformPackage();
  await mkdir(join(native, 'lib'), { recursive: true });
  await cp(join(source.native, 'pg-symlinks.json'), join(native, 'pg-symlinks.json'));
  expect(await Promise.all([completeLinks(native), completeLinks(native)])).toEqual([true, true]);
  expect(await readlink(join(native, 'lib', 'libpq.so.5'))).toMatch(/^libpq\.so\.5\.\d+$/);
});

const asRoot = test.skipIf(!root);
const asRootAndOrdinary = test.skipIf(!hasOrdinaryUser);

asRoot('programs that the unprivileged user cannot reach are copied [needs root]', async () => {
  const source = await platformPackage();
  const closed = join(folder, 'closed');
  await mkdir(closed, { mode: 0o700 });
  // As if npm had run no install script.
  await cp(source.native, join(closed, 'native'), {
    recursive: true,
    filter: async (path) => !(await lstat(path)).isSymbolicLink(),
  });
  const store = join(folder, 'store');
  const user = await unprivilegedUser();
  const hidden = { ...source, native: join(closed, 'native') };
  const [one, two] = await Promise.all([
    usableBinaries(hidden, user, store),
    usableBinaries(hidden, user, store),
  ]);
  expect(one).toEqual({ bin: join(store, `postgresql-${source.version}`, 'bin'), major: '18' });
  expect(two).toEqual(one);
  expect(await readdir(store)).toEqual([`postgresql-${source.version}`]);
  expect((await stat(one.bin)).uid).toBe(0);
});

asRoot('a store for programs that others can write to is refused [needs root]', async () => {
  const source = await platformPackage();
  const closed = join(folder, 'closed');
  await mkdir(closed, { mode: 0o700 });
  await cp(source.native, join(closed, 'native'), { recursive: true, verbatimSymlinks: true });
  const store = join(folder, 'store');
  await mkdir(store);
  await chmod(store, 0o777);
  const hidden = { ...source, native: join(closed, 'native') };
  await expectRefusal(
    usableBinaries(hidden, await unprivilegedUser(), store),
    /must be a folder that belongs to root/,
  );
});

asRoot(
  'a DATA_DIR that the unprivileged user cannot reach holds a link to the database [needs root]',
  async () => {
    await chmod(folder, 0o700);
    const first = await open();
    await query(first.connection, 'CREATE TABLE kept AS SELECT 42 AS answer');
    await first.close();
    const home = await readlink(join(dataDir, 'postgres'));
    expect(home).toMatch(/^\/var\/lib\/tidemark\/data-/);
    expect((await stat(home)).mode & 0o777).toBe(0o700);
    expect((await stat(folder)).mode & 0o777).toBe(0o700);
    const second = await open();
    expect(await query(second.connection, 'SELECT answer FROM kept')).toEqual([{ answer: 42 }]);
  },
);

asRoot(
  "a private DATA_DIR that holds only a secret is opened to PostgreSQL's group [needs root]",
  async () => {
    await mkdir(dataDir, { mode: 0o700 });
    await writeFile(join(dataDir, 'secret'), '', { mode: 0o600 });
    await open();
    expect((await lstat(join(dataDir, 'postgres'))).isDirectory()).toBe(true);
    expect((await stat(dataDir)).mode & 0o777).toBe(0o710);
  },
);

asRootAndOrdinary(
  'an ordinary user has a database too, and root joins it as its guest [needs root]',
  async () => {
    await mkdir(dataDir);
    await chown(dataDir, NOBODY.uid, NOBODY.gid);
    const child = await openInChild(dataDir, NOBODY);
    const pid = await postmaster();
    expect((await stat(join(dataDir, 'postgres'))).uid).toBe(NOBODY.uid);
    const user = await open();
    await closeInChild(child);
    expect(await postmaster()).toBe(pid);
    await user.close();
    const again = await open();
    expect(await query(again.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  },
);

asRootAndOrdinary("another user's database is refused [needs root]", async () => {
  await made();
  await chmod(dataDir, 0o777);
  expect(await refusalInChild(startChild(dataDir, NOBODY))).toMatch(/belongs to another user/);
});

/** Puts a copy of a database that was stopped into DATA_DIR. */
async function made(): Promise<void> {
  await promisify(execFile)('cp', ['-a', join(programs, 'data'), dataDir]);
}

async function open(at = dataDir, supervise = false): Promise<EmbeddedPostgres> {
  const log = { info: (line: string) => said.info.push(line), warn: (line: string) => said.warn.push(line) };
  const user = await openEmbedded({ dataDir: at, log, supervise });
  users.push(user);
  return user;
}

function bound(user: EmbeddedPostgres) {
  return { connection: user.connection, close: () => user.close() };
}

async function query(connection: EmbeddedPostgres['connection'], text: string): Promise<unknown[]> {
  const client = new pg.Client({ ...connection, ssl: false });
  client.on('error', () => undefined);
  await client.connect();
  try {
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}

async function expectRefusal(promise: Promise<unknown>, message: RegExp): Promise<void> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(OperatorError);
  expect((error as OperatorError).message).toMatch(message);
  expect((error as OperatorError).message).not.toContain('\n');
}

/** Node 20 runs no TypeScript: what child processes import is compiled for them. */
async function compile(target: string): Promise<void> {
  const tsc = join(dirname(dirname(await realpath(join(repository, 'node_modules/.bin/tsc')))), 'bin/tsc');
  const options =
    '--ignoreConfig --target es2023 --module nodenext --types node --skipLibCheck --rewriteRelativeImportExtensions';
  const input = join(repository, 'src/embedded/embedded.ts');
  const output = ['--rootDir', join(repository, 'src'), '--outDir', target];
  await promisify(execFile)(process.execPath, [tsc, ...options.split(' '), ...output, input], {
    cwd: repository,
  });
  await writeFile(join(target, 'package.json'), '{"type":"module"}');
  await symlink(join(repository, 'node_modules'), join(target, 'node_modules'));
  await writeFile(
    join(target, 'user.js'),
    `import { openEmbedded } from './embedded/embedded.js';
     const log = { info: () => undefined, warn: () => undefined };
     try {
       const user = await openEmbedded({ dataDir: process.argv[2], log });
       process.on('message', async () => { await user.close(); process.disconnect(); });
       process.send({ open: true });
     } catch (error) {
       process.send({ refusal: error.message }, () => process.disconnect());
     }`,
  );
}

function startChild(at = dataDir, user: Pick<SpawnOptions, 'uid' | 'gid'> = {}): ChildProcess {
  const child = fork(join(programs, 'user.js'), [at], { cwd: '/', ...user });
  children.push(child);
  return child;
}

async function openInChild(
  at = dataDir,
  user: Pick<SpawnOptions, 'uid' | 'gid'> = {},
): Promise<ChildProcess> {
  const child = startChild(at, user);
  expect((await once(child, 'message'))[0]).toEqual({ open: true });
  return child;
}

async function refusalInChild(child: ChildProcess): Promise<string> {
  return (await once(child, 'message'))[0].refusal;
}

async function closeInChild(child: ChildProcess): Promise<void> {
  child.send('close');
  await once(child, 'exit');
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGKILL');
  await once(child, 'exit');
}

async function postmaster(): Promise<number> {
  return Number.parseInt(await readFile(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8'), 10);
}

/** A zombie is dead: a container's first process may never ask how its adopted children ended. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return process.platform !== 'linux' || readFileSync(`/proc/${pid}/cmdline`, 'utf8') !== '';
  } catch {
    return false;
  }
}

/** Stops what a failed test left running, and removes a database that DATA_DIR only points to. */
async function cleanUp(at: string): Promise<void> {
  const cluster = await realpath(join(at, 'postgres')).catch(() => undefined);
  if (cluster === undefined) return;
  const program = await postmaster()
    .then((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8'))
    .catch(() => '');
  if (program.includes(cluster)) {
    const pid = await postmaster();
    process.kill(pid, 'SIGQUIT');
    await until(() => !isAlive(pid));
  }
  await rm(cluster, { recursive: true, force: true });
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await delay(10);
}
