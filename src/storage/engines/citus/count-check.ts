/** Compares counts with rows in a cluster: app by app, each in a snapshot of its node. */

import {
  type CheckLimits,
  type ComparedDay,
  type CountCheck,
  LIMITS,
  sampleOf,
} from '../../counts/count-check.ts';
import { compareDay, type DayComparison, EXAMPLES } from '../../counts/differences.ts';
import { ALL_TYPES, DAY_MS } from '../../counts/levels.ts';
import {
  addressOfPool,
  connect,
  errorCode,
  SQLSTATE,
  type Sql,
  type Transaction,
} from '../../database/connect.ts';
import { compareFieldDay } from '../../fields/compare-day.ts';
import { readSnapshot } from '../../read/snapshot.ts';
import { readBoundary } from '../../retention.ts';
import { clusterAt } from './cluster.ts';
import { poolOfApp, readFieldsOfApp } from './reads.ts';
import { shardOf } from './shard-schema.ts';
import { changeShards, onEveryNode, shardGroups } from './shards.ts';

/** Most apps of one day that a check compares, by chance. */
const MOST_APPS = 50;

/** Compares all apps that have events or counts of a UTC day. @param day its midnight, milliseconds since 1970 */
export async function compareDayOfCluster(sql: Sql, day: number): Promise<DayComparison> {
  const apps = await appsOf(sql, day, 0);
  const compared = await compareApps(
    sql,
    day,
    apps.map(({ id }) => id),
    Number.POSITIVE_INFINITY,
  );
  if (compared === null) throw new Error('A comparison without a limit has ended early.');
  return compared;
}

/** Compares a sample of days, of each the apps with counts, or some of them, as far as the limits of a check go. */
export async function checkCountsOfCluster(
  sql: Sql,
  now: number,
  random: () => number = Math.random,
  limits: CheckLimits = LIMITS,
): Promise<CountCheck> {
  const boundary = await readBoundary(sql);
  const rows = await sql<{ day: number }[]>`
    SELECT DISTINCT (extract(epoch FROM bucket) * 1000)::float8 AS day FROM day_counts
     WHERE type_id = 0 AND bucket <= ${new Date(now)} AND bucket >= ${new Date(boundary)} ORDER BY day`;
  const days: ComparedDay[] = [];
  const unfinished: number[] = [];
  for (const day of sampleOf(
    rows.map((row) => row.day),
    random,
  )) {
    const compared = await compareInTime(sql, day, random, limits);
    if (compared === null) unfinished.push(day);
    else days.push({ day, ...compared });
  }
  return { days, unfinished };
}

/** @returns null if it takes too long */
async function compareInTime(
  sql: Sql,
  day: number,
  random: () => number,
  { events, ms }: CheckLimits,
): Promise<DayComparison | null> {
  const end = performance.now() + ms;
  try {
    const apps = (await appsOf(sql, day, ms))
      .map((app) => ({ ...app, place: random() }))
      .toSorted((a, b) => Number(a.count > events) - Number(b.count > events) || a.place - b.place);
    let room = events;
    const some = apps.slice(0, MOST_APPS).filter(({ count }, index) => {
      room -= count;
      return index === 0 || room >= 0;
    });
    return await compareApps(
      sql,
      day,
      some.map(({ id }) => id),
      end,
    );
  } catch (error) {
    if (errorCode(error) === SQLSTATE.queryCanceled) return null;
    throw error;
  }
}

interface CountedApp {
  readonly id: number;
  /** Events of the day, as the counts tell. */
  readonly count: number;
}

/**
 * Apps that have something of a day and are not being removed: counts, deltas, or rows, of which no more than one is looked at.
 * @param timeoutMs of each statement; 0: none
 */
