/** Restores the rows of a backup into an unused database, in one transaction. */

import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import { DAY_MS } from '../../base/time-units.ts';
import { OperatorError } from '../../errors.ts';
import type { Interval } from '../counts/intervals.ts';
import type { Sql } from '../database/connect.ts';
import { GENERATION, hasTable, newGeneration } from '../database/installation-id.ts';
import type { StorageEngine } from '../engines/storage-engine.ts';
import { anchorConsumers, continueConsumers, stopDeliveries } from '../feed/restored.ts';
import { EVERY_FIELD } from '../fields/uncounted-minutes.ts';
import { migrate, readMigrations } from '../migrate.ts';
import type { EngineWrites } from '../write/engine-writes.ts';
import {
  type BackupTable,
  FIELD_COUNTS,
  identifiers,
  isOfFieldCounts,
  OWN_FACTS,
  REFUSED_REQUESTS,
  type RowSection,
  readIdentityColumns,
  readTables,
  type SequenceValue,
} from './catalog.ts';

export interface RestoreOptions {
  /** A connection for this alone. */
  readonly client: pg.Client;
  /** For what is not part of the one transaction: the schema, and room for events. */
  readonly sql: Sql;
  readonly engine: StorageEngine;
  /** Number of the last migration of the database that the rows come from. */
  readonly schema: number;
}

export interface Restore {
  /** Whether the schema has a table. */
  hasTable(name: string): boolean;
  /** Adds the rows of a section. @returns how many they are */
  add(section: RowSection, rows: AsyncIterable<Buffer>): Promise<number>;
  /**
   * Makes everything visible, with identity columns that continue above a gap, then brings the schema to this release's.
   */
  commit(sequences: readonly SequenceValue[]): Promise<void>;
}

/**
 * Migrates the database to the schema of the backup and locks it.
 * @throws OperatorError if the schema does not match, or the database has been used
 */
export async function beginRestore(options: RestoreOptions): Promise<Restore> {
  const { client, sql, engine } = options;
  await prepareSchema(options);
  await client.query('BEGIN ISOLATION LEVEL READ COMMITTED');
  if (engine.restoreSettings !== undefined) await client.query(engine.restoreSettings);
  const tables = await readTables(client);
  await refuseUsed(client);
  await emptyTables(client, tables);
  let hasFieldCounts = false;
  return {
    hasTable: (name) => tables.some((table) => table.name === name),
    add: async (section, rows) => {
      if (section.section === 'counts') {
        return await engine.addCounts(client, section.level, (table) =>
          copyInto(client, table, section.columns, rows),
        );
      }
      if (section.section === 'table') {
        const { table: name, columns } = section;
        const hasPlace = engine.keepsFieldCounts || !isOfFieldCounts({ name, columns });
        if (!hasPlace || name === REFUSED_REQUESTS) return await passOver(rows);
        hasFieldCounts ||= section.table === FIELD_COUNTS;
        return await copyInto(client, section.table, section.columns, rows);
      }
      const interval = intervalOf(section);
      // Outside of the transaction: thousands of partitions would exceed its limit of locks.
      await engine.createPartitions(sql, interval);
      const added = await copyInto(client, 'events', section.columns, rows);
      await countCopied(client, engine.writes, section);
      return added;
    },
    commit: async (sequences) => {
      await continueSequences(client, sequences);
      await startGeneration(client);
      // Nobody stays signed in: a session may have been ended since, and a cookie of the original must not open a copy of it.
      await client.query('DELETE FROM sessions');
      // A day may have been in the archive alone: it is to stay there, whatever events it has here.
      await client.query('UPDATE archived_days SET counted = -2');
      if (!hasFieldCounts) await countFieldsAgain(client);
      await continueConsumers(client);
      await stopDeliveries(client);
      await client.query('COMMIT');
      await migrate(sql, engine.name);
      await anchorConsumers(engine, sql);
    },
  };
}

/** Days ahead for which a database may have made room. */
const MOST_AHEAD_MS = 400 * DAY_MS;

/** @throws OperatorError for times at which no event can be: the room for them would take days to make */
function intervalOf({ from, until }: { readonly from: string; readonly until: string }): Interval {
  const interval = { from: Date.parse(from), until: Date.parse(until) };
  if (interval.from >= 0 && interval.until >= interval.from && interval.until <= Date.now() + MOST_AHEAD_MS)
    return interval;
  throw new OperatorError(
    `the backup has events from ${from} to ${until}: they can be between 1970 and now, so nothing was restored`,
  );
}

