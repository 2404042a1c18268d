/**
 * Writes requests with an Idempotency-Key, each request's events with its key in one statement: both are committed or
 * neither, so that a repeat finds either the answer or nothing.
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

/** What tells one keyed request from another. */
export interface KeyedRequest {
  /** SHA-256 of the key. */
  readonly keyDigest: Buffer;
  /** SHA-256 of the path and of the body's bytes. */
  readonly bodyDigest: Buffer;
}

/** The part of an answer that is kept, and given again. */
export interface KeptAnswer {
  readonly status: number;
  readonly body: string;
  /** The body's length, where it is known without looking. */
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
  /** What the request is answered. The ids of its events tell it from the answer to any other request. */
  readonly answer: KeptAnswer;
  /** The same where the database refuses some of the events. */
  readonly answerWithout: (refused: ReadonlyMap<AcceptedEvent, Rejection>) => KeptAnswer | Rejection;
}

/** What is remembered under a key. */
export interface KnownKey {
  readonly bodyDigest: Buffer;
  readonly status: number;
  readonly answer: string;
}

/** What came of a keyed request: its answer and how many events it stored, the key that was known before, or a refusal. */
export type KeyedOutcome =
  | { readonly stored: number; readonly answer: KeptAnswer }
  | { readonly known: KnownKey }
  | Rejection;

/**
 * A key's row is written first, so whoever comes second with it waits here until the first is committed, or is not. The
 * events of a key that is new are new, too.
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

/** Of several keys those that are known; `index` is the key's in the two arrays of apps and of digests. */
const FIND_KEYS = `
  SELECT request.number::int - 1 AS index, body_digest AS "bodyDigest", status, answer
    FROM unnest($1::int[], $2::bytea[]) WITH ORDINALITY AS request (app_id, key_digest, number)
    JOIN idempotency_keys USING (app_id, key_digest)`;

export interface KeyedWriterOptions {
  readonly address: DatabaseAddress;
  readonly engine: Engine;
  /** Of its connection, shown in pg_stat_activity. */
  readonly name: string;
  /** For requests with events of past days, whose partitions may be locked, or impossible. */
  readonly past?: boolean;
  /** Told when requests waited for a lock in vain. Never rejects. */
  readonly onBlocked: () => Promise<void>;
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** What is to be stored for a request: all of its events, or those that the database does not refuse. */
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
  /** Finds out which events the database refuses, and stores nothing. */
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
        if (failure === 'blocked') await options.onBlocked();
        if (failure !== 'no-partition') return works.map(() => refusal);
        // Of now: that is an outage, and no fault of the events.
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
   * @returns for each, in order, what came of it
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
      // It was there a moment ago, and was removed as its time was over by another clock than ours.
      if (found === undefined) return UNAVAILABLE;
      // Ids are in it: nobody else's answer is the same. It was stored, now or by an earlier try that was committed after all.
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

  /** Stores the one request but for the events that the database refuses. @param why it refuses some */
  async #storeWithout(work: Work, attempt: Attempt, why: Rejection): Promise<KeyedOutcome> {
    const trial =
      work.events.length === 1
        ? [why]
        : await this.#commit.run(this.#trial, this.#connection, work.events, { ...attempt });
    // An answer that is kept must not say of an event that it may be sent again.
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
    // What was refused as a whole is not in its parts: that may pass.
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
 * Looks a key up before anything is done for its request: a repeated batch is not read again.
 * @param now milliseconds since the epoch
 * @returns null where the key is not known, or its time is over
 */
export async function findKnownKey(
  sql: Sql,
  appId: number,
  { keyDigest }: KeyedRequest,
  now: number,
): Promise<KnownKey | null> {
  // Whoever gets the answer again takes the events for stored, so this waits for the standby as their own commit did.
  const [known] = await sql<KnownKey[]>`
    SELECT body_digest AS "bodyDigest", status, answer, ${sql.unsafe(AWAITS_STANDBY)} AS written FROM idempotency_keys
     WHERE app_id = ${appId} AND key_digest = ${keyDigest} AND created_at > ${new Date(now - KEY_LIFE_MS)}`;
  return known ?? null;
}
