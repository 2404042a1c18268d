/**
 * Writes requests whose events are committed together, all or none. For a request with an Idempotency-Key the same transaction stores
 * the key, so that a repeated request finds either the response or nothing. On one server the transaction is one statement.
 */
import type { Logger } from 'pino';
import { Rejection } from '../../errors.ts';
import type { Sql } from '../database/connect.ts';
import type { WriteConnection } from '../database/copy-connection.ts';
import type { DataNode } from '../database/nodes.ts';
import { KEY_LIFE_MS } from '../maintenance/expired-keys.ts';
import { type AcceptedEvent, epochOf, isKeyed, sizeOf, timestamp } from './accepted-event.ts';
import type { EngineWrites } from './engine-writes.ts';
import {
  NO_PARTITION,
  NODE_UNREACHABLE,
  OUTCOME_UNKNOWN,
  POISON,
  REFUSING,
  REFUSING_PAST,
  UNAVAILABLE,
} from './failures.ts';
import { type Attempt, GroupCommit, type GroupKind } from './group-commit.ts';
import {
  AWAITS_STANDBY,
  columns,
  insertKeyedValues,
  insertMissing,
  insertMissingValues,
  insertNew,
  type KeyedInsert,
  keyedOutcomes,
  whatWasInserted,
} from './insert-events.ts';
import { INSERT_MISSING_ROWS, insertRows, inTransaction } from './insert-steps.ts';

/** The identity of an idempotent request. */
export interface RequestIdentity {
  /** SHA-256 of the key. */
  readonly keyDigest: Buffer;
  /** SHA-256 of the path and of the body's bytes. */
  readonly bodyDigest: Buffer;
}

/** The response that is stored and returned again. */
export interface KeptAnswer {
  readonly status: number;
  readonly body: string;
  /** Length of the body, if it is known already. */
  readonly bytes?: number;
}

/** Events that a request stores in one commit, under its key if it has one. */
export interface IdempotentRequest {
  readonly appId: number;
  /** Null where the request has no Idempotency-Key. */
  readonly identity: RequestIdentity | null;
  /** When the request was accepted, in milliseconds since the epoch: the start of the key's life. */
  readonly acceptedAt: number;
  /** At least one. */
  readonly events: readonly AcceptedEvent[];
  /** The response. The ids of its events make it different from the response to any request with other events. */
  readonly answer: KeptAnswer;
  /** The response if some events were stored before, by their own keys. Not used with an Idempotency-Key. */
  readonly answerRepeated: (repeated: ReadonlySet<AcceptedEvent>) => KeptAnswer;
  /** The response if the database refuses some of the events. */
  readonly answerWithout: (refused: ReadonlyMap<AcceptedEvent, Rejection>) => KeptAnswer | Rejection;
}

/** The stored content of a key. */
export interface KnownKey {
  readonly bodyDigest: Buffer;
  readonly status: number;
  readonly answer: string;
}

/**
 * The outcome of a request: its response, the events that it stored and the number of those that were stored before; the
 * Idempotency-Key that existed before; or a refusal.
 */
export type IdempotentOutcome =
  | { readonly stored: readonly AcceptedEvent[]; readonly repeated: number; readonly answer: KeptAnswer }
  | { readonly known: KnownKey }
  | Rejection;

/**
 * The row of the key is written first, so a concurrent request with the same key waits here until the first transaction ends.
 * The events of a new key are new too.
 */
function storeStatement(engine: EngineWrites): string {
  const { before, after } = insertNew(engine);
  return `
  WITH ${KEPT}, ${before}
       SELECT event.id, event.app_id, event.type_id, event.created_at, event.payload::json
         FROM unnest($7::uuid[], $8::int[], $9::int[], $10::timestamptz[], $11::text[], $12::int[])
                AS event (id, app_id, type_id, created_at, payload, number)
         JOIN request USING (number)
         JOIN kept ON kept.app_id = request.app_id AND kept.key_digest = request.key_digest${after}`;
}

/**
 * The same for requests of which some have no Idempotency-Key (their events have the number 0), or events that may be
 * stored already. Its result is a {@link MissingInsert}.
 */
function storeMissingStatement(engine: EngineWrites): string {
  const { before, counted } = insertMissing(engine);
  return `
  WITH ${KEPT}, ${before}
       SELECT event.id, event.app_id, event.type_id, event.created_at, event.payload::json
         FROM unnest($7::uuid[], $8::int[], $9::int[], $10::timestamptz[], $11::text[], $12::int[]) WITH ORDINALITY
                AS event (id, app_id, type_id, created_at, payload, number, place)
         LEFT JOIN request USING (number)
         LEFT JOIN kept ON kept.app_id = request.app_id AND kept.key_digest = request.key_digest
        WHERE event.number = 0 OR kept.app_id IS NOT NULL
        ORDER BY event.app_id, event.created_at, event.id, event.place${counted}
  SELECT ${whatWasInserted('$7')}, (SELECT count(*)::integer FROM kept) AS kept FROM inserted`;
}

