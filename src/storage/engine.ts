/** Detects the storage engine: TimescaleDB if all needed features are available, else PostgreSQL. */
import { OperatorError } from '../errors.ts';
import { errorCode, type Sql } from './connect.ts';

export type Engine = 'postgres' | 'timescale';

export interface EngineChoice {
  readonly engine: Engine;
  /** Names and versions. */
  readonly description: string;
  /** A log line if TimescaleDB is available and not used, or another version of it is installed. */
  readonly note: string | null;
}

/** The first version of TimescaleDB with all needed features. */
const OLDEST_TIMESCALE = [2, 20] as const;

interface Facts {
  readonly postgresVersion: string;
  /** Version of the extension in this database; null if it is not created. */
  readonly installed: string | null;
  /** Version of the extension on the server; null if there is none. */
  readonly available: string | null;
  /** Whether the extension is in shared_preload_libraries, as it must be. */
  readonly preloaded: boolean;
  /** `timescale` or `apache`; null if unknown because the extension is not created. */
  readonly license: string | null;
  /** The engine that this database was migrated for; null if it is empty. */
  readonly migrated: Engine | null;
}

/**
 * Chooses the engine. Creates the extension in an empty database if TimescaleDB can be used.
 * @throws OperatorError if the database was migrated for another engine
 */
export async function chooseEngine(sql: Sql): Promise<EngineChoice> {
  const facts = await readFacts(sql).catch((error: unknown) => {
    const advice = missingLibraryAdvice(error);
    throw advice === null ? error : new OperatorError(`the database ${advice}`, { cause: error });
  });
  const problem = timescaleProblem(facts);
  const postgres = `PostgreSQL ${facts.postgresVersion}`;
  if (facts.migrated === 'timescale' && (problem !== null || facts.installed === null)) {
    throw new OperatorError(
      `this database was migrated for TimescaleDB, but ${problem ?? 'no longer has the extension'}: correct that, or ` +
        'restore a backup made by "tidemark backup" into a database without it',
    );
  }
  if (facts.migrated === 'postgres' && facts.installed !== null && problem === null) {
    throw new OperatorError(
      'this database was migrated for PostgreSQL without TimescaleDB and now has it: run DROP EXTENSION timescaledb to ' +
        'continue as before, or use "tidemark backup" and "tidemark restore" into a new database',
    );
  }
  if (problem !== null || facts.migrated === 'postgres') {
    const note = facts.available === null ? null : `${problem ?? MOVE_UP}; using PostgreSQL without it`;
    return { engine: 'postgres', description: postgres, note };
  }
  // The edition is only known after the extension is created.
  if (facts.installed === null) await createExtension(sql);
  const created = await readFacts(sql);
  const edition = timescaleProblem(created);
  return edition === null
    ? {
        engine: 'timescale',
        description: `TimescaleDB ${created.installed} on ${postgres}`,
        note: updateNote(created),
      }
    : { engine: 'postgres', description: postgres, note: `${edition}; using PostgreSQL without it` };
}

/** A log line if the server has another version of the extension than the database uses. */
function updateNote({ installed, available }: Facts): string | null {
  return installed === available
    ? null
    : `this database uses TimescaleDB ${installed} and the server has ${available}: ${UPDATE_EXTENSION}`;
}

const UPDATE_EXTENSION =
  'run ALTER EXTENSION timescaledb UPDATE in this database, as the first statement of a new session (psql -X)';

/** undefined_file: the library of the extension's version is missing. */
const UNDEFINED_FILE = '58P01';

/**
 * Advice after a package upgrade that removed the library of the version that the database uses: then the first statement
 * of every session fails.
 * @returns the rest of a sentence that begins with the database; null for other errors
 */
export function missingLibraryAdvice(error: unknown): string | null {
  if (errorCode(error) !== UNDEFINED_FILE || !(error instanceof Error)) return null;
  const [, version] = /timescaledb-(\d[\w.]*)/.exec(error.message) ?? [];
  if (version === undefined) return null;
  return (
    `uses TimescaleDB ${version}, whose library the server no longer has: ${UPDATE_EXTENSION}, ` +
    `or install the package of ${version} again`
  );
}

const MOVE_UP =
  'TimescaleDB could be used here after "tidemark backup" and "tidemark restore" into a new database';

async function readFacts(sql: Sql): Promise<Facts> {
  const [row] = await sql<Facts[]>`
    SELECT split_part(current_setting('server_version'), ' ', 1) AS "postgresVersion",
           (SELECT extversion FROM pg_extension WHERE extname = 'timescaledb') AS installed,
           (SELECT default_version FROM pg_available_extensions WHERE name = 'timescaledb') AS available,
           -- The extension defines the setting: a value in postgresql.conf without the extension has no row here.
           EXISTS (SELECT FROM pg_settings WHERE name = 'timescaledb.max_background_workers') AS preloaded,
           current_setting('timescaledb.license', true) AS license,
           NULL AS migrated`;
  if (row === undefined) throw new Error('A SELECT without FROM has a row.');
  return { ...row, migrated: await migratedEngine(sql) };
}

async function migratedEngine(sql: Sql): Promise<Engine | null> {
  const [table] = await sql<{ exists: boolean }[]>`SELECT to_regclass('installation') IS NOT NULL AS exists`;
  if (table?.exists !== true) return null;
  const [row] = await sql<{ value: string }[]>`SELECT value FROM installation WHERE name = 'engine'`;
  return row?.value === 'timescale' ? 'timescale' : row?.value === 'postgres' ? 'postgres' : null;
}

/** Why TimescaleDB cannot be used; null if it can. */
function timescaleProblem(facts: Facts): string | null {
  const version = facts.installed ?? facts.available;
  if (version === null) return 'TimescaleDB is not installed on this server';
  if (!facts.preloaded) return `TimescaleDB ${version} is installed but not in shared_preload_libraries`;
  if (!isRecent(version)) {
    return `TimescaleDB ${version} is older than ${OLDEST_TIMESCALE.join('.')}`;
  }
  if (facts.license !== null && facts.license !== 'timescale') {
    return `TimescaleDB ${version} is the Apache edition, without continuous aggregates and columnstore`;
  }
  return null;
}

function isRecent(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major > OLDEST_TIMESCALE[0] || (major === OLDEST_TIMESCALE[0] && minor >= OLDEST_TIMESCALE[1]);
}

async function createExtension(sql: Sql): Promise<void> {
  try {
    await sql`CREATE EXTENSION IF NOT EXISTS timescaledb`;
  } catch (error) {
    if (errorCode(error) !== '42501') throw error;
    throw new OperatorError(
      'this role may not create the extension TimescaleDB: run CREATE EXTENSION timescaledb in this database as a ' +
        'superuser, or GRANT CREATE ON DATABASE to the role',
    );
  }
}
