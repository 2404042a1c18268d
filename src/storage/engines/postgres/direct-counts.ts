/**
 * Adds events to the counts of all levels in the transaction of their rows. For writers of many events at once, such as an
 * import: deltas would be stored, deleted and sorted again, which costs more than the rows themselves where most events have a
 * minute of their own.
 *
 * Counts stay exact for the same reason as with a fold: every snapshot has the rows and their counts, or neither. Whatever
 * changes counts holds the same lock, so what is read here stays true until the commit.
 */
import { type Interval, startOfMonth } from '../../counts/intervals.ts';
import { ALL_TYPES, countTable, DAYS, floorTo, HOURS, LEVELS, MINUTES } from '../../counts/levels.ts';
import type { CopyGroup, WriteConnection } from '../../database/copy-connection.ts';
import { NOTE_CHANGED_MINUTES } from '../../feed/ticks.ts';
import { type EventRow, timestamp } from '../../write/accepted-event.ts';
import { CopyMessages } from '../../write/copy-messages.ts';

/** Most buckets of a table that are looked for; with more of them, all counts are added as if their buckets were known. */
const MOST_KNOWN = 5_000;
/** Size of a row of counts in COPY's binary format. */
const ROW_BYTES = 50;

interface CountTable {
  readonly name: string;
  /** The start of the bucket of a time; milliseconds since 1970. */
  readonly startOf: (time: number) => number;
  /** Whether it has so many buckets that new ones are copied, which is cheaper than to look for each of them. */
  readonly isCopied: boolean;
}

/** Finest first. */
const TABLES: readonly CountTable[] = [
  ...LEVELS.map(({ name, ms }) => ({
    name: countTable(name),
    startOf: (time: number) => floorTo(time, ms),
    isCopied: ms <= HOURS.ms,
  })),
  { name: 'month_counts', startOf: (time) => startOfMonth(time), isCopied: false },
];

/** Takes the lock, and then, with a snapshot of its own, finds the buckets that have counts: each has one of all types. */
const findKnown = (appId: number, { from, until }: Interval): string =>
  `SELECT pg_advisory_xact_lock(hashtext('tidemark counts'));
   ${TABLES.filter(({ isCopied }) => isCopied)
     .map(
       ({ name }) => `
    (SELECT '${name}' AS table, (extract(epoch FROM bucket) * 1000)::float8 AS at FROM ${name}
      WHERE app_id = ${appId} AND type_id = ${ALL_TYPES}
        AND bucket >= '${timestamp(from)}'::timestamptz AND bucket < '${timestamp(until)}'::timestamptz LIMIT ${MOST_KNOWN})`,
     )
     .join(' UNION ALL ')}`;

/** Adds to buckets that may be known, table by table, and discards the profiles of days. */
const ADD = `
  WITH ${TABLES.map(
    ({ name }, index) => `
    into_${name} AS (
      INSERT INTO ${name} AS known (app_id, type_id, bucket, count)
      SELECT $1::integer, type_id, bucket, count
        FROM unnest($${3 * index + 3}::integer[], $${3 * index + 4}::timestamptz[], $${3 * index + 5}::bigint[])
          AS added (type_id, bucket, count)
       ORDER BY 1, 2, 3
      ON CONFLICT (app_id, type_id, bucket) DO UPDATE SET count = known.count + excluded.count)`,
  ).join(',')}
  DELETE FROM profiled_days WHERE app_id = $1 AND day = ANY($2::timestamptz[])`;

/** The counts of a type, in order of time. */
interface Counts {
  readonly typeId: number;
  readonly buckets: number[];
  readonly counts: number[];
}

/**
 * Counts events of one app. What it returns adds them to the counts, in a transaction, which then holds the lock of folds until
 * its end. Both are apart so that events are counted while the database still stores them.
 * @param events in order of time
 */
export function countDirectly(
  appId: number,
  events: readonly EventRow[],
): (connection: WriteConnection) => Promise<void> {
  let counts = countEvents(events);
  const byTable = TABLES.map(({ startOf }) => {
    counts = coarser(counts, startOf);
    return counts;
  });
  const minutes = [...new Set(events.map(({ createdAt }) => floorTo(createdAt, MINUTES.ms)))];
  const days = [...new Set(events.map(({ createdAt }) => floorTo(createdAt, DAYS.ms)))];
  const [first, last] = [events[0]?.createdAt ?? 0, events.at(-1)?.createdAt ?? 0];
  const interval = { from: floorTo(first, HOURS.ms), until: last + 1 };
  return async (connection) => {
    const known = await readKnown(connection, appId, interval);
    const parts = byTable.map((list, index) => split(list, known[index] ?? null));
    await connection.copy(
      copyOf(
        appId,
        parts.map(({ fresh }) => fresh),
      ),
    );
    await connection.query(NOTE_CHANGED_MINUTES, [appId, minutes.map(timestamp)]);
    await connection.query(ADD, [
      appId,
      days.map(timestamp),
      ...parts.flatMap(({ others }) => columnsOf(others)),
    ]);
  };
}

