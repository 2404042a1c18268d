/** What of a database belongs in a backup, read from its catalog: a table that a later migration adds is included. */
import type pg from 'pg';
import type { COARSE_LEVELS } from '../counts/levels.ts';
import { selectTicks } from '../feed/ticks.ts';
import { selectAppsWithFields } from '../fields/uncounted-minutes.ts';

/** Rows of one kind, in COPY's text format. */
export type RowSection =
  | { readonly section: 'table'; readonly table: string; readonly columns: readonly string[] }
  /** Events of an interval. */
  | ({ readonly section: 'events'; readonly columns: readonly string[] } & TimeBounds)
  /** Counts that have outlived their rows. */
  | { readonly section: 'counts'; readonly level: CoarseLevelName; readonly columns: readonly string[] };

/** `[from, until)` as ISO 8601. */
export interface TimeBounds {
  readonly from: string;
  readonly until: string;
}

export type CoarseLevelName = (typeof COARSE_LEVELS)[number]['name'];

/** The value of an identity column's sequence. */
export interface SequenceValue {
  readonly table: string;
  readonly column: string;
  readonly last: string;
}

/**
 * A table that a copy has and a backup has not: the beginnings of refused bodies, which are forgotten when a person is erased, would be
 * there again with a backup from before. Backups of the first release have it, and it is passed over.
 */
export const REFUSED_REQUESTS = 'refused_requests';

export interface BackupTable {
  readonly name: string;
  readonly columns: readonly string[];
}

export const COUNT_COLUMNS = ['app_id', 'type_id', 'bucket', 'count'] as const;

/** The counts of declared fields are restored if a backup has this table, and computed again if it is of an engine that has none to give. */
export const FIELD_COUNTS = 'field_series';

/** Whether a table has declared fields, or their counts. The generation of the newest field is no part of these. */
export function isOfFields({ name }: BackupTable): boolean {
  if (name === 'field_generation') return false;
  return name === 'declared_fields' || name === 'uncounted_minutes' || name.startsWith('field_');
}

/** Whether a table has what is counted of declared fields, and not the declarations. */
export function isOfFieldCounts(table: BackupTable): boolean {
  return isOfFields(table) && table.name !== 'declared_fields';
}

/**
 * SELECT of the rows of a table that a backup holds.
 * @param boundary the retention boundary, as an expression
 * @param nameOf   the name of a table there
 */
export function selectKept(
  { name, columns }: BackupTable,
  { unticked }: { unticked(nameOf: (table: string) => string): string },
  boundary: string,
  nameOf: (table: string) => string = (table) => table,
): string {
  const rows = `SELECT ${identifiers(columns)} FROM ${identifiers([nameOf(name)])}`;
  if (name === 'feed_ticks') return selectTicks(columns, unticked(nameOf), nameOf(name));
  if (name === 'installation') return `${rows} WHERE NOT (${OWN_FACTS})`;
  if (name === 'field_minute_counts') return `${rows} WHERE bucket >= ${boundary}`;
  if (name !== 'uncounted_minutes') return rows;
  // Stamps are no part of a backup: what they tell is.
  return `
    SELECT ${identifiers(columns)} FROM (
      SELECT app_id, bucket FROM uncounted_minutes
       UNION
      SELECT app_id, bucket FROM stamped_minutes WHERE fields = 0 AND app_id IN (${selectAppsWithFields()})) AS minutes
     WHERE bucket >= ${boundary}`;
}

/** Rows of `installation` that belong to a database, not to its content. */
export const OWN_FACTS =
  "name IN ('engine', 'id', 'generation', 'release', 'moved_to', 'copied_from', 'clock')";

/**
 * Tables that are not copied as they are: events are copied by time, and the others are computed from them. Counts that
 * have outlived their rows have sections of their own.
 */
export const DERIVED_TABLES: ReadonlySet<string> = new Set([
  'schema_migrations',
  'events',
  'count_deltas',
  'grouped_deltas',
  'folds',
  'minute_counts',
  'quarter_hour_counts',
  'hour_counts',
  'day_counts',
  'month_counts',
  'outlived_quarter_hour_counts',
  'outlived_hour_counts',
  'outlived_day_counts',
  'daily_prefix_sums',
  'profiled_days',
  'stale_buckets',
  'changed_minutes',
  // What is in the archive alone is not among the events either.
  'archived_parts',
  'snapshot_lock',
  'type_names',
  'field_folds',
  'field_states',
  // Lists of words are made of the events.
  'word_states',
  'word_segments',
  'word_lists',
  'unlisted_minutes',
]);

