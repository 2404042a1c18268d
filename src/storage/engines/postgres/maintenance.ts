/**
 * Maintenance of PostgreSQL: pending deltas are folded into the counts, partitions made ahead, retention applied.
 * Everything here may run in several processes at once and be interrupted at any point.
 */
import { utcDay } from '../../../base/time-units.ts';
import { OperatorError } from '../../../errors.ts';
import { correctDay } from '../../counts/differences.ts';
import type { Interval } from '../../counts/intervals.ts';
import { countTable, DAY_MS, finerThan, LEVELS, type Level, MINUTES } from '../../counts/levels.ts';
import { errorCode, SQLSTATE, type Sql, type Transaction, unlessLocked } from '../../database/connect.ts';
import { hasConsumers, noteTicks } from '../../feed/ticks.ts';
import { EVERY_FIELD, noteUncounted } from '../../fields/uncounted-minutes.ts';
import { FieldUpkeep } from '../../fields/upkeep.ts';
import { DeadRows } from '../../maintenance/dead-rows.ts';
import { type ErasureSlice, eraseIn } from '../../maintenance/erasing.ts';
import { expiredKeysStep } from '../../maintenance/expired-keys.ts';
import { type AddedUp, type DeltaSource, Folding } from '../../maintenance/folding.ts';
import { bucketSlices } from '../../maintenance/slices.ts';
import {
  type EngineSteps,
  type EveryPlace,
  type MaintenanceOptions,
  maintenanceTasks,
  type Place,
  type Step,
} from '../../maintenance/steps.ts';
import { hasNoOlderSnapshot, moveBoundary } from '../../retention.ts';
import { WordUpkeep } from '../../words/upkeep.ts';
import type { StorageEngine } from '../storage-engine.ts';
import { removal, removeExpired } from './app-removal.ts';
import { Rewriting } from './rewriting.ts';
import { writes } from './writes.ts';

/**
 * Longest wait for a lock that makes others wait meanwhile: dropping a partition locks all of `events`, and every reader
 * and writer queues after the request.
 */
const LOCK_TIMEOUT_MS = 200;

/** Adds counts to a table of counts, in the order of its keys. */
const addTo = (table: string, counts: string): string => `
      INSERT INTO ${table} AS known (app_id, type_id, bucket, count)
      ${counts} ORDER BY 1, 2, 3
      ON CONFLICT (app_id, type_id, bucket) DO UPDATE SET count = known.count + excluded.count`;

/** The new counts of a level, from those of the finer one. */
const newCounts = (level: Level): string =>
  finerThan(level) === null
    ? `SELECT app_id, CASE WHEN grouping(type_id) = 1 THEN 0 ELSE type_id END AS type_id, bucket,
              sum(count)::bigint AS count
         FROM folded
        GROUP BY GROUPING SETS ((app_id, type_id, bucket), (app_id, bucket))`
    : `SELECT app_id, type_id, date_bin('${level.ms} ms', bucket, 'epoch') AS bucket, sum(count)::bigint AS count
         FROM new_${finerThan(level)?.name} GROUP BY 1, 2, 3`;

/**
 * A fold of so many deltas notes its snapshot, so that readers skip them (sql/0002_events.postgres.sql), or one so many transactions after
 * the last note. Fewer are cheaper to go through than dead rows of the note itself.
 */
const NOTED = { deltas: 20, transactions: 200 } as const;

/**
 * Takes all pending deltas away.
 * @param into CTEs that store what they add up to, from `folded`
 * @param sums what there is to tell of these: columns
 */
const takeDeltas = (into: string, sums: string): string => `
    WITH single AS (
      DELETE FROM count_deltas
       WHERE written >= (SELECT pending_from FROM last_fold)
      RETURNING app_id, type_id, bucket, count, fields
    ),
    grouped AS (
      DELETE FROM grouped_deltas
       WHERE part = ANY (every_part()) AND written >= (SELECT groups_from FROM last_fold)
      RETURNING bucket, apps, types, counts
    ),
    folded AS (
      SELECT app_id, type_id, bucket, count, fields FROM single
      UNION ALL
      SELECT delta.app_id, delta.type_id, bucket, delta.count::bigint, 0
        FROM grouped CROSS JOIN LATERAL unnest(apps, types, counts) AS delta (app_id, type_id, count)
    ),
    ${noteUncounted('folded', { apps: true })},
    ${noteTicks('SELECT app_id, bucket, count FROM folded')},
    noted AS (
      UPDATE folds SET (pending_from, running, groups_from, groups_running) =
                       (SELECT pending_from, running, pending_from, running FROM next_fold)
       WHERE (SELECT count(*) >= ${NOTED.deltas}
                     OR count(*) > 0 AND pg_snapshot_xmax(pg_current_snapshot())::text::numeric
                                         - (SELECT pending_from FROM last_fold)::text::numeric >= ${NOTED.transactions}
                FROM folded)
    ),
    ${into}
    SELECT count(*)::float8 AS deltas, ${sums} FROM folded`;

