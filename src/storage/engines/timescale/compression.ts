/**
 * Compression: rows of chunks that are old enough are moved into the columnstore, for the first time and when more came late.
 *
 * TimescaleDB's own policy would keep the writers of a chunk out until all of its rows are moved, minutes for a large one,
 * and would move late rows without regard to older snapshots, which lose them from its commit on. So the service does both.
 * A chunk gets an empty columnstore first, for which writers wait some milliseconds; then its rows are moved as late rows
 * are, beside writers. Before that commits, whatever reads in a snapshot is locked out: readers by {@link SNAPSHOT_LOCK},
 * refreshes of the aggregates by the advisory lock of maintenance.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { HOUR_MS } from '../../counts/levels.ts';
import { errorCode, SQLSTATE, type Sql, type Transaction } from '../../database/connect.ts';
import { SNAPSHOT_LOCK } from '../../read/snapshot.ts';
import type { StorageSettings } from '../storage-engine.ts';
import { COMPRESSED as COMPRESSED_RELATIONS } from './policies.ts';

/** Bits of a chunk's status: it has a columnstore, and rows that are not in it. */
const COMPRESSED = 1;
const PARTIAL = 8;
/** lock_not_available, and deadlock_detected with this transaction as the victim. */
const LOCKED: ReadonlySet<string> = new Set([SQLSTATE.lockNotAvailable, SQLSTATE.deadlock]);

/** Timeout of a lock request, because late writers of the chunk, or readers, wait for it. */
const CHUNK_LOCK_TIMEOUT_MS = 1_000;
const LOCK_TIMEOUT_MS = 200;
/**
 * How often the locks are tried for. Before the work of a chunk a snapshot that stays in use is noticed soon. After it, its
 * late writers wait: they may have to for two seconds.
 */
const TRIES = { before: 5, after: 5 } as const;
const RETRY_MS = 300;
/** Tries per chunk: late writers or a snapshot may have blocked it. */
const CHUNK_TRIES = 3;

/** A chunk up to this size, indexes included, is compressed at once: it keeps its writers out for half a second. */
const SMALL_BYTES = 32 * 1_048_576;

interface DueChunk {
  readonly name: string;
  readonly hypertable: string;
  readonly status: number;
  readonly bytes: number;
}

/**
 * Compresses the chunks of events and minutes that end so many days ago and have rows outside of their columnstores, oldest first, each in a
 * transaction of its own. Any number of processes may do so, and it may be interrupted at any point.
 * @param afterDays COMPRESS_AFTER_DAYS
 * @param smallBytes a chunk up to this size is compressed at once; another one in tests
 * @returns false where chunks are left, as a snapshot stays in use, for example that of a backup, or late writers
 */
export async function compress(sql: Sql, afterDays: number, smallBytes = SMALL_BYTES): Promise<boolean> {
  const isBesideWriters = await canBeginColumnstores(sql);
  for (const chunk of await dueChunks(sql, afterDays)) {
    if (!(await compressInTries(sql, chunk, isBesideWriters ? smallBytes : Number.POSITIVE_INFINITY)))
      return false;
  }
  for (const name of await emptiedChunks(sql)) await releaseSpace(sql, name);
  return true;
}

/** Chunks of events, and of their counts by the minute. */
async function dueChunks(sql: Sql, afterDays: number): Promise<DueChunk[]> {
  return [
    ...(await sql<DueChunk[]>`
      SELECT chunk::text AS name, inhparent::regclass::text AS hypertable, status,
             pg_total_relation_size(chunk)::float8 AS bytes
        FROM unnest(${COMPRESSED_RELATIONS}::text[]::regclass[]) WITH ORDINALITY AS relation (name, place)
       CROSS JOIN LATERAL show_chunks(relation.name, older_than => ${`${afterDays} days`}::interval) AS chunk
       CROSS JOIN LATERAL (SELECT _timescaledb_functions.chunk_status(chunk) AS status) AS state
        JOIN pg_inherits ON inhrelid = chunk
       WHERE status & ${COMPRESSED} = 0 OR status & ${PARTIAL} <> 0
       ORDER BY place, chunk`),
  ];
}

