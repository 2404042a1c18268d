/** Maintenance of TimescaleDB: marked buckets are refreshed, days profiled, retention applied. */

import { compareDay } from '../../counts/differences.ts';
import { startOfMonth } from '../../counts/intervals.ts';
import { DAY_MS, floorTo, LEVELS, type Level, MINUTES } from '../../counts/levels.ts';
import type { Sql, Transaction } from '../../database/connect.ts';
import { hasConsumers, NO_PLACE, noteTicks } from '../../feed/ticks.ts';
import { EVERY_FIELD, noteUncounted } from '../../fields/uncounted-minutes.ts';
import { FieldUpkeep } from '../../fields/upkeep.ts';
import { DeadRows } from '../../maintenance/dead-rows.ts';
import {
  discardProfiles,
  type ErasedMinute,
  type ErasureSlice,
  eraseIn,
  eventsIn,
} from '../../maintenance/erasing.ts';
import { expiredKeysStep } from '../../maintenance/expired-keys.ts';
import { maintenanceTasks } from '../../maintenance/steps.ts';
import { readSnapshot } from '../../read/snapshot.ts';
import { hasNoOlderSnapshot, moveBoundary, readBoundary } from '../../retention.ts';
import { WordUpkeep } from '../../words/upkeep.ts';
import { withCountsLock } from '../postgres/app-removal.ts';
import {
  COMMAND_TIMEOUT_MS,
  changeCounts,
  everyPlace,
  removedUntil,
  underCountsLock,
} from '../postgres/maintenance.ts';
import type { StorageEngine } from '../storage-engine.ts';
import {
  dropEmptyChunks,
  openColumnstore,
  removal,
  removeExpiredWith,
  takeFromOutlived,
} from './app-removal.ts';
import { Compression } from './compression.ts';
import { aggregatesOf, applyPolicies, RETAINED, removeColumnstorePolicies } from './policies.ts';
import {
  isBeingRefreshed,
  REFRESH_TIMEOUT_MS,
  type RefreshInterval,
  refresh,
  refreshesInBatches,
  refreshInTurn,
} from './refresh.ts';
import { writes } from './writes.ts';

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

/** Marks of a level that are in memory at once, here and where they are sorted. To find them, all that are pending are looked at. */
export const MARKS_AT_ONCE = 30_000;
/** How many of these are settled in one step. A round may have time for no more, so that it asks for no more to begin with. */
export const MARKS_OF_STEP = 5_000;
/** How long a round takes further steps. What is marked still is counted from rows. */
const REFRESH_MS = 1_000;

interface Mark {
  readonly id: string;
  /** Start of the bucket in milliseconds since 1970. */
  readonly bucket: number;
}

/** How many more marks a merge must remove than it rewrites. */
const WORTH_MERGING = 20;

/**
 * Every commit marks its minutes; one mark of each is enough. One statement, so that no snapshot finds a stale minute
 * without its mark, and what the marks say about fields is recorded in it too. It rewrites all marks and records its snapshot
 * (sql/0002_events.timescale.sql), so that readers skip what is gone: when that is more than what it writes.
 * It writes them in the order of the index, so that a scan of it reads each page of the table once.
 * @param removed marks that were removed since the last merge: their dead rows are still looked at
 * @returns how many it has taken away; null where it was not worth it
 */
export async function mergeMarks(sql: Sql, removed = 0): Promise<number | null> {
  return await sql.begin('isolation level read committed', async (tx) => {
    const [, [result]] = await Promise.all([onlyByIndex(tx), tx.unsafe<Merged[]>(MERGE, [removed])]);
    return result?.isWorth === true ? result.marks : null;
  });
}

interface Merged {
  readonly isWorth: boolean;
  readonly marks: number;
}

/** The planner underestimates dead rows here: the index of pending marks is forced. */
async function onlyByIndex(tx: Transaction): Promise<void> {
  await tx`SET LOCAL enable_seqscan = off`;
}

