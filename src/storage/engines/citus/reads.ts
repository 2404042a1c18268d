/** Reads in a cluster: those of one app go to the node that holds it, where a snapshot is as exact as on one server. */

import type { AppStats } from '../../counts/app-stats.ts';
import type { WindowRequest, WindowSums } from '../../counts/windows.ts';
import {
  errorCode,
  isUnavailable,
  poolOnNode,
  SQLSTATE,
  type Sql,
  type Transaction,
} from '../../database/connect.ts';
import { nodeUnreachable } from '../../database/nodes.ts';
import type { NotCounted } from '../../fields/field-scope.ts';
import type { RowFilter } from '../../fields/row-filter.ts';
import { readFeed } from '../../read/arrivals.ts';
import { openCountedLines } from '../../read/counted-lines.ts';
import type { LineReader } from '../../read/event-lines.ts';
import { createReader, type EventReader } from '../../read/event-reader.ts';
import type { ScanRequest } from '../../read/event-scan.ts';
import { type ClusterNode, clusterOf } from './cluster.ts';
import type { Place } from './placement.ts';
import { makeShardSchema, NoShardSchema, ShardsElsewhere, shardsAsDatabase } from './shard-schema.ts';

/**
 * The pool on the node of an app. Should the app have been moved since, that node asks the other one.
 * @throws an error that says so if the node is away
 */
export async function poolOfApp(sql: Sql, appId: number): Promise<Sql> {
  return (await placeOfApp(sql, appId)).pool;
}

async function placeOfApp(sql: Sql, appId: number): Promise<{ pool: Sql; place: Place<ClusterNode> | null }> {
  const cluster = clusterOf(sql.pool.database);
  await cluster.ready();
  const place = cluster.placeOf(appId);
  if (place === null || place.isCoordinator) return { pool: sql, place };
  if (place.node.isUnreachable) throw nodeUnreachable(place.node);
  return { pool: poolOnNode(sql, place.node), place };
}

/**
 * Which shard of a node holds an app, by the node's own snapshot; 0 if it is on another node. A shard that is moved away and back
 * is another table.
 */
async function placeIn(tx: Transaction, shard: number): Promise<number> {
  // Not from pg_class, where shards are hidden.
  const [found] = await tx<{ id: number | null }[]>`
    SELECT to_regclass('events_' || shardid)::oid::bigint::float8 AS id
      FROM pg_dist_placement
     WHERE shardid = ${shard} AND groupid = (SELECT groupid FROM pg_dist_local_group)`;
  return found?.id ?? 0;
}

/** Which table on the node of a transaction has the rows of an app; 0 if they are on another node. */
export async function placeOf(tx: Transaction, appId: number): Promise<number> {
  const [found] = await tx<{ shard: number }[]>`
    SELECT get_shard_id_for_distribution_column('events', ${appId}::integer)::float8 AS shard`;
  return found === undefined ? 0 : await placeIn(tx, found.shard);
}

/** Moves of an app that one read follows. */
const MOST_MOVES = 3;

/**
 * Reads what is counted of an app's fields, on the shards of its node. These may just have been moved, or have no views there yet.
 * @param read may be called several times
 * @returns null where the app has no fields
 * @throws an error that says so if the node is away
 */
export async function readFieldsOfApp<T>(
  sql: Sql,
  appId: number,
  read: (shards: Sql) => Promise<T>,
): Promise<T | null> {
  for (let tries = 0; ; tries += 1) {
    const { pool, place } = await placeOfApp(sql, appId);
    if (place === null) return null;
    const shard = String(place.shard);
    try {
      return await read(shardsAsDatabase(pool, shard));
    } catch (error) {
      if (error instanceof NoShardSchema) {
        const [field] = await pool`SELECT FROM field_states WHERE app_id = ${appId} LIMIT 1`;
        if (field === undefined) return null;
        await makeShardSchema(sql, pool, shard).catch(unlessMoved);
      } else unlessMoved(error);
      if (tries === MOST_MOVES) throw nodeUnreachable(place.node);
      await clusterOf(sql.pool.database).renew();
    }
  }
}

/** Moved shards, and views that somebody else makes or drops, are looked for again. */
function unlessMoved(error: unknown): void {
  if (!(error instanceof ShardsElsewhere) && errorCode(error) !== SQLSTATE.lockNotAvailable) throw error;
}

/** Numbers that no snapshot has: a feed that looks in the wrong place has seen nothing. */
let elsewhere = 0;

