/** What of a database belongs into a backup, read from its catalog: a table that a later migration adds comes by itself. */
import type pg from 'pg';
import type { Engine } from '../../storage/engine.ts';

export interface BackupTable {
  readonly name: string;
  readonly columns: readonly string[];
}

/**
 * What is not copied as it is: events come by their time, and all else here is made from them anew. Of the counts, those
 * that have outlived their rows come apart.
 */
export const DERIVED_TABLES: ReadonlySet<string> = new Set([
  'schema_migrations',
  'events',
  'count_deltas',
  'minute_counts',
  'quarter_hour_counts',
  'hour_counts',
  'day_counts',
  'month_counts',
  'day_profiles',
  'profiled_days',
  'stale_buckets',
]);

export const EVENT_COLUMNS = ['id', 'app_id', 'type_id', 'created_at', 'payload'] as const;

/** A stretch of time that holds events, as ISO 8601; `until` is not included. */
export interface Stretch {
  readonly from: string;
  readonly until: string;
}

/** The tables of our schema, each behind those that it refers to. */
export async function readTables(client: pg.Client): Promise<BackupTable[]> {
  const { rows } = await client.query<{ name: string; columns: string[]; parents: string[] }>(`
    SELECT class.relname AS name,
           ARRAY(SELECT attname::text FROM pg_attribute
                  WHERE attrelid = class.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
                  ORDER BY attnum) AS columns,
           ARRAY(SELECT DISTINCT parent.relname::text FROM pg_constraint JOIN pg_class parent ON parent.oid = confrelid
                  WHERE conrelid = class.oid AND contype = 'f' AND confrelid <> conrelid) AS parents
      FROM pg_class class
     WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
       AND NOT EXISTS (SELECT FROM pg_depend
                        WHERE classid = 'pg_class'::regclass AND objid = class.oid AND deptype = 'e')
     ORDER BY relname`);
  const ordered: BackupTable[] = [];
  let waiting = rows.filter((table) => !DERIVED_TABLES.has(table.name));
  while (waiting.length > 0) {
    const free = waiting.filter(({ parents }) => !waiting.some(({ name }) => parents.includes(name)));
    if (free.length === 0) throw new Error('Tables refer to each other in a circle: no order restores them.');
    ordered.push(...free.map(({ name, columns }) => ({ name, columns })));
    waiting = waiting.filter((table) => !free.includes(table));
  }
  return ordered;
}

/** Where each identity column goes on; those never used are left out. */
export async function readSequences(
  client: pg.Client,
): Promise<{ table: string; column: string; last: string }[]> {
  const { rows } = await client.query<{ table: string; column: string; last: string }>(
    `
    SELECT * FROM (
      SELECT relname AS table, attname AS column,
             pg_sequence_last_value(pg_get_serial_sequence(quote_ident(relname), attname)::regclass)::text AS last
        FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
       WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND attidentity <> '') used
     WHERE last IS NOT NULL AND "table" <> ALL ($1) ORDER BY 1, 2`,
    [[...DERIVED_TABLES]],
  );
  return rows;
}

/** Partitions or chunks of events from the boundary on, in order of time. */
export async function readStretches(client: pg.Client, engine: Engine, boundary: string): Promise<Stretch[]> {
  const parts =
    engine === 'timescale'
      ? `SELECT range_start AS start, range_end AS finish FROM timescaledb_information.chunks
          WHERE hypertable_schema = current_schema() AND hypertable_name = 'events'`
      : `SELECT to_date(right(relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC' AS start,
                (to_date(right(relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC' AS finish
           FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
          WHERE inhparent = 'events'::regclass AND relname ~ '^events_[0-9]{8}$'`;
  const { rows } = await client.query<{ from: Date; until: Date }>(
    `SELECT greatest(start, $1::timestamptz) AS from, finish AS until FROM (${parts}) parts
      WHERE finish > $1::timestamptz ORDER BY start`,
    [boundary],
  );
  return rows.map(({ from, until }) => ({ from: from.toISOString(), until: until.toISOString() }));
}

/** Names as SQL identifiers, with commas. */
export function identifiers(names: readonly string[]): string {
  return names.map((name) => `"${name.replaceAll('"', '""')}"`).join(', ');
}
