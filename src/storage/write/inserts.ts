/**
 * Stores rows that may be stored already: events with keys, requests with a key, replays, imports that are repeated, and groups whose
 * connection was lost. Exactly the missing ones are stored, and exactly those are counted, in one transaction.
 *
 * One server does that in one statement, which also counts. In a cluster a statement with two inserts would need every node of it: there
 * the missing rows are inserted first, and what they change is copied. One server could do the same; docs/architecture.md says what it
 * would cost.
 */
import { DAY_MS } from '../../base/time-units.ts';
import { ConnectionLost, type WriteConnection } from '../database/copy-connection.ts';
import { EVENT_COLUMNS, type EventRow, timestamp } from './accepted-event.ts';
import { REFUSES_DAYS_AWAY, refuseDaysAway } from './days-away.ts';
import { copyGroup, type EngineWrites } from './engine-writes.ts';

/** How long the response to an idempotent request is kept, in milliseconds. */
export const KEY_LIFE_MS = DAY_MS;

/** Values of parameters that are arrays, one for each column of the rows. */
type Columns = readonly (readonly unknown[])[];

/** Events as arrays, one for each of {@link EVENT_COLUMNS}. */
export function columns(events: readonly EventRow[]): Columns {
  return [
    events.map(({ id }) => id),
    events.map(({ appId }) => appId),
    events.map(({ typeId }) => typeId),
    events.map(({ createdAt }) => timestamp(createdAt)),
    events.map(({ payload }) => payload),
  ];
}

/** What came of rows. */
export interface Inserted {
  readonly stored: number;
  /** Ids that were there before. */
  readonly repeated: readonly string[];
}

/** What came of the rows of requests. */
export interface InsertedRequests extends Inserted {
  /** Idempotency-Keys that were new. The events of all others count as repeated. */
  readonly kept: number;
}

export interface InsertOptions {
  /** Approximate size of the values: it extends the timeout. */
  readonly bytes: number;
  /** The epoch of the ids in the rows. */
  readonly epoch?: number | undefined;
}

/** What comes before and after a SELECT of {@link EVENT_COLUMNS} to store its rows. */
export interface InsertStatement {
  /** After `WITH`, or after other CTEs and a comma. */
  readonly before: string;
  readonly after: string;
}

/**
 * An expression that writes a small WAL record, which nothing reads: only a transaction that writes waits for the synchronous
 * standby when it commits. The transaction that has stored the rows before may have been canceled during that wait.
 */
export const AWAITS_STANDBY = "pg_logical_emit_message(true, 'tidemark', '')";

/** What rows of `inserted` (app_id, type_id, created_at) change in the counts. */
function countInserted({ changes, deltasOfInserted }: EngineWrites): string {
  return `counted AS (INSERT INTO ${changes} ${deltasOfInserted})`;
}

/**
 * A statement of one server that stores missing rows and counts exactly those; it waits for a transaction that is storing the same rows.
 * Its commit waits for the synchronous standby, even if nothing was missing. It fails where days of the rows are away (days-away.ts).
 * @param result the columns of its one row
 */
export function insertMissing(
  engine: EngineWrites,
  result = `count(*)::integer AS stored, ${AWAITS_STANDBY} AS written`,
): InsertStatement {
  return {
    before: `inserted AS (INSERT INTO events (${EVENT_COLUMNS})`,
    after: `
         ON CONFLICT DO NOTHING RETURNING id, app_id, type_id, created_at),
       ${countInserted(engine)}
  SELECT ${result}${
    engine.singleNodeStatements
      ? ''
      : `,
         ${REFUSES_DAYS_AWAY}`
  } FROM inserted`,
  };
}

/**
 * Inserts rows of which none can be stored yet: all of them are stored, or none. It is cheaper, because it does not look
 * for them. Its row count is the number of stored rows.
 */
export function insertNew(engine: EngineWrites): InsertStatement {
  return {
    before: 'inserted AS (',
    after: `),
       ${countInserted(engine)}
  INSERT INTO events (${EVENT_COLUMNS}) SELECT ${EVENT_COLUMNS} FROM inserted`,
  };
}

