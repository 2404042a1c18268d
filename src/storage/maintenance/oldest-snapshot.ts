/** The oldest snapshot in use: rows that were deleted since it was taken stay on the disk. */
import type { Sql } from '../connect.ts';

/** What holds a snapshot, or a transaction id, which does the same. */
export interface SnapshotHolder {
  /** The process, prepared transaction or replication slot, for people. */
  readonly name: string;
  /** How long its transaction has been open; null where PostgreSQL does not tell, as of other roles or of a slot. */
  readonly seconds: number | null;
  /** Transactions that have begun since. */
  readonly transactions: number;
}

/** Age in transactions, name and seconds of what keeps dead rows of this database. Autovacuum does not. */
const HOLDERS = `
  SELECT greatest(age(backend_xmin), age(backend_xid)) AS transactions,
         format('process %s (%s)', pid, concat_ws(', ', nullif(application_name, ''), 'user ' || usename, state, client_addr)) AS name,
         extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
    FROM pg_stat_activity
   WHERE (datname = current_database() OR datname IS NULL) AND pid <> pg_backend_pid()
     AND backend_type <> 'autovacuum worker' AND coalesce(backend_xmin, backend_xid) IS NOT NULL
  UNION ALL
  SELECT age(xmin), format('replication slot %s', slot_name), NULL FROM pg_replication_slots WHERE xmin IS NOT NULL
  UNION ALL
  SELECT age(transaction), format('prepared transaction %s', gid), extract(epoch FROM clock_timestamp() - prepared)::float8
    FROM pg_prepared_xacts WHERE database = current_database()`;

/** The oldest of them; null where there is none. */
export async function readOldestSnapshot(sql: Sql): Promise<SnapshotHolder | null> {
  const [holder] = await sql.unsafe<SnapshotHolder[]>(
    `SELECT name, seconds, transactions FROM (${HOLDERS}) AS holders ORDER BY transactions DESC, seconds DESC NULLS LAST LIMIT 1`,
  );
  return holder ?? null;
}

/** Whether a snapshot in use is older than a transaction. @param transaction its full id (xid8) */
export async function snapshotsBefore(sql: Sql, transaction: string): Promise<boolean> {
  const [older] = await sql.unsafe(
    `SELECT FROM (${HOLDERS}) AS holders WHERE transactions > age($1::xid8::xid) LIMIT 1`,
    [transaction],
  );
  return older !== undefined;
}
