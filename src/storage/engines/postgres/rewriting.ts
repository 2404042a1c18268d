/**
 * Gives back the disk of past partitions of which most rows are gone: retention of apps, erasures and deleted apps leave room in
 * them that no new row takes.
 *
 * By VACUUM FULL, which keeps the partition from readers and writers until it is done; so it is ended after {@link REWRITE_MS}, and
 * changes nothing then. Copying the rows into another table and putting that in place would take a shorter lock, but the rows would be
 * those of a new transaction: the feed and consumers find new events by the transaction that has written them (xmin), and readers with
 * a snapshot from before would find none. VACUUM FULL keeps both as they are.
 */
import { DAY_MS, HOUR_MS } from '../../counts/levels.ts';
import { errorCode, SQLSTATE, type Sql } from '../../database/connect.ts';
import { unlessKept } from '../../maintenance/expired-rows.ts';

/** How long readers and writers of a past day may wait for its partition. */
const REWRITE_MS = 1_000;
/** Whoever waits for the partition keeps those waiting that come later. */
const LOCK_TIMEOUT_MS = 200;
/** Partitions that one call rewrites at most, the largest first. */
const MOST_AT_ONCE = 10;
/** When a partition is tried again that could not be rewritten in time, or all of it: a running transaction had kept its old rows. */
const AGAIN_MS = 6 * HOUR_MS;
/** Smaller ones are not worth a lock. */
const LEAST_BYTES = 1_048_576;
/** Larger ones would not be done in time. */
const MOST_BYTES = 1_073_741_824;
/** Bytes of a partition for each byte that its rows need, beyond which it is rewritten. */
const LARGEST_RATIO = 1.25;
/** Bytes of a page of 8,192, without its header; and bytes of a row without its columns, with its pointer. */
const PAGE_BYTES = 8_168;
const ROW_BYTES = 28;

interface Candidate {
  readonly name: string;
  /** Rows that were removed since the statistics of the server began. */
  readonly removed: number;
  readonly needsAnalyze: boolean;
}

export class Rewriting {
  readonly #sql: Sql;
  readonly #now: () => number;
  /** Partition → what had been removed of it when it was looked at, and when it was tried in vain; null: nothing is left to try. */
  readonly #seen = new Map<string, { readonly removed: number; readonly keptAt: number | null }>();

  /** @param sql a pool of one connection, which nobody else uses meanwhile */
  constructor(sql: Sql, now: () => number) {
    this.#sql = sql;
    this.#now = now;
  }

  /** Rewrites some partitions, unless somebody wants rows to stay where they are. @returns their names */
  async rewriteSome(): Promise<readonly string[]> {
    const sql = this.#sql;
    const candidates = await this.#candidates();
    if (candidates.length === 0) return [];
    const rewritten: string[] = [];
    await unlessKept(sql, async () => {
      for (const candidate of candidates) {
        const { name, removed } = candidate;
        let keptAt: number | null = null;
        if (candidate.needsAnalyze) await sql`ANALYZE ${sql(name)}`;
        if (await this.#isMostlyDead(name)) {
          const outcome = await this.#rewrite(name);
          if (outcome === 'locked') continue;
          if (outcome === 'rewritten') rewritten.push(name);
          else keptAt = this.#now();
        }
        this.#seen.set(name, { removed, keptAt });
      }
    });
    return rewritten;
  }

  /** Partitions of days that are over, of which rows were removed since they were looked at. */
  async #candidates(): Promise<readonly Candidate[]> {
    const rows = await this.#sql<Candidate[]>`
      SELECT relname AS name, n_tup_del::float8 AS removed, n_mod_since_analyze > 0.05 * n_live_tup AS "needsAnalyze"
        FROM events_partitions JOIN pg_stat_user_tables ON relid = partition
       WHERE finish <= ${new Date(this.#now() - DAY_MS)} AND n_tup_del > 0
         AND pg_relation_size(partition) >= ${LEAST_BYTES} AND pg_total_relation_size(partition) <= ${MOST_BYTES}
       ORDER BY pg_relation_size(partition) DESC`;
    const present = new Set(rows.map(({ name }) => name));
    for (const name of this.#seen.keys()) if (!present.has(name)) this.#seen.delete(name);
    const isSeen = ({ name, removed }: Candidate): boolean => {
      const seen = this.#seen.get(name);
      if (seen?.removed !== removed) return false;
      // By a clock that was wrong when it was tried, the time may lie far ahead.
      return seen.keptAt === null || Math.abs(this.#now() - seen.keptAt) < AGAIN_MS;
    };
    return rows.filter((row) => !isSeen(row)).slice(0, MOST_AT_ONCE);
  }

  /** Whether a partition is larger than its rows need, by the statistics of the planner. */
  async #isMostlyDead(name: string): Promise<boolean> {
    const [row] = await this.#sql<{ isDead: boolean }[]>`
      SELECT pg_relation_size(pg_class.oid)
               > ${LARGEST_RATIO}::float8 * 8192 * reltuples
                 / greatest(1, floor(${PAGE_BYTES}::float8 / (${ROW_BYTES}::float8 + 8 * ceil(width / 8)))) AS "isDead"
        FROM pg_class
       CROSS JOIN LATERAL (SELECT coalesce(sum(avg_width), 0)::float8 AS width FROM pg_stats
                            WHERE schemaname = current_schema() AND tablename = relname) AS columns
       WHERE pg_class.oid = to_regclass(${name}) AND reltuples >= 0`;
    return row?.isDead === true;
  }

  async #rewrite(name: string): Promise<'rewritten' | 'kept' | 'locked' | 'too slow'> {
    const sql = this.#sql;
    await sql.unsafe(`SET lock_timeout = ${LOCK_TIMEOUT_MS}`);
    await sql.unsafe(`SET statement_timeout = ${REWRITE_MS}`);
    try {
      await sql`VACUUM (FULL, ANALYZE) ${sql(name)}`;
      // It copies rows that any transaction of the server may see, also one of another database.
      const [kept] = await sql`
        SELECT FROM pg_stat_user_tables WHERE relid = to_regclass(${name}) AND n_dead_tup > 0.05 * n_live_tup`;
      return kept === undefined ? 'rewritten' : 'kept';
    } catch (error) {
      const code = errorCode(error);
      if (code === SQLSTATE.lockNotAvailable) return 'locked';
      if (code === SQLSTATE.queryCanceled) return 'too slow';
      throw error;
    } finally {
      await sql.unsafe('RESET statement_timeout');
      await sql.unsafe('RESET lock_timeout');
    }
  }
}