/** Two merges at once would only wait for the same rows, in different orders. */
const MERGE = `
    WITH pending AS (
      SELECT count(*) AS marks, count(DISTINCT (level, bucket)) AS buckets
        FROM stale_buckets WHERE written >= (SELECT pending_from FROM last_fold)
    ),
    found AS MATERIALIZED (
      SELECT marks, marks - buckets + $1::integer >= buckets + ${WORTH_MERGING}
                    AND pg_try_advisory_xact_lock(hashtext('tidemark marks')) AS is_worth
        FROM pending
    ),
    merged AS (
      DELETE FROM stale_buckets
       WHERE written >= (SELECT pending_from FROM last_fold) AND (SELECT is_worth FROM found)
      RETURNING level, bucket, fields
    ),
    minutes AS (SELECT bucket, fields FROM merged WHERE level = 0),
    ${noteUncounted('minutes', { apps: false })},
    noted AS (
      UPDATE folds SET (pending_from, running) = (SELECT pending_from, running FROM next_fold)
       WHERE (SELECT is_worth FROM found)
    ),
    kept AS (
      INSERT INTO stale_buckets (level, bucket, fields) SELECT DISTINCT level, bucket, ${EVERY_FIELD} FROM merged
       ORDER BY bucket, level
    )
    SELECT is_worth AS "isWorth", marks::integer FROM found`;

/** Marks whose dead rows are vacuumed away, as soon as no snapshot in use sees them. */
const VACUUM_AFTER_MARKS = 2_000;

/**
 * Refreshes the marked buckets that have ended, level by level and {@link MARKS_OF_STEP} in a step, and moves their marks one level up.
 *
 * A mark is only taken away when a refresh that began after the mark was seen has ended: rows committed by then are in
 * it, and a row committed later has brought a mark of its own.
 * @param timeoutMs how long each refresh waits for another one of the same buckets
 * @param onLifted  called with how many marks are gone, step by step
 * @param isOver    whether to leave the rest of a level to a later call
 * @returns whether nothing was left
 * @throws the error that {@link isBeingRefreshed} recognizes if that refresh has not ended by then: the marks left stay
 */
export async function refreshStale(
  sql: Sql,
  now: number,
  timeoutMs = REFRESH_TIMEOUT_MS,
  onLifted: (marks: number) => void = () => undefined,
  isOver: () => boolean = () => false,
): Promise<boolean> {
  const inBatches = await refreshesInBatches(sql);
  let isWhole = true;
  for (const [number, level] of LEVELS.entries()) {
    let marks: readonly Mark[] = [];
    let hasMore = true;
    let most = MARKS_OF_STEP;
    do {
      if (marks.length === 0) {
        marks = await endedMarks(sql, number, now - SETTLE_MS - level.ms, most);
        hasMore = marks.length === most;
        most = MARKS_AT_ONCE;
      }
      const some = marks.slice(0, MARKS_OF_STEP);
      await refreshLevel(sql, level, some, { timeoutMs, inBatches });
      if (some.length > 0) await propagateInvalidations(sql, number, some);
      onLifted(some.length);
      marks = marks.slice(MARKS_OF_STEP);
    } while ((hasMore || marks.length > 0) && !isOver());
    isWhole &&= !hasMore && marks.length === 0;
  }
  return isWhole;
}

/** Refreshes the buckets of some marks of a level. */
async function refreshLevel(
  sql: Sql,
  level: Level,
  marks: readonly Mark[],
  { timeoutMs, inBatches }: { readonly timeoutMs: number; readonly inBatches: boolean },
): Promise<void> {
  // Before the retention boundary the finer counts are gone: a refresh would delete the coarser ones there.
  const boundary = await readBoundary(sql);
  const readable = marks.filter((mark) => mark.bucket >= boundary);
  const most = level === MINUTES ? MOST_REFRESHES.minutes : MOST_REFRESHES.coarser;
  // What is computed from rows is refreshed whatever the log of invalidations says: an exact count rests on marks alone.
  const options = { isForced: level === MINUTES, inBatches };
  for (const interval of intervalsOf(readable, level.ms, most))
    for (const aggregate of aggregatesOf(level))
      await refreshInTurn(sql, () => refresh(sql, aggregate, interval, options), timeoutMs);
}

/** Minutes that ended longer ago are not counted when a tick is noted: their rows may be in the columnstore. */
const COUNTED = '6 hours';

/**
 * CTEs of the minutes of apps with consumers that marks, or lifted ones, tell of new rows for. A mark does not tell its app, so that the
 * rows of its minute are looked at. New is what no tick has told of: those that a consumer began at tell of nothing.
 */
