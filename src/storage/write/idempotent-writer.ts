/**
 * Writes requests whose events are committed together, all or none. For a request with an Idempotency-Key the same transaction stores
 * the key, so that a repeated request finds either the response or nothing.
 */
import type { Logger } from 'pino';
import { Rejection } from '../../errors.ts';
import type { Sql } from '../database/connect.ts';
import type { WriteConnection } from '../database/copy-connection.ts';
import { type AcceptedEvent, epochOf, isKeyed, sizeOf, timestamp } from './accepted-event.ts';
import type { EventWriterOptions } from './event-writer.ts';
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
import { AWAITS_STANDBY, columns, Inserts, KEY_LIFE_MS, keyedOutcomes } from './inserts.ts';

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

/** The stored keys among several; `index` is that in the two arrays of apps and digests. */
const FIND_KEYS = `
  SELECT request.number::int - 1 AS index, body_digest AS "bodyDigest", status, answer
    FROM unnest($1::int[], $2::bytea[]) WITH ORDINALITY AS request (app_id, key_digest, number)
    JOIN idempotency_keys USING (app_id, key_digest)`;

export interface IdempotentWriterOptions
  extends Pick<EventWriterOptions, 'node' | 'engine' | 'past' | 'now'> {
  /** Name of its connection, shown in pg_stat_activity. */
  readonly name: string;
  /** Called when requests could not get a lock in time. Never rejects. */
  readonly onBlocked: () => Promise<void>;
  readonly log: Logger;
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
  readonly #inserts: Inserts;
  readonly #kind: GroupKind<Work, IdempotentOutcome>;
  /** Finds the events that the database refuses, and stores nothing. */
  readonly #trial: GroupKind<AcceptedEvent, Rejection | null>;

  constructor(options: IdempotentWriterOptions) {
    this.#options = options;
    const { node, engine, name, past = false } = options;
    const timeouts = past ? REFUSING_PAST : REFUSING;
    this.#connection = node.connect(name, timeouts, engine.session);
    this.#commit = new GroupCommit({ ...options, timeouts, isUnreachable: () => node.isUnreachable });
    this.#inserts = new Inserts(engine);
    this.#kind = {
      name: 'requests',
      store: (_, works, attempt) => this.#store(works, attempt.uncertain),
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
    this.#trial = {
      name: 'events',
      store: async (_, events) => {
        await this.#inserts.attempt(this.#connection, columns(events), { bytes: sizeOf(events) });
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

  async #store(works: readonly Work[], uncertain: boolean): Promise<readonly IdempotentOutcome[]> {
    const events = works.flatMap((work) => work.events);
    const inserted = await this.#inserts.requests(this.#connection, valuesOf(works), {
      bytes: sizeOf(events),
      epoch: epochOf(events),
      isNew: works.every(isNew),
    });
    const outcomes = keyedOutcomes(events, inserted, uncertain);
    const isRepeated = new Set(events.filter((_, index) => outcomes[index] === 'repeated'));
    const requests = works.filter(hasRequest);
    const known = inserted.kept === requests.length ? null : await this.#find(requests);
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
}

function hasRequest({ request }: Work): boolean {
  return request.identity !== null;
}

/** Whether none of the events can be stored already if the Idempotency-Key is new. */
function isNew(work: Work): boolean {
  return hasRequest(work) && !work.events.some(isKeyed);
}

type Repeated = ReadonlySet<AcceptedEvent>;

/** @param repeated the events that were stored before */
function storedWork({ events, answer }: Work, repeated: Repeated, given = answer): IdempotentOutcome {
  const stored = repeated.size === 0 ? events : events.filter((event) => !repeated.has(event));
  return { stored, repeated: repeated.size, answer: given };
}

/** The outcome if the Idempotency-Key may have existed before. @param repeated as above, if it did not */
function keptOutcome(work: Work, found: KnownKey | undefined, repeated: Repeated): IdempotentOutcome {
  const { request, answer } = work;
  // It existed a moment ago, and expired by the clock of another process.
  if (found === undefined) return UNAVAILABLE;
  // It contains the ids of the events, so it is the response of this request, committed now or by an earlier try. If all
  // events have keys, it may be the response of a twin, which is the same.
  const isOurs =
    found.answer === answer.body && request.identity?.bodyDigest.equals(found.bodyDigest) === true;
  return isOurs ? storedWork(work, repeated) : { known: found };
}

/** The values of {@link Inserts.requests}. */
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