/** The columns of {@link Inserted}. What was there before, a statement has not inserted. @param ids the parameter with the ids of all */
const whatWasInserted = (ids: string): string => `
         count(*)::integer AS stored, ${AWAITS_STANDBY} AS written,
         CASE WHEN count(*) = cardinality(${ids}::uuid[]) THEN '{}'
              ELSE ARRAY(SELECT id::text FROM unnest(${ids}::uuid[]) AS sent (id) EXCEPT SELECT id::text FROM inserted)
         END AS repeated`;

/**
 * The rows of {@link columns}, in the order of the index: two transactions with the same keys wait for one another in that order, and do
 * not deadlock. Of several events with the same key the first one is stored.
 */
const SENT = `
       SELECT id, app_id, type_id, created_at, payload::json
         FROM unnest($1::uuid[], $2::int[], $3::int[], $4::timestamptz[], $5::text[]) WITH ORDINALITY
           AS batch (id, app_id, type_id, created_at, payload, place)
        ORDER BY app_id, created_at, id, place`;

/** The statement of one server for the values of {@link columns}. Its result is {@link Inserted}. */
export function insertValues(engine: EngineWrites): string {
  const { before, after } = insertMissing(engine, whatWasInserted('$1'));
  return `
  WITH ${before}${SENT}${after}`;
}

/** The statements of a cluster, which count nothing. */
const STORED = `
  RETURNING id, app_id AS "appId", type_id AS "typeId", (extract(epoch FROM created_at) * 1000)::float8 AS "createdAt"`;
const INSERT_MISSING_ROWS = `INSERT INTO events (${EVENT_COLUMNS})${SENT} ON CONFLICT DO NOTHING${STORED}`;
const INSERT_NEW_ROWS = `INSERT INTO events (${EVENT_COLUMNS})${SENT}${STORED}`;

type StoredRow = Pick<EventRow, 'id' | 'appId' | 'typeId' | 'createdAt'>;

/** Requests as arrays; those that have no Idempotency-Key are none of them. */
const REQUESTS = `unnest($1::int[], $2::bytea[], $3::bytea[], $4::smallint[], $5::text[], $6::timestamptz[])
           WITH ORDINALITY AS request (app_id, key_digest, body_digest, status, answer, created_at, number)`;
const REQUEST_COLUMNS = 6;

/** Stores the new ones of the keys of requests. */
const keepFrom = (requests: string): string => `
    INSERT INTO idempotency_keys AS known (app_id, key_digest, body_digest, status, answer, created_at)
    SELECT app_id, key_digest, body_digest, status, answer, created_at FROM ${requests} ORDER BY app_id, key_digest
    ON CONFLICT (app_id, key_digest) DO UPDATE
       SET body_digest = excluded.body_digest, status = excluded.status, answer = excluded.answer,
           created_at = excluded.created_at
     WHERE excluded.created_at - known.created_at >= interval '${KEY_LIFE_MS} milliseconds'
    RETURNING app_id, key_digest`;

/** The keys of requests, and of these the new ones. */
const KEPT = `request AS (SELECT * FROM ${REQUESTS}), kept AS (${keepFrom('request')})`;
const KEEP = keepFrom(REQUESTS);

/** The columns of {@link columns} and the number of the request of each event, as rows. */
const SENT_BY_REQUESTS = `
         FROM unnest($7::uuid[], $8::int[], $9::int[], $10::timestamptz[], $11::text[], $12::int[]) WITH ORDINALITY
                AS event (id, app_id, type_id, created_at, payload, number, place)`;

/**
 * The row of the key is written first, so a concurrent request with the same key waits here until the first transaction ends.
 * The events of a new key are new too.
 */