const SINCE_TICK = `
    last AS MATERIALIZED (
      SELECT DISTINCT ON (app_id) app_id, snapshot::pg_snapshot AS seen FROM feed_ticks
       WHERE app_id IN (SELECT app_id FROM consumers) AND place <> ${NO_PLACE}
       ORDER BY app_id, CASE WHEN minutes <> '{}' THEN tick END DESC NULLS LAST, tick
    ),
    marked AS MATERIALIZED (
      SELECT DISTINCT last.app_id, marks.bucket
        FROM last JOIN stale_buckets AS marks ON NOT pg_visible_in_snapshot(marks.written, last.seen)
       WHERE marks.level = 0 AND marks.written >= (SELECT pending_from FROM last_fold)
       UNION
      SELECT last.app_id, changed.bucket FROM last JOIN changed_minutes AS changed ON changed.app_id IN (0, last.app_id)
    ),
    counted AS MATERIALIZED (
      SELECT marked.app_id, marked.bucket, rows.count
        FROM marked JOIN last USING (app_id) CROSS JOIN LATERAL (
             SELECT count(*) AS count FROM events
              WHERE events.app_id = marked.app_id AND created_at >= now() - interval '${COUNTED}'
                AND created_at >= marked.bucket AND created_at < marked.bucket + interval '1 minute'
                AND (age(xmin) <= age((pg_snapshot_xmax(seen)::text::numeric % 4294967296)::text::xid)
                     OR xmin IN (SELECT (running::text::numeric % 4294967296)::text::xid FROM pg_snapshot_xip(seen) AS running))) AS rows
       WHERE marked.bucket >= now() - interval '${COUNTED}' AND rows.count > 0
       UNION ALL
      SELECT app_id, bucket, 0 FROM marked WHERE bucket < now() - interval '${COUNTED}'
    )`;

/** The minutes that the next tick tells of: a SELECT. */
export const UNTICKED = `WITH ${SINCE_TICK} SELECT app_id, bucket FROM counted`;

/** Notes a tick for each app that has consumers and new rows. */
const TICK = `
    WITH ${SINCE_TICK},
    ${noteTicks('SELECT app_id, bucket, count FROM counted', { hasChanged: true })}
    SELECT count(*) FROM counted`;

async function tick(sql: Sql): Promise<void> {
  if (!(await hasConsumers(sql))) return;
  await underCountsLock(sql, 0, (tx) => tx.unsafe(TICK));
}

