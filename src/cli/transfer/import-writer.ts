/** Batches of imported events into the events table, each exactly once, whatever happens to the connection meanwhile. */
import pg from 'pg';
import { OperatorError } from '../../errors.ts';
import { beforeRetention } from '../../ingest/event-time.ts';
import { type DatabaseAddress, errorCode, isUnavailable } from '../../storage/connect.ts';
import { copyRows, openCopyClient } from '../../storage/copy-client.ts';
import type { Engine } from '../../storage/engine.ts';
import { copyField } from '../../storage/write/copy-connection.ts';

export interface ImportedEvent {
  readonly id: string;
  /** Internal id. */
  readonly typeId: number;
  /** Milliseconds since 1970. */
  readonly createdAt: number;
  readonly payload: string;
  /** Number of its line. */
  readonly line: number;
}

export interface Refusal {
  readonly line: number;
  readonly reason: string;
}

export interface BatchOutcome {
  readonly imported: number;
  /** Were there already. */
  readonly skipped: number;
  readonly refused: readonly Refusal[];
}

export interface ImportWriterOptions {
  readonly address: DatabaseAddress;
  readonly engine: Engine;
  /** Internal id of the app. */
  readonly appId: number;
  /** Milliseconds since 1970, before which retention removes events; beside the boundary in the database. */
  readonly keptFrom: number;
  /** How long a batch is tried again, in milliseconds; long enough for a restart of PostgreSQL. */
  readonly timeoutMs: number;
}

const COLUMNS = 'id, app_id, type_id, created_at, payload';
const COPY_NEW = `COPY events (${COLUMNS}) FROM STDIN`;
const COPY_STAGED = `COPY staged_events (${COLUMNS}) FROM STDIN`;
const MAKE_STAGED = `
  CREATE TEMPORARY TABLE IF NOT EXISTS staged_events (
    id uuid, app_id integer, type_id integer, created_at timestamptz, payload json
  ) ON COMMIT DELETE ROWS`;
const INSERT_MISSING = `
  INSERT INTO events (${COLUMNS}) SELECT ${COLUMNS} FROM staged_events ORDER BY created_at, id ON CONFLICT DO NOTHING`;

/** Locks: the app can not go, nor retention's boundary move, before the batch is committed. */
const BEGIN_BATCH = `
  SELECT pg_current_xact_id()::text AS xid,
         (extract(epoch FROM greatest(readable_from, '1970-01-01Z')) * 1000)::float8 AS boundary
    FROM apps CROSS JOIN retention
   WHERE apps.id = $1
     FOR KEY SHARE OF apps FOR SHARE OF retention`;

/** What a refused statement means, by SQLSTATE or its class (PostgreSQL documentation, appendix A). */
const FAILURES: Readonly<Record<string, 'duplicate' | 'data' | 'transient'>> = {
  '22': 'data',
  '23': 'data',
  '23505': 'duplicate',
  '25006': 'transient',
  '40': 'transient',
  '53': 'transient',
  '54': 'data',
  '55': 'transient',
  '57': 'transient',
  '58': 'transient',
};

const RETRY_MS = 250;

/** One attempt's transaction. */
interface Attempt {
  /** PostgreSQL's id of it, by which its fate can be asked for; null before it has one. */
  xid: string | null;
  outcome: BatchOutcome | null;
}

export class ImportWriter {
  readonly #options: ImportWriterOptions;
  readonly #partitions = new Set<string>();
  #client: pg.Client | null = null;
  /** True after a batch that held events that are there already: then COPY would only find that out anew. */
  #merging = false;

  constructor(options: ImportWriterOptions) {
    this.#options = options;
  }

  /**
   * Commits a batch; one call at a time.
   * @throws OperatorError where the app was removed meanwhile, or the database stays away
   */
  async write(batch: readonly ImportedEvent[]): Promise<BatchOutcome> {
    const ordered = batch.toSorted((a, b) => a.createdAt - b.createdAt);
    const deadline = performance.now() + this.#options.timeoutMs;
    for (;;) {
      const attempt: Attempt = { xid: null, outcome: null };
      try {
        return await this.#attempt(ordered, attempt);
      } catch (error) {
        if (error instanceof OperatorError) throw error;
        const failure = failureOf(error);
        this.#partitions.clear();
        if (failure === 'data' && ordered.length > 1) return await this.#bisect(ordered);
        if (failure === 'data') return { imported: 0, skipped: 0, refused: [poison(ordered, error)] };
        if (failure === 'fault') throw error;
        if (performance.now() > deadline) throw givenUp(error);
        this.#merging = true;
        if (failure === 'lost') {
          this.#leave();
          const outcome = await this.#fate(attempt, deadline);
          if (outcome !== null) return outcome;
        }
        if (failure !== 'duplicate') await pause(RETRY_MS);
      }
    }
  }

  async close(): Promise<void> {
    const client = this.#client;
    this.#client = null;
    await client?.end().catch(() => undefined); // A connection that is already broken is closed enough.
  }

