/** Detects the storage engine: a cluster of Citus, TimescaleDB if all needed features are available, else PostgreSQL. */
import { OperatorError } from '../../errors.ts';
import { errorCode, type Sql } from './connect.ts';
import { hasTable, readFact } from './installation-id.ts';

export const ENGINE_NAMES = ['postgres', 'timescale', 'citus'] as const;

export type Engine = (typeof ENGINE_NAMES)[number];

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
  /** Version of Citus in this database; null if it is not created. */
  readonly cluster: string | null;
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
  const cluster = await clusterOf(sql, facts);
  if (cluster !== null) return cluster;
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

/** Oldest version of Citus whose cluster is used: from it on every node takes queries, and partitions and views follow. */
const OLDEST_CITUS = [12, 1] as const;

/** A cluster, if the database is one. Its operator makes it: the extension alone is not created here. */
async function clusterOf(
  sql: Sql,
  { cluster, migrated, postgresVersion }: Facts,
): Promise<EngineChoice | null> {
  if (cluster === null) {
    if (migrated !== 'citus') return null;
    throw new OperatorError(
      'this database was migrated for a Citus cluster, but no longer has the extension: correct that',
    );
  }
  const version = `Citus ${cluster}`;
  if (migrated !== null && migrated !== 'citus')
    throw new OperatorError(
      `this database was migrated for one server and now has ${version}: run DROP EXTENSION citus to continue as before, ` +
        'or use "tidemark backup" and "tidemark restore" into a new database of the cluster',
    );
  if (!isAtLeast(cluster, OLDEST_CITUS))
    throw new OperatorError(`${version} is older than ${OLDEST_CITUS.join('.')}: update it`);
  const [state] = await sql<{ isCoordinator: boolean; nodes: number }[]>`
    SELECT citus_is_coordinator() AS "isCoordinator",
           (SELECT count(*)::int FROM pg_dist_node WHERE shouldhaveshards AND isactive) AS nodes`;
  if (state?.isCoordinator !== true)
    throw new OperatorError(`DATABASE_URL names a worker of ${version}: name the coordinator`);
  if (state.nodes === 0)
    throw new OperatorError(
      `${version} has no node for data: run SELECT citus_set_coordinator_host('host', port), then SELECT ` +
        "citus_add_node('host', port) for each worker, with names that Tidemark can reach, too",
    );
  return { engine: 'citus', description: `${version} on PostgreSQL ${postgresVersion}`, note: null };
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
           (SELECT extversion FROM pg_extension WHERE extname = 'citus') AS cluster,
           NULL AS migrated`;
  if (row === undefined) throw new Error('A SELECT without FROM has a row.');
  const migrated = (await hasTable(sql, 'installation')) ? await readFact(sql, 'engine') : null;
  return { ...row, migrated: ENGINE_NAMES.find((name) => name === migrated) ?? null };
}

/** Why TimescaleDB cannot be used; null if it can. */
function timescaleProblem(facts: Facts): string | null {
  const version = facts.installed ?? facts.available;
  if (version === null) return 'TimescaleDB is not installed on this server';
  if (!facts.preloaded) return `TimescaleDB ${version} is installed but not in shared_preload_libraries`;
  if (!isAtLeast(version, OLDEST_TIMESCALE)) {
    return `TimescaleDB ${version} is older than ${OLDEST_TIMESCALE.join('.')}`;
  }
  if (facts.license !== null && facts.license !== 'timescale') {
    return `TimescaleDB ${version} is the Apache edition, without continuous aggregates and columnstore`;
  }
  return null;
}

function isAtLeast(version: string, [oldest, oldestMinor]: readonly [number, number]): boolean {
  // Citus says `14.0-1`.
  const [major = 0, minor = 0] = version.split(/[.-]/).map(Number);
  return major > oldest || (major === oldest && minor >= oldestMinor);
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