/**
 * CTEs that add `folded` to the counts of every level and of months, and discard the profiles of its days.
 * @param nameOf the name of a table, where it has another one
 */
export const intoCounts = (nameOf: (table: string) => string = (table) => table): string => `
    ${LEVELS.map((level) => `new_${level.name} AS (${newCounts(level)})`).join(',\n    ')},
    ${LEVELS.map(({ name }) => `into_${name} AS (${addTo(nameOf(countTable(name)), `SELECT * FROM new_${name}`)})`).join(',\n    ')},
    into_month AS (${addTo(
      nameOf('month_counts'),
      `SELECT app_id, type_id, date_trunc('month', bucket, 'UTC'), sum(count)::bigint FROM new_day GROUP BY 1, 2, 3`,
    )}),
    discarded AS (
      DELETE FROM ${nameOf('profiled_days')} AS profiled USING new_day
       WHERE new_day.type_id = 0 AND profiled.app_id = new_day.app_id AND profiled.day = new_day.bucket
    )`;

const FOLD = takeDeltas(
  intoCounts(),
  `(SELECT count(*) FROM new_${MINUTES.name})::float8 AS minutes, 0 AS sums`,
);

const ADD_UP = takeDeltas(
  `
    added_up AS (
      INSERT INTO count_deltas (app_id, type_id, bucket, count, fields)
      SELECT app_id, type_id, bucket, sum(count)::bigint, ${EVERY_FIELD} FROM folded GROUP BY 1, 2, 3
      RETURNING app_id
    )`,
  // A fold adds each sum to the count of its type, and to that of all types of the app.
  '(SELECT 2 * count(*) FROM added_up)::float8 AS minutes, (SELECT count(*) FROM added_up)::float8 AS sums',
);

/** The number of pending deltas: a SELECT of one column. */
const PENDING = `
    SELECT ((SELECT count(*) FROM count_deltas WHERE written >= (SELECT pending_from FROM last_fold))
            + (SELECT coalesce(sum(cardinality(apps)), 0) FROM grouped_deltas
                WHERE part = ANY (every_part()) AND written >= (SELECT groups_from FROM last_fold)))::float8 AS deltas`;

/** Rounds in which others have the lock of counts, after which a fold waits for its turn; and for how long at most. */
const MOST_MISSES = 5;
const TURN_TIMEOUT_MS = 5_000;
/** A command waits longer: whoever holds the lock for a minute hangs. */
export const COMMAND_TIMEOUT_MS = 60_000;

/**
 * Moves all pending deltas into the counts of every level and of months, for each type and for all together, and discards
 * the profiles of the days that they belong to. Waits for whoever else changes counts.
 *
 * One statement, so that every snapshot sees a delta either pending or folded. One fold at a time: another would only
 * wait for the same rows. Keys are written in their order.
 * @param waitMs how long it waits
 * @returns the number of deltas folded
 * @throws OperatorError where it has waited in vain
 */
export async function foldCounts(sql: Sql, waitMs = COMMAND_TIMEOUT_MS): Promise<number> {
  return (await changeCounts(sql, waitMs, (tx) => onlyByIndex(tx, FOLD))).deltas;
}

/**
 * Corrects the counts of a day, see {@link correctDay}. Waits for whoever else changes counts.
 * @param day its midnight (UTC), milliseconds since 1970; skipped if it is before the retention boundary
 * @returns how many counts differed from the rows
 * @throws OperatorError where it has waited in vain
 */
export async function recountDay(sql: Sql, day: number): Promise<number> {
  return await changeCounts(sql, COMMAND_TIMEOUT_MS, async (tx) => {
    await tx`SET LOCAL statement_timeout = 0`;
    return await correctDay(tx, day);
  });
}

