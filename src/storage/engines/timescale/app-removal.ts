/** Removes the events and counts of a deleted app. */
import { ALL_TYPES, COARSE_LEVELS, countTable, type Level, MINUTES } from '../../counts/levels.ts';
import { errorCode, SQLSTATE, type Sql, type Transaction, unlessLocked } from '../../database/connect.ts';
import { TABLES_OF_APP } from '../../fields/removal.ts';
import { type AppRemoval, FROM_DAYS } from '../../maintenance/deleted-apps.ts';
import {
  type ExpiredPart,
  inSlices,
  isOfSlice,
  isOfTypes,
  type RemoveExpired,
  sliceEnd,
} from '../../maintenance/expired-rows.ts';
import { bucketSlices, removeRowsOfApp } from '../../maintenance/slices.ts';
import { withCountsLock } from '../postgres/app-removal.ts';

/** Most events that one transaction removes: 0.1 s as rows, and less in the columnstore, where whole batches go at once. */
const REMOVED_EVENTS = 100_000;

/**
 * Counts are deleted from the aggregates' own hypertables, as the aggregates would notice only by a refresh of all time.
 * Not while another process refreshes: its older snapshot would bring counts back.
 */
export const removal: AppRemoval = {
  removeEvents: async (sql, appId, isOver) => {
    for (const { from, until } of await chunksOf(sql, 'events')) {
      for (let start: string | null = from; start !== null; ) {
        start = await removeSome(sql, appId, start, until);
        if (start !== null && isOver()) return false;
      }
      if (isOver()) return false;
    }
    return true;
  },
  removeCounts: async (sql, appId, isOver) => {
    for (const { table, hypertable } of await aggregatesOf(sql))
      for (const chunk of await chunksOf(sql, hypertable))
        for (const { from, to } of await bucketSlices(sql, table, chunk, appId)) {
          await sql.begin('isolation level read committed', async (tx) => {
            await openColumnstore(tx);
            await tx`
              DELETE FROM ${tx(table)}
               WHERE app_id = ${appId} AND bucket BETWEEN ${from}::text::timestamptz AND ${to}::text::timestamptz`;
          });
          if (isOver()) return false;
        }
    return (
      (await removeRowsOfApp(withCountsLock(sql), FROM_DAYS, appId, isOver)) &&
      (await removeRowsOfApp((work) => sql.begin(work), [...TABLES_OF_APP, ...OUTLIVED], appId, isOver))
    );
  },
};

/** The tables of counts of removed rows. */
const outlived = (level: Level): string => `outlived_${countTable(level.name)}`;
const OUTLIVED = COARSE_LEVELS.map(outlived);

/** The hypertables in which the aggregates keep their counts, by the name of the aggregate. */
async function aggregatesOf(
  sql: Sql | Transaction,
): Promise<readonly { readonly name: string; readonly table: string; readonly hypertable: string }[]> {
  return await sql<{ name: string; table: string; hypertable: string }[]>`
    SELECT view_name AS name, materialization_hypertable_schema || '.' || materialization_hypertable_name AS table,
           materialization_hypertable_name AS hypertable
      FROM timescaledb_information.continuous_aggregates WHERE view_schema = current_schema()`;
}

/**
 * Removes expired rows. A refresh makes the aggregates what the rows are: so the counts of the rows that go move from the aggregates to tables
 * of their own, in the same transaction, and a refresh finds nothing to change. Buckets that are marked as stale lack rows
 * or have not been counted from them yet: they are refreshed first.
 * @param refreshMarked refreshes what is marked
 */
export function removeExpiredWith(refreshMarked: () => Promise<unknown>): RemoveExpired {
  return (sql, part, isOver) => {
    let isStale = false;
    return inSlices(
      part,
      () => isStale || isOver(),
      async (slice) => {
        const next = await removeSlice(sql, slice);
        if (next !== 'stale') return next;
        await refreshMarked();
        const again = await removeSlice(sql, slice);
        if (again !== 'stale') return again;
        // Something of these days comes all the time: the next call tries again.
        isStale = true;
        return slice.from;
      },
    );
  };
}

/** @returns where the next slice begins; null: it was the last; stale: nothing was done */
async function removeSlice(sql: Sql, slice: ExpiredPart): Promise<string | null | 'stale'> {
  return await unlessStale(() =>
    sql.begin('isolation level repeatable read', async (tx) => {
      await openColumnstore(tx);
      const next = await sliceEnd(tx, slice, REMOVED_EVENTS);
      await removeWithCounts(tx, { ...slice, until: next ?? slice.until });
      return next;
    }),
  );
}

