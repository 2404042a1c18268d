/** The oldest snapshot in use: rows that were deleted since it was taken stay on the disk. */
import type { Logger } from 'pino';
import type { Sql } from '../database/connect.ts';

/** What holds a snapshot, or a transaction id, which does the same. */
export interface SnapshotHolder {
  /** Identifies the holder and its transaction. */
  readonly id: string;
  /** The process, prepared transaction or replication slot, for display. */
  readonly name: string;
  /** How long its transaction has been open; null where PostgreSQL does not show it, as for other roles or a slot. */
  readonly seconds: number | null;
  /** Transactions that have begun since. */
  readonly transactions: number;
}

/** Age in transactions, name and seconds of what keeps dead rows of this database. Autovacuum does not. */
const HOLDERS = `
  SELECT greatest(age(backend_xmin), age(backend_xid)) AS transactions,
         format('%s %s %s', pid, backend_start, coalesce(backend_xid, backend_xmin)) AS id,
         format('process %s (%s)', pid, concat_ws(', ', nullif(application_name, ''), 'user ' || usename, state, client_addr)) AS name,
         extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
    FROM pg_stat_activity
   WHERE (datname = current_database() OR datname IS NULL) AND pid <> pg_backend_pid()
     AND backend_type IS DISTINCT FROM 'autovacuum worker' AND coalesce(backend_xmin, backend_xid) IS NOT NULL
  UNION ALL
  SELECT age(xmin), format('%s %s', slot_name, xmin), format('replication slot %s', slot_name), NULL
    FROM pg_replication_slots WHERE xmin IS NOT NULL
  UNION ALL
  SELECT age(transaction), gid, format('prepared transaction %s', gid), extract(epoch FROM clock_timestamp() - prepared)::float8
    FROM pg_prepared_xacts WHERE database = current_database()`;

/** The oldest of them; null where there is none. */
export async function readOldestSnapshot(sql: Sql): Promise<SnapshotHolder | null> {
  const [holder] = await sql.unsafe<SnapshotHolder[]>(
    `SELECT id, name, seconds, transactions FROM (${HOLDERS}) AS holders ORDER BY transactions DESC, seconds DESC NULLS LAST LIMIT 1`,
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

/** A snapshot that is in use for longer makes reads and the database larger than they need be. */
const LONG_SECONDS = 60;

/** Follows the oldest snapshot: its age for the metrics, and a line in the log for one that is in use for long. */
export class SnapshotWatch {
  readonly #sql: Sql;
  readonly #log: Pick<Logger, 'warn' | 'info'>;
  readonly #now: () => number;
  readonly #longSeconds: number;
  #holder = '';
  /** When the holder was seen for the first time. */
  #since = 0;
  #seconds = 0;
  #logged: string | null = null;

  /** @param longSeconds after which the log names the holder; another time in tests */
  constructor(sql: Sql, log: Pick<Logger, 'warn' | 'info'>, now: () => number, longSeconds = LONG_SECONDS) {
    this.#sql = sql;
    this.#log = log;
    this.#now = now;
    this.#longSeconds = longSeconds;
  }

  /** Age of the oldest snapshot when it was last looked for, in seconds; 0 where there was none. */
  get seconds(): number {
    return this.#seconds;
  }

  async look(): Promise<void> {
    const oldest = await readOldestSnapshot(this.#sql);
    // A state that changes does not make it another snapshot.
    const holder = oldest?.id ?? '';
    if (holder !== this.#holder) this.#since = this.#now();
    this.#holder = holder;
    this.#seconds = oldest === null ? 0 : (oldest.seconds ?? Math.max(0, this.#now() - this.#since) / 1_000);
    if (this.#logged !== null && this.#logged !== holder) {
      this.#log.info('maintenance: the long-running snapshot has ended');
      this.#logged = null;
    }
    if (oldest === null || this.#seconds < this.#longSeconds || this.#logged !== null) return;
    this.#logged = holder;
    const { name, transactions } = oldest;
    this.#log.warn(
      { holder: name, seconds: Math.round(this.#seconds), transactions },
      'maintenance: long-running snapshot, rows that were deleted since cannot be vacuumed',
    );
  }
}
