/** Compares and corrects counts of a cluster: app by app, each in a snapshot of its node, or all apps of a shard in one statement. */

import { sum } from '../../../base/sum.ts';
import { compareDay, correctDay, type DayComparison, type RelationOf } from '../../counts/differences.ts';
import { ALL_TYPES, DAY_MS, LEVELS, startIn } from '../../counts/levels.ts';
import { type CheckOptions, joined, recountFields } from '../../counts/recount.ts';
import { connect, type Fragment, type Sql, type Transaction } from '../../database/connect.ts';
import { compareFieldDay } from '../../fields/recount.ts';
import { readSnapshot } from '../../read/snapshot.ts';
import { clusterOf } from './cluster.ts';
import { forEachFieldGroup } from './fields.ts';
import { changeAllCounts } from './maintenance.ts';
import { poolOfApp, readFieldsOfApp } from './reads.ts';
import { shardOf } from './shard-schema.ts';
import { changeShards, onEveryNode, type ShardGroup, shardGroups } from './shards.ts';

/** Most apps of one day that a check compares, by chance. */
const MOST_APPS = 50;

/** Compares the apps of a UTC day that have counts or rows, or some of them by chance, as far as the limits of a check go. */
export async function compareApps(
  sql: Sql,
  day: number,
  { limits: { events, ms }, random }: CheckOptions,
): Promise<DayComparison | null> {
  const end = performance.now() + ms;
  const apps = (await appsOf(sql, day, ms))
    .map((app) => ({ ...app, place: random() }))
    .toSorted((a, b) => Number(a.count > events) - Number(b.count > events) || a.place - b.place);
  let room = events;
  const some = apps.slice(0, MOST_APPS).filter(({ count }, index) => {
    room -= count;
    return index === 0 || room >= 0;
  });
  const ids = some.map(({ id }) => id);
  return await withNames(sql, (names) => compareEach(sql, day, ids, { end, names }));
}

/** Corrects the counts of a UTC day on all shards. @returns how many differed */
export async function recountDayOfCluster(sql: Sql, day: number): Promise<number> {
  const deleted = await sql<{ id: number }[]>`SELECT app_id AS id FROM deleted_apps`;
  const ids = deleted.map(({ id }) => id);
  // By shard: nodes work at once, and what is rolled back is done again.
  const differing = new Map<string, number>();
  await changeAllCounts(sql, async (tx, group) => {
    await tx`SET LOCAL statement_timeout = 0`;
    differing.set(shardOf(group), await correctDay(tx, day, relationsOf(tx, group, ids)));
  });
  return sum([...differing.values()]);
}

/** Counts the declared fields of a day again, on every node. */
export async function recountFieldsOfCluster(sql: Sql, day: number): Promise<number> {
  // By shard: nodes work at once, and what is rolled back is done again.
  const differing = new Map<string, number>();
  await withNames(sql, (names) =>
    forEachFieldGroup(sql, async (shards) => {
      differing.set(shards.shard, await recountFields(shards.sql, day, names));
      return true;
    }),
  );
  return sum([...differing.values()]);
}

/** The shards of a group in place of tables, and SELECTs over them in place of the coordinator's views. @param deleted apps that are being removed */
function relationsOf(tx: Transaction, { nameOf }: ShardGroup, deleted: readonly number[]): RelationOf {
  const deltas = tx(nameOf('count_deltas'));
  const both = (table: string, bucket: Fragment): ReturnType<RelationOf> => tx`
    (SELECT app_id, type_id, bucket, count FROM ${tx(nameOf(table))}
      UNION ALL
     SELECT app_id, kind, ${bucket}, count FROM ${deltas} CROSS JOIN LATERAL (VALUES (type_id), (${ALL_TYPES})) AS kinds (kind))`;
  const views: Record<string, () => ReturnType<RelationOf>> = {
    stale_buckets: () => tx`(SELECT 0 AS level, NULL::timestamptz AS bucket WHERE false)`,
    deleted_apps: () => tx`(SELECT unnest(${[...deleted]}::integer[]) AS app_id)`,
    ready_profiles: () => tx`
      (SELECT app_id, day FROM ${tx(nameOf('profiled_days'))} AS made
        WHERE NOT EXISTS (SELECT FROM ${deltas} AS pending
                           WHERE pending.app_id = made.app_id AND date_bin('1 day', pending.bucket, 'epoch') = day))`,
  };
  for (const name of [...LEVELS.map((level) => level.name), 'month'] as const)
    views[`events_per_${name}`] = () => both(`${name}_counts`, startIn(tx, name, tx`bucket`));
  return (name) => views[name]?.() ?? tx`${tx(nameOf(name))}`;
}

/** Runs work with a connection that looks names up: it may be within a snapshot, which has the only connection of the pool. */
async function withNames<T>(sql: Sql, work: (names: Sql) => Promise<T>): Promise<T> {
  const names = connect(sql.pool.database, { connections: 1, name: 'tidemark names' });
  try {
    return await work(names);
  } finally {
    await names.end({ timeout: 5 });
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

/** Which of some apps have rows of a time, by one look at the index of each; and those whose shards are just being moved. */
async function appsWithRows(
  sql: Sql,
  ids: readonly number[],
  from: Date,
  until: Date,
  timeoutMs: number,
): Promise<number[]> {
  const cluster = clusterOf(sql.pool.database);
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
async function compareEach(
  sql: Sql,
  day: number,
  appIds: readonly number[],
  { end, names }: { readonly end: number; readonly names: Sql },
): Promise<DayComparison | null> {
  const found: DayComparison[] = [];
  const isOver = (): boolean => performance.now() >= end;
  const limited =
    <T>(read: (tx: Transaction) => Promise<T>) =>
    async (tx: Transaction): Promise<T> => {
      if (Number.isFinite(end)) await limitTo(tx, Math.max(1, end - performance.now()));
      return await read(tx);
    };
  for (const appId of appIds) {
    if (isOver()) return null;
    const pool = await poolOfApp(sql, appId);
    found.push(
      await readSnapshot(
        pool,
        limited((tx) => compareDay(tx, day, appId, names)),
      ),
    );
    const compareFields = limited((tx) => compareFieldDay(tx, day, appId, isOver, names));
    const ofFields = await readFieldsOfApp(sql, appId, async (shards) => ({
      compared: await readSnapshot(shards, compareFields),
    }));
    if (ofFields === null) continue;
    if (ofFields.compared === null) return null;
    found.push(ofFields.compared);
  }
  return joined(found);
}
