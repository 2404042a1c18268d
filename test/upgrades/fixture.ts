/**
 * The data of a release, as a later one finds it: a dump of the database on each engine, and a journal with events that wait.
 * `MAKE_FIXTURE=1 npx vitest run --project slow --project postgres15 test/upgrades/upgrades` makes that of the running version; a released one is never made again.
 */
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { gunzipSync, gzipSync } from 'node:zlib';
import { connect } from '../../src/storage/database/connect.ts';
import type { Engine } from '../../src/storage/database/engine.ts';
import { ServerProcess } from '../e2e/server-process.ts';
import { tidemark } from '../support/command-line.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { FaultyProxy } from '../support/proxy.ts';
import { until } from '../support/service.ts';

const run = promisify(execFile);

export const FIXTURES = new URL('./', import.meta.url).pathname;
export const SECRET = 'the secret of the fixtures, 32 characters';
export const PASSWORD = 'correct horse battery';
export const EMAIL = 'owner@example.com';

/** What a fixture has in it. */
export interface Manifest {
  readonly appId: string;
  readonly loggingToken: string;
  readonly resourceToken: string;
  /** Events in the table, and events in the journal alone. */
  readonly stored: readonly string[];
  readonly waiting: readonly string[];
}

/** Releases that have a fixture for this engine. */
export async function releases(engine: Engine): Promise<string[]> {
  const names = await readdir(FIXTURES, { withFileTypes: true });
  const folders = names.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  const found = await Promise.all(
    folders.map(async (name) => ((await readdir(join(FIXTURES, name))).includes(engine) ? [name] : [])),
  );
  return found.flat().sort();
}

export async function readManifest(release: string, engine: Engine): Promise<Manifest> {
  return JSON.parse(await readFile(join(FIXTURES, release, engine, 'manifest.json'), 'utf8'));
}

/** Loads the dump into an empty database. */
export async function load(release: string, database: TestDatabase): Promise<void> {
  const { engine, sql } = database;
  const packed = await readFile(join(FIXTURES, release, engine, 'database.sql.gz'));
  const dump = gunzipSync(packed).toString();
  if (engine === 'timescale') {
    await sql`CREATE EXTENSION IF NOT EXISTS timescaledb`;
    await sql`SELECT timescaledb_pre_restore()`;
  }
  const own = connect(database.address, { connections: 1, name: 'load' });
  try {
    await own.unsafe(dump).simple();
  } finally {
    await own.end();
  }
  if (engine === 'timescale') await sql`SELECT timescaledb_post_restore()`;
}

/** Unpacks the journal. */
export async function unpackJournal(release: string, engine: Engine, folder: string): Promise<void> {
  const packed = await readFile(join(FIXTURES, release, engine, 'journal.json'), 'utf8');
  for (const [name, content] of Object.entries(JSON.parse(packed) as Record<string, string>)) {
    const path = join(folder, name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, Buffer.from(content, 'base64'));
  }
}

/**
 * Makes the fixture of the running version.
 * @param bin   the folder of a `pg_dump` that is not newer than the oldest server that is to load the dump
 * @param spare a folder for the journal
 */
export async function makeFixture(
  release: string,
  engine: Engine,
  bin: string,
  spare: string,
): Promise<void> {
  const database = await testDatabase(engine === 'timescale' ? 'timescale' : 'postgres15', { empty: true });
  const folder = join(FIXTURES, release, engine);
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const proxy = await FaultyProxy.start(database.address);
  try {
    const manifest = await fill(through(proxy, database.url), database.url, spare, () => proxy.goAway());
    await writeFile(join(folder, 'manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`);
    await writeFile(join(folder, 'database.sql.gz'), gzipSync(await dump(database, bin), { level: 9 }));
    await writeFile(join(folder, 'journal.json'), `${JSON.stringify(await packJournal(spare), null, 2)}\n`);
  } finally {
    await proxy.stop();
    await database.drop();
  }
}

/** The URL of a database by way of a proxy. */
function through(proxy: FaultyProxy, url: string): string {
  const address = proxy.address;
  const reached = new URL(url);
  if ('port' in address) reached.host = `127.0.0.1:${address.port}`;
  return reached.href;
}

async function fill(
  url: string,
  direct: string,
  journal: string,
  cut: () => Promise<void>,
): Promise<Manifest> {
  const settings = { SECRET, DATABASE_URL: url, JOURNAL_DIR: journal };
  const server = await ServerProcess.start(settings);
  try {
    const command = async (...args: string[]): Promise<Record<string, string>> => {
      const { code, stdout, stderr } = await tidemark([...args, '--json'], { SECRET, DATABASE_URL: direct });
      if (code !== 0) throw new Error(stderr);
      return JSON.parse(stdout);
    };
    const { appId = '', loggingToken = '' } = await command('app', 'create', '--name', 'Web shop');
    const { resourceToken = '' } = await command('token', 'create', '--name', 'Reports', '--app', appId);
    const events = Array.from({ length: 200 }, (_, index) => ({
      typeName: index % 3 === 0 ? 'order placed' : 'page viewed',
      payload: { n: index, text: 'Zwölf Boxkämpfer \u0000 \ud800' },
      createdAt: new Date(Date.now() - index * 37 * 60_000).toISOString(),
    }));
    const batch = await fetch(`http://127.0.0.1:${server.port}/v1/events`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${loggingToken}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ events }),
    });
    const { results } = (await batch.json()) as { results: { eventId: string }[] };
    const stored = results.map(({ eventId }) => eventId);
    await cut();
    const waiting: string[] = [];
    const post = async (n: number): Promise<void> => {
      const response = await fetch(`http://127.0.0.1:${server.port}/public/create_event`, {
        method: 'POST',
        body: JSON.stringify({ loggingToken, typeName: 'order placed', payload: { waiting: n } }),
      });
      if (response.status < 300) waiting.push(((await response.json()) as { eventId: string }).eventId);
    };
    await until(
      async () => {
        await post(waiting.length);
        return waiting.length === 20;
      },
      'twenty events wait in the journal',
      60_000,
    );
    return { appId, loggingToken, resourceToken, stored, waiting };
  } finally {
    await server.end('SIGTERM');
  }
}

/** The database as SQL that any client can run: without commands of psql, and without rights of anybody. */
async function dump({ url, engine }: TestDatabase, bin: string): Promise<string> {
  const options = ['--inserts', '--rows-per-insert=500', '--no-owner', '--no-privileges', '--no-comments'];
  if (engine === 'timescale') options.push('--no-tablespaces');
  const { stdout } = await run(join(bin, 'pg_dump'), [...options, url], { maxBuffer: 100_000_000 });
  return stdout
    .split('\n')
    .filter(
      (line) =>
        !line.startsWith('\\') && !line.startsWith('CREATE EXTENSION') && line !== 'CREATE SCHEMA public;',
    )
    .join('\n');
}

/** The files of a folder by their paths in it, in base 64. */
async function packJournal(folder: string): Promise<Record<string, string>> {
  const entries = await readdir(folder, { withFileTypes: true, recursive: true });
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  const files = paths.map(async (path) => [
    relative(folder, path),
    (await readFile(path)).toString('base64'),
  ]);
  return Object.fromEntries(await Promise.all(files));
}
