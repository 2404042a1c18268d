/** Maintenance of TimescaleDB: marked buckets are refreshed, days profiled, retention applied. */
import type { Sql, Transaction } from '../connect.ts';
import { DayProfiler } from '../counts/day-profiles.ts';
import { LEVELS, MINUTES } from '../counts/levels.ts';
import { removeDeletedApps } from '../deleted-apps.ts';
import { removeExpiredKeys } from '../expired-keys.ts';
import { type MaintenanceTasks, REMOVE_APPS_MS } from '../maintenance/loop.ts';
import { moveBoundary, readBoundary } from '../retention.ts';
import type { StorageSettings } from '../storage-engine.ts';
import { removal } from './app-removal.ts';
import { aggregatesOf, applyPolicies, RETAINED } from './policies.ts';

/** A bucket is refreshed this long after its end: until then nearly every commit would mark it again. */
const SETTLE_MS = 20_000;

/** Buckets that are at most this many buckets apart are refreshed in one call, as a call by itself costs some 20 ms. */
const JOINED_BUCKETS = 60;
/**
 * Where that leaves more calls than this, as after an import, buckets further apart are joined too. A refresh of minutes
 * computes all of its interval, so several intervals leave out what is between them; above minutes the log of
 * invalidations does that.
 */
const MOST_REFRESHES = { minutes: 30, coarser: 4 } as const;

interface Mark {
  readonly id: string;
  /** Start of the bucket in milliseconds since 1970. */
  readonly bucket: number;
}

/**
 * Every commit marks its minutes; one mark of each is enough. One statement, so that no snapshot finds a stale minute
 * without its mark.
 */
export async function mergeMarks(sql: Sql): Promise<void> {
  await sql`
    WITH merged AS (DELETE FROM stale_buckets WHERE level = 0 RETURNING bucket)
    INSERT INTO stale_buckets (level, bucket) SELECT DISTINCT 0, bucket FROM merged`;
}

/** Marks whose dead rows are vacuumed away: every reader would scan them. */
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
  for (const [number, level] of LEVELS.entries()) {
    const { ms } = level;
    const marks = await sql<Mark[]>`
      SELECT id::text, (extract(epoch FROM bucket) * 1000)::float8 AS bucket
        FROM stale_buckets
       WHERE level = ${number} AND bucket <= ${new Date(now - SETTLE_MS - ms)}
       ORDER BY stale_buckets.bucket`;
    if (marks.length === 0) continue;
    // Before the retention boundary the finer counts are gone: a refresh would delete the coarser ones there.
    const boundary = await readBoundary(sql);
    const readable = marks.filter((mark) => mark.bucket >= boundary);
    const most = level === MINUTES ? MOST_REFRESHES.minutes : MOST_REFRESHES.coarser;
    for (const interval of intervalsOf(readable, ms, most)) {
      for (const aggregate of aggregatesOf(level)) {
        // Rows of schema 9 and before are not in the log of invalidations, as COPY logs none for a table with a trigger that
        // has a transition table. So what is computed from rows is refreshed whatever the log says.
        await refresh(sql, aggregate, interval, { isForced: level === MINUTES, inBatches });
      }
    }
    await liftMarks(sql, number, marks);
    lifted += marks.length;
  }
  if (lifted >= VACUUM_AFTER_MARKS) await sql`VACUUM (TRUNCATE true) stale_buckets`;
}

/**
 * Refreshes whole buckets of an aggregate.
 * @param options.isForced  also what no logged invalidation lies in
 * @param options.inBatches see {@link refreshesInBatches}
 */
export async function refresh(
  sql: Sql,
  aggregate: string,
  { from, until }: RefreshInterval,
  { isForced, inBatches }: { readonly isForced: boolean; readonly inBatches: boolean },
): Promise<void> {
  await sql`
    CALL refresh_continuous_aggregate(${aggregate}, ${from}::timestamptz, ${until}::timestamptz, force => ${isForced}
                                      ${inBatches ? sql`, options => '{"buckets_per_batch": 0}'` : sql``})`;
}

/**
 * Newer releases refresh ten buckets at a time unless told otherwise: 15 s for a hundred days of minutes, in place of
 * 12 ms. Older ones neither do so nor know the option.
 */
export async function refreshesInBatches(sql: Sql): Promise<boolean> {
  const [refresh] = await sql<{ hasOptions: boolean }[]>`
    SELECT max(pronargs) > 4 AS "hasOptions" FROM pg_proc WHERE proname = 'refresh_continuous_aggregate'`;
  return refresh?.hasOptions === true;
}

interface RefreshInterval {
  readonly from: Date;
  /** Not included. */
  readonly until: Date;
}

/** Intervals of whole buckets that hold all marks: one for marks that are near each other. */
function intervalsOf(
  marks: readonly Mark[],
  ms: number,
  most: number,
  joined: number = JOINED_BUCKETS,
): readonly RefreshInterval[] {
  const intervals: { from: number; until: number }[] = [];
  for (const { bucket } of marks) {
    const last = intervals.at(-1);
    if (last !== undefined && bucket - last.until <= joined * ms)
      last.until = Math.max(last.until, bucket + ms);
    else intervals.push({ from: bucket, until: bucket + ms });
  }
  if (intervals.length > most) return intervalsOf(marks, ms, most, joined * 4);
  return intervals.map(({ from, until }) => ({ from: new Date(from), until: new Date(until) }));
}

