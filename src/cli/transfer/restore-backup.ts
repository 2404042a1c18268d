/** Restores a backup into a database that nobody has used: all of it in one transaction, or nothing. */
import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import { OperatorError } from '../../errors.ts';
import type { Sql } from '../../storage/connect.ts';
import type { Engine } from '../../storage/engine.ts';
import { migrate, readMigrations } from '../../storage/migrate.ts';
import { ensurePartitions } from '../../storage/postgres/maintenance.ts';
import { countCopied } from '../../storage/write/count-copied.ts';
import { type BackupTable, identifiers, readTables } from './backup-catalog.ts';
import { type BackupHeader, type BackupReader, type BackupSection, damaged } from './backup-format.ts';
import { addCoarseCounts } from './coarse-counts.ts';

export interface RestoreOptions {
  readonly reader: BackupReader;
  /** A connection for this alone. */
  readonly client: pg.Client;
  /** For what is not part of the one transaction: the schema, and room for events. */
  readonly sql: Sql;
  readonly engine: Engine;
  readonly onProgress: () => void;
}

export interface RestoreCounts {
  readonly events: number;
  readonly apps: number;
}

/**
 * Restores, then brings the schema to this release's.
 * @throws OperatorError where the file is damaged, the schema does not fit, or the database has been used
 */
export async function restoreBackup(options: RestoreOptions): Promise<RestoreCounts> {
  const { reader, client, sql, engine } = options;
  const header = await reader.header();
  await prepareSchema(sql, engine, header);
  await client.query('BEGIN ISOLATION LEVEL READ COMMITTED');
  const counts = await restoreAll(options, header);
  await client.query('COMMIT');
  await migrate(sql, engine);
  return counts;
}

/** A backup goes into the very schema that it was made of; migrations that came later then do their work on it. */
async function prepareSchema(sql: Sql, engine: Engine, { schema }: BackupHeader): Promise<void> {
  const known = await readMigrations(engine);
  if (!known.some(({ number }) => number === schema)) {
    throw new OperatorError(
      `the backup has the schema ${schema}, which this release of Tidemark does not know: use the newer release that made it`,
    );
  }
  const [table] = await sql<
    { there: boolean }[]
  >`SELECT to_regclass('schema_migrations') IS NOT NULL AS there`;
  const [current] =
    table?.there === true
      ? await sql<{ schema: number }[]>`SELECT max(number) AS schema FROM schema_migrations`
      : [];
  if (current !== undefined && current.schema > schema) {
    throw new OperatorError(
      `the backup has the schema ${schema} and the database already ${current.schema}: restore into an empty database, ` +
        'which gets the schema of the backup first and the later migrations then',
    );
  }
  await migrate(
    sql,
    engine,
    known.filter(({ number }) => number <= schema),
  );
}

async function restoreAll(options: RestoreOptions, header: BackupHeader): Promise<RestoreCounts> {
  const { reader, client, engine } = options;
  const tables = await readTables(client);
  await takeOver(client, tables);
  const counts = { events: 0, apps: 0, rows: 0 };
  for (;;) {
    const next = await reader.next();
    if ('trailer' in next) {
      if (next.trailer.rows !== counts.rows) throw damaged('it has another number of rows than it says');
      break;
    }
    const { section } = next;
    const rows =
      section.section === 'counts'
        ? await addCoarseCounts(client, engine, section.level, (target) =>
            copy(options, target, section.columns),
          )
        : await copy(options, await targetOf(options, section, tables), section.columns);
    counts.rows += rows;
    if (section.section === 'events') {
      counts.events += rows;
      await countCopied(client, engine, section);
    }
    if (section.section === 'table' && section.table === 'apps') counts.apps = rows;
  }
  for (const { table, column, last } of header.sequences) {
    await client.query(
      'SELECT setval(sequence::regclass, $3::bigint) FROM pg_get_serial_sequence($1, $2) AS sequence WHERE sequence IS NOT NULL',
      [identifiers([table]), column, last],
    );
  }
  return counts;
}

/** Keeps others from beginning to use the database, and removes what a first start has written into it. */
async function takeOver(client: pg.Client, tables: readonly BackupTable[]): Promise<void> {
  await client.query('LOCK TABLE apps, users IN SHARE ROW EXCLUSIVE MODE');
  for (const name of ['apps', 'users', 'deleted_apps', 'events']) {
    if (name !== 'events' && !tables.some((table) => table.name === name)) continue;
    const { rows } = await client.query(`SELECT FROM ${name} LIMIT 1`);
    if (rows.length > 0) {
      throw new OperatorError(
        `the database is in use: its table ${name} has rows. Restore into an empty database, with another DATABASE_URL or DATA_DIR`,
      );
    }
  }
  for (const { name } of tables.toReversed()) {
    const own = name === 'installation' ? " WHERE name NOT IN ('engine', 'id')" : '';
    await client.query(`DELETE FROM ${identifiers([name])}${own}`);
  }
}

/** The table of a section, with room for its rows. */
async function targetOf(
  { sql, engine }: RestoreOptions,
  section: Exclude<BackupSection, { section: 'counts' }>,
  tables: readonly BackupTable[],
): Promise<string> {
  if (section.section === 'events') {
    // Partitions are made apart: thousands of them would pass the locks that one transaction may have.
    if (engine === 'postgres')
      await ensurePartitions(sql, Date.parse(section.from), Date.parse(section.until) - 1);
    return 'events';
  }
  const known = tables.some(({ name }) => name === section.table);
  if (!known) throw damaged(`it has a table "${section.table}", which its schema has not`);
  return section.table;
}

async function copy(
  { reader, client, onProgress }: RestoreOptions,
  table: string,
  columns: readonly string[],
): Promise<number> {
  const stream = client.query(copyFrom(`COPY ${identifiers([table])} (${identifiers(columns)}) FROM STDIN`));
  async function* watched(): AsyncGenerator<Buffer> {
    for await (const rows of reader.rows()) {
      yield rows;
      onProgress();
    }
  }
  await pipeline(watched(), stream);
  return stream.rowCount;
}
