/**
 * Rows in the tables of a node that stand for its shards. With the library loaded every statement on such a table goes to the shards, so
 * its own rows are seen by what PostgreSQL does below the planner alone: the check of a new constraint calls a function with each row.
 */
import { OperatorError } from '../../../errors.ts';
import { isUnavailable, poolOnNode, type Sql, type Transaction } from '../../database/connect.ts';
import { refuseUnfit } from '../../database/fitness.ts';
import type { StrayCount, StrayRows, StraySource } from '../../maintenance/stray-rows.ts';

/** An ordinary table of the node, while its rows wait to be moved. */
const GATHERED = 'stray_events';
const CALLBACK = 'see_stray_event';
/** Settings of DDL on this node alone, which waits for a lock no longer than writers can. */
const FOR_DDL = "SET LOCAL citus.enable_ddl_propagation = off; SET LOCAL lock_timeout = '2s'";
const COUNTER = 'tidemark.stray_rows';

interface Server {
  /** Null for the coordinator. */
  readonly server: string | null;
  readonly pool: Sql;
}

export const strayRows: StrayRows = {
  find: async (sql) => {
    const counts: StrayCount[] = [];
    for (const { server, pool } of await serversOf(sql)) {
      // What lies on a node that is away is found when it is back.
      const rows = await countOn(pool).catch((error: unknown) => {
        if (server !== null && isUnavailable(error)) return 0;
        throw error;
      });
      if (rows > 0) counts.push({ server, rows });
    }
    return counts;
  },
  gather: async (sql) => {
    const sources: StraySource[] = [];
    for (const { server, pool } of await serversOf(sql)) {
      await refuseUnfit(pool, 'citus', server ?? 'the coordinator');
      await gatherOn(pool);
      const [found] = await pool<{ waits: boolean }[]>`SELECT to_regclass(${GATHERED}) IS NOT NULL AS waits`;
      if (found?.waits === true)
        sources.push({
          sql: pool,
          table: GATHERED,
          close: async () => undefined,
          end: () => dropGathered(pool),
        });
    }
    return sources;
  },
};

/** All servers of the cluster, also those that have no shards any more. */
async function serversOf(sql: Sql): Promise<readonly Server[]> {
  const nodes = await sql<{ host: string; port: number }[]>`
    SELECT nodename AS host, nodeport AS port FROM pg_dist_node
     WHERE groupid <> 0 AND noderole = 'primary' AND isactive ORDER BY nodeid`;
  return [
    { server: null, pool: sql },
    ...nodes.map((node) => ({ server: `${node.host}:${node.port}`, pool: poolOnNode(sql, node) })),
  ];
}

/** The partitions of events whose own files have pages, on one node. */
async function filledPartitions(sql: Sql | Transaction): Promise<readonly string[]> {
  const rows = await sql<{ name: string }[]>`
    SELECT inhrelid::regclass::text AS name FROM pg_inherits
     WHERE inhparent = 'events'::regclass AND pg_relation_size(inhrelid) > 0 ORDER BY 1`;
  return rows.map(({ name }) => name);
}

async function countOn(pool: Sql): Promise<number> {
  const [waiting] = await pool<{ table: string | null }[]>`SELECT to_regclass(${GATHERED})::text AS table`;
  const [{ rows: gathered } = { rows: 0 }] =
    waiting?.table == null
      ? []
      : await pool<{ rows: number }[]>`SELECT count(*)::float8 AS rows FROM ${pool(GATHERED)}`;
  if ((await filledPartitions(pool)).length === 0) return gathered;
  let rows = 0;
  await pool
    .begin('isolation level read committed', async (tx) => {
      await tx.unsafe(`${FOR_DDL}; SET LOCAL ${COUNTER} = 0`);
      await seeRows(
        tx,
        `PERFORM set_config('${COUNTER}', (current_setting('${COUNTER}')::bigint + 1)::text, true);`,
      );
      const [counted] = await tx<{ rows: number }[]>`SELECT current_setting(${COUNTER})::float8 AS rows`;
      rows = counted?.rows ?? 0;
      throw new Counted();
    })
    .catch((error: unknown) => {
      if (!(error instanceof Counted)) throw error;
    });
  return gathered + rows;
}

/** Rolls back what was made to count. */
class Counted extends Error {}

/** Calls a function for each row of the node's own partitions. @param body statements with the row in `stray` */
async function seeRows(tx: Transaction, body: string): Promise<readonly string[]> {
  const partitions = await filledPartitions(tx);
  for (const name of partitions)
    await tx.unsafe(`
      CREATE FUNCTION ${CALLBACK}(stray ${name}) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN ${body} RETURN true; END $$;
      ALTER TABLE ${name} ADD CONSTRAINT ${CALLBACK} CHECK (${CALLBACK}(${name}));
      ALTER TABLE ${name} DROP CONSTRAINT ${CALLBACK};
      DROP FUNCTION ${CALLBACK}(${name})`);
  return partitions;
}

/** Moves the rows of a node's own partitions into an ordinary table of it, in one transaction. */
async function gatherOn(pool: Sql): Promise<void> {
  if ((await filledPartitions(pool)).length === 0) return;
  await pool.begin('isolation level read committed', async (tx) => {
    await tx.unsafe(`${FOR_DDL};
      CREATE TABLE IF NOT EXISTS ${GATHERED} (
        id uuid NOT NULL, app_id integer NOT NULL, type_id integer NOT NULL, created_at timestamptz NOT NULL, payload json NOT NULL)`);
    const partitions = await seeRows(
      tx,
      `INSERT INTO ${GATHERED} VALUES (stray.id, stray.app_id, stray.type_id, stray.created_at, stray.payload);`,
    );
    for (const name of partitions) await emptyOwn(tx, name);
  });
}

/** Empties a node's own table, and makes sure that its shards were not. */
async function emptyOwn(tx: Transaction, name: string): Promise<void> {
  const hasRows = async (): Promise<boolean> => {
    const [row] = await tx.unsafe<{ has: boolean }[]>(`SELECT EXISTS (SELECT 1 FROM ${name}) AS has`);
    return row?.has === true;
  };
  const [setting] = await tx<{ off: boolean }[]>`
    SELECT current_setting('citus.enable_ddl_propagation') = 'off' AS off`;
  if (setting?.off !== true) throw new Error('The statement would reach other nodes.');
  const before = await hasRows();
  await tx.unsafe(`TRUNCATE ${name}`);
  if (before && !(await hasRows()))
    throw new Error(`This version of Citus empties the shards of ${name}, too.`);
}

async function dropGathered(pool: Sql): Promise<void> {
  await pool.begin('isolation level read committed', async (tx) => {
    await tx.unsafe(FOR_DDL);
    const [row] = await tx<{ rows: number }[]>`SELECT count(*)::int AS rows FROM ${tx(GATHERED)}`;
    if (row?.rows !== 0) throw new OperatorError('there are new rows to recover: run the command again');
    await tx`DROP TABLE ${tx(GATHERED)}`;
  });
}
