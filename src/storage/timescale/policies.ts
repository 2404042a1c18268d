/** TimescaleDB's own policies, which follow the settings. */
import type { Config } from '../../config.ts';
import type { Sql, Transaction } from '../connect.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** The levels of the counts, finest first: the width of their buckets, and the continuous aggregates that hold them. */
export const LEVELS = [
  { ms: MINUTE_MS, aggregates: ['minute_counts', 'app_minute_counts'] },
  { ms: 15 * MINUTE_MS, aggregates: ['quarter_hour_counts', 'app_quarter_hour_counts'] },
  { ms: HOUR_MS, aggregates: ['hour_counts', 'app_hour_counts'] },
  { ms: DAY_MS, aggregates: ['day_counts', 'app_day_counts'] },
] as const;

/**
 * Sets the policies as the settings say; called at every start, so that a changed setting counts from then on.
 *
 * Our own refreshing needs no policies: those of the aggregates are the net below it, for the time in which no service
 * runs and for whoever queries the aggregates by themselves.
 */
export async function applyPolicies(
  sql: Sql,
  config: Pick<Config, 'CHUNK_HOURS' | 'COMPRESS_AFTER_DAYS' | 'RETENTION_DAYS'>,
): Promise<void> {
  // One process at a time: TimescaleDB refuses the second of two such changes ("tuple concurrently updated").
  await sql.begin('isolation level read committed', async (tx) => {
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark policies'))`;
    await tx`SELECT set_chunk_time_interval('events', ${`${config.CHUNK_HOURS} hours`}::interval)`;
    await setBatchSize(tx);
    await setColumnstorePolicy(tx, config.COMPRESS_AFTER_DAYS);
    for (const relation of ['events', 'minute_counts', 'app_minute_counts']) {
      // A day more than the boundary: it has moved before anything behind it is dropped.
      await setRetentionPolicy(tx, relation, config.RETENTION_DAYS === 0 ? 0 : config.RETENTION_DAYS + 1);
    }
    for (const { ms, aggregates } of LEVELS) {
      for (const aggregate of aggregates) await setRefreshPolicy(tx, aggregate, ms, config.RETENTION_DAYS);
    }
  });
}

/**
 * Rows of a batch in the columnstore, in place of a thousand. To show one event its whole batch is opened up, 0.2 ms of a
 * thousand: a page of a hundred rare events took 22 ms, and takes 14 ms for 5 % more bytes (bench/results/engines.json).
 */
const BATCH_ROWS = 333;

/** The policy's job knows the settings of the role alone. One that somebody has chosen there already stays. */
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

async function setColumnstorePolicy(tx: Transaction, days: number): Promise<void> {
  const wanted = `${days} days`;
  const [job] = await tx<{ same: boolean }[]>`
    SELECT (config ->> 'compress_after')::interval = ${wanted}::interval AS same
      FROM timescaledb_information.jobs
     WHERE hypertable_name = 'events' AND proc_name IN ('policy_compression', 'policy_columnstore')`;
  if (job?.same === true || (job === undefined && days === 0)) return;
  await tx`CALL remove_columnstore_policy('events', if_exists => true)`;
  if (days > 0) await tx`CALL add_columnstore_policy('events', after => ${wanted}::interval)`;
}

async function setRetentionPolicy(tx: Transaction, relation: string, days: number): Promise<void> {
  const wanted = `${days} days`;
  const [job] = await tx<{ same: boolean }[]>`
    SELECT (config ->> 'drop_after')::interval = ${wanted}::interval AS same
      FROM timescaledb_information.jobs AS job
     WHERE proc_name = 'policy_retention' AND hypertable_name IN (${relation}, (
             SELECT materialization_hypertable_name FROM timescaledb_information.continuous_aggregates
              WHERE view_name = ${relation}))`;
  if (job?.same === true || (job === undefined && days === 0)) return;
  await tx`SELECT remove_retention_policy(${relation}, if_exists => true)`;
  if (days > 0) await tx`SELECT add_retention_policy(${relation}, drop_after => ${wanted}::interval)`;
}

/** How far back a refresh policy looks, and how often: a refresh must never reach behind the retention's boundary. */
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
  const hasRoom = startMs - endMs >= 2 * ms;
  if (job === undefined ? !hasRoom : hasRoom && job.same) return;
  await tx`SELECT remove_continuous_aggregate_policy(${aggregate}, if_exists => true)`;
  if (!hasRoom) return;
  await tx`
    SELECT add_continuous_aggregate_policy(${aggregate}, start_offset => ${start}::interval,
             end_offset => ${`${endMs / MINUTE_MS} minutes`}::interval,
             schedule_interval => ${`${Math.max(ms, HOUR_MS) / MINUTE_MS} minutes`}::interval)`;
}