function insertNewRequests(engine: EngineWrites): string {
  const { before, after } = insertNew(engine);
  return `
  WITH ${KEPT}, ${before}
       SELECT event.id, event.app_id, event.type_id, event.created_at, event.payload::json${SENT_BY_REQUESTS}
         JOIN request USING (number)
         JOIN kept ON kept.app_id = request.app_id AND kept.key_digest = request.key_digest${after}`;
}

/** Inserts requests of which some have no key (their events have the number 0), or events that may be stored already. */
function insertRequests(engine: EngineWrites): string {
  const kept = '(SELECT count(*)::integer FROM kept) AS kept';
  const { before, after } = insertMissing(engine, `${whatWasInserted('$7')}, ${kept}`);
  return `
  WITH ${KEPT}, ${before}
       SELECT event.id, event.app_id, event.type_id, event.created_at, event.payload::json${SENT_BY_REQUESTS}
         LEFT JOIN request USING (number)
         LEFT JOIN kept ON kept.app_id = request.app_id AND kept.key_digest = request.key_digest
        WHERE event.number = 0 OR kept.app_id IS NOT NULL
        ORDER BY event.app_id, event.created_at, event.id, event.place${after}`;
}

/** Runs steps in a transaction. What fails in it is thrown, and nothing of it is stored. */
export async function inTransaction<T>(connection: WriteConnection, steps: () => Promise<T>): Promise<T> {
  await connection.query('BEGIN ISOLATION LEVEL READ COMMITTED', []);
  try {
    const outcome = await steps();
    await connection.query('COMMIT', []);
    return outcome;
  } catch (error) {
    if (!(error instanceof ConnectionLost)) await connection.query('ROLLBACK', []).catch(() => undefined); // It is over anyway.
    throw error;
  }
}

/** The inserts of an engine. All are transactions of their own unless it says otherwise. */
export class Inserts {
  readonly #engine: EngineWrites;
  readonly #values: string;
  readonly #newRequests: string;
  readonly #requests: string;

  constructor(engine: EngineWrites) {
    this.#engine = engine;
    this.#values = insertValues(engine);
    this.#newRequests = insertNewRequests(engine);
    this.#requests = insertRequests(engine);
  }

