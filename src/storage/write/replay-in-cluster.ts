/**
 * Writes events of a journal in a cluster. The coordinator knows apps and types, the nodes hold events: so sources are resolved
 * first, and then the events of each node are stored on it. Those of a node that is away wait, and keep nothing else waiting.
 */

import { IDENTITY } from '../database/installation-id.ts';
import type { DataNode, Nodes } from '../database/nodes.ts';
import { ENGINES } from '../engines/engines.ts';
import { type EventRow, type JournaledEvent, sizeOf } from './accepted-event.ts';
import { connectionsTo, type WriteConnection } from './copy-connection.ts';
import { classify, type Failure, REPLAYING } from './failures.ts';
import { GroupCommit, type GroupKind } from './group-commit.ts';
import { columns } from './insert-events.ts';
import { insertRows, inTransaction } from './insert-steps.ts';
import {
  messageOf,
  type ReplayOutcome,
  ReplayWriter,
  type ReplayWriterOptions,
  Sources,
} from './replay-writer.ts';

/** What writes events of a journal, on one server or in a cluster. */
export interface ReplayGroupWriter {
  /** Stores the missing events of a group; one call at a time. @returns the outcomes of the events, in order */
  write(events: readonly JournaledEvent[]): Promise<readonly ReplayOutcome[]>;
  close(): Promise<void>;
}

/** @param options.nodes of a cluster; null for one server */
export function openReplayWriter({
  nodes,
  ...options
}: ReplayWriterOptions & { readonly nodes: Nodes | null }): ReplayGroupWriter {
  return nodes === null ? new ReplayWriter(options) : new ReplayInCluster(options, nodes);
}

/** An app and a type by internal ids; null where the database has none. */
interface Resolved {
  readonly isOurs: boolean;
  readonly number: number;
  readonly appId: number | null;
  readonly typeId: number | null;
}

const RESOLVE = `
  SELECT EXISTS (SELECT FROM installation WHERE name = '${IDENTITY}' AND value = $1) AS "isOurs",
         number::integer, apps.id AS "appId", coalesce(by_id.id, by_name.id) AS "typeId"
    FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY
           AS source (app_public_id, type_public_id, type_name, number)
    LEFT JOIN apps ON apps.public_id = source.app_public_id
    LEFT JOIN event_types AS by_id ON by_id.public_id = source.type_public_id AND by_id.app_id = apps.id
    LEFT JOIN event_types AS by_name ON by_name.app_id = apps.id AND by_name.name = source.type_name`;

/** Creates the types that apps lack: MAX_EVENT_TYPES_PER_APP does not apply, because their events were acknowledged. */
const MAKE_TYPES = `
  INSERT INTO event_types (public_id, app_id, name)
  SELECT DISTINCT ON (app_id, name) public_id, app_id, name
    FROM unnest($1::text[], $2::integer[], $3::text[]) AS made (public_id, app_id, name)
  ON CONFLICT DO NOTHING`;

class ReplayInCluster implements ReplayGroupWriter {
  readonly #options: ReplayWriterOptions;
  readonly #nodes: Nodes;
  readonly #coordinator: WriteConnection;
  readonly #connections = new Map<DataNode, WriteConnection>();
  readonly #commit: GroupCommit;
  readonly #kind: GroupKind<EventRow, ReplayOutcome>;