/** Migrates to the schema of the backup; later migrations are applied after the restore, and fill in what the backup lacks. */
async function prepareSchema({ sql, engine, schema }: RestoreOptions): Promise<void> {
  const known = await readMigrations(engine.name);
  if (!known.some(({ number }) => number >= schema)) {
    throw new OperatorError(
      `the backup has the schema ${schema}, which this release of Tidemark does not know: use the newer release that wrote it`,
    );
  }
  const [current] = (await hasTable(sql, 'schema_migrations'))
    ? await sql<{ schema: number }[]>`SELECT max(number) AS schema FROM schema_migrations`
    : [];
  if (current !== undefined && current.schema > schema) {
    throw new OperatorError(
      `the backup has the schema ${schema} and the database already ${current.schema}: restore into an empty database, ` +
        'which is migrated to the schema of the backup first and to that of this release afterwards',
    );
  }
  const needed = known.filter(({ number }) => number <= schema);
  await migrate(sql, engine.name, needed);
}

/**
 * Locks the database against its first use.
 * @throws OperatorError if it has been used
 */
export async function refuseUsed(client: pg.Client): Promise<void> {
  await client.query('LOCK TABLE apps, users IN SHARE ROW EXCLUSIVE MODE');
  for (const name of ['apps', 'users', 'deleted_apps', 'events']) {
    const { rows } = await client.query(`SELECT FROM ${name} LIMIT 1`);
    if (rows.length > 0) {
      throw new OperatorError(
        `the database is in use: its table ${name} has rows. Restore into an empty database, with another DATABASE_URL or DATA_DIR`,
      );
    }
  }
}

/** Removes the rows of all tables, such as those that a first start has written. */
export async function emptyTables(client: pg.Client, tables: readonly BackupTable[]): Promise<void> {
  for (const { name } of tables.toReversed()) {
    const condition = name === 'installation' ? `WHERE NOT (${OWN_FACTS})` : '';
    await client.query(`DELETE FROM ${identifiers([name])} ${condition}`);
  }
}

const NEWLINE = 10;

/** Reads rows that are not restored. @returns how many they are */
async function passOver(rows: AsyncIterable<Buffer>): Promise<number> {
  let count = 0;
  for await (const some of rows) for (const byte of some) if (byte === NEWLINE) count += 1;
  return count;
}

export async function copyInto(
  client: pg.Client,
  table: string,
  columns: readonly string[],
  rows: AsyncIterable<Buffer>,
): Promise<number> {
  const stream = client.query(copyFrom(`COPY ${identifiers([table])} (${identifiers(columns)}) FROM STDIN`));
  await pipeline(rows, stream);
  return stream.rowCount;
}

/**
 * The gap in identity columns. Ids are never reused: neither those in the backup nor those assigned after it, which other
 * processes may still know. Their number is unknown; a million is more than a service assigns between two backups, and a
 * column of 31 bits allows two thousand restores.
 */
export const SEQUENCE_GAP = 1_000_000;

/** Has identity columns continue above a gap. */
export async function continueSequences(
  client: pg.Client,
  sequences: readonly SequenceValue[],
): Promise<void> {
  for (const { table, column } of await readIdentityColumns(client)) {
    const seen = sequences.find((sequence) => sequence.table === table && sequence.column === column);
    const name = identifiers([column]);
    await client.query(
      `SELECT setval(pg_get_serial_sequence($1, $2)::regclass,
                     greatest($3::bigint, (SELECT max(${name}) FROM ${identifiers([table])}), 0) + $4::bigint)`,
      [identifiers([table]), column, seen?.last ?? '0', SEQUENCE_GAP],
    );
  }
}

/** Where no counts of values were restored, the declared fields are counted again from the restored rows. */
export async function countFieldsAgain(client: pg.Client): Promise<void> {
  await client.query(`
    UPDATE declared_fields
       SET generation = 0, complete_from = NULL, backfill = true, known_values = 0, new_values = 0,
           new_values_on = '-infinity', full_since = NULL`);
}

/** Starts a new generation, so that processes do not use cached ids of the original database. */
export async function startGeneration(client: pg.Client): Promise<void> {
  await client.query(
    'INSERT INTO installation (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value',
    [GENERATION, newGeneration()],
  );
}

/**
 * Counts the rows of an interval that the current transaction has written, in that transaction. To be called once for
 * them.
 * @param interval bounds as ISO 8601; `until` is not included
 */
export async function countCopied(
  client: pg.Client,
  writes: EngineWrites,
  interval: { readonly from: string; readonly until: string },
): Promise<void> {
  const { changes, deltasOfInserted, copiedNow } = writes;
  // The counts of fields are restored, or begin anew: their minutes need no note.
  const noted = changes.replace(')', ', fields)');
  await client.query(
    `WITH inserted AS (
       SELECT app_id, type_id, created_at FROM events
        WHERE created_at >= $1::timestamptz AND created_at < $2::timestamptz
          AND ${copiedNow})
     INSERT INTO ${noted} SELECT changes.*, ${EVERY_FIELD} FROM (${deltasOfInserted}) AS changes`,
    [interval.from, interval.until],
  );
}