  async #attempt(batch: readonly ImportedEvent[], attempt: Attempt): Promise<BatchOutcome> {
    const client = await this.#connected();
    if (this.#options.engine === 'postgres') await this.#makePartitions(client, batch);
    try {
      await client.query('BEGIN ISOLATION LEVEL READ COMMITTED');
      attempt.outcome = await this.#store(client, batch, attempt);
      await client.query('COMMIT');
      return attempt.outcome;
    } catch (error) {
      if (isLost(error)) throw error;
      await client.query('ROLLBACK').catch(() => this.#leave());
      throw error;
    }
  }

  async #store(client: pg.Client, batch: readonly ImportedEvent[], attempt: Attempt): Promise<BatchOutcome> {
    const { appId, engine, keptFrom } = this.#options;
    const begun = await client.query<{ xid: string; boundary: number }>(BEGIN_BATCH, [appId]);
    const [start] = begun.rows;
    if (start === undefined) throw new OperatorError('the app was removed: its import ends here');
    attempt.xid = start.xid;
    const boundary = Math.max(start.boundary, keptFrom);
    const kept = batch.filter((event) => event.createdAt >= boundary);
    const refused = batch
      .filter((event) => event.createdAt < boundary)
      .map((event) => tooOld(event, boundary));
    if (kept.length === 0) return { imported: 0, skipped: 0, refused };
    const rows = rowsOf(kept, appId);
    if (!this.#merging) {
      await copyRows(client, COPY_NEW, rows);
      return { imported: kept.length, skipped: 0, refused };
    }
    // What is in the columnstore is opened up to look for duplicates; by default for 100,000 rows at most.
    if (engine === 'timescale')
      await client.query('SET LOCAL timescaledb.max_tuples_decompressed_per_dml_transaction = 0');
    await client.query(MAKE_STAGED);
    await copyRows(client, COPY_STAGED, rows);
    const imported = (await client.query(INSERT_MISSING)).rowCount ?? 0;
    this.#merging = imported < kept.length;
    return { imported, skipped: kept.length - imported, refused };
  }

  /** The outcome of a transaction whose COMMIT got no answer: null where it was not committed, or nobody knows any more. */
  async #fate({ xid, outcome }: Attempt, deadline: number): Promise<BatchOutcome | null> {
    if (xid === null || outcome === null) return null;
    for (;;) {
      try {
        const client = await this.#connected();
        const { rows } = await client.query<{ status: string | null }>(
          'SELECT pg_xact_status($1::xid8) AS status',
          [xid],
        );
        const status = rows[0]?.status;
        if (status === 'committed') return outcome;
        // The old session may not have noticed yet that we are gone.
        if (status !== 'in progress') return null;
      } catch (error) {
        // Another server that took over may never have heard of the transaction.
        if (!isLost(error)) return null;
        this.#leave();
        if (performance.now() > deadline) throw givenUp(error);
      }
      await pause(RETRY_MS);
    }
  }

  /** Halves the batch until the event that can not be stored stands alone; its neighbours are stored. */
  async #bisect(batch: readonly ImportedEvent[]): Promise<BatchOutcome> {
    const middle = batch.length >> 1;
    const first = await this.write(batch.slice(0, middle));
    const second = await this.write(batch.slice(middle));
    return {
      imported: first.imported + second.imported,
      skipped: first.skipped + second.skipped,
      refused: [...first.refused, ...second.refused],
    };
  }

  async #makePartitions(client: pg.Client, batch: readonly ImportedEvent[]): Promise<void> {
    const days = new Set(batch.map((event) => new Date(event.createdAt).toISOString().slice(0, 10)));
    for (const day of days) {
      if (this.#partitions.has(day)) continue;
      // Behind the boundary nothing is stored: a partition there would stay for ever in nobody's way but ours.
      await client.query(
        `SELECT create_events_partition($1::date) FROM retention
          WHERE readable_from <= $1::date::timestamp AT TIME ZONE 'UTC'`,
        [day],
      );
      this.#partitions.add(day);
    }
  }

  async #connected(): Promise<pg.Client> {
    this.#client ??= await openCopyClient(this.#options.address, 'tidemark import');
    return this.#client;
  }

  /** Leaves a connection that is broken or in no known state. */
  #leave(): void {
    this.#client?.connection.stream.destroy();
    this.#client = null;
  }
}

type Failure = 'duplicate' | 'data' | 'transient' | 'lost' | 'fault';

function failureOf(error: unknown): Failure {
  if (isLost(error)) return 'lost';
  if (!(error instanceof pg.DatabaseError) || error.code === undefined) return 'fault';
  // The same SQLSTATE as a CHECK constraint's, but no constraint is named: retention has dropped the partition.
  if (error.code === '23514' && error.constraint === undefined) return 'transient';
  return FAILURES[error.code] ?? FAILURES[error.code.slice(0, 2)] ?? 'fault';
}

/** Whether the connection is gone: then the server has not refused anything, or has refused everything. */
function isLost(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) return error.severity === 'FATAL' || error.severity === 'PANIC';
  return (
    isUnavailable(error) || (error instanceof Error && /^(Connection|Client|timeout)\b/.test(error.message))
  );
}

function givenUp(error: unknown): OperatorError {
  const message = error instanceof Error && error.message !== '' ? error.message : errorCode(error);
  return new OperatorError(
    `the database stayed away (${message}): run the same import again, which skips what is imported already`,
    { cause: error },
  );
}

function poison(batch: readonly ImportedEvent[], error: unknown): Refusal {
  const message = error instanceof Error ? error.message : String(error);
  return { line: batch[0]?.line ?? 0, reason: `the database refuses it (${message})` };
}

function tooOld(event: ImportedEvent, boundary: number): Refusal {
  return { line: event.line, reason: `the field "createdAt" ${beforeRetention(boundary)}` };
}

/** COPY's text format. */
function rowsOf(batch: readonly ImportedEvent[], appId: number): Buffer {
  let rows = '';
  for (const { id, typeId, createdAt, payload } of batch)
    rows += `${id}\t${appId}\t${typeId}\t${new Date(createdAt).toISOString()}\t${copyField(payload)}\n`;
  return Buffer.from(rows);
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