/**
 * Erases a slice. Its deltas are folded in the same transaction, so that no reader finds counts below zero among them. New payloads
 * change no count: their deltas, of zero, say that the minutes are to be looked at again.
 * @returns how many events there were
 * @throws OperatorError where it has waited in vain for the lock of counts
 */
export async function eraseSlice(sql: Sql, slice: ErasureSlice): Promise<number> {
  return await changeCounts(sql, COMMAND_TIMEOUT_MS, (tx) =>
    eraseIn(tx, writes, slice, () => onlyByIndex(tx, FOLD)),
  );
}

/**
 * Changes counts in a transaction, for a command.
 * @throws OperatorError where it has waited in vain
 */
export async function changeCounts<T>(
  sql: Sql,
  waitMs: number,
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  const outcome = await underCountsLock(sql, waitMs, async (tx) => ({ value: await work(tx) }));
  if (outcome === null) throw waitedInVain(waitMs);
  return outcome.value;
}

/** What a command says that has waited so long for the lock of counts. */
export function waitedInVain(waitMs: number): OperatorError {
  return new OperatorError(
    `Another session has held the lock of the counts for ${waitMs / 1_000} s: look for it in pg_locks (advisory) and pg_stat_activity. ` +
      'Totals are exact meanwhile, and the service folds the counts by itself once the lock is free.',
  );
}

/** The number of pending deltas. */
export async function countPending(sql: Sql): Promise<number> {
  const { deltas } = await sql.begin('isolation level read committed', (tx) => onlyByIndex(tx, PENDING));
  return deltas;
}

/** The planner underestimates dead rows here: the index of pending deltas is forced. */
async function onlyByIndex(tx: Transaction, statement: string): Promise<AddedUp> {
  const [, [result]] = await Promise.all([
    tx`SET LOCAL enable_seqscan = off`,
    tx.unsafe<AddedUp[]>(statement),
  ]);
  return result ?? { deltas: 0, minutes: 0, sums: 0 };
}

/**
 * Runs a transaction under the lock of counts, which is taken before the snapshot of its first statement.
 * @param waitMs how long it waits for the lock; 0: not at all
 * @returns null where others have the lock
 */
export async function underCountsLock<T>(
  sql: Sql,
  waitMs: number,
  work: (tx: Transaction) => Promise<T>,
): Promise<T | null> {
  let isLocked = false;
  try {
    return await sql.begin('isolation level read committed', async (tx) => {
      if (waitMs > 0) await tx.unsafe(`SET LOCAL lock_timeout = ${waitMs}`);
      const lock = waitMs > 0 ? 'pg_advisory_xact_lock' : 'pg_try_advisory_xact_lock';
      const [taken] = await tx.unsafe<{ lock: unknown }[]>(
        `SELECT ${lock}(hashtext('tidemark counts')) AS lock`,
      );
      if (taken?.lock === false) return null;
      isLocked = true;
      return await work(tx);
    });
  } catch (error) {
    if (!isLocked && errorCode(error) === SQLSTATE.lockNotAvailable) return null;
    throw error;
  }
}

/**
 * When folds queue for the lock of counts. Imports hold it for a part of each transaction, and pass it on to one another where
 * several run: after some misses a fold waits for it, so that the imports come after it once.
 */
export class FoldLock {
  #misses = 0;

