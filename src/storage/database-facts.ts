/** Reads facts about the database for `tidemark doctor`, with the privileges of the service and without writes. */

import { DAYS } from './counts/levels.ts';
import { type CountCheck, checkCounts } from './counts/recount.ts';
import type { Sql } from './database/connect.ts';
import type { Engine } from './database/engine.ts';
import { hasTable } from './database/installation-id.ts';
import type { CompressionFacts, StorageEngine } from './engines/storage-engine.ts';
import { readOldestSnapshot, type SnapshotHolder } from './maintenance/oldest-snapshot.ts';
import type { StrayCount } from './maintenance/stray-rows.ts';
import { databaseClock } from './maintenance/time-judge.ts';
import { pendingMigrations, readMigrations } from './migrate.ts';

export interface DatabaseFacts {
  /** Names and versions of the engine. */
  readonly description: string;
  readonly engine: Engine;
  /** Migrations of this release that the database does not have. */
  readonly pendingMigrations: number;
  /** Settings of the service's sessions: name → value. */
  readonly settings: Readonly<Record<string, string>>;
  readonly isSuperuser: boolean;
  /** Whether this connection is encrypted. */
  readonly isEncrypted: boolean;
  readonly isReadOnly: boolean;
  /** Connections of all clients, now. */
  readonly connections: number;
  /** Partitions or chunks of the events table. */
  readonly partitions: number;
  /** What holds the oldest snapshot in use; null where nothing does. */
  readonly oldestSnapshot: SnapshotHolder | null;
  /** Names of inactive replication slots: they retain the write-ahead log. */
  readonly idleSlots: readonly string[];
  /** How far the database's clock is ahead of this machine's, in milliseconds, and the error of this measurement. */
  readonly clockAheadMs: number;
  readonly clockErrorMs: number;
  /** For how long what is deleted by time has waited as the clocks have jumped, in milliseconds; 0: it does not. */
  readonly clockStoodMs: number;
  /** Fingerprint of the original secret of this database; null before the first start. */
  readonly secretFingerprint: string | null;
  readonly accounts: number;
  readonly bytes: number;
  readonly events: number;
  /** Events of the last seven complete UTC days. */
  readonly eventsOfWeek: number;
  /** Events dated more than a day ahead. */
  readonly eventsInFuture: number;
  /** Deltas that wait to be folded, or marks of buckets that wait to be refreshed. */
  readonly pendingCounts: number;
  /** Events that lie where nobody reads them, by server; null if migrations are pending. */
  readonly strayRows: readonly StrayCount[] | null;
  /** Null where nothing is compressed, or migrations are pending. */
  readonly compression: CompressionFacts | null;
  /** The retention boundary in milliseconds since 1970; null if there is none. */
  readonly retentionBoundary: number | null;
  /** Public ids of apps whose rows before a boundary of their own have waited for more than a day; null if migrations are pending. */
  readonly expiredApps: readonly string[] | null;
  /** Counts of a sample of days, compared with their rows; null if migrations are pending. */
  readonly counts: CountCheck | null;
}

/** Settings that the checks use. */
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

/** Whether the database has Tidemark's schema. */
export const hasSchema = (sql: Sql): Promise<boolean> => hasTable(sql, 'retention');

/** @param description names and versions of the engine */
export async function readDatabaseFacts(
  sql: Sql,
  engine: StorageEngine,
  description: string,
): Promise<DatabaseFacts> {
  const { length: pending } = await pendingMigrations(sql, engine.name, await readMigrations(engine.name));
  return {
    engine: engine.name,
    description,
    pendingMigrations: pending,
    ...(await serverFacts(sql)),
    oldestSnapshot: await readOldestSnapshot(sql),
    ...(await clockFacts(sql)),
    ...(await dataFacts(sql, engine)),
    pendingCounts: await engine.pending(sql),
    compression: pending > 0 ? null : ((await engine.readCompression?.(sql)) ?? null),
    strayRows: pending > 0 ? null : ((await engine.strayRows?.find(sql)) ?? []),
    expiredApps: pending > 0 ? null : await readExpiredApps(sql),
    counts: pending > 0 ? null : await checkCounts(sql, engine, Date.now()),
  };
}