  constructor(options: ReplayWriterOptions, nodes: Nodes) {
    const { connect, log, now } = options;
    this.#options = options;
    this.#nodes = nodes;
    const engine = ENGINES[options.engine].writes;
    this.#coordinator = connect('tidemark replay', REPLAYING, engine.session);
    this.#commit = new GroupCommit({ engine, timeouts: REPLAYING, log, now });
    this.#kind = {
      name: 'events',
      store: async (connection, events) => {
        const bytes = sizeOf(events);
        await inTransaction(connection, () => insertRows(connection, columns(events), { bytes }));
        return events.map(() => 'stored');
      },
      eventsOf: (events) => events,
      refuse: (_, __, ___, error) => ({ reason: 'refused', details: messageOf(error) }),
      onExhausted: (events, { failure, error }) => {
        const outcome = outcomeOfFailure(failure, error);
        return events.map(() => outcome);
      },
    };
  }

  async write(events: readonly JournaledEvent[]): Promise<readonly ReplayOutcome[]> {
    const sources = new Sources(events);
    let known: ReadonlyMap<number, Resolved>;
    try {
      await this.#nodes.ready();
      known = await this.#resolve(sources);
      if (await this.#makeTypes(events, sources, known)) known = await this.#resolve(sources);
    } catch (error) {
      const failure = classify(error);
      if (failure !== 'fault') return events.map(() => (failure === 'blocked' ? 'blocked' : 'away'));
      this.#options.log.error(
        { err: error, events: events.length },
        'journal: sources could not be resolved',
      );
      return events.map(() => 'fault');
    }
    const outcomes: ReplayOutcome[] = events.map(() => 'fault');
    const parts = new Map<DataNode | null, { index: number; row: EventRow }[]>();
    for (const [index, event] of events.entries()) {
      const found = known.get(sources.numberOf(event));
      const obstacle = this.#obstacleTo(event, found);
      if (obstacle !== null) outcomes[index] = obstacle;
      if (obstacle !== null || found?.appId == null || found.typeId === null) continue;
      const { id, createdAt, payload } = event;
      const row = { id, createdAt, payload, appId: found.appId, typeId: found.typeId };
      const node = this.#nodes.nodeOf(found.appId);
      const part = parts.get(node);
      if (part === undefined) parts.set(node, [{ index, row }]);
      else part.push({ index, row });
    }
    await Promise.all(
      [...parts].map(async ([node, part]) => {
        const rows = part.map(({ row }) => row);
        const found = await this.#store(node, rows);
        for (const [at, { index }] of part.entries()) outcomes[index] = found[at] ?? 'fault';
      }),
    );
    return outcomes;
  }

  async close(): Promise<void> {
    await Promise.all(
      [this.#coordinator, ...this.#connections.values()].map((connection) => connection.close()),
    );
  }

  async #resolve(sources: Sources): Promise<ReadonlyMap<number, Resolved>> {
    const values = [this.#options.identity, ...sources.columns];
    const { rows } = await this.#coordinator.query<Resolved>(RESOLVE, values);
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
      const node = this.#nodes.nodeOf(found.appId);
      if (node !== null && this.#nodes.isUnreachable(node)) continue;
      missing.set(found.number, [event.source.typeId, found.appId, event.source.typeName]);
    }
    if (missing.size === 0) return false;
    const rows = [...missing.values()];
    await this.#coordinator.query(MAKE_TYPES, [
      rows.map(([id]) => id),
      rows.map(([, appId]) => appId),
      rows.map(([, , name]) => name),
    ]);
    return true;
  }

  /** Why an event cannot be stored, or not now; null if it can. */
  #obstacleTo({ source }: JournaledEvent, found: Resolved | undefined): ReplayOutcome | null {
    if (found?.isOurs !== true) return 'foreign';
    if (found.appId === null)
      return { reason: 'unknown-app', details: `the database has no app ${source.appId}` };
    const node = this.#nodes.nodeOf(found.appId);
    if (node !== null && this.#nodes.isUnreachable(node)) return 'blocked';
    if (found.typeId !== null) return null;
    return { reason: 'type-conflict', details: `another app has the event type ${source.typeId}` };
  }

  async #store(node: DataNode | null, rows: readonly EventRow[]): Promise<readonly ReplayOutcome[]> {
    return await this.#commit.run(this.#kind, this.#connectionTo(node), rows, this.#commit.begin(true));
  }

  #connectionTo(node: DataNode | null): WriteConnection {
    if (node === null) return this.#coordinator;
    const known = this.#connections.get(node);
    if (known !== undefined) return known;
    const { session } = ENGINES[this.#options.engine].writes;
    const connection = connectionsTo(this.#nodes.addressOf(node))('tidemark replay', REPLAYING, session);
    this.#connections.set(node, connection);
    return connection;
  }
}

/** Whatever keeps one node from taking events: the events of others do not wait for it. */
function outcomeOfFailure(failure: Failure, error: unknown): ReplayOutcome {
  if (failure === 'no-partition') return { reason: 'no-partition', details: messageOf(error) };
  return failure === 'fault' ? 'fault' : 'blocked';
}
