/** Refreshes of the continuous aggregates. TimescaleDB refuses concurrent ones of the same buckets. */
import { setTimeout as sleep } from 'node:timers/promises';
import { errorCode, SQLSTATE, type Sql } from '../../database/connect.ts';

export interface RefreshInterval {
  readonly from: Date;
  /** Not included. */
  readonly until: Date;
}

/**
 * Refreshes whole buckets of an aggregate.
 * @param options.isForced  also what no logged invalidation lies in
 * @param options.inBatches see {@link refreshesInBatches}
 */
export async function refresh(
  sql: Sql,
  aggregate: string,
  { from, until }: RefreshInterval,
  { isForced, inBatches }: { readonly isForced: boolean; readonly inBatches: boolean },
): Promise<void> {
  await sql`
    CALL refresh_continuous_aggregate(${aggregate}, ${from}::timestamptz, ${until}::timestamptz, force => ${isForced}
                                      ${inBatches ? sql`, options => '{"buckets_per_batch": 0}'` : sql``})`;
}

/**
 * Newer releases refresh ten buckets at a time by default: 15 s for a hundred days of minutes, in place of
 * 12 ms. Older ones neither do so nor know the option.
 */
export async function refreshesInBatches(sql: Sql): Promise<boolean> {
  const [refresh] = await sql<{ hasOptions: boolean }[]>`
    SELECT max(pronargs) > 4 AS "hasOptions" FROM pg_proc WHERE proname = 'refresh_continuous_aggregate'`;
  return refresh?.hasOptions === true;
}

const RETRY_MS = 100;
/** How long a refresh that cannot wait for another one waits for locks. */
const LOCK_TIMEOUT_MS = 500;
/** Timeout of a refresh that a command waits for. */
export const REFRESH_TIMEOUT_MS = 60_000;

/** Whether a refresh was given up, as another program refreshes the same buckets or has them locked. */
export function isBeingRefreshed(error: unknown): boolean {
  return errorCode(error) === SQLSTATE.lockNotAvailable;
}

/**
 * Refreshes, and retries while another refresh of the same buckets is in progress: those of TimescaleDB's own policies
 * and of other programs do not know our lock.
 * @param sql       a pool of one connection
 * @param timeoutMs after which it throws the error that {@link isBeingRefreshed} recognizes; with 0 it does not wait for locks either
 */
export async function refreshInTurn(
  sql: Sql,
  refreshing: () => Promise<void>,
  timeoutMs: number,
): Promise<void> {
  // Minutes that are counted again may be in the columnstore, which is opened up; by default for 100,000 rows at most.
  await sql`SET timescaledb.max_tuples_decompressed_per_dml_transaction = 0`;
  // A sequential scan of an aggregate asks for the watermark again at each row, 15 µs each time; an index scan asks once.
  await sql`SET enable_seqscan = off`;
  if (timeoutMs === 0) await sql.unsafe(`SET lock_timeout = ${LOCK_TIMEOUT_MS}`);
  try {
    for (const deadline = performance.now() + timeoutMs; ; ) {
      try {
        return await refreshing();
      } catch (error) {
        if (!isBeingRefreshed(error) || performance.now() >= deadline) throw error;
      }
      await sleep(RETRY_MS);
    }
  } finally {
    await sql`RESET enable_seqscan`;
    if (timeoutMs === 0) await sql`RESET lock_timeout`;
  }
}
