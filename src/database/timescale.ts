/** What TimescaleDB needs done while the service runs: marked buckets refreshed, policies that follow the settings. */
import type { Config } from '../config.ts';
import { timescaleRemoval } from './app-removal.ts';
import type { Sql } from './connect.ts';
import { DayProfiler } from './day-profiles.ts';
import { removeDeletedApps } from './deleted-apps.ts';
import { removeExpiredKeys } from './expired-keys.ts';
import type { Upkeep } from './housekeeping.ts';
import { moveBoundary, REMOVE_MS } from './maintenance.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** The levels of the counts, finest first: the width of their buckets, and the continuous aggregates that hold them. */
const LEVELS = [
  { ms: MINUTE_MS, aggregates: ['minute_counts', 'app_minute_counts'] },
  { ms: 15 * MINUTE_MS, aggregates: ['quarter_hour_counts', 'app_quarter_hour_counts'] },
  { ms: HOUR_MS, aggregates: ['hour_counts', 'app_hour_counts'] },
  { ms: DAY_MS, aggregates: ['day_counts', 'app_day_counts'] },
] as const;

/** A bucket is refreshed this long after its end: until then nearly every batch would mark it again. */
const SETTLE_MS = 20_000;

/** Buckets that lie no further apart than this many are refreshed in one call, which costs some 20 ms by itself. */
const JOINED_BUCKETS = 60;
/**
 * Where that leaves more calls than this, as after an import, buckets that lie further apart are joined too. Minutes are
 * refreshed whole, so a few windows keep what lies between them out; above them the log of invalidations does that.
 */
const MOST_WINDOWS = { minutes: 30, coarser: 4 } as const;

interface Mark {
  readonly id: string;
  /** Start of the bucket in milliseconds since 1970. */
  readonly bucket: number;
}

/**
 * Every batch marks its minute; of the marks of one minute one is enough. One statement, so that in no snapshot a
 * minute is without its mark.
 */
export async function mergeMarks(sql: Sql): Promise<void> {
  await sql`
    WITH merged AS (DELETE FROM stale_buckets WHERE level = 0 RETURNING bucket)
    INSERT INTO stale_buckets (level, bucket) SELECT DISTINCT 0, bucket FROM merged`;
}

/** Marks after which what they leave behind in their table is given back: every reader would look through it. */
const VACUUM_AFTER_MARKS = 2_000;

/**
 * Refreshes the marked buckets that have ended, level by level, and moves their marks one level up.
 *
 * A mark is only taken away when a refresh that began after the mark was seen has ended: rows committed by then are in
 * it, and a row committed later has brought a mark of its own.
 * @param now milliseconds since 1970
 */
export async function refreshStale(sql: Sql, now: number): Promise<void> {
  const inBatches = await refreshesInBatches(sql);
  let lifted = 0;
  for (const [level, { ms, aggregates }] of LEVELS.entries()) {
    const marks = await sql<Mark[]>`
      SELECT id::text, (extract(epoch FROM bucket) * 1000)::float8 AS bucket
        FROM stale_buckets
       WHERE level = ${level} AND bucket <= ${new Date(now - SETTLE_MS - ms)}
       ORDER BY stale_buckets.bucket`;
    if (marks.length === 0) continue;
    // Behind the retention's boundary the finer counts are gone: a refresh would delete the coarser ones there.
    const readableFrom = await readBoundary(sql);
    const readable = marks.filter((mark) => mark.bucket >= readableFrom);
    const most = level === 0 ? MOST_WINDOWS.minutes : MOST_WINDOWS.coarser;
    for (const window of windowsOf(readable, ms, most)) {
      for (const aggregate of aggregates) {
        // COPY into a hypertable with a trigger that has a transition table logs no invalidation (seen in 2.29.2), so what
        // is read from rows is refreshed whatever the log says. Between aggregates the log is complete.
        await sql`
          CALL refresh_continuous_aggregate(${aggregate}, ${window.from}::timestamptz, ${window.until}::timestamptz,
                                            force => ${level === 0}
                                            ${inBatches ? sql`, options => '{"buckets_per_batch": 0}'` : sql``})`;
      }
    }
    await liftMarks(sql, level, marks);
    lifted += marks.length;
  }
  if (lifted >= VACUUM_AFTER_MARKS) await sql`VACUUM (TRUNCATE true) stale_buckets`;
}

/**
 * Newer releases refresh ten buckets at a time unless told otherwise: 15 s for a hundred days of minutes, in place of
 * 12 ms. Older ones neither do so nor know the option.
 */
async function refreshesInBatches(sql: Sql): Promise<boolean> {
  const [refresh] = await sql<{ hasOptions: boolean }[]>`
    SELECT max(pronargs) > 4 AS "hasOptions" FROM pg_proc WHERE proname = 'refresh_continuous_aggregate'`;
  return refresh?.hasOptions === true;
}