/** Reads of single apps on their nodes, and of several apps on all of theirs at once. */
export function clusterReader(sql: Sql): EventReader {
  const at = async (appId: number): Promise<EventReader> => createReader(await poolOfApp(sql, appId));
  const lines = (request: ScanRequest, filter: RowFilter | null): LineReader => {
    const opened = once(async () => (await at(request.appId)).lines(request, filter));
    return { next: async () => (await opened()).next() };
  };
  const counted = async <T>(
    appId: number,
    read: (reader: EventReader) => Promise<T>,
  ): Promise<T | 'not counted'> =>
    (await readFieldsOfApp(sql, appId, (shards) => read(createReader(shards)))) ?? 'not counted';
  const reader: EventReader = {
    page: async (request) => (await at(request.scope.appId)).page(request),
    list: async (request) => (await at(request.appId)).list(request),
    filteredList: (request, filter) =>
      counted(request.appId, (reader) => reader.filteredList(request, filter)),
    filteredSeries: (request, filter) =>
      counted(request.appId, (reader) => reader.filteredSeries(request, filter)),
    filteredTypes: (request, filter) =>
      counted(request.appId, (reader) => reader.filteredTypes(request, filter)),
    valueSeries: (request, path, only) =>
      counted(request.appId, (reader) => reader.valueSeries(request, path, only)),
    numberSeries: (request, path) => counted(request.appId, (reader) => reader.numberSeries(request, path)),
    summarySeries: (request) => counted(request.appId, (reader) => reader.summarySeries(request)),
    search: (request, filter) => {
      const opened = once(async () => (await at(request.appId)).search(request, filter));
      return {
        step: async (mostRows) => (await opened()).step(mostRows),
        visit: async (...asked) => (await opened()).visit(...asked),
      };
    },
    lines,
    filteredLines: (request, filter) => openCountedLines(sql, reader, request, filter),
    event: async (appId, eventId) => (await at(appId)).event(appId, eventId),
    series: async (request) => (await at(request.appId)).series(request),
    frame: async (request) => (await at(request.appId)).frame(request),
    windows: (requests) => readWindowsOfApps(requests, at, counted),
    firstWindow: async (appId, windowMs) => (await at(appId)).firstWindow(appId, windowMs),
    recentValues: (of, until) => counted(of.appId, (reader) => reader.recentValues(of, until)),
    appStats: async (appIds, when) => await readStats(sql, appIds, when),
    appSpan: async (appId) => (await at(appId)).appSpan(appId),
    typeStats: async (appId) => (await at(appId)).typeStats(appId),
    typeActivity: async (appId, now) => (await at(appId)).typeActivity(appId, now),
    snapshotText: async (appId) => (await at(appId)).snapshotText(appId),
    feed: async (appId, read) => {
      const { pool, place } = await placeOfApp(sql, appId);
      return await readFeed(pool, appId, read, async (tx) => {
        const found = place === null ? 0 : await placeIn(tx, place.shard);
        if (found !== 0 || place === null) return found;
        // It has been moved: this node asks the other one, and its own transactions tell nothing of the app.
        clusterOf(sql.pool.database)
          .renew()
          .catch(() => undefined);
        elsewhere -= 1;
        return elsewhere;
      });
    },
  };
  return reader;
}

/** Windows of each app on its node: those that need no field in one snapshot. */
async function readWindowsOfApps(
  requests: readonly WindowRequest[],
  at: (appId: number) => Promise<EventReader>,
  counted: <T>(appId: number, read: (reader: EventReader) => Promise<T>) => Promise<T | 'not counted'>,
): Promise<readonly (WindowSums | NotCounted)[]> {
  const found = new Map<WindowRequest, WindowSums | NotCounted>();
  for (const appId of new Set(requests.map((request) => request.appId))) {
    const own = requests.filter((request) => request.appId === appId);
    const plain = own.filter(({ filter, by }) => filter === null && by === null);
    const ofFields = own.filter((request) => !plain.includes(request));
    const sums = plain.length === 0 ? [] : await (await at(appId)).windows(plain);
    plain.forEach((request, index) => {
      found.set(request, sums[index] ?? 'not counted');
    });
    const more = ofFields.length === 0 ? [] : await counted(appId, (reader) => reader.windows(ofFields));
    ofFields.forEach((request, index) => {
      found.set(request, more === 'not counted' ? more : (more[index] ?? 'not counted'));
    });
  }
  return requests.map((request) => found.get(request) ?? 'not counted');
}

/** The stats of each app whose node answers, each of a moment of its own. */
async function readStats(
  sql: Sql,
  appIds: readonly number[],
  when: { readonly timezone: string; readonly now: number },
): Promise<Map<number, AppStats>> {
  const parts = await Promise.all(
    appIds.map(async (appId) => {
      try {
        return [...(await createReader(await poolOfApp(sql, appId)).appStats([appId], when))];
      } catch (error) {
        if (!isUnavailable(error)) throw error;
        return [];
      }
    }),
  );
  return new Map(parts.flat());
}

/** Opens something at its first use; a failure is tried again at the next. */
function once<T>(open: () => Promise<T>): () => Promise<T> {
  let opened: Promise<T> | null = null;
  return () => {
    opened ??= open().catch((error: unknown) => {
      opened = null;
      throw error;
    });
    return opened;
  };
}