  /** Stores the missing ones of rows. @param values of {@link columns} */
  async missing(connection: WriteConnection, values: Columns, options: InsertOptions): Promise<Inserted> {
    if (!this.#engine.singleNodeStatements) return await this.#ask(connection, this.#values, values, options);
    return await inTransaction(connection, () => this.#inSteps(connection, values, options));
  }

  /** Inserts what is missing in a transaction that is open. */
  async missingInside(
    connection: WriteConnection,
    values: Columns,
    options: InsertOptions,
  ): Promise<Inserted> {
    if (this.#engine.singleNodeStatements) return await this.#inSteps(connection, values, options);
    return await this.#ask(connection, this.#values, values, options);
  }

  /**
   * Stores the keys of requests that are new, with the events of those requests.
   * @param values  of requests with keys, then of events, then the number of the request of each event: from 1 on, or 0 where it has no key
   * @param isNew   whether all requests have keys, and none of the events of a new key can be stored already: then all are stored, or it
   *                fails; which ones were repeated is not said then
   */
  async requests(
    connection: WriteConnection,
    values: Columns,
    { isNew, ...options }: InsertOptions & { readonly isNew: boolean },
  ): Promise<InsertedRequests> {
    const [{ length: requests }] = [values[0] ?? []];
    if (this.#engine.singleNodeStatements)
      return await inTransaction(connection, () => this.#requestsInSteps(connection, values, isNew, options));
    if (isNew) {
      const { bytes, epoch } = options;
      const { rowCount } = await connection.query(this.#newRequests, values, bytes, epoch);
      const stored = rowCount ?? 0;
      const isAll = stored === values[REQUEST_COLUMNS]?.length;
      return { stored, repeated: [], kept: isAll ? requests : 0 };
    }
    if (requests > 0) return await this.#ask<InsertedRequests>(connection, this.#requests, values, options);
    // Without keys their table, which may be locked, is not touched.
    const events = values.slice(REQUEST_COLUMNS, -1);
    return { ...(await this.#ask(connection, this.#values, events, options)), kept: 0 };
  }

  /** Stores rows and rolls that back. It throws what storing them would throw. @param lockMs timeout for each lock */
  async attempt(
    connection: WriteConnection,
    values: Columns,
    { bytes, lockMs }: { readonly bytes: number; readonly lockMs?: number },
  ): Promise<void> {
    await connection.query('BEGIN', []);
    try {
      if (lockMs !== undefined) await connection.query(`SET LOCAL lock_timeout = ${lockMs}`, []);
      const statement = this.#engine.singleNodeStatements ? INSERT_MISSING_ROWS : this.#values;
      await connection.query(statement, values, bytes);
    } finally {
      await connection.query('ROLLBACK', []);
    }
  }

  async #ask<Result extends Inserted = Inserted>(
    connection: WriteConnection,
    statement: string,
    values: Columns,
    { bytes, epoch }: InsertOptions,
  ): Promise<Result> {
    const { rows } = await connection.query<Result>(statement, values, bytes, epoch);
    const [result] = rows;
    if (result === undefined) throw new Error('An INSERT has not said what it has stored.');
    return result;
  }

  async #inSteps(
    connection: WriteConnection,
    values: Columns,
    { bytes, epoch }: InsertOptions,
    statement = INSERT_MISSING_ROWS,
  ): Promise<Inserted> {
    const { rows } = await connection.query<StoredRow>(statement, values, bytes, epoch);
    if (rows.length > 0) {
      const stored = rows.map((row) => ({ ...row, payload: '' }));
      await connection.copy(copyGroup(this.#engine, stored, ['changes']));
      if (statement === INSERT_MISSING_ROWS) await refuseDaysAway(connection, rows);
    }
    const stored = new Set(rows.map(({ id }) => id));
    const sent = values[0] ?? [];
    return { stored: rows.length, repeated: sent.map(String).filter((id) => !stored.has(id)) };
  }

  async #requestsInSteps(
    connection: WriteConnection,
    values: Columns,
    isNew: boolean,
    options: InsertOptions,
  ): Promise<InsertedRequests> {
    const [apps = [], digests = []] = values;
    const [ids = [], , , , , numbers = []] = values.slice(REQUEST_COLUMNS);
    const { rows } =
      apps.length === 0
        ? { rows: [] }
        : await connection.query<{ app_id: number; key_digest: Buffer }>(
            KEEP,
            values.slice(0, REQUEST_COLUMNS),
          );
    const kept = new Set(rows.map((row) => `${row.app_id} ${row.key_digest.toString('hex')}`));
    const isKept = (number: number): boolean => {
      const digest = digests[number - 1];
      return digest instanceof Buffer && kept.has(`${String(apps[number - 1])} ${digest.toString('hex')}`);
    };
    const wanted = numbers.map((number) => number === 0 || isKept(Number(number)));
    const events = values.slice(REQUEST_COLUMNS, -1).map((column) => column.filter((_, at) => wanted[at]));
    const statement = isNew ? INSERT_NEW_ROWS : INSERT_MISSING_ROWS;
    const inserted = await this.#inSteps(connection, events, options, statement);
    const refused = ids.filter((_, at) => wanted[at] !== true).map(String);
    return { stored: inserted.stored, repeated: [...inserted.repeated, ...refused], kept: rows.length };
  }
}

/**
 * What became of events with keys, in order: null where one was stored, and `repeated` where an event with its key was
 * there before.
 * @param uncertain whether an earlier try may have stored them: what was there before is then their own doing
 */
export function keyedOutcomes(
  events: readonly EventRow[],
  result: Inserted,
  uncertain: boolean,
): readonly ('repeated' | null)[] {
  if (result.stored === events.length) return events.map(() => null);
  const known = new Set(uncertain ? [] : result.repeated);
  return events.map(({ id }) => {
    if (known.has(id)) return 'repeated';
    known.add(id);
    return null;
  });
}
