/**
 * What PostgreSQL needs done from time to time: pending counts folded, partitions made ahead, retention applied.
 * Everything here may run in several processes at once and be cut off at any point.
 */
import { postgresRemoval } from '../app-removal.ts';
import { errorCode, type Sql, type Transaction } from '../connect.ts';
import { DayProfiler } from '../counts/day-profiles.ts';
import { removeDeletedApps } from '../deleted-apps.ts';
import { removeExpiredKeys } from '../expired-keys.ts';
import type { Upkeep } from '../maintenance/loop.ts';

const DAY_MS = 86_400_000;

/**
 * Longest wait for a lock that keeps others waiting meanwhile: dropping a partition asks for all of `events`, and from
 * then on every reader and writer queues behind it.
 */
const LOCK_TIMEOUT_MS = 200;
const LOCK_NOT_AVAILABLE = '55P03';

/**
 * Moves all pending deltas into the counts per minute, quarter-hour, hour, day and month, for each type and for all
 * (type 0), and strikes off the profiles of the days that they belong to.
 *
 * One statement, so that every snapshot sees a delta either pending or folded. One fold at a time: another would only
 * wait for the same rows, so a process that does not get the lock folds nothing. Keys are written in their order.
 * @returns the number of deltas folded
 */
export async function foldCounts(sql: Sql): Promise<number> {
  const [result] = await sql<{ folded: number }[]>`
    WITH folded AS (
      DELETE FROM count_deltas
       WHERE (SELECT pg_try_advisory_xact_lock(hashtext('tidemark counts')))
      RETURNING app_id, type_id, bucket, count
    ), minutes AS (
      SELECT app_id, CASE WHEN grouping(type_id) = 1 THEN 0 ELSE type_id END AS type_id, bucket,
             sum(count)::bigint AS count
        FROM folded
       GROUP BY GROUPING SETS ((app_id, type_id, bucket), (app_id, bucket))
    ), quarter_hours AS (
      SELECT app_id, type_id, date_bin('15 minutes', bucket, 'epoch') AS bucket, sum(count)::bigint AS count
        FROM minutes GROUP BY 1, 2, 3
    ), hours AS (
      SELECT app_id, type_id, date_bin('1 hour', bucket, 'epoch') AS bucket, sum(count)::bigint AS count
        FROM quarter_hours GROUP BY 1, 2, 3
    ), days AS (
      SELECT app_id, type_id, date_bin('1 day', bucket, 'epoch') AS bucket, sum(count)::bigint AS count
        FROM hours GROUP BY 1, 2, 3
    ), into_minutes AS (
      INSERT INTO minute_counts AS known (app_id, type_id, bucket, count)
      SELECT app_id, type_id, bucket, count FROM minutes ORDER BY 1, 2, 3
      ON CONFLICT (app_id, type_id, bucket) DO UPDATE SET count = known.count + excluded.count
    ), into_quarter_hours AS (
      INSERT INTO quarter_hour_counts AS known (app_id, type_id, bucket, count)
      SELECT app_id, type_id, bucket, count FROM quarter_hours ORDER BY 1, 2, 3
      ON CONFLICT (app_id, type_id, bucket) DO UPDATE SET count = known.count + excluded.count
    ), into_hours AS (
      INSERT INTO hour_counts AS known (app_id, type_id, bucket, count)
      SELECT app_id, type_id, bucket, count FROM hours ORDER BY 1, 2, 3
      ON CONFLICT (app_id, type_id, bucket) DO UPDATE SET count = known.count + excluded.count
    ), into_days AS (
      INSERT INTO day_counts AS known (app_id, type_id, bucket, count)
      SELECT app_id, type_id, bucket, count FROM days ORDER BY 1, 2, 3
      ON CONFLICT (app_id, type_id, bucket) DO UPDATE SET count = known.count + excluded.count
    ), into_months AS (
      INSERT INTO month_counts AS known (app_id, type_id, bucket, count)
      SELECT app_id, type_id, date_trunc('month', bucket, 'UTC'), sum(count)::bigint
        FROM days GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
      ON CONFLICT (app_id, type_id, bucket) DO UPDATE SET count = known.count + excluded.count
    ), struck_off AS (
      DELETE FROM profiled_days USING days
       WHERE days.type_id = 0 AND profiled_days.app_id = days.app_id AND profiled_days.day = days.bucket
    )
    SELECT count(*)::float8 AS folded FROM folded`;
  return result?.folded ?? 0;
}

/**
 * Makes the partitions of every UTC day that the time from `from` to `to` touches (inclusive, in milliseconds since
 * 1970), a day per transaction. Readers and writers go on meanwhile.
 */
export async function ensurePartitions(sql: Sql, from: number, to: number): Promise<void> {
  const missing = await sql<{ day: string }[]>`
    SELECT day::date::text AS day
      FROM generate_series(${utcDay(from)}::date, ${utcDay(to)}::date, interval '1 day') AS day
     WHERE to_regclass('events_' || to_char(day, 'YYYYMMDD')) IS NULL
     ORDER BY day`;
  for (const { day } of missing) await sql`SELECT create_events_partition(${day}::date)`;
}