/** The tables of our schema, each after those that it refers to. Numbers of transactions mean nothing in another database. */
export async function readTables(client: pg.Client): Promise<BackupTable[]> {
  const { rows } = await client.query<{ name: string; columns: string[]; parents: string[] }>(`
    SELECT class.relname AS name,
           ARRAY(SELECT attname::text FROM pg_attribute
                  WHERE attrelid = class.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
                    AND NOT EXISTS (SELECT FROM pg_attrdef WHERE adrelid = class.oid AND adnum = attnum
                                       AND pg_get_expr(adbin, adrelid) = 'pg_current_xact_id()')
                  ORDER BY attnum) AS columns,
           ARRAY(SELECT DISTINCT parent.relname::text FROM pg_constraint JOIN pg_class parent ON parent.oid = confrelid
                  WHERE conrelid = class.oid AND contype = 'f' AND confrelid <> conrelid) AS parents
      FROM pg_class class
     WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
       AND relname NOT LIKE 'columnstore\\_%'
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

/** The identity columns of tables that a backup holds, with their last values; null: it was never used. */
export async function readIdentityColumns(
  client: pg.Client,
): Promise<
  readonly (SequenceValue | { readonly table: string; readonly column: string; readonly last: null })[]
> {
  const { rows } = await client.query(
    `SELECT relname AS table, attname AS column,
            pg_sequence_last_value(pg_get_serial_sequence(quote_ident(relname), attname)::regclass)::text AS last
       FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
      WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND attidentity <> ''
        AND relname <> ALL ($1) ORDER BY 1, 2`,
    [[...DERIVED_TABLES]],
  );
  return rows;
}

/** The last values of identity columns; those never used are left out. */
export async function readSequences(client: pg.Client): Promise<SequenceValue[]> {
  return (await readIdentityColumns(client)).filter((one): one is SequenceValue => one.last !== null);
}

/** The intervals of partitions or chunks of events from the boundary on, in order of time. */
export async function readEventIntervals(
  client: pg.Client,
  { eventIntervals }: { readonly eventIntervals: string },
  boundary: string,
): Promise<TimeBounds[]> {
  const { rows } = await client.query<{ from: Date; until: Date }>(
    `SELECT greatest(start, $1::timestamptz) AS from, finish AS until FROM (${eventIntervals}) intervals
      WHERE finish > $1::timestamptz ORDER BY start`,
    [boundary],
  );
  return rows.map(({ from, until }) => ({ from: from.toISOString(), until: until.toISOString() }));
}

/** Names as SQL identifiers, separated by commas. */
export function identifiers(names: readonly string[]): string {
  return names.map((name) => `"${name.replaceAll('"', '""')}"`).join(', ');
}

/**
 * SELECT of the counts that outlive their rows: those before the retention boundary, and those of apps and types before their own.
 * @param counts     a table or view of counts of a level
 * @param boundary   the retention boundary, as an expression
 * @param boundaries the name of app_boundaries there
 */
export function selectOutlived(counts: string, boundary: string, boundaries = 'app_boundaries'): string {
  return `
    SELECT app_id, type_id, bucket, sum(count)::bigint FROM (
      SELECT app_id, type_id, bucket, count FROM ${counts} AS counts WHERE bucket < ${boundary}
       UNION ALL
      SELECT counts.app_id, kind, bucket, count FROM ${counts} AS counts
        ${joinBoundaries('counts', boundaries)}
       CROSS JOIN LATERAL (VALUES (counts.type_id), (0)) AS kinds (kind)
       WHERE counts.type_id <> 0 AND bucket >= ${boundary} AND bucket < ${OWN_BOUNDARY}) AS outlived
     GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`;
}

/** Joins the boundary of a row's type, or else of its app; {@link OWN_BOUNDARY} is NULL where there is none. */
export function joinBoundaries(rows: string, boundaries: string): string {
  return `
        LEFT JOIN ${boundaries} AS of_type ON of_type.app_id = ${rows}.app_id AND of_type.type_id = ${rows}.type_id
        LEFT JOIN ${boundaries} AS of_app ON of_app.app_id = ${rows}.app_id AND of_app.type_id = 0`;
}

export const OWN_BOUNDARY = 'coalesce(of_type.readable_from, of_app.readable_from)';

/**
 * Adds counts that outlive their rows to a table, and to the months if they are by the day. Later days are added when they are settled.
 * @returns how many they are
 */
export async function addOutlived(
  client: pg.Client,
  level: CoarseLevelName,
  table: string,
  copyTo: (table: string) => Promise<number>,
): Promise<number> {
  const rows = await copyTo(table);
  if (level === 'day' && rows > 0)
    await client.query(`
      INSERT INTO month_counts (app_id, type_id, bucket, count)
      SELECT app_id, type_id, date_trunc('month', bucket, 'UTC'), sum(count) FROM ${table} GROUP BY 1, 2, 3`);
  return rows;
}
