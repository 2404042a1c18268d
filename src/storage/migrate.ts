/** Migrates a database to the schema of this release: numbered SQL files, each in its own transaction. */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { OperatorError } from '../errors.ts';
import { readVersion } from '../process/version.ts';
import { errorCode, isUnavailable, type Sql, type Transaction } from './database/connect.ts';
import { ENGINE_NAMES, type Engine } from './database/engine.ts';
import { hasTable, readFact } from './database/installation-id.ts';

/** One numbered file. */
export interface Migration {
  readonly number: number;
  /** The file's name in sql/. */
  readonly name: string;
  readonly text: string;
  /** SHA-256 of the text, hexadecimal. */
  readonly checksum: string;
}

interface Applied {
  readonly number: number;
  readonly name: string;
  readonly checksum: string;
}

/** Beside both src/ and dist/. */
const SQL_FOLDER = new URL('../../sql/', import.meta.url);
/** A file is for every engine, or for those that its name ends with: `0003_fields.postgres-timescale.sql`. */
const FILE_NAME = /^(\d{4})_\w+?(?:\.([\w-]+))?\.sql$/;
const OLDEST_VERSION = 15;

/**
 * Applies pending migrations. May run in several processes at once: each file is applied by one of them, and all return
 * when the schema is complete.
 * @param migrations the files of this release; others in tests
 * @returns the names of the files that this call applied
 * @throws OperatorError for a database that is too old, too new, of another engine, or lacks rights
 */
export async function migrate(
  sql: Sql,
  engine: Engine,
  migrations?: readonly Migration[],
): Promise<{ applied: string[] }> {
  const known = migrations ?? (await readMigrations(engine));
  const applied: string[] = [];
  try {
    await checkServer(sql);
    // Without the lock, so that a start on a complete schema does not wait.
    while ((await pendingMigrations(sql, engine, known)).length > 0) {
      const name = await applyNext(sql, engine, known);
      if (name !== undefined) applied.push(name);
    }
  } catch (error) {
    throw await explained(error, sql);
  }
  return { applied };
}

/**
 * How far a migration is, in words: `migrating 3 of 5`, and which session it waits for.
 * @param pid of the backend that migrates
 * @returns null where nothing is left to do
 */
export async function migrationState(sql: Sql, engine: Engine, pid: number): Promise<string | null> {
  const known = await readMigrations(engine);
  const { length: left } = await pendingMigrations(sql, engine, known);
  if (left === 0) return null;
  const [row] = await sql<{ holder: number | null }[]>`SELECT (pg_blocking_pids(${pid}))[1] AS holder`;
  const holder = row?.holder ?? null;
  const waits = holder === null ? '' : `, waits for pid ${holder} of PostgreSQL, which holds the lock`;
  return `migrating ${known.length - left + 1} of ${known.length}${waits}`;
}

/**
 * Checks that the database has the schema of this release, for what uses the schema and does not change it.
 * @throws OperatorError with what to do, for a schema that is older, newer, or not there
 */
export async function requireSchema(sql: Sql, engine: Engine): Promise<void> {
  const known = await readMigrations(engine);
  const { length: behind } = await pendingMigrations(sql, engine, known).catch(async (error: unknown) => {
    throw await explained(error, sql);
  });
  if (behind === 0) return;
  if (behind === known.length) throw noSchema();
  const release = await releaseOf(sql);
  const own = `Tidemark ${readVersion()}`;
  const alternative = release === own ? '' : `, or run this command with ${release}`;
  throw new OperatorError(
    `the database has the schema of ${release}, ${behind} ${behind === 1 ? 'migration' : 'migrations'} behind ${own}, and this ` +
      `command does not change it: run "tidemark migrate" or start this release to upgrade the database${alternative}`,
  );
}

/** For a database in which Tidemark has never been started. */
export function noSchema(): OperatorError {
  return new OperatorError(
    'the database does not have the tables of Tidemark: start the service or run "tidemark migrate", which make them, ' +
      'or correct DATABASE_URL or DATA_DIR',
  );
}

/** The files of this release for an engine, by number. */
export async function readMigrations(engine: Engine): Promise<Migration[]> {
  const migrations = new Map<number, Migration>();
  for (const name of await readdir(SQL_FOLDER)) {
    const [, digits, only] = FILE_NAME.exec(name) ?? [];
    const engines: readonly string[] = only?.split('-') ?? ENGINE_NAMES;
    if (!engines.every((one) => (ENGINE_NAMES as readonly string[]).includes(one)))
      throw new Error(`sql/${name} names an engine that does not exist`);
    if (digits === undefined || !engines.includes(engine)) continue;
    const number = Number(digits);
    const twin = migrations.get(number);
    if (twin !== undefined) throw new Error(`sql/${name} and sql/${twin.name} have the same number`);
    // A checkout with Windows line breaks has the same checksum.
    const text = (await readFile(new URL(name, SQL_FOLDER), 'utf8')).replaceAll('\r\n', '\n');
    migrations.set(number, { number, name, text, checksum: createHash('sha256').update(text).digest('hex') });
  }
  if (migrations.size === 0) throw new Error(`There are no migrations in ${SQL_FOLDER.pathname}`);
  return [...migrations.values()].sort((a, b) => a.number - b.number);
}

async function checkServer(sql: Sql): Promise<void> {
  const [server] = await sql<[{ version: number; release: string; encoding: string; database: string }]>`
    SELECT current_setting('server_version_num')::int / 10000 AS version,
           current_setting('server_version')                  AS release,
           current_setting('server_encoding')                 AS encoding,
           current_database()                                 AS database`;
  if (server.version < OLDEST_VERSION) {
    throw new OperatorError(
      `the database server is PostgreSQL ${server.release}: Tidemark needs PostgreSQL ${OLDEST_VERSION} or newer`,
    );
  }
  if (server.encoding !== 'UTF8') {
    throw new OperatorError(
      `the database "${server.database}" has the encoding ${server.encoding}: create one with ` +
        `CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0, and point DATABASE_URL to it`,
    );
  }
}

