/** What writers of a test need. */
import type { DatabaseAddress } from '../../src/storage/database/connect.ts';
import { connectionsTo } from '../../src/storage/database/copy-connection.ts';
import type { Database } from '../../src/storage/database/database.ts';
import type { Engine } from '../../src/storage/database/engine.ts';
import {
  ByNode,
  type DataNode,
  type Nodes,
  oneServer,
  partsByNode,
} from '../../src/storage/database/nodes.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import type { AcceptedEvent } from '../../src/storage/write/accepted-event.ts';
import type { EngineWrites } from '../../src/storage/write/engine-writes.ts';
import {
  EventWriter,
  type EventWriterOptions,
  type WriteOutcome,
} from '../../src/storage/write/event-writer.ts';

interface Written {
  readonly engine: Engine;
  readonly address: DatabaseAddress | Database;
}

/** The server and the engine of a writer. */
export function writingTo({ engine, address }: Written): {
  readonly node: DataNode;
  readonly nodes: Nodes;
  readonly engine: EngineWrites;
} {
  const nodes = oneServer(connectionsTo(address));
  return { node: nodes.home, nodes, engine: ENGINES[engine].writes };
}

/** Writers of all servers of a database, as the queues of the service have them. */
export class RoutedWriter {
  readonly #nodes: Nodes;
  readonly #writers: ByNode<EventWriter>;

  constructor(nodes: Nodes, options: Omit<EventWriterOptions, 'node'>) {
    this.#nodes = nodes;
    this.#writers = new ByNode(nodes, (node) => new EventWriter({ ...options, node }));
  }

  async write(events: readonly AcceptedEvent[], uncertain = false): Promise<readonly WriteOutcome[]> {
    await this.#nodes.ready();
    const outcomes: WriteOutcome[] = [];
    await Promise.all(
      partsByNode(this.#nodes, events).map(async ({ node, units, indexes }) => {
        const found = await this.#writers.at(node).write(units, uncertain);
        for (const [at, index] of indexes.entries()) outcomes[index] = found[at] ?? null;
      }),
    );
    return outcomes;
  }

  /** Number of groups by the name of the node that they were sent to. */
  get groupsByNode(): ReadonlyMap<string, number> {
    return new Map(this.#writers.entries.map(([{ name }, { groups }]) => [name, groups]));
  }

  async close(): Promise<void> {
    await Promise.all(this.#writers.all.map((writer) => writer.close()));
  }
}