export interface RetentionResult {
  /** Names of the partitions that are gone since this call. */
  readonly dropped: readonly string[];
  /** Names of those that may still be read, or whose lock was not free; the next call tries them again. */
  readonly postponed: readonly string[];
}

/**
 * Makes events older than `days` days unreadable, whole UTC days at a time, and removes what an earlier call had made
 * unreadable: by then nobody reads it in an older snapshot. Counts by the quarter-hour and coarser stay.
 * @param options.days 0 keeps what is readable now; the boundary never moves back
 * @param options.now  milliseconds since 1970
 */
export async function applyRetention(
  sql: Sql,
  options: { days: number; now: number },
): Promise<RetentionResult> {
  const boundary = await moveBoundary(sql, options);
  await sql.begin(async (tx) => {
    // Not while a fold adds to the same minutes: each could wait for the other.
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
    await tx`DELETE FROM minute_counts WHERE bucket < ${boundary}::text::timestamptz`;
  });
  const dropped: string[] = [];
  const postponed: string[] = [];
  for (const partition of await partitionsBefore(sql, boundary)) {
    const free = (await isReadByNobody(sql)) && (await dropPartition(sql, partition));
    (free ? dropped : postponed).push(partition);
  }
  return { dropped, postponed };
}

/**
 * Moves the boundary, behind which nothing is readable, forward where it is due.
 * @returns the boundary as it was before, as PostgreSQL writes it
 */
export async function moveBoundary(sql: Sql, { days, now }: { days: number; now: number }): Promise<string> {
  const due = utcDay(days === 0 ? 0 : now - days * DAY_MS);
  return await sql.begin(async (tx) => {
    const [before] = await tx<
      { boundary: string }[]
    >`SELECT readable_from::text AS boundary FROM retention FOR UPDATE`;
    if (before === undefined) throw new Error('The table retention has lost its row.');
    if (days > 0) {
      await tx`
        UPDATE retention SET readable_from = ${due}::date::timestamp AT TIME ZONE 'UTC'
         WHERE readable_from < ${due}::date::timestamp AT TIME ZONE 'UTC'`;
    }
    return before.boundary;
  });
}

/** Partitions of `events` that end at or before the boundary, oldest first. Their names say their day. */
async function partitionsBefore(sql: Sql, boundary: string): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    SELECT child.relname AS name
      FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
     WHERE inhparent = 'events'::regclass AND child.relname ~ '^events_[0-9]{8}$'
       AND (to_date(right(child.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC'
           <= ${boundary}::text::timestamptz
     ORDER BY child.relname`;
  return rows.map((row) => row.name);
}

/**
 * Whether every snapshot in use is younger than the boundary. Another process may have moved it a moment ago, and a
 * reader that has counted a partition's rows before must still find them.
 */
async function isReadByNobody(sql: Sql): Promise<boolean> {
  const [older] = await sql`
    SELECT FROM pg_stat_activity, retention
     WHERE datname = current_database() AND age(backend_xmin) >= age(retention.xmin)
       AND pid <> pg_backend_pid()
     LIMIT 1`;
  return older === undefined;
}

/** @returns false where the lock was not free in time */
async function dropPartition(sql: Sql, partition: string): Promise<boolean> {
  try {
    await sql.begin(async (tx: Transaction) => {
      await tx.unsafe(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
      await tx`DROP TABLE IF EXISTS ${tx(partition)}`;
    });
    return true;
  } catch (error) {
    if (errorCode(error) === LOCK_NOT_AVAILABLE) return false;
    throw error;
  }
}

function utcDay(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
}

/** Partitions are made for yesterday, for a clock that was ahead, and a week ahead, for a service that is down then. */
const DAYS_BEHIND = 1;
const DAYS_AHEAD = 7;

/** Of each ten minutes, how much may go into removing deleted apps. */
export const REMOVE_MS = 5_000;
/** Folded deltas after which their dead rows are vacuumed away. */
const VACUUM_AFTER_DELTAS = 2_000;

/**
 * The upkeep of PostgreSQL alone. Pending deltas cost every read a little: a second's worth at full load is some 25,000
 * rows, 2 ms of a read.
 * @param sql a pool of its own: a fold must not wait for reads
 */
export function postgresMaintenance(sql: Sql, options: { retentionDays: number; now: () => number }): Upkeep {
  const { retentionDays, now } = options;
  let foldedSinceVacuum = 0;
  const profiler = new DayProfiler(sql, now);
  const prepare = (): Promise<void> =>
    ensurePartitions(sql, now() - DAYS_BEHIND * DAY_MS, now() + DAYS_AHEAD * DAY_MS);
  return {
    prepare,
    everySecond: async () => {
      foldedSinceVacuum += await foldCounts(sql);
      await removeExpiredKeys(sql, now());
      await profiler.profileSome();
      if (foldedSinceVacuum < VACUUM_AFTER_DELTAS) return;
      foldedSinceVacuum = 0;
      await sql`VACUUM count_deltas`;
    },
    everyTenMinutes: async () => {
      await prepare();
      await profiler.look();
      await removeDeletedApps(sql, postgresRemoval, now, now() + REMOVE_MS);
      return (await applyRetention(sql, { days: retentionDays, now: now() })).dropped;
    },
  };
}