async function appsOf(sql: Sql, day: number, timeoutMs: number): Promise<CountedApp[]> {
  const [from, until] = [new Date(day), new Date(day + DAY_MS)];
  const counted = await sql.begin('isolation level read committed', async (tx) => {
    await limitTo(tx, timeoutMs);
    return {
      found: await tx<CountedApp[]>`
        SELECT id, sum(count)::float8 AS count
          FROM (SELECT app_id AS id, CASE WHEN type_id = ${ALL_TYPES} THEN count ELSE 0 END AS count
                  FROM day_counts WHERE bucket = ${from}
                UNION ALL
                SELECT app_id, count FROM count_deltas WHERE bucket >= ${from} AND bucket < ${until}) AS counted
         GROUP BY id`,
      others: await tx<{ id: number }[]>`SELECT id FROM apps`,
      deleted: await tx<{ id: number }[]>`SELECT app_id AS id FROM deleted_apps`,
    };
  });
  const known = new Set(counted.found.map(({ id }) => id));
  const gone = new Set(counted.deleted.map(({ id }) => id));
  const others = counted.others.map(({ id }) => id).filter((id) => !known.has(id) && !gone.has(id));
  const uncounted = await appsWithRows(sql, others, from, until, timeoutMs);
  return [
    ...counted.found.filter(({ id }) => !gone.has(id)),
    ...uncounted.map((id): CountedApp => ({ id, count: 0 })),
  ];
}

/** Those of some apps that have rows of a time, by one look at the index of each; and those whose shards are just being moved. */
async function appsWithRows(
  sql: Sql,
  ids: readonly number[],
  from: Date,
  until: Date,
  timeoutMs: number,
): Promise<number[]> {
  const cluster = clusterAt(addressOfPool(sql));
  const seen = new Set<string>();
  const found = await onEveryNode(sql, async (pool) => {
    const ofNode: number[] = [];
    for (const group of await shardGroups(pool)) {
      const ofShard = ids.filter((id) => String(cluster.placeOf(id)?.shard) === shardOf(group));
      const withRows = await changeShards(pool, group, async (tx) => {
        await limitTo(tx, timeoutMs);
        return await tx<{ id: number }[]>`
          SELECT app.id FROM unnest(${ofShard}::integer[]) AS app (id)
           WHERE EXISTS (SELECT FROM ${tx(group.nameOf('events'))}
                          WHERE app_id = app.id AND created_at >= ${from} AND created_at < ${until})`;
      });
      if (withRows === null) continue;
      seen.add(shardOf(group));
      ofNode.push(...withRows.map(({ id }) => id));
    }
    return ofNode;
  });
  return [...found.flat(), ...ids.filter((id) => !seen.has(String(cluster.placeOf(id)?.shard)))];
}

async function limitTo(tx: Transaction, timeoutMs: number): Promise<void> {
  await tx.unsafe(`SET LOCAL statement_timeout = ${Math.max(0, Math.ceil(timeoutMs))}`);
}

/**
 * @param end when to stop, in milliseconds of `performance.now()`
 * @returns null if it has stopped
 */
async function compareApps(
  sql: Sql,
  day: number,
  appIds: readonly number[],
  end: number,
): Promise<DayComparison | null> {
  let differing = 0;
  const examples: DayComparison['examples'][number][] = [];
  const isOver = (): boolean => performance.now() >= end;
  const limited =
    <T>(read: (tx: Transaction) => Promise<T>) =>
    async (tx: Transaction): Promise<T> => {
      if (Number.isFinite(end)) await limitTo(tx, Math.max(1, end - performance.now()));
      return await read(tx);
    };
  // Names are asked for within a snapshot, which may have the only connection of the pool.
  const names = connect(addressOfPool(sql), { connections: 1, name: 'tidemark names' });
  try {
    for (const appId of appIds) {
      if (isOver()) return null;
      const pool = await poolOfApp(sql, appId);
      const found = await readSnapshot(
        pool,
        limited((tx) => compareDay(tx, day, appId, names)),
      );
      const compareFields = limited((tx) => compareFieldDay(tx, day, appId, isOver, names));
      const ofFields = await readFieldsOfApp(sql, appId, async (shards) => ({
        compared: await readSnapshot(shards, compareFields),
      }));
      // Without fields there is nothing that could have stopped.
      if (ofFields !== null && ofFields.compared === null) return null;
      for (const compared of [found, ofFields?.compared ?? { differing: 0, examples: [] }]) {
        differing += compared.differing;
        examples.push(...compared.examples);
      }
    }
  } finally {
    await names.end({ timeout: 5 });
  }
  return { differing, examples: examples.slice(0, EXAMPLES) };
}