/** Marks of buckets of a level that begin at a time, in milliseconds since 1970, or before it: the first ones in order of time. */
async function endedMarks(sql: Sql, level: number, latest: number, most: number): Promise<readonly Mark[]> {
  return await sql.begin('isolation level read committed', async (tx) => {
    const [, marks] = await Promise.all([
      onlyByIndex(tx),
      tx<Mark[]>`
        SELECT id::text, (extract(epoch FROM bucket) * 1000)::float8 AS bucket
          FROM stale_buckets
         WHERE written >= (SELECT pending_from FROM last_fold) AND level = ${level} AND bucket <= ${new Date(latest)}
         ORDER BY stale_buckets.bucket LIMIT ${most}`,
    ]);
    return [...marks];
  });
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
 * Moves marks one level up. Those of days are removed: what is computed from those days (sql/0002_events.timescale.sql) follows in the same
 * transaction, month by month, as folds and imports of all apps wait for it. It waits for a profile that is being made, which otherwise would hold the counts from before the refresh
 * and not be discarded.
 */
async function propagateInvalidations(sql: Sql, level: number, marks: readonly Mark[]): Promise<void> {
  const above = LEVELS[level + 1];
  if (above !== undefined) {
    const ids = marks.map((mark) => mark.id);
    await sql`
      WITH refreshed AS (DELETE FROM stale_buckets WHERE id = ANY(${ids}::bigint[]) RETURNING bucket, fields, level),
           minutes AS (SELECT bucket, fields FROM refreshed WHERE level = 0),
           ${sql.unsafe(noteUncounted('minutes', { apps: false }))},
           -- A mark that came after the last tick: the next one must know of its minute.
           changed AS (INSERT INTO changed_minutes (app_id, bucket)
                       SELECT DISTINCT 0, bucket FROM minutes WHERE EXISTS (SELECT FROM consumers))
      INSERT INTO stale_buckets (level, bucket)
      SELECT DISTINCT ${level + 1}::smallint, date_bin(${`${above.ms} ms`}::interval, bucket, 'epoch')
        FROM refreshed`;
    return;
  }
  for (const month of new Set(marks.map(({ bucket }) => startOfMonth(bucket)))) {
    const days = marks.filter(({ bucket }) => startOfMonth(bucket) === month);
    await withCountsLock(sql)(async (tx) => {
      await tx`DELETE FROM stale_buckets WHERE id = ANY(${days.map(({ id }) => id)}::bigint[])`;
      await renewDays(
        tx,
        days.map(({ bucket }) => bucket),
      );
    });
  }
}

/** Discards the profiles of days and adds their months up again, in a transaction that no profile is made beside. */
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
 * Brings what is committed into the counts, when no other process does. What another program refreshes for longer than
 * {@link REFRESH_TIMEOUT_MS} is left to maintenance.
 * @param sql a pool of one connection, so that the lock is held by the session that works
 */
export async function settleCounts(sql: Sql, now: number): Promise<void> {
  await besideNoRefresh(sql, () => settleMarks(sql, now));
}

/** Settles all marks in a session that keeps others from refreshing. */
export async function settleMarks(sql: Sql, now: number): Promise<void> {
  const marks = new Marks(sql, sql);
  await marks.merge();
  await unlessBeingRefreshed(() => marks.refresh(now, REFRESH_TIMEOUT_MS));
  await marks.merge();
}

/**
 * Refreshes every aggregate of a day that has counts which differ from its rows, whatever the log of invalidations says. What is
 * committed meanwhile brings a mark of its own; marks that exist stay, for the next refresh.
 * @param sql a pool of one connection, so that the lock is held by the session that works
 * @param day its midnight (UTC), milliseconds since 1970; skipped if it is before the retention boundary
 * @returns how many counts differed
 */
export async function recountDay(sql: Sql, day: number): Promise<number> {
  return await besideNoRefresh(sql, async () => {
    // A refresh of what has lost its rows would remove the counts that outlive them.
    if (day < (await readBoundary(sql))) return 0;
    const { differing } = await readSnapshot(sql, (tx) => compareDay(tx, day, null));
    if (differing === 0) return 0;
    const inBatches = await refreshesInBatches(sql);
    const interval = { from: new Date(day), until: new Date(day + DAY_MS) };
    for (const level of LEVELS)
      for (const aggregate of aggregatesOf(level))
        await refreshInTurn(
          sql,
          () => refresh(sql, aggregate, interval, { isForced: true, inBatches }),
          REFRESH_TIMEOUT_MS,
        );
    await withCountsLock(sql)(async (tx) => {
      await renewDays(tx, [day]);
      await tx`DELETE FROM daily_prefix_sums WHERE day = ${new Date(day)}`;
    });
    return differing;
  });
}

/**
 * Erases a slice: the minutes are marked, and counted from their rows until they are refreshed.
 * @returns how many events there were
 * @throws OperatorError where it has waited in vain for the lock of counts
 */
export async function eraseSlice(sql: Sql, slice: ErasureSlice): Promise<number> {
  return await changeCounts(sql, COMMAND_TIMEOUT_MS, async (tx) => {
    if (slice.excess !== undefined) return await takeExcess(tx, slice.appId, slice.excess);
    await openColumnstore(tx);
    return await eraseIn(tx, writes, slice, null);
  });
}

/** Counts without rows are beside the aggregates. */
async function takeExcess(tx: Transaction, appId: number, excess: readonly ErasedMinute[]): Promise<number> {
  await tx`
    CREATE TEMPORARY TABLE back ON COMMIT DROP AS
    SELECT type_id, minute AS bucket, count
      FROM unnest(${excess.map(({ typeId }) => typeId)}::integer[], ${excess.map(({ minute }) => new Date(minute).toISOString())}::text[]::timestamptz[],
                  ${excess.map(({ count }) => count)}::bigint[]) AS taken (type_id, minute, count)`;
  await takeFromOutlived(tx, appId, 'back');
  await discardProfiles(tx, appId, excess);
  await renewDays(tx, [...new Set(excess.map(({ minute }) => floorTo(minute, DAY_MS)))]);
  return eventsIn(excess);
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

/** Leaves a refresh to a later time where another program refreshes the same buckets. @returns whether nothing was left */
async function unlessBeingRefreshed(refreshing: () => Promise<boolean>): Promise<boolean> {
  try {
    return await refreshing();
  } catch (error) {
    if (!isBeingRefreshed(error)) throw error;
    return true;
  }
}

/** The marks, of which many come and go: their dead rows are kept away from readers. */
class Marks {
  readonly #sql: Sql;
  readonly #deadRows: DeadRows;
  /** Since the last merge. */
  #removed = 0;

  /** @param vacuums a pool on which a VACUUM keeps nothing waiting */
  constructor(sql: Sql, vacuums: Sql) {
    this.#sql = sql;
    this.#deadRows = new DeadRows(sql, vacuums, ['stale_buckets'], VACUUM_AFTER_MARKS);
  }

  async merge(): Promise<void> {
    const merged = await mergeMarks(this.#sql, this.#removed);
    const removed = this.#removed;
    if (merged !== null) this.#removed = 0;
    this.#deadRows.deleted(merged === null ? 0 : merged + removed);
    await this.#deadRows.vacuumIfDue();
  }

  /** As {@link refreshStale}. */
  async refresh(now: number, timeoutMs: number, isOver?: () => boolean): Promise<boolean> {
    const onLifted = (marks: number): void => {
      this.#removed += marks;
    };
    return await refreshStale(this.#sql, now, timeoutMs, onLifted, isOver);
  }
}

/** Refreshing every second would cost more than it saves: what is marked meanwhile is counted from rows. */
const REFRESH_EVERY_MS = 5_000;

/** The maintenance tasks of TimescaleDB. */
export const timescaleMaintenance: StorageEngine['maintenance'] = (
  { sql, slow },
  settings,
  now,
  judged = now,
) => {
  let refreshedAt = Number.NEGATIVE_INFINITY;
  const marks = new Marks(sql, slow);
  const compression = new Compression(slow, settings, now);
  // Without waiting: other tasks come after it, and it is tried again in a moment.
  const refreshMarked = (until: number): Promise<boolean> =>
    unlessBeingRefreshed(() => marks.refresh(now(), 0, () => now() >= until));
  const moveDays = (): Promise<string> => moveBoundary(sql, { days: settings.RETENTION_DAYS, now: judged() });
  const options = { sql, settings, now, judged };
  return maintenanceTasks(options, {
    prepare: async () => {
      // Before there is a policy, whose job drops chunks at once, and before anything is read after a downtime in which
      // such a job may have done so.
      await moveDays();
      await applyPolicies(sql, settings);
    },
    fields: new FieldUpkeep(sql, now, slow),
    everyPlace,
    removal,
    removeExpired: removeExpiredWith(() => refreshMarked(Number.POSITIVE_INFINITY)),
    // A refresh in another process would bring counts back, and a compression of one chunk and a removal would wait for each other.
    alone: async (work) => {
      if (!compression.isRunning) await ifAlone(sql, work);
    },
    dropOld: async () => {
      const boundary = await moveDays();
      return (await hasNoOlderSnapshot(sql)) ? await dropChunksBefore(sql, boundary) : [];
    },
    dropEmpty: async () => {
      const boundary = await removedUntil(sql);
      if (boundary === null || !(await hasNoOlderSnapshot(sql, 'app_boundaries'))) return [];
      return await dropEmptyChunks(sql, boundary);
    },
    first: [
      { name: 'marks', every: 'second', run: () => marks.merge() },
      { name: 'ticks', every: 'second', run: () => tick(sql) },
      expiredKeysStep(sql, judged),
      {
        name: 'refresh',
        every: 'second',
        run: async () => {
          if (Math.abs(now() - refreshedAt) < REFRESH_EVERY_MS) return;
          await ifAlone(sql, async () => {
            if (await refreshMarked(now() + REFRESH_MS)) refreshedAt = now();
          });
        },
      },
      { name: 'policies', every: 'ten minutes', run: () => removeColumnstorePolicies(sql) },
    ],
    last: [
      { name: 'compression', every: 'second', run: async () => compression.throwFailure() },
      { name: 'compression', every: 'ten minutes', run: async () => compression.startIfDue() },
      ...new WordUpkeep(sql, now, slow).steps,
    ],
  });
};

/** Works if no other process refreshes or removes now. */
async function ifAlone(sql: Sql, work: () => Promise<unknown>): Promise<void> {
  const [lock] = await sql<
    { held: boolean }[]
  >`SELECT pg_try_advisory_lock(hashtext('tidemark upkeep')) AS held`;
  if (lock?.held === true) await thenUnlock(sql, work);
}

/** Works when no other process refreshes or removes: an older snapshot of a refresh would bring counts back, or lose them. */
export async function besideNoRefresh<T>(sql: Sql, work: () => Promise<T>): Promise<T> {
  await sql`SELECT pg_advisory_lock(hashtext('tidemark upkeep'))`;
  return await thenUnlock(sql, work);
}

async function thenUnlock<T>(sql: Sql, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } finally {
    await sql`SELECT pg_advisory_unlock(hashtext('tidemark upkeep'))`;
  }
}
