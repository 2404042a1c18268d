/**
 * Writes events of a journal in a cluster. The coordinator knows apps and types, the nodes hold events: so sources are resolved
 * first, and then the events of each node are stored on it. Those of a node that is away wait, and keep nothing else waiting.
 */

import type { WriteConnection } from '../database/copy-connection.ts';
import { IDENTITY } from '../database/installation-id.ts';
import { ByNode, type Nodes, partsByNode } from '../database/nodes.ts';
import { type EventRow, type JournaledEvent, sizeOf } from './accepted-event.ts';
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

export function openReplayWriter(options: ReplayWriterOptions): ReplayGroupWriter {
  return options.engine.insertsInSteps ? new ReplayInCluster(options) : new ReplayWriter(options);
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
  readonly #connections: ByNode<WriteConnection>;
  readonly #commit: GroupCommit;
  readonly #kind: GroupKind<EventRow, ReplayOutcome>;

  constructor(options: ReplayWriterOptions) {
    const { nodes, engine, log, now } = options;
    this.#options = options;
    this.#nodes = nodes;
    this.#connections = new ByNode(nodes, ({ connect }) =>
      connect('tidemark replay', REPLAYING, engine.session),
    );
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
    const rows: { index: number; appId: number; row: EventRow }[] = [];
    for (const [index, event] of events.entries()) {
      const found = known.get(sources.numberOf(event));
      const obstacle = this.#obstacleTo(event, found);
      if (obstacle !== null) outcomes[index] = obstacle;
      if (obstacle !== null || found?.appId == null || found.typeId === null) continue;
      const { id, createdAt, payload } = event;
      const row = { id, createdAt, payload, appId: found.appId, typeId: found.typeId };
      rows.push({ index, appId: found.appId, row });
    }
    await Promise.all(
      partsByNode(this.#nodes, rows).map(async ({ node, units }) => {
        const found = await this.#store(
          this.#connections.at(node),
          units.map(({ row }) => row),
        );
        for (const [at, { index }] of units.entries()) outcomes[index] = found[at] ?? 'fault';
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

  /** Why an event cannot be stored, or not now; null if it can. */
  #obstacleTo({ source }: JournaledEvent, found: Resolved | undefined): ReplayOutcome | null {
    if (found?.isOurs !== true) return 'foreign';
    if (found.appId === null)
      return { reason: 'unknown-app', details: `the database has no app ${source.appId}` };
    if (this.#nodes.nodeOf(found.appId).isUnreachable) return 'blocked';
    if (found.typeId !== null) return null;
    return { reason: 'type-conflict', details: `another app has the event type ${source.typeId}` };
  }

  async #store(connection: WriteConnection, rows: readonly EventRow[]): Promise<readonly ReplayOutcome[]> {
    return await this.#commit.run(this.#kind, connection, rows, this.#commit.begin(true));
  }
}

/** Whatever keeps one node from taking events: the events of others do not wait for it. */
function outcomeOfFailure(failure: Failure, error: unknown): ReplayOutcome {
  if (failure === 'no-partition') return { reason: 'no-partition', details: messageOf(error) };
  return failure === 'fault' ? 'fault' : 'blocked';
}