async function readBoundary(sql: Sql): Promise<number> {
  const [row] = await sql<{ boundary: number }[]>`
    SELECT (extract(epoch FROM greatest(readable_from, '1970-01-01Z')) * 1000)::float8 AS boundary FROM retention`;
  return row?.boundary ?? 0;
}

interface Window {
  readonly from: Date;
  /** Not included. */
  readonly until: Date;
}

/** Windows of whole buckets that hold all marks: one for marks that are near each other. */
function windowsOf(
  marks: readonly Mark[],
  ms: number,
  most: number,
  joined: number = JOINED_BUCKETS,
): readonly Window[] {
  const windows: { from: number; until: number }[] = [];
  for (const { bucket } of marks) {
    const last = windows.at(-1);
    if (last !== undefined && bucket - last.until <= joined * ms)
      last.until = Math.max(last.until, bucket + ms);
    else windows.push({ from: bucket, until: bucket + ms });
  }
  if (windows.length > most) return windowsOf(marks, ms, most, joined * 4);
  return windows.map(({ from, until }) => ({ from: new Date(from), until: new Date(until) }));
}

/**
 * Moves marks one level up. From the days they go for good: what is made of those days (sql/0005) follows in the same
 * transaction. A profile that is being made meanwhile is waited for, or it would be of counts from before the refresh
 * and not be struck off.
 */
async function liftMarks(sql: Sql, level: number, marks: readonly Mark[]): Promise<void> {
  const ids = marks.map((mark) => mark.id);
  const above = LEVELS[level + 1];
  if (above !== undefined) {
    await sql`
      WITH refreshed AS (DELETE FROM stale_buckets WHERE id = ANY(${ids}::bigint[]) RETURNING bucket)
      INSERT INTO stale_buckets (level, bucket)
      SELECT DISTINCT ${level + 1}::smallint, date_bin(${`${above.ms / MINUTE_MS} minutes`}::interval, bucket, 'epoch')
        FROM refreshed`;
    return;
  }
  const days = marks.map(({ bucket }) => new Date(bucket).toISOString());
  const months = [...new Set(days.map((day) => `${day.slice(0, 7)}-01T00:00:00Z`))];
  await sql.begin('isolation level read committed', async (tx) => {
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
    await tx`DELETE FROM stale_buckets WHERE id = ANY(${ids}::bigint[])`;
    await tx`DELETE FROM profiled_days WHERE day = ANY(${days}::timestamptz[])`;
    await tx`DELETE FROM month_counts WHERE bucket = ANY(${months}::timestamptz[])`;
    await tx`
      INSERT INTO month_counts (app_id, type_id, bucket, count)
      SELECT app_id, type_id, month, sum(count)
        FROM unnest(${months}::timestamptz[]) AS months (month)
       CROSS JOIN LATERAL (SELECT app_id, type_id, count FROM events_per_day
                            WHERE bucket >= month AND bucket < month + interval '1 month') days
       GROUP BY 1, 2, 3`;
  });
}

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
  await sql`SELECT set_chunk_time_interval('events', ${`${config.CHUNK_HOURS} hours`}::interval)`;
  await setBatchSize(sql);
  await setColumnstorePolicy(sql, config.COMPRESS_AFTER_DAYS);
  for (const relation of ['events', 'minute_counts', 'app_minute_counts']) {
    // A day more than the boundary: it has moved before anything behind it is dropped.
    await setRetentionPolicy(sql, relation, config.RETENTION_DAYS === 0 ? 0 : config.RETENTION_DAYS + 1);
  }
  for (const { ms, aggregates } of LEVELS) {
    for (const aggregate of aggregates) await setRefreshPolicy(sql, aggregate, ms, config.RETENTION_DAYS);
  }
}

/**
 * Rows of a batch in the columnstore, in place of a thousand. To show one event its whole batch is opened up, 0.2 ms of a
 * thousand: a page of a hundred rare events took 22 ms, and takes 13 ms for 3 % more bytes (bench/results/engines.json).
 */
const BATCH_ROWS = 333;

/** The policy's job knows the settings of the role alone. One that somebody has chosen there already stays. */
async function setBatchSize(sql: Sql): Promise<void> {
  await sql.begin('isolation level read committed', async (tx) => {
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark policies'))`;
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
  });
}

async function setColumnstorePolicy(sql: Sql, days: number): Promise<void> {
  const wanted = `${days} days`;
  const [job] = await sql<{ same: boolean }[]>`
    SELECT (config ->> 'compress_after')::interval = ${wanted}::interval AS same
      FROM timescaledb_information.jobs
     WHERE hypertable_name = 'events' AND proc_name IN ('policy_compression', 'policy_columnstore')`;
  if (job?.same === true || (job === undefined && days === 0)) return;
  await sql`CALL remove_columnstore_policy('events', if_exists => true)`;
  if (days > 0) await sql`CALL add_columnstore_policy('events', after => ${wanted}::interval)`;
}

