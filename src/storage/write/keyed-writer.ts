/**
 * Events of requests with an Idempotency-Key into the table, each request with its key in one statement: both are
 * committed or neither, so that a repeat finds either the answer or nothing.
 */
import type { Logger } from 'pino';
import { Rejection } from '../../errors.ts';
import type { Answer } from '../../http/exchange.ts';
import type { AcceptedEvent } from '../../ingest/commit-buffer.ts';
import type { KeyedRequest } from '../../ingest/idempotency-key.ts';
import { FIND_KEYS, type KnownKey, repeated } from '../../ingest/idempotency-store.ts';
import type { DatabaseAddress } from '../connect.ts';
import { KEY_LIFE_MS } from '../expired-keys.ts';
import { CopyConnection } from './copy-connection.ts';
import {
  BACKOFF_MS,
  classify,
  columns,
  createPartitions,
  FAULT,
  INSERT_MISSING,
  OUTCOME_UNKNOWN,
  POISON,
  pause,
  REFUSING,
  sizeOf,
  timeoutMs,
  timestamp,
  UNAVAILABLE,
} from './event-writer.ts';

/** The part of an answer that is kept, and given again. */
export type KeptAnswer = Pick<Answer, 'status' | 'bytes'> & { readonly body: string };

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

/** A key's row is written first, so whoever comes second with it waits here until the first is committed, or is not. */
const STORE = `
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
  )
  INSERT INTO events (id, app_id, type_id, created_at, payload)
  SELECT event.id, event.app_id, event.type_id, event.created_at, event.payload::json
    FROM unnest($7::uuid[], $8::int[], $9::int[], $10::timestamptz[], $11::text[], $12::int[])
           AS event (id, app_id, type_id, created_at, payload, number)
    JOIN request USING (number)
    JOIN kept ON kept.app_id = request.app_id AND kept.key_digest = request.key_digest`;

export interface KeyedWriterOptions {
  readonly address: DatabaseAddress;
  /** Of its connection, shown in pg_stat_activity. */
  readonly name: string;
  /** Whether the database takes writes: while it does not, it is not asked. */
  readonly availability: { readonly writable: boolean };
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

interface Attempt {
  readonly startedAt: number;
  /** A commit was sent and its answer lost. */
  uncertain: boolean;
  retries: number;
}

type Outcome = Answer | Rejection;

/** What is to be stored for a request: all of its events, or those that the database does not refuse. */
interface Work {
  readonly keyed: KeyedEvents;
  readonly events: readonly AcceptedEvent[];
  readonly answer: KeptAnswer;
}

export class KeyedWriter {
  readonly #options: KeyedWriterOptions;
  readonly #connection: CopyConnection;
  #stored = 0;

  constructor(options: KeyedWriterOptions) {
    this.#options = options;
    this.#connection = new CopyConnection(options.address, options.name, REFUSING);
  }

  /** Events that were committed. */
  get stored(): number {
    return this.#stored;
  }

