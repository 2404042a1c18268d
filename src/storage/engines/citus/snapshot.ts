/**
 * One moment of a whole cluster, for a backup. Each node has snapshots of its own, so writers are kept out of all nodes while these
 * are taken: what was committed before is in them, on every node, and nothing that was begun after.
 */
import type pg from 'pg';
import { deadline } from '../../../base/timeout.ts';
import { OperatorError } from '../../../errors.ts';
import type { ExportSnapshot, RowSource } from '../../backup/export.ts';
import { countTable, type Level } from '../../counts/levels.ts';
import { errorCode, isUnavailable, SQLSTATE } from '../../database/connect.ts';
import { openCopyClient } from '../../database/copy-client.ts';
import type { Database } from '../../database/database.ts';
import { endClient } from '../../database/dial.ts';
import { nodeUnreachable } from '../../database/nodes.ts';
import { type ClusterNode, clusterOf } from './cluster.ts';
import { groupsOf, SHARD_ROWS, type ShardGroup, type ShardRow } from './shards.ts';

const NAME = 'tidemark backup';
const MAX_TRIES = 20;
/** Writers wait for as long as the slowest statement that was begun before, and no longer than this. */
const LOCK_TIMEOUT_MS = 1_000;
/** ExclusiveLock on the metadata of shards: whoever writes to them takes ShareLock. */
const EXCLUSIVE_LOCK = 7;
/** A shard is being moved, or a statement takes long. */
const RETRYABLE = new Set<string>([
  SQLSTATE.lockNotAvailable,
  SQLSTATE.queryCanceled,
  SQLSTATE.deadlock,
  SQLSTATE.undefinedTable,
]);

/** What a node must answer in while writers are kept out of the others. */
const ANSWER_TIMEOUT_MS = 3_000;
/** After so long without news of this process a node lets writers in again by itself. */
const KEEPER_TIMEOUT_MS = 5_000;

interface NodeSession {
  readonly node: ClusterNode;
  readonly reader: pg.Client;
  /** Keeps writers out while it has a transaction. */
  readonly lockSession: pg.Client;
}

/** @param coordinator a dedicated connection to the address */
export async function beginClusterSnapshot(
  coordinator: pg.Client,
  database: Database,
): Promise<ExportSnapshot> {
  const sessions = await openSessions(database);
  try {
    const { rows } = await coordinator.query<{ name: string }>(
      "SELECT relname AS name FROM pg_dist_partition JOIN pg_class ON pg_class.oid = logicalrelid WHERE partmethod = 'h'",
    );
    const distributed = new Set(rows.map(({ name }) => name));
    const places = await takeSnapshots(coordinator, sessions);
    const ofCluster = {
      client: coordinator,
      nameOf: (table: string) => table,
      selectCounts: ({ view }: Level) => view,
    };
    return {
      client: coordinator,
      placesOf: (table) => (distributed.has(table) ? places : [ofCluster]),
      end: async () => {
        await coordinator.query('COMMIT');
        await closeSessions(sessions);
      },
    };
  } catch (error) {
    await closeSessions(sessions);
    throw error;
  }
}

/** @throws an error that says so if a node is away: a backup needs all of them */
async function openSessions(database: Database): Promise<NodeSession[]> {
  const cluster = clusterOf(database);
  await cluster.renew();
  const nodes = new Map<ClusterNode, Database>(
    cluster.places.map(({ node, isCoordinator }) => [node, isCoordinator ? database : node.database]),
  );
  const sessions: NodeSession[] = [];
  try {
    for (const [node, place] of nodes) {
      const open = (): Promise<pg.Client> =>
        openCopyClient(place, NAME).catch((cause: unknown) => {
          throw notAnswering(node, cause);
        });
      const reader = await open();
      try {
        sessions.push({ node, reader, lockSession: await open() });
      } catch (error) {
        await endClient(reader);
        throw error;
      }
    }
    return sessions;
  } catch (error) {
    await closeSessions(sessions);
    throw error;
  }
}

async function closeSessions(sessions: readonly NodeSession[]): Promise<void> {
  await Promise.all(
    sessions.flatMap(({ reader, lockSession }) => [endClient(reader), endClient(lockSession)]),
  );
}