/** Applies the first pending migration under the lock; undefined if another process has applied it. */
async function applyNext(sql: Sql, engine: Engine, known: readonly Migration[]): Promise<string | undefined> {
  // Read committed, whatever the role's default: migrations applied while waiting for the lock must be visible.
  return await sql.begin('isolation level read committed read write', async (tx) => {
    // No timeouts: a migration of a large table may take long.
    await tx`SET LOCAL statement_timeout = 0`;
    await tx`SET LOCAL lock_timeout = 0`;
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark migrations'))`;
    await tx`
      CREATE TABLE IF NOT EXISTS schema_migrations (
        number      integer     PRIMARY KEY,
        name        text        NOT NULL,
        checksum    text        NOT NULL,
        applied_at  timestamptz NOT NULL DEFAULT now()
      )`;
    const [migration] = await pendingMigrations(tx, engine, known);
    if (migration === undefined) return undefined;
    await apply(tx, engine, migration);
    return migration.name;
  });
}

async function apply(tx: Transaction, engine: Engine, migration: Migration): Promise<void> {
  try {
    await tx.unsafe(migration.text).simple();
  } catch (error) {
    if (isUnavailable(error) || RIGHTS.has(errorCode(error)) || !(error instanceof Error)) throw error;
    throw new Error(`sql/${migration.name}: ${error.message}`, { cause: error });
  }
  const { number, name, checksum } = migration;
  await tx`INSERT INTO schema_migrations (number, name, checksum) VALUES (${number}, ${name}, ${checksum})`;
  await tx`INSERT INTO installation (name, value) VALUES ('engine', ${engine}) ON CONFLICT DO NOTHING`;
  await tx`
    INSERT INTO installation (name, value) VALUES ('release', ${readVersion()})
    ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value`;
}

/**
 * The migrations that the database does not have yet, in order.
 * @throws OperatorError if the database does not match this release
 */
export async function pendingMigrations(
  sql: Sql | Transaction,
  engine: Engine,
  known: readonly Migration[],
): Promise<Migration[]> {
  const applied = await readApplied(sql, engine);
  for (const { number, name, checksum } of applied) {
    const migration = known.find((one) => one.number === number);
    if (migration === undefined) {
      throw new OperatorError(
        `the database has the migration ${name}, which Tidemark ${readVersion()} does not know: ` +
          `use ${await releaseOf(sql)}, which applied it, or a newer one`,
      );
    }
    // Its first file has another name.
    if (migration.name !== name) {
      throw new OperatorError(
        'the database was made by a version of Tidemark before the first release: write a backup with that version ' +
          '("tidemark backup"), and restore it with this one ("tidemark restore") into an empty database, with another ' +
          'DATABASE_URL or DATA_DIR',
      );
    }
    if (migration.checksum !== checksum) {
      throw new OperatorError(
        `sql/${migration.name} is not the file that was applied to this database (${name}): ` +
          'restore the original file; a change of the schema belongs in a new file',
      );
    }
  }
  const done = new Set(applied.map(({ number }) => number));
  return known.filter(({ number }) => !done.has(number));
}

async function readApplied(sql: Sql | Transaction, engine: Engine): Promise<Applied[]> {
  if (!(await hasTable(sql, 'schema_migrations'))) return [];
  if (await hasTable(sql, 'installation')) await checkEngine(sql, engine);
  return await sql<Applied[]>`SELECT number, name, checksum FROM schema_migrations ORDER BY number`;
}

/** The release that migrated the database last. */
async function releaseOf(sql: Sql | Transaction): Promise<string> {
  const release = await readFact(sql, 'release');
  return release === null ? 'the release of Tidemark' : `Tidemark ${release}`;
}

async function checkEngine(sql: Sql | Transaction, engine: Engine): Promise<void> {
  const migrated = await readFact(sql, 'engine');
  if (migrated === null || migrated === engine) return;
  throw new OperatorError(
    `the database was migrated for the engine "${migrated}" and cannot be used with "${engine}", which has other tables: ` +
      'use the first engine again, or an empty database',
  );
}

/** insufficient_privilege, and invalid_schema_name: no schema of the search path exists. */
const RIGHTS = new Set(['42501', '3F000']);

async function explained(error: unknown, sql: Sql): Promise<unknown> {
  const code = errorCode(error);
  const message = error instanceof Error ? error.message : String(error);
  if (code === '25006') {
    return new OperatorError('the database is read-only: point DATABASE_URL to the primary server', {
      cause: error,
      // A standby may be being promoted.
      isRetryable: true,
    });
  }
  if (!RIGHTS.has(code)) return error;
  const [who] = await sql<[{ role: string; schema: string; may: boolean }]>`
    SELECT quote_ident(current_user)                                                 AS role,
           quote_ident(coalesce(current_schema(), 'public'))                         AS schema,
           coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)         AS may`;
  const remedy = who.may
    ? `connect as the user that owns Tidemark's tables, or let it run: GRANT ALL ON ALL TABLES IN SCHEMA ${who.schema} TO ${who.role}`
    : `let the schema's owner run: GRANT CREATE, USAGE ON SCHEMA ${who.schema} TO ${who.role}`;
  return new OperatorError(`the database user ${who.role} lacks a privilege (${message}): ${remedy}`, {
    cause: error,
  });
}