/** Rows of apps are removed within minutes: what waits for a day is kept by something. */
async function readExpiredApps(sql: Sql): Promise<readonly string[]> {
  const waiting = await sql<{ id: number }[]>`
    SELECT DISTINCT app_id AS id FROM app_boundaries
     WHERE removed_until < readable_from AND moved_at < now() - interval '1 day'`;
  const apps = await sql<{ appId: string }[]>`
    SELECT public_id AS "appId" FROM apps WHERE id = ANY(${waiting.map(({ id }) => id)}::integer[]) ORDER BY id`;
  return apps.map(({ appId }) => appId);
}

type ServerFacts = Pick<
  DatabaseFacts,
  'settings' | 'isSuperuser' | 'isEncrypted' | 'isReadOnly' | 'connections' | 'partitions' | 'idleSlots'
>;

async function serverFacts(sql: Sql): Promise<ServerFacts> {
  const [row] = await sql<ServerFacts[]>`
    SELECT (SELECT json_object_agg(name, setting) FROM pg_settings WHERE name IN ${sql(SETTINGS)})   AS settings,
           (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)                             AS "isSuperuser",
           coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)              AS "isEncrypted",
           pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'           AS "isReadOnly",
           (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend')       AS connections,
           (SELECT count(*)::int FROM pg_inherits WHERE inhparent = 'events'::regclass)             AS partitions,
           (SELECT coalesce(json_agg(slot_name ORDER BY slot_name), '[]')
              FROM pg_replication_slots WHERE NOT active)                                           AS "idleSlots"`;
  if (row === undefined) throw new Error('A SELECT without FROM has a row.');
  return row;
}

/** Reads the database's clock between two readings of this machine's: the error is at most half of their difference. */
async function clockFacts(
  sql: Sql,
): Promise<Pick<DatabaseFacts, 'clockAheadMs' | 'clockErrorMs' | 'clockStoodMs'>> {
  const before = Date.now();
  const { now, noted } = await databaseClock(sql).read();
  const after = Date.now();
  return {
    clockAheadMs: now - (before + after) / 2,
    clockErrorMs: (after - before) / 2,
    clockStoodMs: noted?.stoodMs ?? 0,
  };
}

type DataFacts = Pick<
  DatabaseFacts,
  | 'secretFingerprint'
  | 'accounts'
  | 'bytes'
  | 'events'
  | 'eventsOfWeek'
  | 'eventsInFuture'
  | 'retentionBoundary'
>;

async function dataFacts(sql: Sql, { totalsOfAllApps }: StorageEngine): Promise<DataFacts> {
  const days = sql.unsafe(totalsOfAllApps(DAYS));
  const [row] = await sql<DataFacts[]>`
    WITH today AS (SELECT date_trunc('day', now(), 'UTC') AS start)
    SELECT (SELECT value FROM installation WHERE name = 'secret_fingerprint')          AS "secretFingerprint",
           (SELECT count(*)::int FROM users)                                           AS accounts,
           pg_database_size(current_database())::float8                                AS bytes,
           (SELECT coalesce(sum(count), 0)::float8 FROM ${days} AS days, retention
             WHERE type_id = 0 AND bucket >= date_trunc('day', readable_from, 'UTC'))  AS events,
           (SELECT coalesce(sum(count), 0)::float8 FROM ${days} AS days, today
             WHERE type_id = 0 AND bucket >= start - interval '7 days' AND bucket < start) AS "eventsOfWeek",
           (SELECT count(*)::float8 FROM events WHERE created_at > now() + interval '1 day')  AS "eventsInFuture",
           (SELECT (extract(epoch FROM nullif(readable_from, '-infinity')) * 1000)::float8 FROM retention)
                                                                                       AS "retentionBoundary"`;
  if (row === undefined) throw new Error('A SELECT without FROM has a row.');
  return row;
}
