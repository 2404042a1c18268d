/** Closes the nodes of a cluster to writers, who send events to them directly, when its data moves to another database. */
import type { Sql } from '../../database/connect.ts';
import { nodePools } from './shards.ts';

/**
 * Makes new sessions of the nodes beside the coordinator read-only, or takes that back.
 * @returns the pools of these nodes, whose old sessions go on as before
 */
export async function closeNodes(sql: Sql, isClosed: boolean): Promise<readonly Sql[]> {
  const pools = (await nodePools(sql)).filter((pool) => pool !== sql);
  for (const pool of pools)
    await pool.begin('isolation level read committed read write', async (tx) => {
      await tx`SET LOCAL citus.enable_ddl_propagation = off`;
      const [database] = await tx<{ name: string }[]>`SELECT quote_ident(current_database()) AS name`;
      const change = isClosed
        ? 'SET default_transaction_read_only = on'
        : 'RESET default_transaction_read_only';
      await tx.unsafe(`ALTER DATABASE ${database?.name ?? ''} ${change}`);
    });
  return pools;
}