  /**
   * Stores requests in one commit, no two of them with the same key; one call at a time. Never rejects.
   * @returns for each, in order: its answer, which may be the first one's, or why it is not stored
   */
  async write(requests: readonly KeyedEvents[]): Promise<readonly Outcome[]> {
    // The journal does not take them: without the table of keys nobody can tell a repeat.
    if (!this.#options.availability.writable) return requests.map(() => UNAVAILABLE);
    const attempt = { startedAt: this.#options.now(), uncertain: false, retries: 0 };
    const works = requests.map((keyed) => ({ keyed, events: keyed.events, answer: keyed.answer }));
    try {
      return await this.#store(works, attempt);
    } catch (error) {
      this.#options.log.error({ err: error }, 'Keyed requests failed in an unforeseen way');
      return requests.map(() => OUTCOME_UNKNOWN);
    }
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  async #store(works: readonly Work[], attempt: Attempt): Promise<readonly Outcome[]> {
    for (;;) {
      try {
        return await this.#tryToStore(works);
      } catch (error) {
        const outcomes = await this.#recover(works, attempt, error);
        if (outcomes !== null) return outcomes;
      }
    }
  }

  async #tryToStore(works: readonly Work[]): Promise<readonly Outcome[]> {
    const { rowCount } = await this.#connection.query(STORE, valuesOf(works), bytesOf(works));
    this.#stored += rowCount ?? 0;
    if (rowCount === works.reduce((sum, { events }) => sum + events.length, 0))
      return works.map(({ answer }) => answer);
    const known = await this.#find(works.map(({ keyed }) => keyed));
    return works.map((work, index) => {
      const found = known.get(index);
      // It was there a moment ago, and was removed as its time was over by another clock than ours.
      if (found === undefined) return UNAVAILABLE;
      // Ids are in it: nobody else's answer is the same. An earlier try of ours was committed after all.
      if (found.answer !== work.answer.body) return repeated(found, work.keyed.request);
      if (rowCount === 0) this.#stored += work.events.length;
      return work.answer;
    });
  }

  async #find(requests: readonly KeyedEvents[]): Promise<ReadonlyMap<number, KnownKey>> {
    const { rows } = await this.#connection.query<KnownKey & { index: number }>(FIND_KEYS, [
      requests.map(({ appId }) => appId),
      requests.map(({ request }) => request.keyDigest),
    ]);
    return new Map(rows.map((row) => [row.index, row]));
  }

  /** Prepares the next try and returns null, or returns the end of these requests. */
  async #recover(
    works: readonly Work[],
    attempt: Attempt,
    error: unknown,
  ): Promise<readonly Outcome[] | null> {
    const failure = classify(error);
    const context = { err: error, requests: works.length, failure };
    if (failure === 'fault') {
      this.#options.log.error(context, 'Keyed requests could not be stored');
      return works.map(() => (attempt.uncertain ? OUTCOME_UNKNOWN : FAULT));
    }
    if (failure === 'data' && works.length > 1) return await this.#halve(works, attempt);
    if (failure === 'lost') attempt.uncertain = true;
    if (this.#options.now() - attempt.startedAt >= timeoutMs(REFUSING, failure, attempt.uncertain)) {
      this.#options.log.warn(context, 'Keyed requests were given up');
      return works.map(() => (attempt.uncertain ? OUTCOME_UNKNOWN : UNAVAILABLE));
    }
    if (attempt.retries === 0) this.#options.log.warn(context, 'Keyed requests are tried again');
    attempt.retries += 1;
    try {
      if (failure === 'data') return await this.#withoutPoison(works, attempt);
      if (failure === 'missing-partition')
        await createPartitions(
          this.#connection,
          works.flatMap(({ events }) => events),
        );
      else await pause(Math.min(BACKOFF_MS.first * 2 ** attempt.retries, BACKOFF_MS.most));
    } catch (mending) {
      // The next try fails again and decides.
      this.#options.log.warn({ err: mending }, 'Keyed requests could not be mended');
    }
    return null;
  }

  /** The request that can not be stored must not take the others with it. */
  async #halve(works: readonly Work[], attempt: Attempt): Promise<readonly Outcome[]> {
    const middle = works.length >> 1;
    const first = await this.#store(works.slice(0, middle), { ...attempt });
    const second = await this.#store(works.slice(middle), { ...attempt });
    return [...first, ...second];
  }

  /** Stores the one request but for the events that the database refuses. */
  async #withoutPoison([work]: readonly Work[], attempt: Attempt): Promise<readonly Outcome[]> {
    if (work === undefined) return [];
    const poison = work.events.length === 1 ? work.events : await this.#poisonIn(work.events);
    this.#options.log.error({ eventId: poison[0]?.id, events: poison.length }, 'The database refuses events');
    const answer = work.keyed.answerWithout(new Map(poison.map((event) => [event, POISON])));
    const events = work.events.filter((event) => !poison.includes(event));
    if (events.length === 0 || answer instanceof Rejection) return [answer];
    return await this.#store([{ ...work, events, answer }], attempt);
  }

  /** Finds by halving, and by inserts that are rolled back, which events can not be stored. */
  async #poisonIn(events: readonly AcceptedEvent[]): Promise<readonly AcceptedEvent[]> {
    if (!(await this.#isRefused(events))) return [];
    if (events.length === 1) return events;
    const middle = events.length >> 1;
    return [
      ...(await this.#poisonIn(events.slice(0, middle))),
      ...(await this.#poisonIn(events.slice(middle))),
    ];
  }

  async #isRefused(events: readonly AcceptedEvent[]): Promise<boolean> {
    const connection = this.#connection;
    await connection.query('BEGIN', []);
    try {
      await connection.query(INSERT_MISSING, columns(events), sizeOf(events));
      return false;
    } catch (error) {
      if (classify(error) === 'data') return true;
      throw error;
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