  /** @param attempt waits so many milliseconds for the lock; null where others have it */
  async take<T>(attempt: (waitMs: number) => Promise<T | null>): Promise<T | null> {
    const taken = await attempt(this.#misses >= MOST_MISSES ? TURN_TIMEOUT_MS : 0);
    this.#misses = taken === null ? this.#misses + 1 : 0;
    return taken;
  }
}

/** The deltas of events. */
export function countDeltas(sql: Sql): DeltaSource {
  const lock = new FoldLock();
  const take = (statement: string): Promise<AddedUp | null> =>
    lock.take((waitMs) => underCountsLock(sql, waitMs, (tx) => onlyByIndex(tx, statement)));
  return {
    fold: () => take(FOLD),
    compact: () => take(ADD_UP),
    pending: () => countPending(sql),
  };
}

/**
 * Makes the partitions of every UTC day from that of `from` to that of `to` (inclusive, in milliseconds since 1970), one
 * transaction for each. Readers and writers continue meanwhile.
 */
export async function ensurePartitions(sql: Sql, from: number, to: number): Promise<void> {
  const missing = await sql<{ day: string }[]>`
    SELECT day::date::text AS day
      FROM generate_series(${utcDay(from)}::date, ${utcDay(to)}::date, interval '1 day') AS day
     WHERE to_regclass('events_' || to_char(day, 'YYYYMMDD')) IS NULL
     ORDER BY day`;
  for (const { day } of missing) await sql`SELECT create_events_partition(${day}::date)`;
}

/** Creates the partitions of an interval (milliseconds since 1970), as wide as their age allows. */
export async function createPartitions(sql: Sql, { from, until }: Interval): Promise<void> {
  for (;;) {
    const [next] = await sql<{ day: string | null }[]>`
      SELECT min(day)::date::text AS day
        FROM generate_series(${utcDay(from)}::date, ${utcDay(until - 1)}::date, interval '1 day') AS day
       WHERE NOT EXISTS (SELECT FROM events_partitions
                          WHERE start <= day::timestamp AT TIME ZONE 'UTC' AND finish > day::timestamp AT TIME ZONE 'UTC')`;
    if (next === undefined || next.day === null) return;
    await sql`SELECT make_room_for_events(${next.day}::date)`;
  }
}

/** How long retention waits for the lock of counts. */
const COUNTS_TIMEOUT_MS = 1_000;
/** Interval of counts by the minute that is looked at in one step. */
const REMOVED_MINUTES_MS = 6 * 3_600_000;
/** Transactions of one call. */
const REMOVALS = 100;

/**
 * Counts by the minute before the retention boundary, removed in slices. What was removed is remembered, so that a boundary that has
 * not moved costs nothing.
 */
export class ExpiredMinutes {
  /** Milliseconds since 1970: nothing is left before it. */
  #until: number | null = null;
  /** Transactions that are left of a call. */
  #removals = 0;