/** In place of an outcome: buckets lack rows, or have not been counted from them yet. Nothing was done. */
class Stale extends Error {}

/** Removes rows in a transaction of repeatable read. @returns stale: nothing was done */
export async function unlessStale<T>(work: () => Promise<T>): Promise<T | 'stale'> {
  try {
    return await work();
  } catch (error) {
    // Or somebody else has refreshed these buckets meanwhile.
    if (error instanceof Stale || errorCode(error) === SQLSTATE.serializationFailure) return 'stale';
    throw error;
  }
}

/**
 * Removes rows, and moves their counts from the aggregates to the tables of counts of removed rows.
 * @param tx of repeatable read, with the columnstore open
 * @throws an error that {@link unlessStale} knows
 */
export async function removeWithCounts(tx: Transaction, slice: ExpiredPart): Promise<void> {
  const { appId, from, until, typeIds, exceptTypes = [] } = slice;
  const isWhole = typeIds === null && exceptTypes.length === 0;
  const within = tx`
    app_id = ${appId} AND bucket >= ${from}::text::timestamptz AND bucket < ${until}::text::timestamptz`;
  await tx`
    CREATE TEMPORARY TABLE gone ON COMMIT DROP AS
    SELECT type_id, date_bin('1 minute', created_at, 'epoch') AS bucket, count(*) AS count
      FROM events WHERE ${isOfSlice(tx, slice)} GROUP BY 1, 2`;
  const [some] = await tx`SELECT FROM gone LIMIT 1`;
  if (some === undefined) return;
  const [stale] = await tx`
    SELECT FROM stale_buckets
     WHERE bucket > (SELECT min(bucket) FROM gone) - interval '1 day' AND bucket <= (SELECT max(bucket) FROM gone) LIMIT 1`;
  if (stale !== undefined) throw new Stale();
  await tx`INSERT INTO gone SELECT ${ALL_TYPES}, bucket, sum(count) FROM gone GROUP BY bucket`;
  const tables = new Map((await aggregatesOf(tx)).map(({ name, table }) => [name, table]));
  const tableOf = (name: string): string => {
    const table = tables.get(name);
    if (table === undefined) throw new Error(`The continuous aggregate ${name} is gone.`);
    return table;
  };
  const [minutes, ofApp] = [tableOf(countTable(MINUTES.name)), tableOf(`app_${countTable(MINUTES.name)}`)];
  await tx`DELETE FROM ${tx(minutes)} WHERE ${within} AND ${isOfTypes(tx, slice)}`;
  if (isWhole) await tx`DELETE FROM ${tx(ofApp)} WHERE ${within}`;
  else await takeAway(tx, ofApp, MINUTES, true, appId);
  for (const level of COARSE_LEVELS) {
    await tx`
      INSERT INTO ${tx(outlived(level))} AS known (app_id, type_id, bucket, count)
      SELECT ${appId}::integer, type_id, date_bin(${level.ms} * interval '1 ms', bucket, 'epoch'), sum(count)
        FROM gone GROUP BY 2, 3 ORDER BY 2, 3
          ON CONFLICT (app_id, type_id, bucket) DO UPDATE SET count = known.count + excluded.count`;
    await takeAway(tx, tableOf(countTable(level.name)), level, false, appId);
    await takeAway(tx, tableOf(`app_${countTable(level.name)}`), level, true, appId);
  }
  await tx`DELETE FROM events WHERE ${isOfSlice(tx, slice)}`;
}

/**
 * Takes rows that are there again off the counts of removed rows: they are counted from the rows from now on.
 * @param back a table of their counts by minute (type_id, bucket, count), of single types
 */
export async function takeFromOutlived(tx: Transaction, appId: number, back: string): Promise<void> {
  for (const level of COARSE_LEVELS) {
    const table = tx(outlived(level));
    await tx`
      UPDATE ${table} AS known SET count = known.count - back.count
        FROM (SELECT type_id, date_bin(${level.ms} * interval '1 ms', bucket, 'epoch') AS bucket, sum(count)::bigint AS count
                FROM (SELECT type_id, bucket, count FROM ${tx(back)}
                       UNION ALL SELECT ${ALL_TYPES}, bucket, count FROM ${tx(back)}) AS every GROUP BY 1, 2) AS back
       WHERE known.app_id = ${appId} AND known.type_id = back.type_id AND known.bucket = back.bucket`;
    await tx`
      DELETE FROM ${table} AS known USING (SELECT DISTINCT date_bin(${level.ms} * interval '1 ms', bucket, 'epoch') AS bucket FROM ${tx(back)}) AS back
       WHERE known.app_id = ${appId} AND known.bucket = back.bucket AND known.count <= 0`;
  }
}