/**
 * Moves marks one level up. Those of days are removed: what is computed from those days (sql/0005) follows in the same
 * transaction. It waits for a profile that is being made, which otherwise would hold the counts from before the refresh
 * and not be discarded.
 */
async function liftMarks(sql: Sql, level: number, marks: readonly Mark[]): Promise<void> {
  const ids = marks.map((mark) => mark.id);
  const above = LEVELS[level + 1];
  if (above !== undefined) {
    await sql`
      WITH refreshed AS (DELETE FROM stale_buckets WHERE id = ANY(${ids}::bigint[]) RETURNING bucket)
      INSERT INTO stale_buckets (level, bucket)
      SELECT DISTINCT ${level + 1}::smallint, date_bin(${`${above.ms} ms`}::interval, bucket, 'epoch')
        FROM refreshed`;
    return;
  }
  await sql.begin('isolation level read committed', async (tx) => {
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
    await tx`DELETE FROM stale_buckets WHERE id = ANY(${ids}::bigint[])`;
    await renewDays(
      tx,
      marks.map(({ bucket }) => bucket),
    );
  });
}

/**
 * Discards the profiles of days and adds their months up again, in a transaction that no profile is made beside.
 * @param starts milliseconds since 1970
 */
export async function renewDays(tx: Transaction, starts: readonly number[]): Promise<void> {
  const days = starts.map((start) => new Date(start).toISOString());
  const months = [...new Set(days.map((day) => `${day.slice(0, 7)}-01T00:00:00Z`))];
  await tx`DELETE FROM profiled_days WHERE day = ANY(${days}::timestamptz[])`;
  await tx`DELETE FROM month_counts WHERE bucket = ANY(${months}::timestamptz[])`;
  await tx`
    INSERT INTO month_counts (app_id, type_id, bucket, count)
    SELECT app_id, type_id, month, sum(count)
      FROM unnest(${months}::timestamptz[]) AS months (month)
     CROSS JOIN LATERAL (SELECT app_id, type_id, count FROM events_per_day
                          WHERE bucket >= month AND bucket < month + interval '1 month') days
     GROUP BY 1, 2, 3`;
}

/**
 * Brings what is committed into the counts, when no other process does.
 * @param sql a pool of one connection, so that the lock is held by the session that works
 * @param now milliseconds since 1970
 */
export async function settleCounts(sql: Sql, now: number): Promise<void> {
  await sql`SELECT pg_advisory_lock(hashtext('tidemark upkeep'))`;
  try {
    await mergeMarks(sql);
    await refreshStale(sql, now);
  } finally {
    await sql`SELECT pg_advisory_unlock(hashtext('tidemark upkeep'))`;
  }
}

/**
 * Drops the chunks of rows and minutes that end at or before the boundary, which has moved there some time ago.
 * @param boundary as PostgreSQL writes it
 * @returns the names of the chunks that are gone
 */
export async function dropChunksBefore(sql: Sql, boundary: string): Promise<readonly string[]> {
  const dropped: string[] = [];
  if (boundary === '-infinity') return dropped;
  for (const relation of RETAINED) {
    const chunks = await sql<{ name: string }[]>`
      SELECT drop_chunks(${relation}::regclass, older_than => ${boundary}::text::timestamptz)::text AS name`;
    dropped.push(...chunks.map((chunk) => chunk.name));
  }
  return dropped;
}

/** Refreshing every second would cost more than it saves: what is marked meanwhile is counted from rows. */
const REFRESH_EVERY_MS = 5_000;

/**
 * The maintenance tasks of TimescaleDB.
 * @param sql a pool of one connection, so that locks are held by the session that works
 */
export function timescaleMaintenance(
  sql: Sql,
  settings: StorageSettings,
  now: () => number,
): MaintenanceTasks {
  let refreshedAt = Number.NEGATIVE_INFINITY;
  const profiler = new DayProfiler(sql, now);
  return {
    prepare: () => applyPolicies(sql, settings),
    everySecond: async () => {
      await mergeMarks(sql);
      await removeExpiredKeys(sql, now());
      await profiler.profileSome();
      if (Math.abs(now() - refreshedAt) < REFRESH_EVERY_MS) return;
      await ifAlone(sql, async () => {
        await refreshStale(sql, now());
        refreshedAt = now();
      });
    },
    everyTenMinutes: async () => {
      await profiler.look();
      await ifAlone(sql, () => removeDeletedApps(sql, removal, now, now() + REMOVE_APPS_MS));
      const boundary = await moveBoundary(sql, { days: settings.RETENTION_DAYS, now: now() });
      return await dropChunksBefore(sql, boundary);
    },
  };
}

/** Works if no other process refreshes or removes now. */
async function ifAlone(sql: Sql, work: () => Promise<unknown>): Promise<void> {
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
