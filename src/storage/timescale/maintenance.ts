/** What TimescaleDB needs done while the service runs: marked buckets refreshed, days profiled, retention applied. */
import type { Config } from '../../config.ts';
import { timescaleRemoval } from '../app-removal.ts';
import type { Sql } from '../connect.ts';
import { DayProfiler } from '../counts/day-profiles.ts';
import { removeDeletedApps } from '../deleted-apps.ts';
import { removeExpiredKeys } from '../expired-keys.ts';
import type { Upkeep } from '../maintenance/loop.ts';
import { moveBoundary, REMOVE_MS } from '../postgres/maintenance.ts';
import { applyPolicies, LEVELS } from './policies.ts';

const MINUTE_MS = 60_000;

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
export function timescaleMaintenance(
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
