/** A session that is forgotten in a transaction, and what its snapshot makes others go through. */
import {
  connect,
  type DatabaseAddress,
  type Sql,
  type Transaction,
} from '../../src/storage/database/connect.ts';

export interface HeldSnapshot {
  /** Works in the transaction of the session. */
  run<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /** Commits it, once. */
  release(): Promise<void>;
}

/**
 * Begins a transaction that stays open.
 * @param options.hasWritten whether it has a transaction id too, as one that has written something
 */
export async function heldSnapshot(
  address: DatabaseAddress,
  options: { readonly hasWritten: boolean },
): Promise<HeldSnapshot> {
  const session = connect(address, { connections: 1, name: 'forgotten session' });
  let letGo = (): void => undefined;
  const released = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  let done: Promise<unknown> = Promise.resolve();
  const tx = await new Promise<Transaction>((held, failed) => {
    done = session.begin('isolation level repeatable read', async (own) => {
      await own`SELECT FROM events`;
      if (options.hasWritten) await own`SELECT pg_current_xact_id()`;
      held(own);
      await released;
    });
    done.catch(failed);
  });
  let ending: Promise<void> | null = null;
  const end = async (): Promise<void> => {
    letGo();
    await done;
    await session.end();
  };
  return {
    run: (work) => work(tx),
    release: () => {
      ending ??= end();
      return ending;
    },
  };
}

/**
 * Lets so many transactions pass. After 1,000 a fold notes those that are still open one by one: also the ones of other tests
 * on the same server.
 */
export async function passTransactions(sql: Sql, transactions: number): Promise<void> {
  await sql.unsafe(`
    DO $$ BEGIN FOR n IN 1..${transactions} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`);
}

/**
 * Rows of an app that each transaction of some work removes: a snapshot from before it still sees them, with the transaction that
 * has removed them.
 * @param sql a pool where the tables are
 */
export async function removedByTransaction(
  sql: Sql,
  tables: readonly string[],
  appId: number,
  work: () => Promise<unknown>,
): Promise<number[]> {
  return await sql.begin('isolation level repeatable read', async (tx) => {
    await tx`SELECT txid_current_snapshot()`;
    await work();
    const removed: number[] = [];
    for (const table of tables)
      removed.push(
        ...(
          await tx<{ rows: number }[]>`
            SELECT count(*)::integer AS rows FROM ${tx(table)}
             WHERE app_id = ${appId} AND xmax::text <> '0' GROUP BY xmax::text`
        ).map(({ rows }) => rows),
      );
    return removed;
  });
}

/**
 * Blocks of tables and of their indexes that some work goes through: the least of three times, because what other sessions
 * have counted may be added to the statistics meanwhile.
 * @param sql a pool of one connection, on which the work is done
 * @param work may be repeated
 */
export async function blocksOf(
  sql: Sql,
  tables: readonly string[],
  work: (sql: Sql) => Promise<unknown>,
): Promise<number> {
  const blocks = async (): Promise<number> => {
    await sql`SELECT pg_stat_force_next_flush()`;
    const [row] = await sql<{ blocks: number }[]>`
      SELECT sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0))::float8 AS blocks
        FROM pg_statio_user_tables WHERE relname = ANY(${[...tables]})`;
    return row?.blocks ?? Number.NaN;
  };
  const costs: number[] = [];
  while (costs.length < 3) {
    const before = await blocks();
    await work(sql);
    costs.push((await blocks()) - before);
  }
  return Math.min(...costs);
}
