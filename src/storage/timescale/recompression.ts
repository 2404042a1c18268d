/**
 * Recompression: rows that came late into a compressed chunk are moved into its columnstore.
 *
 * TimescaleDB does so without regard to older snapshots: they lose those rows from the commit on. So its own policy
 * compresses new chunks only, and the service recompresses. Before the commit it locks out whatever reads in a snapshot:
 * readers by {@link SNAPSHOT_LOCK}, refreshes of the aggregates by the advisory lock of maintenance.
 */
import { errorCode, type Sql, type Transaction } from '../connect.ts';
import { HOUR_MS } from '../counts/levels.ts';
import { SNAPSHOT_LOCK } from '../snapshot.ts';
import type { StorageSettings } from '../storage-engine.ts';

/** Bit of a chunk's status: it is compressed and has rows that are not. */
const PARTIAL = 8;
const LOCK_NOT_AVAILABLE = '55P03';

/** How long a request for a lock may make others wait behind it: late writers of the chunk, or readers. */
const CHUNK_LOCK_TIMEOUT_MS = 1_000;
const LOCK_TIMEOUT_MS = 200;
/** Before the work of a chunk a snapshot that stays in use is noticed soon; its work is not given up for one long read. */
const TRIES = { before: 5, after: 20 } as const;
const RETRY_MS = 300;

/**
 * Recompresses chunks that hold late rows, oldest first, each in a transaction of its own. Any number of processes may do
 * so, and it may be interrupted at any point. A chunk takes seconds, in which late events of its interval wait.
 * @param afterDays COMPRESS_AFTER_DAYS
 * @returns false where chunks are left, as a snapshot stays in use, for example that of a backup
 */
export async function recompress(sql: Sql, afterDays: number): Promise<boolean> {
  for (const chunk of await partialChunks(sql, afterDays)) {
    if (!(await isFree(sql)) || !(await recompressChunk(sql, chunk))) return false;
  }
  return true;
}

async function partialChunks(sql: Sql, afterDays: number): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    SELECT chunk::text AS name FROM show_chunks('events', older_than => ${`${afterDays} days`}::interval) AS chunk
     WHERE _timescaledb_functions.chunk_status(chunk) & ${PARTIAL} <> 0
     ORDER BY chunk`;
  return rows.map(({ name }) => name);
}

/** Whether no snapshot stays in use: the work of a chunk would be lost to it. */
async function isFree(sql: Sql): Promise<boolean> {
  for (let tries = 1; tries <= TRIES.before; tries += 1) {
    if (tries > 1) await pause(RETRY_MS);
    if (await sql.begin('isolation level read committed', lockOut)) return true;
  }
  return false;
}

/** A lock was not free: what the transaction has done is rolled back. */
class NotFree extends Error {}

/** @returns false where it was given up for a lock */
async function recompressChunk(sql: Sql, chunk: string): Promise<boolean> {
  try {
    await sql.begin('isolation level read committed', async (tx) => {
      await tx`SET LOCAL statement_timeout = 0`;
      await tx.unsafe(`SET LOCAL lock_timeout = ${CHUNK_LOCK_TIMEOUT_MS}`);
      await tx`SELECT compress_chunk(${chunk}::text::regclass)`;
      for (let tries = 1; !(await lockOut(tx)); tries += 1) {
        if (tries === TRIES.after) throw new NotFree();
        await pause(RETRY_MS);
      }
    });
    return true;
  } catch (error) {
    if (error instanceof NotFree || errorCode(error) === LOCK_NOT_AVAILABLE) return false;
    throw error;
  }
}

/** Takes both locks until the end of the transaction. @returns false where one was not free in time */
async function lockOut(tx: Transaction): Promise<boolean> {
  try {
    await tx.savepoint(async (part) => {
      await part.unsafe(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
      await part`SELECT pg_advisory_xact_lock(hashtext('tidemark upkeep'))`;
      await part`LOCK TABLE ${part(SNAPSHOT_LOCK)} IN ACCESS EXCLUSIVE MODE`;
    });
    return true;
  } catch (error) {
    if (errorCode(error) === LOCK_NOT_AVAILABLE) return false;
    throw error;
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

/** Recompression beside the other tasks of maintenance, as often as a policy of TimescaleDB would run. */
export class Recompression {
  readonly #sql: Sql;
  readonly #settings: StorageSettings;
  readonly #now: () => number;
  #doneAt = Number.NEGATIVE_INFINITY;
  #isRunning = false;
  #failure: { readonly error: unknown } | null = null;

  /**
   * @param sql a pool for this alone
   * @param now milliseconds since 1970
   */
  constructor(sql: Sql, settings: StorageSettings, now: () => number) {
    this.#sql = sql;
    this.#settings = settings;
    this.#now = now;
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  /** Starts, and does not wait for the end. */
  startIfDue(): void {
    const { CHUNK_HOURS, COMPRESS_AFTER_DAYS } = this.#settings;
    const isDue = Math.abs(this.#now() - this.#doneAt) >= (CHUNK_HOURS * HOUR_MS) / 2;
    if (COMPRESS_AFTER_DAYS === 0 || this.#isRunning || !isDue) return;
    this.#isRunning = true;
    recompress(this.#sql, COMPRESS_AFTER_DAYS)
      .then(
        (isAll) => {
          if (isAll) this.#doneAt = this.#now();
        },
        (error: unknown) => {
          this.#failure = { error };
        },
      )
      .finally(() => {
        this.#isRunning = false;
      });
  }

  /** Throws the error of a run that has failed since the last call. */
  throwFailure(): void {
    const failure = this.#failure;
    this.#failure = null;
    if (failure !== null) throw failure.error;
  }
}
