/** What the database tells, with the service's ordinary rights and without changing anything. */
import type { Sql } from '../../storage/connect.ts';
import { chooseEngine, type Engine } from '../../storage/engine.ts';
import { readMigrations } from '../../storage/migrate.ts';

export interface DatabaseFacts {
  /** Names and versions, for people. */
  readonly description: string;
  readonly engine: Engine;
  /** Migrations of this release that the database does not have. */
  readonly pendingMigrations: number;
  /** Settings as a session of the service has them: name → value. */
  readonly settings: Readonly<Record<string, string>>;
  readonly isSuperuser: boolean;
  /** Whether this connection is encrypted. */
  readonly isEncrypted: boolean;
  readonly isReadOnly: boolean;
  /** Connections of everybody, now. */
  readonly connections: number;
  /** Partitions or chunks of the events table. */
  readonly partitions: number;
  /** Age in seconds of the oldest transaction that this role can see. */
  readonly oldestTransactionSeconds: number;
  /** Names of replication slots that nobody reads: they keep the write-ahead log on the disk. */
  readonly idleSlots: readonly string[];
  /** How far the database's clock is ahead of ours, in milliseconds, and how far that may be wrong. */
  readonly clockAheadMs: number;
  readonly clockErrorMs: number;
  /** Fingerprint of the secret that this database began with, null before the first start. */
  readonly secretFingerprint: string | null;
  readonly accounts: number;
  readonly bytes: number;
  readonly events: number;
  /** Events of the last seven UTC days that are over. */
  readonly eventsOfWeek: number;
  /** Events dated more than a day ahead. */
  readonly eventsInFuture: number;
  /** Counts that wait to be folded, or marks of buckets that wait to be refreshed. */
  readonly upkeepBacklog: number;
  /** Milliseconds since 1970 before which nothing is readable; null where everything is. */
  readonly readableFrom: number | null;
}

/** Settings that the findings speak of. */
const SETTINGS = [
  'fsync',
  'full_page_writes',
  'synchronous_commit',
  'data_checksums',
  'autovacuum',
  'max_connections',
  'max_locks_per_transaction',
  'max_prepared_transactions',
  'superuser_reserved_connections',
] as const;

/** Reads them; null where the database has no schema yet. */
export async function databaseFacts(sql: Sql): Promise<DatabaseFacts | null> {
  const [schema] = await sql<{ there: boolean }[]>`SELECT to_regclass('retention') IS NOT NULL AS there`;
  if (schema?.there !== true) return null;
  const { engine, description } = await chooseEngine(sql);
  return {
    engine,
    description,
    pendingMigrations: await pendingMigrations(sql, engine),
    ...(await serverFacts(sql)),
    ...(await clockFacts(sql)),
    ...(await dataFacts(sql)),
    upkeepBacklog: await backlog(sql, engine),
  };
}

async function pendingMigrations(sql: Sql, engine: Engine): Promise<number> {
  const applied = await sql<{ number: number }[]>`SELECT number FROM schema_migrations`;
  const done = new Set(applied.map((row) => row.number));
  return (await readMigrations(engine)).filter(({ number }) => !done.has(number)).length;
}

type ServerFacts = Pick<
  DatabaseFacts,
  | 'settings'
  | 'isSuperuser'
  | 'isEncrypted'
  | 'isReadOnly'
  | 'connections'
  | 'partitions'
  | 'oldestTransactionSeconds'
  | 'idleSlots'
>;

async function serverFacts(sql: Sql): Promise<ServerFacts> {
  const [row] = await sql<ServerFacts[]>`
    SELECT (SELECT json_object_agg(name, setting) FROM pg_settings WHERE name IN ${sql(SETTINGS)})   AS settings,
           (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)                             AS "isSuperuser",
           coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)              AS "isEncrypted",
           pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'           AS "isReadOnly",
           (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend')       AS connections,
           (SELECT count(*)::int FROM pg_inherits WHERE inhparent = 'events'::regclass)             AS partitions,
           (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8
              FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid())           AS "oldestTransactionSeconds",
           (SELECT coalesce(json_agg(slot_name ORDER BY slot_name), '[]')
              FROM pg_replication_slots WHERE NOT active)                                           AS "idleSlots"`;
  if (row === undefined) throw new Error('A SELECT without FROM has a row.');
  return row;
}

/** The database's clock between two readings of ours: it can be off by as much as half of the time between them. */
async function clockFacts(sql: Sql): Promise<Pick<DatabaseFacts, 'clockAheadMs' | 'clockErrorMs'>> {
  const before = Date.now();
  const [row] = await sql<
    { now: number }[]
  >`SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now`;
  const after = Date.now();
  return { clockAheadMs: (row?.now ?? 0) - (before + after) / 2, clockErrorMs: (after - before) / 2 };
}

type DataFacts = Pick<
  DatabaseFacts,
  'secretFingerprint' | 'accounts' | 'bytes' | 'events' | 'eventsOfWeek' | 'eventsInFuture' | 'readableFrom'
>;

async function dataFacts(sql: Sql): Promise<DataFacts> {
  const [row] = await sql<DataFacts[]>`
    WITH today AS (SELECT date_trunc('day', now(), 'UTC') AS start)
    SELECT (SELECT value FROM installation WHERE name = 'secret_fingerprint')          AS "secretFingerprint",
           (SELECT count(*)::int FROM users)                                           AS accounts,
           pg_database_size(current_database())::float8                                AS bytes,
           (SELECT coalesce(sum(count), 0)::float8 FROM events_per_day, retention
             WHERE type_id = 0 AND bucket >= date_trunc('day', readable_from, 'UTC'))  AS events,
           (SELECT coalesce(sum(count), 0)::float8 FROM events_per_day, today
             WHERE type_id = 0 AND bucket >= start - interval '7 days' AND bucket < start) AS "eventsOfWeek",
           (SELECT count(*)::float8 FROM events WHERE created_at > now() + interval '1 day')  AS "eventsInFuture",
           (SELECT (extract(epoch FROM nullif(readable_from, '-infinity')) * 1000)::float8 FROM retention)
                                                                                       AS "readableFrom"`;
  if (row === undefined) throw new Error('A SELECT without FROM has a row.');
  return row;
}

async function backlog(sql: Sql, engine: Engine): Promise<number> {
  const [row] =
    engine === 'timescale'
      ? await sql<{ waiting: number }[]>`
          SELECT count(*)::float8 AS waiting FROM stale_buckets WHERE bucket < now() - interval '1 hour'`
      : await sql<{ waiting: number }[]>`SELECT count(*)::float8 AS waiting FROM count_deltas`;
  return row?.waiting ?? 0;
}
