/** Reads in a cluster: those of one app go to the node that holds it, where a snapshot is as exact as on one server. */

import {
  errorCode,
  poolOnNode,
  SQLSTATE,
  type Sql,
  type Transaction,
  type Transactions,
} from '../../database/connect.ts';
import { nodeUnreachable } from '../../database/nodes.ts';
import type { ReadRoutes } from '../../read/event-reader.ts';
import { type ClusterNode, clusterOf } from './cluster.ts';
import type { ShardPlacement } from './placement.ts';
import { makeShardSchema, NoShardSchema, ShardsElsewhere, shardsAsDatabase } from './shard-schema.ts';

/**
 * The pool on the node of an app. Should the app have been moved since, that node asks the other one.
 * @throws an error that says so if the node is away
 */
export async function poolOfApp(sql: Sql, appId: number): Promise<Sql> {
  return (await placeOfApp(sql, appId)).pool;
}

async function placeOfApp(
  sql: Sql,
  appId: number,
): Promise<{ pool: Sql; place: ShardPlacement<ClusterNode> | null }> {
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
  read: (shards: Transactions) => Promise<T>,
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

/** Reads of an app go to its node. */
export function clusterRoutes(sql: Sql): ReadRoutes {
  return {
    together: null,
    at: (appId) => poolOfApp(sql, appId),
    counted: async (appId, read) => (await readFieldsOfApp(sql, appId, read)) ?? 'not counted',
    feedAt: async (appId) => {
      const { pool, place } = await placeOfApp(sql, appId);
      const placeOf = async (tx: Transaction): Promise<number> => {
        const found = place === null ? 0 : await placeIn(tx, place.shard);
        if (found !== 0 || place === null) return found;
        // It has been moved: this node asks the other one, and its own transactions tell nothing of the app.
        clusterOf(sql.pool.database)
          .renew()
          .catch(() => undefined);
        elsewhere -= 1;
        return elsewhere;
      };
      return { sql: pool, placeOf };
    },
  };
}
