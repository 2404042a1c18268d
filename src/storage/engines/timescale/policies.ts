/** TimescaleDB's own policies, which follow the settings. */

import { countTable, DAY_MS, HOUR_MS, LEVELS, type Level, MINUTE_MS, MINUTES } from '../../counts/levels.ts';
import type { Sql, Transaction } from '../../database/connect.ts';
import type { CompressionFacts, StorageSettings } from '../storage-engine.ts';

/** The continuous aggregates of a level: by type, and of all types of an app together. */
export function aggregatesOf({ name }: Level): readonly string[] {
  return [countTable(name), `app_${countTable(name)}`];
}

/** What retention removes rows and minutes from. */
export const RETAINED = ['events', ...aggregatesOf(MINUTES)];
/** What the service moves into the columnstore. */
export const COMPRESSED = RETAINED;

/**
 * Sets the policies; called at every start, so that a changed setting takes effect.
 *
 * The service refreshes by itself and needs no policies: those of the aggregates are a safety net for the time in which no
 * service runs, and for other programs that query the aggregates.
 */
export async function applyPolicies(sql: Sql, config: StorageSettings): Promise<void> {
  // One process at a time: TimescaleDB refuses the second of two such changes ("tuple concurrently updated").
  await sql.begin('isolation level read committed', async (tx) => {
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark policies'))`;
    await tx`SELECT set_chunk_time_interval('events', ${`${config.CHUNK_HOURS} hours`}::interval)`;
    await setBatchSize(tx);
    await removeColumnstorePolicies(tx);
    for (const relation of RETAINED) {
      // A day later than the boundary, which the service moves by itself: a reader never misses what it has counted.
      await setRetentionPolicy(tx, relation, config.RETENTION_DAYS === 0 ? 0 : config.RETENTION_DAYS + 1);
    }
    for (const level of LEVELS) {
      for (const aggregate of aggregatesOf(level))
        await setRefreshPolicy(tx, aggregate, level.ms, config.RETENTION_DAYS);
    }
  });
}

/**
 * Rows of a batch in the columnstore, instead of a thousand. To show one event its whole batch is decompressed: smaller
 * batches make a page of rare events a third faster for 5 % more bytes (bench/results/engines.json).
 */
const BATCH_ROWS = 333;

/** For compression by other clients: the settings of the role apply. An existing setting stays. */
async function setBatchSize(tx: Transaction): Promise<void> {
  const [row] = await tx<{ database: string; isChosen: boolean }[]>`
    SELECT quote_ident(current_database()) AS database, EXISTS (
           SELECT FROM pg_db_role_setting, unnest(setconfig) AS setting
            WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
              AND setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = current_user))
              AND setting LIKE 'timescaledb.compression_batch_size_limit=%') AS "isChosen"`;
  if (row === undefined || row.isChosen) return;
  await tx.unsafe(
    `ALTER ROLE CURRENT_USER IN DATABASE ${row.database} SET timescaledb.compression_batch_size_limit = ${BATCH_ROWS}`,
  );
}

/** The service compresses (compression.ts): a policy would make late writers wait, and readers miss rows. */
export async function removeColumnstorePolicies(sql: Sql | Transaction): Promise<void> {
  for (const { relation } of await columnstorePolicies(sql))
    await sql`CALL remove_columnstore_policy(${relation}::text::regclass, if_exists => true)`;
}

/** Policies that somebody else has added to what the service compresses, with their jobs as text. */
async function columnstorePolicies(
  sql: Sql | Transaction,
): Promise<readonly { readonly relation: string; readonly job: string }[]> {
  return await sql<{ relation: string; job: string }[]>`
    SELECT relation, format('job %s (%s of %s)', job_id, proc_name, relation) AS job
      FROM unnest(${COMPRESSED}::text[]) AS relation
      LEFT JOIN timescaledb_information.continuous_aggregates ON view_schema = current_schema() AND view_name = relation
      JOIN timescaledb_information.jobs AS job ON job.hypertable_name IN (relation, materialization_hypertable_name)
     WHERE proc_name ~ '^policy_(compression|columnstore|recompression)' ORDER BY job_id`;
}