async function takeSnapshots(
  coordinator: pg.Client,
  sessions: readonly NodeSession[],
): Promise<readonly RowSource[]> {
  for (let tries = 1; ; tries += 1) {
    try {
      await onAll(sessions, 'lockSession', blockWriters);
      const places = await onAll(sessions, 'reader', beginOnNode);
      // After the nodes: the apps and types of all of their events are known then.
      await coordinator.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
      await coordinator.query('SELECT FROM installation');
      // A lockSession that was given up in between fails here: writers may have come in.
      await onAll(sessions, 'lockSession', rollBack);
      return places.flat();
    } catch (error) {
      if (!RETRYABLE.has(errorCode(error)) || tries === MAX_TRIES) throw error;
      await onAll(sessions, 'lockSession', rollBack);
      await onAll(sessions, 'reader', rollBack);
      await rollBack(coordinator);
    }
  }
}

/** Does something on all nodes at once. @throws an error that says so if a node does not answer in time */
async function onAll<T>(
  sessions: readonly NodeSession[],
  role: 'reader' | 'lockSession',
  work: (client: pg.Client) => Promise<T>,
): Promise<T[]> {
  const outcomes = await Promise.allSettled(
    sessions.map(async ({ node, [role]: client }) => {
      const end = deadline(ANSWER_TIMEOUT_MS, () => client.connection.stream.destroy());
      try {
        return await work(client);
      } catch (cause) {
        throw errorCode(cause) === '' || isUnavailable(cause) ? notAnswering(node, cause) : cause;
      } finally {
        end();
      }
    }),
  );
  const failed = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []));
  // What passes is tried again only where nothing else is wrong.
  const worst = failed.find((error) => !RETRYABLE.has(errorCode(error))) ?? failed[0];
  if (worst !== undefined) throw worst;
  return outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
}

function notAnswering(node: ClusterNode, cause: unknown): OperatorError {
  return new OperatorError(`${nodeUnreachable(node).message}: a backup needs all nodes`, { cause });
}

async function rollBack(client: pg.Client): Promise<void> {
  await client.query('ROLLBACK');
}

/** All shards on every node: a write through another node takes its lock there. */
async function blockWriters(lockSession: pg.Client): Promise<void> {
  await lockSession.query(`
    BEGIN;
    -- Of all locks together: a timeout of locks is one of each.
    SET LOCAL statement_timeout = ${LOCK_TIMEOUT_MS};
    SET LOCAL idle_in_transaction_session_timeout = ${KEEPER_TIMEOUT_MS};
    SELECT lock_shard_metadata(${EXCLUSIVE_LOCK}, (SELECT array_agg(shardid ORDER BY shardid) FROM pg_dist_shard))`);
}

/** Takes the snapshot of a node. Its shards stay until the end, also if they are moved meanwhile. */
async function beginOnNode(client: pg.Client): Promise<RowSource[]> {
  const { rows } = await client.query<ShardRow>(SHARD_ROWS);
  const groups = groupsOf(rows);
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
  await client.query(
    `SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}; SET LOCAL citus.enable_manual_changes_to_shards = on`,
  );
  // Before the snapshot: what is dropped before it is not read, and nothing is dropped after it.
  const tables = groups.flatMap(({ tables: names }) => names);
  if (tables.length > 0) await client.query(`LOCK TABLE ONLY ${tables.join(', ONLY ')} IN ACCESS SHARE MODE`);
  await client.query('SELECT FROM pg_dist_local_group');
  return groups.map((group) => rowSourceOf(client, group));
}

function rowSourceOf(client: pg.Client, { nameOf }: ShardGroup): RowSource {
  return {
    client,
    nameOf,
    selectCounts: ({ name, ms }) => `
      (SELECT app_id, type_id, bucket, count FROM ${nameOf(countTable(name))}
       UNION ALL
       SELECT app_id, kind, date_bin('${ms} ms', bucket, 'epoch'), count
         FROM ${nameOf('count_deltas')} CROSS JOIN LATERAL (VALUES (type_id), (0)) AS kinds (kind))`,
  };
}
