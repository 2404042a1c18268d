/**
 * Begins a chunk's columnstore, empty: its rows then count as rows that came late, and TimescaleDB moves them while writers
 * go on. `compress_chunk` of a chunk without a columnstore keeps writers out until all of its rows are moved.
 *
 * TimescaleDB takes any table with the right columns for a columnstore. It is made like that of a chunk that is compressed
 * for this purpose, of a hypertable with the same columns, indexes and settings, in one transaction with it.
 */
import type { Sql, Transaction } from '../../database/connect.ts';

/** The table of a chunk's columnstore is named after the chunk. */
const COLUMNSTORE_PREFIX = 'columnstore_of_';
const SCRATCH = 'columnstore_template';

/** Longest that the chunk's writers wait. */
const LOCK_TIMEOUT_MS = 1_000;

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
    await tx.unsafe(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
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