interface MissingInsert extends KeyedInsert {
  /** Keys that were new; absent where the statement stores none. */
  readonly kept?: number;
}

const REQUESTS = `unnest($1::int[], $2::bytea[], $3::bytea[], $4::smallint[], $5::text[], $6::timestamptz[])
           WITH ORDINALITY AS request (app_id, key_digest, body_digest, status, answer, created_at, number)`;

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

/** The same as {@link storeStatement} and {@link storeMissingStatement}, in a transaction. @param values of {@link valuesOf} */
async function storeInSteps(
  connection: WriteConnection,
  values: readonly (readonly unknown[])[],
  how: { readonly bytes: number; readonly epoch: number | undefined; readonly isNew: boolean },
): Promise<MissingInsert> {
  const [apps = [], digests = []] = values;
  const [ids = [], , , , , numbers = []] = values.slice(6);
  return await inTransaction(connection, async () => {
    const { rows } =
      apps.length === 0
        ? { rows: [] }
        : await connection.query<{ app_id: number; key_digest: Buffer }>(KEEP, values.slice(0, 6));
    const kept = new Set(rows.map((row) => `${row.app_id} ${row.key_digest.toString('hex')}`));
    const isKept = (number: number): boolean => {
      const digest = digests[number - 1];
      return digest instanceof Buffer && kept.has(`${String(apps[number - 1])} ${digest.toString('hex')}`);
    };
    const wanted = numbers.map((number) => number === 0 || isKept(Number(number)));
    const columns = values.slice(6, 11).map((column) => column.filter((_, at) => wanted[at]));
    const inserted = await insertRows(connection, columns, how);
    const refused = ids.filter((_, at) => wanted[at] !== true).map(String);
    return { stored: inserted.stored, repeated: [...inserted.repeated, ...refused], kept: rows.length };
  });
}

/** The stored keys among several; `index` is that in the two arrays of apps and digests. */
const FIND_KEYS = `
  SELECT request.number::int - 1 AS index, body_digest AS "bodyDigest", status, answer
    FROM unnest($1::int[], $2::bytea[]) WITH ORDINALITY AS request (app_id, key_digest, number)
    JOIN idempotency_keys USING (app_id, key_digest)`;

export interface IdempotentWriterOptions {
  /** The server that it writes to. */
  readonly node: DataNode;
  readonly engine: EngineWrites;
  /** Name of its connection, shown in pg_stat_activity. */
  readonly name: string;
  /** For requests with events of past days, whose partitions may be locked or impossible to create. */
  readonly past?: boolean;
  /** Called when requests could not get a lock in time. Never rejects. */
  readonly onBlocked: () => Promise<void>;
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** What a request stores: all of its events, or those that the database does not refuse. */
interface Work {
  readonly request: IdempotentRequest;
  readonly events: readonly AcceptedEvent[];
  readonly answer: KeptAnswer;
}

export class IdempotentWriter {
  readonly #options: IdempotentWriterOptions;
  readonly #connection: WriteConnection;
  readonly #commit: GroupCommit;
  readonly #storeStatement: string;
  readonly #storeMissingStatement: string;
  readonly #inSteps: boolean;
  /** For requests without Idempotency-Keys: it does not touch their table, which may be locked. */
  readonly #storePlainStatement: string;
  readonly #kind: GroupKind<Work, IdempotentOutcome>;
  /** Finds the events that the database refuses, and stores nothing. */
  readonly #trial: GroupKind<AcceptedEvent, Rejection | null>;