/** The buckets of each table that have counts; null: any of them may. */
async function readKnown(
  connection: WriteConnection,
  appId: number,
  interval: Interval,
): Promise<readonly (ReadonlySet<number> | null)[]> {
  const known = new Map<string, Set<number>>(TABLES.map(({ name }) => [name, new Set()]));
  // Two statements of one message have a result each, which the type does not tell.
  const results: unknown = await connection.query(findKnown(appId, interval), []);
  const [, found] = results as readonly { readonly rows: { table: string; at: number }[] }[];
  for (const { table, at } of found?.rows ?? []) known.get(table)?.add(at);
  return TABLES.map(({ name, isCopied }) => {
    const buckets = known.get(name);
    return buckets === undefined || !isCopied || buckets.size >= MOST_KNOWN ? null : buckets;
  });
}

/** By the minute, of each type and of all types. */
function countEvents(events: readonly EventRow[]): readonly Counts[] {
  const all: Counts = { typeId: ALL_TYPES, buckets: [], counts: [] };
  const types = new Map([[ALL_TYPES, all]]);
  for (const { typeId, createdAt } of events) {
    let counts = types.get(typeId);
    if (counts === undefined) {
      counts = { typeId, buckets: [], counts: [] };
      types.set(typeId, counts);
    }
    const minute = floorTo(createdAt, MINUTES.ms);
    add(counts, minute, 1);
    add(all, minute, 1);
  }
  // In the order of the keys, in which whatever changes counts takes its locks.
  return [...types.values()].sort((a, b) => a.typeId - b.typeId);
}

function coarser(finer: readonly Counts[], startOf: (time: number) => number): readonly Counts[] {
  return finer.map(({ typeId, buckets, counts }) => {
    const sums: Counts = { typeId, buckets: [], counts: [] };
    for (const [index, bucket] of buckets.entries()) add(sums, startOf(bucket), counts[index] ?? 0);
    return sums;
  });
}

/** @param bucket none before the last one */
function add({ buckets, counts }: Counts, bucket: number, count: number): void {
  const last = buckets.length - 1;
  if (buckets[last] === bucket) {
    counts[last] = (counts[last] ?? 0) + count;
    return;
  }
  buckets.push(bucket);
  counts.push(count);
}

/** Counts of buckets that have none yet, and the others. */
function split(
  list: readonly Counts[],
  known: ReadonlySet<number> | null,
): { readonly fresh: readonly Counts[]; readonly others: readonly Counts[] } {
  if (known === null) return { fresh: [], others: list };
  if (known.size === 0) return { fresh: list, others: [] };
  const where = (isKnown: boolean): Counts[] =>
    list.map(({ typeId, buckets, counts }) => ({
      typeId,
      buckets: buckets.filter((bucket) => known.has(bucket) === isKnown),
      counts: counts.filter((_, index) => known.has(buckets[index] ?? Number.NaN) === isKnown),
    }));
  return { fresh: where(false), others: where(true) };
}

/** Types, buckets and counts as arrays. */
function columnsOf(list: readonly Counts[]): readonly (readonly (number | string)[])[] {
  return [
    list.flatMap(({ typeId, buckets }) => buckets.map(() => typeId)),
    list.flatMap(({ buckets }) => buckets.map(timestamp)),
    list.flatMap(({ counts }) => counts),
  ];
}

/** @param byTable the counts of each table */
function copyOf(appId: number, byTable: readonly (readonly Counts[])[]): CopyGroup {
  const copied = TABLES.flatMap(({ name, isCopied }, index) =>
    isCopied ? [{ name, list: byTable[index] ?? [] }] : [],
  );
  const rows = copied.flatMap(({ list }) => list).reduce((sum, { buckets }) => sum + buckets.length, 0);
  const messages = new CopyMessages(rows * ROW_BYTES + 1_024);
  messages.query(
    copied
      .map(({ name }) => `COPY ${name} (app_id, type_id, bucket, count) FROM STDIN (FORMAT binary)`)
      .join(';'),
  );
  for (const { list } of copied) {
    messages.beginRows();
    for (const { typeId, buckets, counts } of list)
      for (const [index, bucket] of buckets.entries())
        messages.countRow(appId, typeId, bucket, counts[index] ?? 0);
    messages.endRows();
  }
  return { messages: messages.bytes, commands: copied.length, release: () => messages.release() };
}
