/**
 * Ticks: snapshots that maintenance notes for the apps that have consumers, with the minutes in which events were committed since
 * the tick before (sql/0004). Writers know nothing of them.
 *
 * Whoever notes a tick holds the lock of counts, so that of two ticks the later one has the later snapshot.
 */

import type { Sql, Transaction } from '../database/connect.ts';

/** The tables that a tick is made of. */
export type TickTable = 'consumers' | 'feed_ticks' | 'changed_minutes';

/** The place of ticks that another server has numbered: its rows tell nothing of transactions. */
export const NO_PLACE = -1;

interface TickOptions {
  /** The name of a table, where it has another one. */
  readonly nameOf?: (table: TickTable) => string;
  /** An expression for the table that the rows are in. */
  readonly place?: string;
  /** Whether `changes` has the minutes of `changed_minutes`. */
  readonly hasChanged?: boolean;
}

/**
 * CTEs that note a tick for each app with consumers that `changes` (app_id, bucket, count) has minutes of.
 * @param changes a SELECT; a count of 0 says that it is not known
 */
export function noteTicks(
  changes: string,
  { nameOf = (table) => table, place = '0', hasChanged = false }: TickOptions = {},
): string {
  return `
    followed AS (SELECT DISTINCT app_id FROM ${nameOf('consumers')}),
    changed AS (DELETE FROM ${nameOf('changed_minutes')} RETURNING app_id, bucket),
    ticked AS (
      INSERT INTO ${nameOf('feed_ticks')} (app_id, tick, place, snapshot, minutes, counts)
      SELECT app_id, pg_current_xact_id()::text::bigint, ${place}, pg_current_snapshot()::text,
             array_agg(bucket ORDER BY bucket), array_agg(count ORDER BY bucket)
        FROM (SELECT app_id, bucket, CASE WHEN min(count) > 0 THEN sum(count)::bigint ELSE 0 END AS count
                FROM (${changes}
                      ${
                        hasChanged
                          ? ''
                          : `UNION ALL
                      SELECT followed.app_id, changed.bucket, 0
                        FROM changed JOIN followed ON changed.app_id IN (0, followed.app_id)`
                      }) AS added (app_id, bucket, count)
               WHERE app_id IN (SELECT app_id FROM followed)
               GROUP BY 1, 2) AS minutes
       GROUP BY app_id)`;
}

/**
 * SELECT of the ticks of a backup or a copy: those that there are, and for each app one more, of what its snapshot has and no tick tells of.
 * @param columns  those of feed_ticks
 * @param unticked a SELECT of the minutes that the next tick would tell of (app_id, bucket)
 * @param table    the name of feed_ticks
 */
export function selectTicks(columns: readonly string[], unticked: string, table: string): string {
  const next: Readonly<Record<string, string>> = {
    tick: 'last.tick + 1',
    at: 'now()',
    place: String(NO_PLACE),
    counts: 'array_fill(0::bigint, ARRAY[cardinality(minutes)])',
  };
  return `
    SELECT ${columns.join(', ')} FROM ${table} UNION ALL
    SELECT ${columns.map((column) => next[column] ?? column).join(', ')}
      FROM (SELECT app_id, array_agg(DISTINCT bucket) AS minutes FROM (${unticked}) AS unticked GROUP BY app_id) AS changed
      JOIN (SELECT app_id, max(tick) AS tick, min(snapshot) AS snapshot FROM ${table} GROUP BY app_id) AS last USING (app_id)`;
}

/** Whether any app has a consumer. */
export async function hasConsumers(sql: Sql): Promise<boolean> {
  const [row] = await sql<{ found: boolean }[]>`SELECT EXISTS (SELECT FROM consumers) AS found`;
  return row?.found === true;
}

/** Notes minutes that counts were added to without deltas; in the transaction that adds them. */
export const NOTE_CHANGED_MINUTES = `
  INSERT INTO changed_minutes (app_id, bucket)
  SELECT $1::integer, bucket FROM unnest($2::timestamptz[]) AS bucket
   WHERE EXISTS (SELECT FROM consumers WHERE app_id = $1::integer)`;

/** Transactions after which a tick is of no use: rows know the lower 32 bits of theirs. */
const MOST_TRANSACTIONS = 1_500_000_000;

/**
 * Marks the consumers as lost whose next tick is beyond the reach, and removes the ticks that nobody needs any more.
 * @param reachMs how long ticks are kept for a consumer
 */
export async function pruneTicks(
  tx: Transaction,
  { reachMs, now }: { readonly reachMs: number; readonly now: number },
  nameOf: (table: TickTable) => string = (table) => table,
): Promise<void> {
  const oldest = new Date(now - reachMs);
  await tx.unsafe(
    `UPDATE ${nameOf('consumers')} AS consumer SET lost_at = now(), leased_to = NULL, leased_until = NULL
      WHERE lost_at IS NULL AND EXISTS (
              SELECT FROM ${nameOf('feed_ticks')} AS next
               WHERE next.app_id = consumer.app_id AND next.tick > consumer.tick AND next.minutes <> '{}'
                 AND (next.at < '${oldest.toISOString()}'::timestamptz
                      OR pg_snapshot_xmax(pg_current_snapshot())::text::numeric
                         - pg_snapshot_xmin(next.snapshot::pg_snapshot)::text::numeric > ${MOST_TRANSACTIONS}))`,
  );
  await tx.unsafe(
    `DELETE FROM ${nameOf('feed_ticks')} AS old
      WHERE NOT EXISTS (SELECT FROM ${nameOf('consumers')} AS consumer
                         WHERE consumer.app_id = old.app_id AND consumer.lost_at IS NULL AND consumer.tick <= old.tick)`,
  );
}