/** Takes what is gone off the counts that an aggregate has. @param isTogether whether it counts all types together */
async function takeAway(
  tx: Transaction,
  table: string,
  { ms }: Level,
  isTogether: boolean,
  appId: number,
): Promise<void> {
  const type = isTogether ? tx`type_id = ${ALL_TYPES}` : tx`type_id <> ${ALL_TYPES}`;
  const bounds = tx`
    known.app_id = ${appId} AND known.bucket >= (SELECT date_bin(${ms} * interval '1 ms', min(bucket), 'epoch') FROM gone)
                            AND known.bucket <= (SELECT max(bucket) FROM gone)`;
  await tx`
    UPDATE ${tx(table)} AS known SET count = known.count - taken.count
      FROM (SELECT type_id, date_bin(${ms} * interval '1 ms', bucket, 'epoch') AS bucket, sum(count)::bigint AS count
              FROM gone WHERE ${type} GROUP BY 1, 2) AS taken
     WHERE ${bounds} AND known.bucket = taken.bucket ${isTogether ? tx`` : tx`AND known.type_id = taken.type_id`}`;
  await tx`DELETE FROM ${tx(table)} AS known WHERE ${bounds} AND known.count <= 0`;
}

/** Chunks of events that the retention of apps has left empty, before an instant. @returns the names of those that are gone */
export async function dropEmptyChunks(sql: Sql, before: string): Promise<string[]> {
  const dropped: string[] = [];
  const chunks = await sql<{ name: string; from: string; until: string }[]>`
    SELECT format('%I.%I', chunk_schema, chunk_name) AS name, range_start::text AS from, range_end::text AS until
      FROM timescaledb_information.chunks
     WHERE hypertable_schema = current_schema() AND hypertable_name = 'events' AND range_end <= ${before}::text::timestamptz`;
  for (const { name, from, until } of chunks) {
    if (!(await isEmpty(sql, name))) continue;
    const isGone = await unlessLocked(() =>
      sql.begin('isolation level read committed', async (tx) => {
        await tx.unsafe(`SET LOCAL lock_timeout = ${CHUNK_LOCK_MS}`);
        await tx.unsafe(`LOCK TABLE ${name} IN ACCESS EXCLUSIVE MODE`);
        if (!(await isEmpty(tx, name))) return false;
        await tx`
          SELECT drop_chunks('events'::regclass, newer_than => ${from}::text::timestamptz, older_than => ${until}::text::timestamptz)`;
        return true;
      }),
    );
    if (isGone === true) dropped.push(name);
  }
  return dropped;
}

/** How long a drop waits for a lock: writers and readers of the chunk wait behind it. */
const CHUNK_LOCK_MS = 200;

async function isEmpty(sql: Sql | Transaction, chunk: string): Promise<boolean> {
  const [row] = await sql.unsafe(`SELECT FROM ${chunk} LIMIT 1`);
  return row === undefined;
}

/** `[from, until)` as PostgreSQL writes it. */
interface ChunkInterval {
  readonly from: string;
  readonly until: string;
}

async function chunksOf(sql: Sql, hypertable: string): Promise<ChunkInterval[]> {
  return await sql<ChunkInterval[]>`
    SELECT range_start::text AS from, range_end::text AS until FROM timescaledb_information.chunks
     WHERE hypertable_name = ${hypertable} ORDER BY range_start`;
}

/** By default a statement may decompress at most 100,000 rows of the columnstore. */
export async function openColumnstore(tx: Transaction): Promise<void> {
  await tx`SET LOCAL timescaledb.max_tuples_decompressed_per_dml_transaction = 0`;
}

/** Removes up to {@link REMOVED_EVENTS} events. @returns where to continue, null if those were all */
async function removeSome(sql: Sql, appId: number, from: string, until: string): Promise<string | null> {
  return await sql.begin('isolation level read committed', async (tx) => {
    await openColumnstore(tx);
    const [next] = await tx<{ at: string }[]>`
      SELECT (created_at + interval '1 ms')::text AS at FROM events
       WHERE app_id = ${appId} AND created_at >= ${from}::text::timestamptz AND created_at < ${until}::text::timestamptz
       ORDER BY created_at OFFSET ${REMOVED_EVENTS - 1} LIMIT 1`;
    await tx`
      DELETE FROM events
       WHERE app_id = ${appId} AND created_at >= ${from}::text::timestamptz
         AND created_at < ${next?.at ?? until}::text::timestamptz`;
    return next?.at ?? null;
  });
}