/** Who else compresses: policies, and the newest chunks of events in the columnstore. */
export async function readCompression(sql: Sql): Promise<CompressionFacts> {
  const policies = await columnstorePolicies(sql);
  const chunks = await sql<{ name: string; end: number }[]>`
    SELECT chunk_name AS name, (extract(epoch FROM range_end) * 1000)::float8 AS end
      FROM timescaledb_information.chunks
     WHERE hypertable_schema = current_schema() AND hypertable_name = 'events' AND is_compressed
     ORDER BY range_end DESC LIMIT 5`;
  return { policies: policies.map(({ job }) => job), chunks: [...chunks] };
}

async function setRetentionPolicy(tx: Transaction, relation: string, days: number): Promise<void> {
  const wanted = `${days} days`;
  const [job] = await tx<{ same: boolean }[]>`
    SELECT (config ->> 'drop_after')::interval = ${wanted}::interval AND NOT scheduled AS same
      FROM timescaledb_information.jobs AS job
     WHERE proc_name = 'policy_retention' AND hypertable_name IN (${relation}, (
             SELECT materialization_hypertable_name FROM timescaledb_information.continuous_aggregates
              WHERE view_name = ${relation}))`;
  if (job?.same === true || (job === undefined && days === 0)) return;
  await tx`SELECT remove_retention_policy(${relation}, if_exists => true)`;
  if (days === 0) return;
  // TimescaleDB would drop by the clock of the database alone: the service does, once all agree that the time has passed.
  await tx`
    SELECT alter_job(add_retention_policy(${relation}, drop_after => ${wanted}::interval, initial_start => now() + interval '1 hour'), scheduled => false)`;
}

/** Sets how far back a refresh policy looks, and how often it runs: a refresh must not reach before the retention boundary. */
async function setRefreshPolicy(
  tx: Transaction,
  aggregate: string,
  ms: number,
  retentionDays: number,
): Promise<void> {
  const startMs = Math.min(
    Math.max(8 * ms, DAY_MS),
    retentionDays === 0 ? Number.POSITIVE_INFINITY : retentionDays * DAY_MS,
  );
  const endMs = Math.max(2 * ms, 10 * MINUTE_MS);
  const start = `${startMs / MINUTE_MS} minutes`;
  const [job] = await tx<{ same: boolean }[]>`
    SELECT (config ->> 'start_offset')::interval = ${start}::interval AS same
      FROM timescaledb_information.jobs
     WHERE proc_name = 'policy_refresh_continuous_aggregate' AND hypertable_name IN (${aggregate}, (
             SELECT materialization_hypertable_name FROM timescaledb_information.continuous_aggregates
              WHERE view_name = ${aggregate}))`;
  // TimescaleDB wants a window of two buckets at least; a shorter retention leaves no room for a policy.
  const hasPartition = startMs - endMs >= 2 * ms;
  if (job === undefined ? !hasPartition : hasPartition && job.same) return;
  await tx`SELECT remove_continuous_aggregate_policy(${aggregate}, if_exists => true)`;
  if (!hasPartition) return;
  await tx`
    SELECT add_continuous_aggregate_policy(${aggregate}, start_offset => ${start}::interval,
             end_offset => ${`${endMs / MINUTE_MS} minutes`}::interval,
             schedule_interval => ${`${Math.max(ms, HOUR_MS) / MINUTE_MS} minutes`}::interval)`;
}

/** The end of the newest chunk of events with a columnstore, as PostgreSQL writes it; null: none has one. */
export async function compressedUntil(tx: Transaction): Promise<string | null> {
  const [row] = await tx<{ until: string | null }[]>`
    SELECT max(range_end)::text AS until FROM timescaledb_information.chunks
     WHERE hypertable_schema = current_schema() AND hypertable_name = 'events' AND is_compressed`;
  return row?.until ?? null;
}