  constructor(options: IdempotentWriterOptions) {
    this.#options = options;
    const { node, engine, name, past = false, log, now } = options;
    const timeouts = past ? REFUSING_PAST : REFUSING;
    this.#connection = node.connect(name, timeouts, engine.session);
    this.#commit = new GroupCommit({
      engine,
      timeouts,
      past,
      isUnreachable: () => node.isUnreachable,
      log,
      now,
    });
    this.#inSteps = engine.insertsInSteps;
    this.#storeStatement = storeStatement(engine);
    this.#storeMissingStatement = storeMissingStatement(engine);
    this.#storePlainStatement = insertKeyedValues(engine);
    this.#kind = {
      name: 'requests',
      store: (_, works, attempt) =>
        works.every(isNew) ? this.#storeNew(works) : this.#storeMissing(works, attempt.uncertain),
      eventsOf: (works) => works.flatMap(({ events }) => events),
      refuse: (_, work, attempt) => this.#storeWithout(work, attempt, POISON),
      onExhausted: async (works, { refusal, failure, error, attempt }) => {
        if (failure === 'blocked') await options.onBlocked();
        if (failure === 'unreachable' || failure === 'lost') node.suspect(error);
        if (failure !== 'no-partition') return works.map(() => refusal);
        // On the current day it is an outage, not an error of the events.
        if (!past) return works.map(() => UNAVAILABLE);
        const outcomes: IdempotentOutcome[] = [];
        for (const work of works)
          outcomes.push(await this.#storeWithout(work, { ...attempt, hasPartition: false }, NO_PARTITION));
        return outcomes;
      },
    };
    const insert = engine.insertsInSteps ? INSERT_MISSING_ROWS : insertMissingValues(engine);
    this.#trial = {
      name: 'events',
      store: async (_, events) => {
        await this.#rolledBack(insert, columns(events), sizeOf(events));
        return events.map(() => null);
      },
      eventsOf: (events) => events,
      refuse: () => POISON,
      onExhausted: (events, { refusal }) => events.map(() => refusal),
    };
  }

  /**
   * Stores requests in one commit, no two of them with the same key; one call at a time. Never rejects.
   * @returns the outcome of each, in order
   */
  async write(requests: readonly IdempotentRequest[]): Promise<readonly IdempotentOutcome[]> {
    if (this.#options.node.isUnreachable) return requests.map(() => NODE_UNREACHABLE);
    const works = requests.map((request) => ({ request, events: request.events, answer: request.answer }));
    try {
      return await this.#commit.run(this.#kind, this.#connection, works, this.#commit.begin(false));
    } catch (error) {
      const fields = { err: error, requests: requests.length };
      this.#options.log.error(fields, 'write: unexpected error');
      return requests.map(() => OUTCOME_UNKNOWN);
    }
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  async #storeNew(works: readonly Work[]): Promise<readonly IdempotentOutcome[]> {
    const values = valuesOf(works);
    const epoch = epochOf(works.flatMap(({ events }) => events));
    const stored = this.#inSteps
      ? (await storeInSteps(this.#connection, values, { bytes: bytesOf(works), epoch, isNew: true })).stored
      : (await this.#connection.query(this.#storeStatement, values, bytesOf(works), epoch)).rowCount;
    if (stored === works.reduce((sum, { events }) => sum + events.length, 0))
      return works.map((work) => storedWork(work));
    const known = await this.#find(works);
    return works.map((work) => keptOutcome(work, known.get(work)));
  }

  async #storeMissing(works: readonly Work[], uncertain: boolean): Promise<readonly IdempotentOutcome[]> {
    const events = works.flatMap((work) => work.events);
    const hasKeys = works.some(hasRequest);
    const [bytes, epoch] = [bytesOf(works), epochOf(events)];
    const query = (statement: string, values: readonly unknown[]) =>
      this.#connection.query<MissingInsert>(statement, values, bytes, epoch);
    const inserted = this.#inSteps
      ? await storeInSteps(this.#connection, valuesOf(works), { bytes, epoch, isNew: false })
      : hasKeys
        ? (await query(this.#storeMissingStatement, valuesOf(works))).rows[0]
        : (await query(this.#storePlainStatement, columns(events))).rows[0];
    const outcomes = keyedOutcomes(events, inserted, uncertain);
    const isRepeated = new Set(events.filter((_, index) => outcomes[index] === 'repeated'));
    const requests = works.filter(hasRequest);
    const known = (inserted?.kept ?? 0) === requests.length ? null : await this.#find(requests);
    return works.map((work) => {
      const repeated = new Set(work.events.filter((event) => isRepeated.has(event)));
      if (known !== null && hasRequest(work)) return keptOutcome(work, known.get(work), repeated);
      const isPlain = repeated.size === 0 || hasRequest(work);
      return storedWork(work, repeated, isPlain ? work.answer : work.request.answerRepeated(repeated));
    });
  }

  /** The stored Idempotency-Keys of works. */
  async #find(works: readonly Work[]): Promise<ReadonlyMap<Work, KnownKey>> {
    const { rows } = await this.#connection.query<KnownKey & { index: number }>(FIND_KEYS, [
      works.map(({ request }) => request.appId),
      works.map(({ request }) => request.identity?.keyDigest),
    ]);
    const known = new Map<Work, KnownKey>();
    for (const row of rows) {
      const work = works[row.index];
      if (work !== undefined) known.set(work, row);
    }
    return known;
  }

  /** Stores a request without the events that the database refuses. @param why the refusal of those */
  async #storeWithout(work: Work, attempt: Attempt, why: Rejection): Promise<IdempotentOutcome> {
    const trial =
      work.events.length === 1
        ? [why]
        : await this.#commit.run(this.#trial, this.#connection, work.events, { ...attempt });
    // A stored response must not ask for a retry of an event.
    const passing = trial.find((outcome) => outcome?.isRetryable);
    if (passing) return passing;
    const refused = new Map<AcceptedEvent, Rejection>();
    for (const [index, event] of work.events.entries()) {
      const outcome = trial[index];
      if (outcome) refused.set(event, outcome);
    }
    const [first] = refused.keys();
    const fields = { eventId: first?.id, events: refused.size };
    this.#options.log.error(fields, 'write: the database refuses events');
    // The request was refused, but none of its events is: a retry may succeed.
    if (refused.size === 0) return UNAVAILABLE;
    const answer = work.request.answerWithout(refused);
    if (answer instanceof Rejection) return answer;
    const events = work.events.filter((event) => !refused.has(event));
    if (events.length === 0) return { stored: [], repeated: 0, answer };
    const [outcome] = await this.#commit.run(
      this.#kind,
      this.#connection,
      [{ ...work, events, answer }],
      attempt,
    );
    if (outcome === undefined)
      throw new Error('A group was written without an outcome for each of its units.');
    return outcome;
  }

  async #rolledBack(statement: string, values: readonly unknown[], bytes: number): Promise<void> {
    const connection = this.#connection;
    await connection.query('BEGIN', []);
    try {
      await connection.query(statement, values, bytes);
    } finally {
      await connection.query('ROLLBACK', []);
    }
  }
}

function hasRequest({ request }: Work): boolean {
  return request.identity !== null;
}

/** Whether none of the events can be stored already if the Idempotency-Key is new. */
function isNew(work: Work): boolean {
  return hasRequest(work) && !work.events.some(isKeyed);
}

const NONE: ReadonlySet<AcceptedEvent> = new Set();

/** @param repeated the events that were stored before */
function storedWork({ events, answer }: Work, repeated = NONE, given = answer): IdempotentOutcome {
  const stored = repeated.size === 0 ? events : events.filter((event) => !repeated.has(event));
  return { stored, repeated: repeated.size, answer: given };
}

/** The outcome if the Idempotency-Key may have existed before. @param repeated as above, if it did not */
function keptOutcome(work: Work, found: KnownKey | undefined, repeated = NONE): IdempotentOutcome {
  const { request, answer } = work;
  // It existed a moment ago, and expired by the clock of another process.
  if (found === undefined) return UNAVAILABLE;
  // It contains the ids of the events, so it is the response of this request, committed now or by an earlier try. If all
  // events have keys, it may be the response of a twin, which is the same.
  const isOurs =
    found.answer === answer.body && request.identity?.bodyDigest.equals(found.bodyDigest) === true;
  return isOurs ? storedWork(work, repeated) : { known: found };
}

function bytesOf(works: readonly Work[]): number {
  return works.reduce((sum, { events }) => sum + sizeOf(events), 0);
}

function valuesOf(works: readonly Work[]): readonly (readonly unknown[])[] {
  const requests = works.filter(hasRequest);
  const numbers = new Map(requests.map((work, index) => [work, index + 1]));
  return [
    requests.map(({ request }) => request.appId),
    requests.map(({ request }) => request.identity?.keyDigest),
    requests.map(({ request }) => request.identity?.bodyDigest),
    requests.map(({ answer }) => answer.status),
    requests.map(({ answer }) => answer.body),
    requests.map(({ request }) => timestamp(request.acceptedAt)),
    ...columns(works.flatMap(({ events }) => events)),
    // From 1 on; 0 for events of a request that is none of these.
    works.flatMap((work) => {
      const number = numbers.get(work) ?? 0;
      return work.events.map(() => number);
    }),
  ];
}

/**
 * Looks a key up before the request is processed: the body of a repeated batch is not parsed again.
 * @param now milliseconds since the epoch
 * @returns null if the key does not exist or has expired
 */
export async function findKnownKey(
  sql: Sql,
  appId: number,
  { keyDigest }: RequestIdentity,
  now: number,
): Promise<KnownKey | null> {
  // A repeated response acknowledges the events, so this waits for the synchronous standby as their commit does.
  const [known] = await sql<KnownKey[]>`
    SELECT body_digest AS "bodyDigest", status, answer, ${sql.unsafe(AWAITS_STANDBY)} AS written FROM idempotency_keys
     WHERE app_id = ${appId} AND key_digest = ${keyDigest} AND created_at > ${new Date(now - KEY_LIFE_MS)}`;
  return known ?? null;
}
