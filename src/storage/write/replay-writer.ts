/**
 * Writes events that come back from a journal or from quarantine. They name their app and type as clients do, so that they
 * find the right ones in a database that was restored or has failed over, and none in another installation's.
 */

import { utcDay } from '../../base/time-units.ts';
import type { WriteConnection } from '../database/copy-connection.ts';
import { IDENTITY } from '../database/installation-id.ts';
import { ByNode, type Nodes, partsByNode } from '../database/nodes.ts';
import { type EventRow, type EventSource, type JournaledEvent, sizeOf } from './accepted-event.ts';
import type { EngineWrites } from './engine-writes.ts';
import { classify, type Failure, messageOf, REPLAYING } from './failures.ts';
import { GroupCommit, type GroupKind, type WriteLog } from './group-commit.ts';
import { columns, Inserts, inTransaction } from './inserts.ts';

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
  | 'unreachable'
  /** The database belongs to another installation: nothing was written into it. */
  | 'foreign'
  /** Another session has locked its day, or its day is in the archive and has to come back first. */
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

/** An app and a type by internal ids; null where the database has none. */
interface Resolved {
  readonly isOurs: boolean;
  /** The number of the source. */
  readonly number: number;
  readonly appId: number | null;
  readonly typeId: number | null;
}

/**
 * A type is found by its public id, else by its name in the app. Apps are locked: in a transaction that goes on to store their events,
 * one that is deleted meanwhile gets none.
 */
const RESOLVE = `
  WITH home AS (
         SELECT EXISTS (SELECT FROM installation WHERE name = '${IDENTITY}' AND value = $1) AS is_ours
       ), source AS (
         SELECT number::integer, app_public_id, type_public_id, type_name
           FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY
             AS source (app_public_id, type_public_id, type_name, number)
       ), app AS (
         SELECT apps.id, number FROM source JOIN apps ON apps.public_id = app_public_id
          WHERE (SELECT is_ours FROM home)
            FOR KEY SHARE OF apps
       )
  SELECT is_ours AS "isOurs", number, app.id AS "appId", coalesce(by_id.id, by_name.id) AS "typeId"
    FROM home CROSS JOIN source
    LEFT JOIN app USING (number)
    LEFT JOIN event_types AS by_id ON by_id.public_id = type_public_id AND by_id.app_id = app.id
    LEFT JOIN event_types AS by_name ON by_name.app_id = app.id AND by_name.name = type_name`;

/** Creates the types that apps lack: MAX_EVENT_TYPES_PER_APP does not apply, because their events were acknowledged. */
const MAKE_TYPES = `
  INSERT INTO event_types (public_id, app_id, name)
  SELECT DISTINCT ON (app_id, name) public_id, app_id, name
    FROM unnest($1::text[], $2::integer[], $3::text[]) AS made (public_id, app_id, name)
  ON CONFLICT DO NOTHING`;

/** An event whose app and type the database has. */
interface FoundEvent {
  readonly event: JournaledEvent;
  readonly appId: number;
  readonly typeId: number;
  /** Its index in the group. */
  readonly index: number;
}

export class ReplayWriter {
  readonly #options: ReplayWriterOptions;
  readonly #nodes: Nodes;
  readonly #connections: ByNode<WriteConnection>;
  readonly #commit: GroupCommit;
  readonly #inserts: Inserts;
  readonly #kind: GroupKind<FoundEvent, ReplayOutcome>;

