/**
 * Writes events that come back from a journal or from quarantine. They name their app and type as clients do, so that they
 * find the right ones in a database that was restored or has failed over, and none in another installation's.
 */

import type { WriteConnection } from '../database/copy-connection.ts';
import { IDENTITY } from '../database/installation-id.ts';
import type { Nodes } from '../database/nodes.ts';
import { type EventSource, type JournaledEvent, sizeOf, timestamp } from './accepted-event.ts';
import type { EngineWrites } from './engine-writes.ts';
import { type Failure, REPLAYING } from './failures.ts';
import { GroupCommit, type GroupKind, type WriteLog } from './group-commit.ts';
import { insertMissing } from './insert-events.ts';

/** Why an event can never be stored. */
export interface Unstorable {
  readonly reason: /** The database has no app with its public id. */
    | 'unknown-app'
    /** Its type is missing, and another app has a type with its public id. */
    | 'type-conflict'
    /** No partition can be made for its day. */
    | 'no-partition'
    /** The database refuses its data. */
    | 'refused'
    /** The file that held it has lost its header, so that nobody knows whose it is. */
    | 'unknown-owner';
  /** For the operator. */
  readonly details: string;
}

/** The outcome of an event. */
export type ReplayOutcome =
  | 'stored'
  /** The database takes no writes now. */
  | 'away'
  /** The database belongs to another installation: nothing was written into it. */
  | 'foreign'
  /** Another session has locked its day. */
  | 'blocked'
  /** The log has the cause; a later try may succeed. */
  | 'fault'
  | Unstorable;

export interface ReplayWriterOptions {
  readonly nodes: Nodes;
  readonly engine: EngineWrites;
  /** The identity of the installation that the events belong to. */
  readonly identity: string;
  readonly log: WriteLog;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** Also: no partition can be created, or a concurrent transaction has created the type. */
type TryOutcome = ReplayOutcome | 'no-room' | 'no-type';

interface Resolution {
  readonly isOurs: boolean;
  /** Numbers of sources, from 1 on. */
  readonly unknownApps: readonly number[];
  readonly unknownTypes: readonly number[];
}

/** A type that another session creates concurrently is visible to the next statement. */
const TYPE_TRIES = 3;

export class ReplayWriter {
  readonly #connection: WriteConnection;
  readonly #commit: GroupCommit;
  readonly #kind: GroupKind<JournaledEvent, TryOutcome>;

  constructor(options: ReplayWriterOptions) {
    const { nodes, engine, identity, log, now } = options;
    const statement = insertResolved(engine);
    this.#connection = nodes.home.connect('tidemark replay', REPLAYING, engine.session);
    this.#commit = new GroupCommit({ engine, timeouts: REPLAYING, log, now });
    this.#kind = {
      name: 'events',
      store: async (connection, events) => {
        const sources = new Sources(events);
        const { rows } = await connection.query<Resolution>(
          statement,
          [identity, ...sources.columns, ...eventColumns(events, sources)],
          sizeOf(events),
        );
        return outcomesOf(events, sources, rows[0]);
      },
      eventsOf: (events) => events,
      refuse: (_, __, ___, error) => ({ reason: 'refused', details: messageOf(error) }),
      onExhausted: (events, { failure }) => events.map(() => outcomeOfFailure(failure)),
    };
  }

  /**
   * Stores the missing events of a group; one call at a time. The transaction that stores them also checks installation, apps
   * and types: nothing known from before is trusted.
   * @returns the outcomes of the events, in order
   */
  async write(events: readonly JournaledEvent[]): Promise<readonly ReplayOutcome[]> {
    const outcomes = [...(await this.#run(events))];
    for (let tries = 1; tries < TYPE_TRIES; tries += 1) await this.#again(events, outcomes);
    return outcomes.map((outcome, index) => final(outcome, events[index]));
  }

  async close(): Promise<void> {
    await this.#connection.close();
  }

  #run(events: readonly JournaledEvent[]): Promise<readonly TryOutcome[]> {
    return this.#commit.run(this.#kind, this.#connection, events, this.#commit.begin(true));
  }

  /** Retries the events whose type was not visible, and replaces their outcomes. */
  async #again(events: readonly JournaledEvent[], outcomes: TryOutcome[]): Promise<void> {
    const some = [...events.entries()].filter(([index]) => outcomes[index] === 'no-type');
    if (some.length === 0) return;
    const changed = await this.#run(some.map(([, event]) => event));
    for (const [at, [index]] of some.entries()) outcomes[index] = changed[at] ?? 'fault';
  }
}

/** The distinct apps and types of a group, numbered from 1 on. */
export class Sources {
  readonly #numbers = new Map<string, number>();
  readonly #ofObject = new Map<EventSource, number>();
  readonly #list: EventSource[] = [];