async function setRetentionPolicy(sql: Sql, relation: string, days: number): Promise<void> {
  const wanted = `${days} days`;
  const [job] = await sql<{ same: boolean }[]>`
    SELECT (config ->> 'drop_after')::interval = ${wanted}::interval AS same
      FROM timescaledb_information.jobs AS job
     WHERE proc_name = 'policy_retention' AND hypertable_name IN (${relation}, (
             SELECT materialization_hypertable_name FROM timescaledb_information.continuous_aggregates
              WHERE view_name = ${relation}))`;
  if (job?.same === true || (job === undefined && days === 0)) return;
  await sql`SELECT remove_retention_policy(${relation}, if_exists => true)`;
  if (days > 0) await sql`SELECT add_retention_policy(${relation}, drop_after => ${wanted}::interval)`;
}

/** How far back a refresh policy looks, and how often: a refresh must never reach behind the retention's boundary. */
async function setRefreshPolicy(
  sql: Sql,
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
  const [job] = await sql<{ same: boolean }[]>`
    SELECT (config ->> 'start_offset')::interval = ${start}::interval AS same
      FROM timescaledb_information.jobs
     WHERE proc_name = 'policy_refresh_continuous_aggregate' AND hypertable_name IN (${aggregate}, (
             SELECT materialization_hypertable_name FROM timescaledb_information.continuous_aggregates
              WHERE view_name = ${aggregate}))`;
  // TimescaleDB wants a window of two buckets at least; a shorter retention leaves no room for a policy.
  const hasRoom = startMs - endMs >= 2 * ms;
  if (job === undefined ? !hasRoom : hasRoom && job.same) return;
  await sql`SELECT remove_continuous_aggregate_policy(${aggregate}, if_exists => true)`;
  if (!hasRoom) return;
  await sql`
    SELECT add_continuous_aggregate_policy(${aggregate}, start_offset => ${start}::interval,
             end_offset => ${`${endMs / MINUTE_MS} minutes`}::interval,
             schedule_interval => ${`${Math.max(ms, HOUR_MS) / MINUTE_MS} minutes`}::interval)`;
}

/**
 * Drops the chunks of rows and minutes that end at or before the boundary, which has moved there some time ago.
 * @param boundary as PostgreSQL writes it
 * @returns the names of the chunks that are gone
 */
export async function dropChunksBefore(sql: Sql, boundary: string): Promise<readonly string[]> {
  const dropped: string[] = [];
  if (boundary === '-infinity') return dropped;
  for (const relation of ['events', 'minute_counts', 'app_minute_counts']) {
    const chunks = await sql<{ name: string }[]>`
      SELECT drop_chunks(${relation}::regclass, older_than => ${boundary}::text::timestamptz)::text AS name`;
    dropped.push(...chunks.map((chunk) => chunk.name));
  }
  return dropped;
}

/** Refreshing every second would cost more than it saves: what is marked meanwhile is counted from its rows. */
const REFRESH_EVERY_MS = 5_000;

/**
 * The upkeep of TimescaleDB.
 * @param sql a pool of one connection, so that the lock that lets one process work at a time is held by what works
 */
export function timescaleUpkeep(
  sql: Sql,
  config: Pick<Config, 'CHUNK_HOURS' | 'COMPRESS_AFTER_DAYS' | 'RETENTION_DAYS'>,
  now: () => number,
): Upkeep {
  let refreshedAt = Number.NEGATIVE_INFINITY;
  const profiler = new DayProfiler(sql, now);
  return {
    prepare: () => applyPolicies(sql, config),
    everySecond: async () => {
      await mergeMarks(sql);
      await removeExpiredKeys(sql, now());
      await profiler.profileSome();
      if (Math.abs(now() - refreshedAt) < REFRESH_EVERY_MS) return;
      await inTurn(sql, async () => {
        await refreshStale(sql, now());
        refreshedAt = now();
      });
    },
    everyTenMinutes: async () => {
      await profiler.look();
      await inTurn(sql, () => removeDeletedApps(sql, timescaleRemoval, now, now() + REMOVE_MS));
      const boundary = await moveBoundary(sql, { days: config.RETENTION_DAYS, now: now() });
      return await dropChunksBefore(sql, boundary);
    },
  };
}

/** Works while no other process refreshes or removes; else not at all. */
async function inTurn(sql: Sql, work: () => Promise<unknown>): Promise<void> {
  const [lock] = await sql<
    { held: boolean }[]
  >`SELECT pg_try_advisory_lock(hashtext('tidemark upkeep')) AS held`;
  if (lock?.held !== true) return;
  try {
    await work();
  } finally {
    await sql`SELECT pg_advisory_unlock(hashtext('tidemark upkeep'))`;
  }
}
