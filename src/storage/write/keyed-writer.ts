/**
 * Writes requests with an Idempotency-Key. One statement stores the events of a request and its key: both are committed or
 * neither, so that a repeated request finds either the response or nothing.
 */
import type { Logger } from 'pino';
import { Rejection } from '../../errors.ts';
import type { DatabaseAddress, Sql } from '../connect.ts';
import type { Engine } from '../engine.ts';
import { ENGINES } from '../engines.ts';
import { KEY_LIFE_MS } from '../expired-keys.ts';
import { type AcceptedEvent, epochOf, sizeOf, timestamp } from './accepted-event.ts';
import { CopyConnection } from './copy-connection.ts';
import type { EngineWrites } from './engine-writes.ts';
import { NO_PARTITION, OUTCOME_UNKNOWN, POISON, REFUSING, REFUSING_PAST, UNAVAILABLE } from './failures.ts';
import { type Attempt, GroupCommit, type GroupKind } from './group-commit.ts';
import { AWAITS_STANDBY, columns, insertMissingValues, insertNew } from './insert-events.ts';

/** The identity of a keyed request. */
export interface KeyedRequest {
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

/** Events that a request stores under its key, all of them in one commit. */
export interface KeyedEvents {
  readonly appId: number;
  readonly request: KeyedRequest;
  /** When the request was accepted, in milliseconds since the epoch: the start of the key's life. */
  readonly acceptedAt: number;
  /** At least one. */
  readonly events: readonly AcceptedEvent[];
  /** The response. The ids of its events make it different from the response to any other request. */
  readonly answer: KeptAnswer;
  /** The response if the database refuses some of the events. */
  readonly answerWithout: (refused: ReadonlyMap<AcceptedEvent, Rejection>) => KeptAnswer | Rejection;
}

/** The stored content of a key. */
export interface KnownKey {
  readonly bodyDigest: Buffer;
  readonly status: number;
  readonly answer: string;
}

/** The outcome of a keyed request: its response and the number of stored events, the key that existed before, or a refusal. */
export type KeyedOutcome =
  | { readonly stored: number; readonly answer: KeptAnswer }
  | { readonly known: KnownKey }
  | Rejection;

/**
 * The row of the key is written first, so a concurrent request with the same key waits here until the first transaction ends.
 * The events of a new key are new too.
 */
function storeStatement(engine: EngineWrites): string {
  const { before, after } = insertNew(engine);
  return `
  WITH request AS (
    SELECT * FROM unnest($1::int[], $2::bytea[], $3::bytea[], $4::smallint[], $5::text[], $6::timestamptz[])
           WITH ORDINALITY AS request (app_id, key_digest, body_digest, status, answer, created_at, number)
  ), kept AS (
    INSERT INTO idempotency_keys AS known (app_id, key_digest, body_digest, status, answer, created_at)
    SELECT app_id, key_digest, body_digest, status, answer, created_at FROM request ORDER BY app_id, key_digest
    ON CONFLICT (app_id, key_digest) DO UPDATE
       SET body_digest = excluded.body_digest, status = excluded.status, answer = excluded.answer,
           created_at = excluded.created_at
     WHERE known.created_at <= excluded.created_at - interval '${KEY_LIFE_MS} milliseconds'
    RETURNING app_id, key_digest
  ), ${before}
       SELECT event.id, event.app_id, event.type_id, event.created_at, event.payload::json
         FROM unnest($7::uuid[], $8::int[], $9::int[], $10::timestamptz[], $11::text[], $12::int[])
                AS event (id, app_id, type_id, created_at, payload, number)
         JOIN request USING (number)
         JOIN kept ON kept.app_id = request.app_id AND kept.key_digest = request.key_digest${after}`;
}

/** The stored keys among several; `index` is that in the two arrays of apps and digests. */
const FIND_KEYS = `
  SELECT request.number::int - 1 AS index, body_digest AS "bodyDigest", status, answer
    FROM unnest($1::int[], $2::bytea[]) WITH ORDINALITY AS request (app_id, key_digest, number)
    JOIN idempotency_keys USING (app_id, key_digest)`;

export interface KeyedWriterOptions {
  readonly address: DatabaseAddress;
  readonly engine: Engine;
  /** Name of its connection, shown in pg_stat_activity. */
  readonly name: string;
  /** For requests with events of past days, whose partitions may be locked or impossible to create. */
  readonly past?: boolean;
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** What a request stores: all of its events, or those that the database does not refuse. */
interface Work {
  readonly keyed: KeyedEvents;
  readonly events: readonly AcceptedEvent[];
  readonly answer: KeptAnswer;
}

export class KeyedWriter {
  readonly #options: KeyedWriterOptions;
  readonly #connection: CopyConnection;
  readonly #commit: GroupCommit;
  readonly #storeStatement: string;
  readonly #kind: GroupKind<Work, KeyedOutcome>;
  /** Finds the events that the database refuses, and stores nothing. */
  readonly #trial: GroupKind<AcceptedEvent, Rejection | null>;