  /**
   * Removes some; the next call goes on.
   * @param boundary as PostgreSQL's text; minutes before it are removed
   * @param remove   removes those of an interval everywhere, by {@link removeFrom}; false if some are left
   */
  async remove(
    sql: Sql,
    boundary: string,
    remove: (from: Date, until: Date) => Promise<boolean>,
  ): Promise<void> {
    if (boundary === '-infinity') return;
    const [row] = await sql<{ until: number; oldest: number | null }[]>`
      SELECT (extract(epoch FROM ${boundary}::text::timestamptz) * 1000)::float8 AS until,
             CASE WHEN ${this.#until === null}
                  THEN (SELECT (extract(epoch FROM min(bucket)) * 1000)::float8 FROM ${sql(countTable('day'))}) END AS oldest`;
    if (row === undefined) return;
    this.#removals = REMOVALS;
    this.#until ??= row.oldest ?? row.until;
    while (this.#until < row.until) {
      const next = Math.min(this.#until + REMOVED_MINUTES_MS, row.until);
      if (!(await remove(new Date(this.#until), new Date(next)))) return;
      this.#until = next;
    }
  }

  /** @returns false if some are left in the interval: the lock was not free, or the call has done enough */
  async removeFrom(place: Place, [from, until]: readonly [Date, Date]): Promise<boolean> {
    const table = place.nameOf(countTable(MINUTES.name));
    const interval = { from: from.toISOString(), until: until.toISOString() };
    for (const slice of await bucketSlices(place.sql, table, interval)) {
      if (this.#removals === 0) return false;
      this.#removals -= 1;
      // Not while a fold adds to the same minutes: the two could deadlock.
      const removed = await place.changeCounts(
        COUNTS_TIMEOUT_MS,
        (tx) => tx`
          DELETE FROM ${tx(table)}
           WHERE bucket BETWEEN ${slice.from}::text::timestamptz AND ${slice.to}::text::timestamptz`,
      );
      if (removed === null) return false;
    }
    return true;
  }
}

/** Where partitions are, and how they are dropped. */
export interface PartitionedServers {
  readonly everyPlace: EveryPlace;
  /** A statement before all others of a transaction that drops a partition. */
  readonly prepare: string;
  /** What keeps rows from coming, beside a lock on the partition. */
  readonly locks: readonly string[];
}

/** The tables of one server. */
export const everyPlace: EveryPlace = (sql, work) =>
  work({
    sql,
    nameOf: (table) => table,
    change: (change) => sql.begin('isolation level read committed', change),
    changeCounts: (waitMs, change) => underCountsLock(sql, waitMs, change),
  });

const ONE_SERVER: PartitionedServers = { everyPlace, prepare: '', locks: ['ONLY events'] };

/**
 * Moves the retention boundary, and removes what an earlier call has made unreadable: by then no older snapshot reads it.
 * Counts by quarter-hour and coarser stay. The next call retries partitions that may still be read, or whose lock was not free.
 * @param options.days RETENTION_DAYS; 0 keeps what can be read now
 * @returns the names of the partitions that are gone since this call
 */
export async function applyRetention(
  sql: Sql,
  options: { days: number; now: number },
  expiredMinutes = new ExpiredMinutes(),
  servers = ONE_SERVER,
): Promise<readonly string[]> {
  const boundary = await moveBoundary(sql, options);
  await expiredMinutes.remove(sql, boundary, (...interval) =>
    servers.everyPlace(sql, (place) => expiredMinutes.removeFrom(place, interval)),
  );
  const dropped: string[] = [];
  for (const partition of await partitionsBefore(sql, boundary))
    if (
      (await nobodyReadsBefore(sql, servers, 'retention')) &&
      (await dropPartition(sql, partition, servers))
    )
      dropped.push(partition);
  return dropped;
}

/** Whether no snapshot is older than the boundaries of a table. */
async function nobodyReadsBefore(sql: Sql, servers: PartitionedServers, table: string): Promise<boolean> {
  return await servers.everyPlace(sql, (place) => hasNoOlderSnapshot(place.sql, place.nameOf(table)));
}

/** Partitions of `events` that end at or before the boundary, oldest first. */
async function partitionsBefore(sql: Sql, boundary: string): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    SELECT relname AS name
      FROM events_partitions JOIN pg_class ON pg_class.oid = partition
     WHERE finish <= ${boundary}::text::timestamptz
     ORDER BY start`;
  return rows.map((row) => row.name);
}

/**
 * Drops the partitions of which the retention of apps has left no row, and whose days are over for some app: no new rows are expected there.
 * A row that comes nevertheless has a partition made for it.
 * @returns their names
 */
async function dropEmptyPartitions(sql: Sql, servers: PartitionedServers): Promise<string[]> {
  const boundary = await removedUntil(sql);
  if (boundary === null || !(await nobodyReadsBefore(sql, servers, 'app_boundaries'))) return [];
  const dropped: string[] = [];
  for (const partition of await partitionsBefore(sql, boundary))
    if ((await isEmpty(sql, partition)) && (await dropPartition(sql, partition, servers, true)))
      dropped.push(partition);
  return dropped;
}

/** Up to where the retention of any app has removed rows, as PostgreSQL's text; null where none has. */
export async function removedUntil(sql: Sql): Promise<string | null> {
  const [last] = await sql<{ boundary: string | null }[]>`
    SELECT max(removed_until)::text AS boundary FROM app_boundaries WHERE isfinite(removed_until)`;
  return last?.boundary ?? null;
}

async function isEmpty(sql: Sql | Transaction, partition: string): Promise<boolean> {
  const [row] = await sql`SELECT FROM ${sql(partition)} LIMIT 1`;
  return row === undefined;
}

/** Rows that one statement removes from a partition that is wider than a day, and statements of one call. */
const CLIPPED_ROWS = 10_000;
const CLIPS = 100;

/** The part of a partition that is before the retention boundary, as PostgreSQL's texts. */
interface ExpiredPart {
  readonly start: string;
  readonly finish: string;
}

/** The part of the partition that the boundary lies in: one of a month or a year would keep its rows for that long. */
async function expiredParts(sql: Sql): Promise<readonly ExpiredPart[]> {
  return await sql<ExpiredPart[]>`
    SELECT start::text, readable_from::text AS finish
      FROM events_partitions, retention WHERE start < readable_from AND finish > readable_from`;
}

/**
 * Removes some rows of one partition. Its times are a part of the statement, as other partitions have rows with the same ctid.
 * @param events the table of events, or a shard of it
 * @returns how many
 */
async function clipOnce(tx: Transaction, events: string, { start, finish }: ExpiredPart): Promise<number> {
  const expired = tx`created_at >= ${start}::text::timestamptz AND created_at < ${finish}::text::timestamptz`;
  const { count } = await tx`
    DELETE FROM ${tx(events)}
     WHERE ${expired} AND ctid = ANY (ARRAY(SELECT ctid FROM ${tx(events)} WHERE ${expired} LIMIT ${CLIPPED_ROWS}))`;
  return count;
}

/**
 * Removes rows before the retention boundary from the partition that the boundary lies in. Nobody reads them: every read starts at
 * the boundary of its snapshot.
 * @returns how many were removed; the next call goes on
 */
export async function clipPartitions(sql: Sql, servers = ONE_SERVER): Promise<number> {
  let removed = 0;
  for (const part of await expiredParts(sql))
    await servers.everyPlace(sql, async ({ nameOf, change }) => {
      for (let clips = 0; clips < CLIPS; clips += 1) {
        const count = (await change((tx) => clipOnce(tx, nameOf('events'), part))) ?? 0;
        removed += count;
        if (count < CLIPPED_ROWS) break;
      }
      return true;
    });
  return removed;
}

/**
 * @param ifEmpty whether it stays if a row has come meanwhile
 * @returns false where the lock was not free in time, or it has a row
 */
async function dropPartition(
  sql: Sql,
  partition: string,
  { prepare, locks }: PartitionedServers,
  ifEmpty = false,
): Promise<boolean> {
  const isGone = await unlessLocked(() =>
    sql.begin('isolation level read committed', async (tx) => {
      if (prepare !== '') await tx.unsafe(prepare);
      await tx.unsafe(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
      if (ifEmpty) {
        // In the order of writers, who lock the table of all first.
        for (const table of locks) await tx.unsafe(`LOCK TABLE ${table} IN ACCESS EXCLUSIVE MODE`);
        await tx`LOCK TABLE ${tx(partition)} IN ACCESS EXCLUSIVE MODE`;
        if (!(await isEmpty(tx, partition))) return false;
      }
      await tx`DROP TABLE IF EXISTS ${tx(partition)}`;
      return true;
    }),
  );
  return isGone ?? false;
}

/** Partitions are made for yesterday, in case the clock was ahead, and for a week ahead, in case the service is down then. */
const DAYS_BEHIND = 1;
const DAYS_AHEAD = 7;

/** What engines with partitions supply alike. */
export function partitionSteps(
  { sql, settings, now, judged }: MaintenanceOptions,
  servers: PartitionedServers,
): Pick<EngineSteps, 'prepare' | 'everyPlace' | 'dropOld' | 'dropEmpty'> & {
  readonly last: readonly [Step];
} {
  const expiredMinutes = new ExpiredMinutes();
  return {
    prepare: () => ensurePartitions(sql, now() - DAYS_BEHIND * DAY_MS, now() + DAYS_AHEAD * DAY_MS),
    everyPlace: servers.everyPlace,
    dropOld: () =>
      applyRetention(sql, { days: settings.RETENTION_DAYS, now: judged() }, expiredMinutes, servers),
    dropEmpty: () => dropEmptyPartitions(sql, servers),
    last: [{ name: 'retained partitions', every: 'ten minutes', run: () => clipPartitions(sql, servers) }],
  };
}

/** Folded deltas after which their dead rows are vacuumed. */
export const VACUUM_AFTER_DELTAS = 2_000;

/**
 * The maintenance tasks of PostgreSQL. Pending deltas cost every read a little: a second's worth at full load is some
 * 25,000 rows, 2 ms of a read.
 * @param pools of their own: a fold must not wait for reads, nor for a VACUUM
 */
export const postgresMaintenance: StorageEngine['maintenance'] = (
  { sql, slow },
  settings,
  now,
  judged = now,
) => {
  const folding = new Folding(countDeltas(sql), now, () => hasConsumers(sql));
  const deadDeltas = new DeadRows(sql, slow, ['count_deltas', 'grouped_deltas'], VACUUM_AFTER_DELTAS);
  const rewriting = new Rewriting(sql, now);
  const options = { sql, settings, now, judged };
  const partitions = partitionSteps(options, ONE_SERVER);
  return maintenanceTasks(options, {
    ...partitions,
    fields: new FieldUpkeep(sql, now, slow),
    removal,
    removeExpired,
    first: [
      {
        name: 'fold',
        every: 'second',
        run: async (oldestSnapshot) => deadDeltas.deleted((await folding.fold(oldestSnapshot)) ?? 0),
      },
      expiredKeysStep(sql, judged),
      { name: 'vacuum', every: 'second', run: () => deadDeltas.vacuumIfDue() },
      { name: 'partitions', every: 'ten minutes', run: partitions.prepare },
    ],
    last: [
      ...partitions.last,
      ...new WordUpkeep(sql, now, slow).steps,
      { name: 'mostly dead partitions', every: 'ten minutes', run: () => rewriting.rewriteSome() },
    ],
  });
};