async function compressInTries(sql: Sql, chunk: DueChunk, smallBytes: number): Promise<boolean> {
  if ((chunk.status & COMPRESSED) === 0) {
    if (chunk.bytes <= smallBytes) return await unlessLocked(() => compressAtOnce(sql, chunk.name));
    if (!(await unlessLocked(() => beginColumnstore(sql, chunk.name, chunk.hypertable)))) return false;
  }
  for (let tries = 1; tries <= CHUNK_TRIES; tries += 1) {
    if (!(await isFree(sql))) return false;
    if ((await moveRows(sql, chunk.name)) && !(await isPartial(sql, chunk.name))) return true;
  }
  return false;
}

/** Compresses a chunk that has no columnstore: older snapshots miss nothing. */
async function compressAtOnce(sql: Sql, chunk: string): Promise<void> {
  await sql.begin('isolation level read committed', async (tx) => {
    await tx`SET LOCAL statement_timeout = 0`;
    await tx.unsafe(`SET LOCAL lock_timeout = ${CHUNK_LOCK_TIMEOUT_MS}`);
    await tx`SELECT compress_chunk(${chunk}::text::regclass)`;
  });
}

/** TimescaleDB leaves rows where several writers are in the chunk, with a warning alone. */
async function isPartial(sql: Sql, chunk: string): Promise<boolean> {
  const [state] = await sql<{ status: number }[]>`
    SELECT _timescaledb_functions.chunk_status(${chunk}::text::regclass) AS status`;
  return ((state?.status ?? 0) & PARTIAL) !== 0;
}