  constructor(options: ReplayWriterOptions) {
    const { nodes, engine, log, now } = options;
    this.#options = options;
    this.#nodes = nodes;
    this.#connections = new ByNode(nodes, ({ connect }) =>
      connect('tidemark replay', REPLAYING, engine.session),
    );
    this.#commit = new GroupCommit({ engine, timeouts: REPLAYING, log, now });
    this.#inserts = new Inserts(engine);
    this.#kind = {
      name: 'events',
      store: (connection, found) => this.#store(connection, found),
      eventsOf: (found) => found.map(rowOf),
      refuse: (_, __, ___, error) => ({ reason: 'refused', details: messageOf(error) }),
      onExhausted: (found, { failure }) => found.map(({ event }) => this.#outcomeOf(event, failure)),
    };
  }

  /**
   * Stores the missing events of a group; one call at a time. Apps and types are on one server, events of a cluster on several: so
   * sources are resolved first, and then the events of each node are stored on it. Those of a node that does not answer wait, and keep
   * nothing else waiting.
   * @returns the outcomes of the events, in order
   */
  async write(events: readonly JournaledEvent[]): Promise<readonly ReplayOutcome[]> {
    const outcomes: ReplayOutcome[] = events.map(() => 'fault');
    const found: FoundEvent[] = [];
    try {
      await this.#nodes.ready();
      const sources = new Sources(events);
      let known = await this.#resolve(sources);
      if (await this.#makeTypes(events, sources, known)) known = await this.#resolve(sources);
      for (const [index, event] of events.entries()) {
        const resolved = this.#look(event, known.get(sources.numberOf(event)));
        if (typeof resolved === 'object' && 'appId' in resolved) found.push({ event, index, ...resolved });
        else outcomes[index] = resolved;
      }
    } catch (error) {
      const failure = classify(error);
      if (failure !== 'fault') return events.map(() => (failure === 'blocked' ? 'blocked' : 'unreachable'));
      this.#options.log.error(
        { err: error, events: events.length },
        'journal: sources could not be resolved',
      );
      return outcomes;
    }
    await Promise.all(
      partsByNode(this.#nodes, found).map(async ({ node, units }) => {
        const attempt = this.#commit.begin(true);
        const stored = await this.#commit.run(this.#kind, this.#connections.at(node), units, attempt);
        for (const [at, { index }] of units.entries()) outcomes[index] = stored[at] ?? 'fault';
      }),
    );
    return outcomes;
  }

  async close(): Promise<void> {
    await Promise.all(this.#connections.all.map((connection) => connection.close()));
  }

  get #home(): WriteConnection {
    return this.#connections.at(this.#nodes.home);
  }

  /**
   * Stores events in a transaction. On the server that has the apps it resolves them again: nothing known from before is trusted there,
   * as an app may have been deleted, or another server have taken over.
   */
  async #store(connection: WriteConnection, found: readonly FoundEvent[]): Promise<readonly ReplayOutcome[]> {
    const values = (rows: readonly EventRow[]) => [columns(rows), { bytes: sizeOf(rows) }] as const;
    if (connection !== this.#home) {
      await this.#inserts.missing(connection, ...values(found.map(rowOf)));
      return found.map(() => 'stored');
    }
    return await inTransaction(connection, async () => {
      const sources = new Sources(found.map(({ event }) => event));
      const known = await this.#resolve(sources);
      const rows: EventRow[] = [];
      const outcomes = found.map(({ event }): ReplayOutcome => {
        const resolved = this.#look(event, known.get(sources.numberOf(event)));
        if (typeof resolved !== 'object' || !('appId' in resolved)) return resolved;
        rows.push(rowOf({ event, ...resolved }));
        return 'stored';
      });
      await this.#inserts.missingInside(connection, ...values(rows));
      return outcomes;
    });
  }

  async #resolve(sources: Sources): Promise<ReadonlyMap<number, Resolved>> {
    const values = [this.#options.identity, ...sources.columns];
    const { rows } = await this.#home.query<Resolved>(RESOLVE, values);
    return new Map(rows.map((row) => [row.number, row]));
  }

  /** Types of apps whose node is away are made when it is back. @returns whether any were made */
  async #makeTypes(
    events: readonly JournaledEvent[],
    sources: Sources,
    known: ReadonlyMap<number, Resolved>,
  ): Promise<boolean> {
    const missing = new Map<number, readonly [typeId: string, appId: number, name: string]>();
    for (const event of events) {
      const found = known.get(sources.numberOf(event));
      if (found?.isOurs !== true || found.appId === null || found.typeId !== null) continue;
      if (this.#nodes.nodeOf(found.appId).isUnreachable) continue;
      missing.set(found.number, [event.source.typeId, found.appId, event.source.typeName]);
    }
    if (missing.size === 0) return false;
    const rows = [...missing.values()];
    await this.#home.query(MAKE_TYPES, [
      rows.map(([id]) => id),
      rows.map(([, appId]) => appId),
      rows.map(([, , name]) => name),
    ]);
    return true;
  }

  /** The ids of an event's app and type, or why it cannot be stored, or not now. */
  #look(
    { source }: JournaledEvent,
    found: Resolved | undefined,
  ): Pick<FoundEvent, 'appId' | 'typeId'> | ReplayOutcome {
    if (found?.isOurs !== true) return 'foreign';
    const { appId, typeId } = found;
    if (appId === null) return { reason: 'unknown-app', details: `the database has no app ${source.appId}` };
    if (this.#nodes.nodeOf(appId).isUnreachable) return 'blocked';
    if (typeId !== null) return { appId, typeId };
    return { reason: 'type-conflict', details: `another app has the event type ${source.typeId}` };
  }

  #outcomeOf({ createdAt }: JournaledEvent, failure: Failure): ReplayOutcome {
    if (failure === 'no-partition')
      return { reason: 'no-partition', details: `there is no partition for ${utcDay(createdAt)}` };
    if (failure === 'fault' || failure === 'blocked') return failure;
    if (failure === 'away') return 'blocked';
    // Whatever keeps one node from taking events: those of others do not wait for it.
    return this.#nodes.names.length === 0 ? 'unreachable' : 'blocked';
  }
}

function rowOf({ event, appId, typeId }: Omit<FoundEvent, 'index'>): EventRow {
  const { id, createdAt, payload } = event;
  return { id, createdAt, payload, appId, typeId };
}

/** The distinct apps and types of a group, numbered from 1 on. */
class Sources {
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