  constructor(options: KeyedWriterOptions) {
    this.#options = options;
    const { address, name, past = false, log, now } = options;
    const timeouts = past ? REFUSING_PAST : REFUSING;
    const engine = ENGINES[options.engine].writes;
    this.#connection = new CopyConnection(address, name, timeouts, engine.session);
    this.#commit = new GroupCommit({ engine, timeouts, past, log, now });
    this.#storeStatement = storeStatement(engine);
    this.#kind = {
      name: 'requests',
      store: (_, works) => this.#store(works),
      eventsOf: (works) => works.flatMap(({ events }) => events),
      refuse: (_, work, attempt) => this.#storeWithout(work, attempt, POISON),
      giveUp: async (works, { refusal, failure, attempt }) => {
        if (failure !== 'no-partition') return works.map(() => refusal);
        // On the current day it is an outage, not an error of the events.
        if (!past) return works.map(() => UNAVAILABLE);
        const outcomes: KeyedOutcome[] = [];
        for (const work of works)
          outcomes.push(await this.#storeWithout(work, { ...attempt, hasRoom: false }, NO_PARTITION));
        return outcomes;
      },
    };
    const insert = insertMissingValues(engine);
    this.#trial = {
      name: 'events',
      store: async (_, events) => {
        await this.#rolledBack(insert, columns(events), sizeOf(events));
        return events.map(() => null);
      },
      eventsOf: (events) => events,
      refuse: () => POISON,
      giveUp: (events, { refusal }) => events.map(() => refusal),
    };
  }

  /**
   * Stores requests in one commit, no two of them with the same key; one call at a time. Never rejects.
   * @returns the outcome of each, in order
   */
  async write(requests: readonly KeyedEvents[]): Promise<readonly KeyedOutcome[]> {
    const works = requests.map((keyed) => ({ keyed, events: keyed.events, answer: keyed.answer }));
    try {
      return await this.#commit.run(this.#kind, this.#connection, works, this.#commit.begin(false));
    } catch (error) {
      const fields = { err: error, requests: requests.length };
      this.#options.log.error(fields, 'write: failed in an unforeseen way');
      return requests.map(() => OUTCOME_UNKNOWN);
    }
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  async #store(works: readonly Work[]): Promise<readonly KeyedOutcome[]> {
    const values = valuesOf(works);
    const epoch = epochOf(works.flatMap(({ events }) => events));
    const { rowCount } = await this.#connection.query(this.#storeStatement, values, bytesOf(works), epoch);
    if (rowCount === works.reduce((sum, { events }) => sum + events.length, 0))
      return works.map(({ events, answer }) => ({ stored: events.length, answer }));
    const known = await this.#find(works.map(({ keyed }) => keyed));
    return works.map(({ events, answer }, index) => {
      const found = known.get(index);
      // It existed a moment ago, and expired by the clock of another process.
      if (found === undefined) return UNAVAILABLE;
      // It contains the ids of the events, so it is the response of this request, committed now or by an earlier try.
      return found.answer === answer.body ? { stored: events.length, answer } : { known: found };
    });
  }

  async #find(requests: readonly KeyedEvents[]): Promise<ReadonlyMap<number, KnownKey>> {
    const { rows } = await this.#connection.query<KnownKey & { index: number }>(FIND_KEYS, [
      requests.map(({ appId }) => appId),
      requests.map(({ request }) => request.keyDigest),
    ]);
    return new Map(rows.map((row) => [row.index, row]));
  }

  /** Stores a request without the events that the database refuses. @param why the refusal of those */
  async #storeWithout(work: Work, attempt: Attempt, why: Rejection): Promise<KeyedOutcome> {
    const trial =
      work.events.length === 1
        ? [why]
        : await this.#commit.run(this.#trial, this.#connection, work.events, { ...attempt });
    // A stored response must not ask for a retry of an event.
    const passing = trial.find((outcome) => outcome !== null && outcome.status >= 500);
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
    const answer = work.keyed.answerWithout(refused);
    if (answer instanceof Rejection) return answer;
    const events = work.events.filter((event) => !refused.has(event));
    if (events.length === 0) return { stored: 0, answer };
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

function bytesOf(works: readonly Work[]): number {
  return works.reduce((sum, { events }) => sum + sizeOf(events), 0);
}

function valuesOf(works: readonly Work[]): readonly (readonly unknown[])[] {
  return [
    works.map(({ keyed }) => keyed.appId),
    works.map(({ keyed }) => keyed.request.keyDigest),
    works.map(({ keyed }) => keyed.request.bodyDigest),
    works.map(({ answer }) => answer.status),
    works.map(({ answer }) => answer.body),
    works.map(({ keyed }) => timestamp(keyed.acceptedAt)),
    ...columns(works.flatMap(({ events }) => events)),
    works.flatMap(({ events }, index) => events.map(() => index + 1)),
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
  { keyDigest }: KeyedRequest,
  now: number,
): Promise<KnownKey | null> {
  // A repeated response acknowledges the events, so this waits for the synchronous standby as their commit does.
  const [known] = await sql<KnownKey[]>`
    SELECT body_digest AS "bodyDigest", status, answer, ${sql.unsafe(AWAITS_STANDBY)} AS written FROM idempotency_keys
     WHERE app_id = ${appId} AND key_digest = ${keyDigest} AND created_at > ${new Date(now - KEY_LIFE_MS)}`;
  return known ?? null;
}