  constructor(events: readonly JournaledEvent[]) {
    for (const { source } of events) {
      if (this.#ofObject.has(source)) continue;
      const key = JSON.stringify([source.appId, source.typeId, source.typeName]);
      let number = this.#numbers.get(key);
      if (number === undefined) {
        number = this.#list.push(source);
        this.#numbers.set(key, number);
      }
      this.#ofObject.set(source, number);
    }
  }

  numberOf({ source }: JournaledEvent): number {
    return this.#ofObject.get(source) ?? 0;
  }

  get columns(): readonly (readonly string[])[] {
    return [
      this.#list.map(({ appId }) => appId),
      this.#list.map(({ typeId }) => typeId),
      this.#list.map(({ typeName }) => typeName),
    ];
  }
}

function eventColumns(events: readonly JournaledEvent[], sources: Sources): readonly (readonly unknown[])[] {
  return [
    events.map(({ id }) => id),
    events.map((event) => sources.numberOf(event)),
    events.map(({ createdAt }) => timestamp(createdAt)),
    events.map(({ payload }) => payload),
  ];
}

/**
 * One statement, so one transaction, that resolves sources and stores the events of those that it can resolve. A type is
 * found by its public id, else by its name in the app. A type that an existing app lacks is created: MAX_EVENT_TYPES_PER_APP
 * does not apply, because its events were acknowledged.
 */
function insertResolved(engine: EngineWrites): string {
  const { before, counted } = insertMissing(engine);
  return `
  WITH home AS (
         SELECT EXISTS (SELECT FROM installation WHERE name = '${IDENTITY}' AND value = $1) AS is_ours
       ), source AS (
         SELECT number::integer, app_public_id, type_public_id, type_name
           FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY
             AS source (app_public_id, type_public_id, type_name, number)
       ), app AS (
         -- Locked: an app that is deleted before the commit gets no events.
         SELECT source.*, apps.id AS app_id
           FROM source JOIN apps ON apps.public_id = source.app_public_id
          WHERE (SELECT is_ours FROM home)
            FOR KEY SHARE OF apps
       ), known AS (
         SELECT app.*, coalesce(by_id.id, by_name.id) AS type_id
           FROM app
           LEFT JOIN event_types AS by_id ON by_id.public_id = app.type_public_id AND by_id.app_id = app.app_id
           LEFT JOIN event_types AS by_name ON by_name.app_id = app.app_id AND by_name.name = app.type_name
       ), made AS (
         INSERT INTO event_types (public_id, app_id, name)
         SELECT DISTINCT ON (app_id, type_name) type_public_id, app_id, type_name FROM known WHERE type_id IS NULL
         ON CONFLICT DO NOTHING
         RETURNING id, app_id, name
       ), resolved AS (
         SELECT known.number, known.app_id, coalesce(known.type_id, made.id) AS type_id
           FROM known LEFT JOIN made ON made.app_id = known.app_id AND made.name = known.type_name
       ), ${before}
         SELECT event.id, resolved.app_id, resolved.type_id, event.created_at, event.payload::json
           FROM unnest($5::uuid[], $6::integer[], $7::timestamptz[], $8::text[]) AS event (id, number, created_at, payload)
           JOIN resolved USING (number)
          WHERE resolved.type_id IS NOT NULL${counted}
  SELECT (SELECT is_ours FROM home) AS "isOurs",
         ARRAY(SELECT number FROM source EXCEPT SELECT number FROM known) AS "unknownApps",
         ARRAY(SELECT number FROM resolved WHERE type_id IS NULL) AS "unknownTypes"`;
}

function outcomesOf(
  events: readonly JournaledEvent[],
  sources: Sources,
  resolution: Resolution | undefined,
): readonly TryOutcome[] {
  if (resolution?.isOurs !== true) return events.map(() => 'foreign');
  const apps = new Set(resolution.unknownApps);
  const types = new Set(resolution.unknownTypes);
  return events.map((event) => {
    const number = sources.numberOf(event);
    if (apps.has(number))
      return { reason: 'unknown-app', details: `the database has no app ${event.source.appId}` };
    return types.has(number) ? 'no-type' : 'stored';
  });
}

function outcomeOfFailure(failure: Failure): TryOutcome {
  if (failure === 'no-partition') return 'no-room';
  return failure === 'fault' || failure === 'blocked' ? failure : 'away';
}

function final(outcome: TryOutcome, event: JournaledEvent | undefined): ReplayOutcome {
  if (event === undefined) return 'fault';
  const { source, createdAt } = event;
  if (outcome === 'no-room')
    return {
      reason: 'no-partition',
      details: `there is no partition for ${timestamp(createdAt).slice(0, 10)}`,
    };
  if (outcome === 'no-type')
    return { reason: 'type-conflict', details: `another app has the event type ${source.typeId}` };
  return outcome;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