/** Chunks all of whose rows are in the columnstore, and that still take the room of the rows that were moved. */
async function emptiedChunks(sql: Sql): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    SELECT chunk::text AS name
      FROM unnest(${COMPRESSED_RELATIONS}::text[]::regclass[]) AS relation CROSS JOIN LATERAL show_chunks(relation) AS chunk
     WHERE _timescaledb_functions.chunk_status(chunk) & ${COMPRESSED | PARTIAL} = ${COMPRESSED} AND pg_table_size(chunk) + pg_indexes_size(chunk) > ${KEPT_BYTES}
     ORDER BY chunk`;
  return rows.map(({ name }) => name);
}

/** What a chunk without rows takes: a page for each of its indexes, and those of its TOAST table. */
const KEPT_BYTES = 131_072;

/** Gives the room of rows that were moved back to the disk, once no snapshot sees them. */
async function releaseSpace(sql: Sql, chunk: string): Promise<void> {
  await sql`SET statement_timeout = 0`;
  await sql.unsafe(`SET lock_timeout = ${CHUNK_LOCK_TIMEOUT_MS}`);
  try {
    await unlessLocked(async () => {
      // Of the last few rows PostgreSQL would otherwise keep the pointers, and with them all pages before.
      await sql.unsafe(`VACUUM (TRUNCATE true, INDEX_CLEANUP true) ${chunk}`);
      const [left] = await sql<
        { pages: number }[]
      >`SELECT pg_relation_size(${chunk}::text::regclass)::float8 AS pages`;
      // REINDEX of a table without pages takes milliseconds, in which late writers wait.
      if (left?.pages === 0) await sql.unsafe(`REINDEX TABLE ${chunk}`);
    });
  } finally {
    await sql`RESET lock_timeout`;
    await sql`RESET statement_timeout`;
  }
}

/** @returns false if a lock was not free in time, or this transaction was the victim of a deadlock */
async function unlessLocked(work: () => Promise<void>): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (error) {
    if (LOCKED.has(errorCode(error))) return false;
    throw error;
  }
}

/** Whether no snapshot stays in use: the work of a chunk would be lost to it. */
async function isFree(sql: Sql): Promise<boolean> {
  for (let tries = 1; tries <= TRIES.before; tries += 1) {
    if (tries > 1) await sleep(RETRY_MS);
    if (await sql.begin('isolation level read committed', lockOut)) return true;
  }
  return false;
}

/** A lock that was not free, or writers that TimescaleDB could not lock out at its end. */
const IN_THE_WAY = new Set([...LOCKED, SQLSTATE.serializationFailure]);

/** A lock was not free: what the transaction has done is rolled back. */
class NotFree extends Error {}

/** Moves the rows of a chunk into its columnstore. @returns false if it was given up for a lock, or for writers */
async function moveRows(sql: Sql, chunk: string): Promise<boolean> {
  try {
    await sql.begin('isolation level read committed', async (tx) => {
      await tx`SET LOCAL statement_timeout = 0`;
      await tx.unsafe(`SET LOCAL lock_timeout = ${CHUNK_LOCK_TIMEOUT_MS}`);
      await tx`SELECT compress_chunk(${chunk}::text::regclass)`;
      for (let tries = 1; !(await lockOut(tx)); tries += 1) {
        if (tries === TRIES.after) throw new NotFree();
        await sleep(RETRY_MS);
      }
    });
    return true;
  } catch (error) {
    if (error instanceof NotFree || IN_THE_WAY.has(errorCode(error))) return false;
    throw error;
  }
}

/** Takes both locks until the end of the transaction. @returns false where one was not free in time */
async function lockOut(tx: Transaction): Promise<boolean> {
  try {
    await tx.savepoint(async (part) => {
      await part.unsafe(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
      await part`SELECT pg_advisory_xact_lock(hashtext('tidemark upkeep'))`;
      await part`LOCK TABLE ${part(SNAPSHOT_LOCK)} IN ACCESS EXCLUSIVE MODE`;
    });
    return true;
  } catch (error) {
    if (LOCKED.has(errorCode(error))) return false;
    throw error;
  }
}

/** Compression, as often as a policy of TimescaleDB would run it. */
export class Compression {
  readonly #sql: Sql;
  readonly #settings: StorageSettings;
  readonly #now: () => number;
  #doneAt = Number.NEGATIVE_INFINITY;
  #isRunning = false;
  #failure: { readonly error: unknown } | null = null;

  /** @param sql a pool for this alone */
  constructor(sql: Sql, settings: StorageSettings, now: () => number) {
    this.#sql = sql;
    this.#settings = settings;
    this.#now = now;
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  /** Starts, and does not wait for the end. */
  startIfDue(): void {
    const { CHUNK_HOURS, COMPRESS_AFTER_DAYS } = this.#settings;
    const isDue = Math.abs(this.#now() - this.#doneAt) >= (CHUNK_HOURS * HOUR_MS) / 2;
    if (COMPRESS_AFTER_DAYS === 0 || this.#isRunning || !isDue) return;
    this.#isRunning = true;
    compress(this.#sql, COMPRESS_AFTER_DAYS)
      .then(
        (isAll) => {
          if (isAll) this.#doneAt = this.#now();
        },
        (error: unknown) => {
          this.#failure = { error };
        },
      )
      .finally(() => {
        this.#isRunning = false;
      });
  }

  /** Throws the error of a run that has failed since the last call. */
  throwFailure(): void {
    const failure = this.#failure;
    this.#failure = null;
    if (failure !== null) throw failure.error;
  }
}

/** The table of a chunk's columnstore is named after the chunk. */
const COLUMNSTORE_PREFIX = 'columnstore_of_';
const SCRATCH = 'columnstore_template';

/** Whether this release of TimescaleDB can do so. */
export async function canBeginColumnstores(sql: Sql): Promise<boolean> {
  const [found] = await sql<{ known: boolean }[]>`
    SELECT to_regprocedure('_timescaledb_functions.create_compressed_chunk(regclass, regclass, bigint, bigint, bigint, bigint,
             bigint, bigint, bigint, bigint)') IS NOT NULL
           AND EXISTS (SELECT FROM pg_attribute
                        WHERE attrelid = to_regclass('_timescaledb_catalog.compression_settings') AND attname = 'compress_relid')
           AS known`;
  return found?.known === true;
}

/**
 * Begins the columnstore of a chunk that has none.
 * @param chunk      its name, as PostgreSQL writes it
 * @param hypertable the same of its hypertable
 */
export async function beginColumnstore(sql: Sql, chunk: string, hypertable: string): Promise<void> {
  await sql.begin('isolation level read committed', async (tx) => {
    await tx.unsafe(`SET LOCAL lock_timeout = ${CHUNK_LOCK_TIMEOUT_MS}`);
    const template = await compressedTemplate(tx, hypertable);
    const [names] = await tx<{ table: string }[]>`
      SELECT quote_ident(${COLUMNSTORE_PREFIX} || relname) AS table FROM pg_class WHERE oid = ${chunk}::text::regclass`;
    if (names === undefined) throw new Error(`The chunk ${chunk} is gone.`);
    await tx.unsafe(`CREATE TABLE ${names.table} (LIKE ${template} INCLUDING ALL)`);
    await copyOptions(tx, template, names.table);
    await tx.unsafe(`DROP TABLE ${SCRATCH}`);
    await tx`
      SELECT _timescaledb_functions.create_compressed_chunk(${chunk}::text::regclass, ${names.table}::text::regclass,
               pg_relation_size(${chunk}::text::regclass), 0, pg_indexes_size(${chunk}::text::regclass), 0, 0, 0, 0, 0)`;
  });
}

/** A columnstore of a hypertable that is like another one. @returns its name */
async function compressedTemplate(tx: Transaction, hypertable: string): Promise<string> {
  const [settings] = await tx<{ segmentby: string; orderby: string; time: string; columns: string }[]>`
    SELECT array_to_string(segmentby, ', ') AS segmentby,
           (SELECT string_agg(quote_ident(name) || CASE WHEN is_desc THEN ' DESC' ELSE ' ASC' END
                              || CASE WHEN nulls_first THEN ' NULLS FIRST' ELSE ' NULLS LAST' END, ', ' ORDER BY n)
              FROM unnest(orderby, orderby_desc, orderby_nullsfirst) WITH ORDINALITY AS by (name, is_desc, nulls_first, n))
             AS orderby,
           (SELECT column_name FROM timescaledb_information.dimensions
             WHERE format('%I.%I', hypertable_schema, hypertable_name)::regclass = relid AND dimension_number = 1) AS time,
           (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
             WHERE attrelid = relid AND attnum > 0 AND NOT attisdropped) AS columns
      FROM _timescaledb_catalog.compression_settings WHERE relid = ${hypertable}::text::regclass`;
  if (settings === undefined) throw new Error(`The columnstore of ${hypertable} is not enabled.`);
  await tx.unsafe(`CREATE TABLE ${SCRATCH} (LIKE ${hypertable} INCLUDING CONSTRAINTS INCLUDING INDEXES)`);
  await tx`SELECT create_hypertable(${SCRATCH}, by_range(${settings.time}), create_default_indexes => false)`;
  await tx.unsafe(`
    ALTER TABLE ${SCRATCH} SET (timescaledb.enable_columnstore = true, timescaledb.segmentby = '${settings.segmentby}',
                                timescaledb.orderby = '${settings.orderby}')`);
  // Without a row there is no chunk.
  await tx.unsafe(
    `INSERT INTO ${SCRATCH} (${settings.columns}) SELECT ${settings.columns} FROM ${hypertable} LIMIT 1`,
  );
  await tx`SELECT compress_chunk(chunk) FROM show_chunks(${SCRATCH}) AS chunk`;
  const [made] = await tx<{ name: string }[]>`
    SELECT compress_relid::text AS name FROM _timescaledb_catalog.compression_settings, show_chunks(${SCRATCH}) AS chunk
     WHERE relid = chunk`;
  if (made === undefined) throw new Error(`No columnstore could be made like that of ${hypertable}.`);
  return made.name;
}

/** What `LIKE` leaves out: which values are kept apart (TOAST), and how much of a column is sampled. */
async function copyOptions(tx: Transaction, from: string, to: string): Promise<void> {
  const [{ options, statistics } = { options: null, statistics: null }] = await tx<
    { options: string | null; statistics: string | null }[]
  >`
    SELECT array_to_string(reloptions, ', ') AS options,
           (SELECT string_agg(format('ALTER COLUMN %I SET STATISTICS %s', attname, attstattarget), ', ')
              FROM pg_attribute WHERE attrelid = pg_class.oid AND attnum > 0 AND attstattarget >= 0) AS statistics
      FROM pg_class WHERE oid = ${from}::text::regclass`;
  if (options !== null) await tx.unsafe(`ALTER TABLE ${to} SET (${options})`);
  if (statistics !== null) await tx.unsafe(`ALTER TABLE ${to} ${statistics}`);
}
