/** Writes idempotent requests in a cluster: those of the apps of one node together, on that node. */
import type { DataNode, Nodes } from '../database/nodes.ts';
import { connectionsTo } from './copy-connection.ts';
import {
  type IdempotentOutcome,
  type IdempotentRequest,
  IdempotentWriter,
  type IdempotentWriterOptions,
} from './idempotent-writer.ts';
import { NODE_IS_AWAY } from './routed-writer.ts';

/** What writes idempotent requests, on one server or in a cluster. */
export interface IdempotentGroupWriter {
  /** Stores requests, no two of them with the same key; one call at a time for each node. Never rejects. */
  write(requests: readonly IdempotentRequest[]): Promise<readonly IdempotentOutcome[]>;
  close(): Promise<void>;
}

/** @param options.nodes of a cluster; null for one server */
export function openIdempotentWriter({
  nodes,
  ...options
}: IdempotentWriterOptions & { readonly nodes: Nodes | null }): IdempotentGroupWriter {
  return nodes === null ? new IdempotentWriter(options) : new RoutedIdempotentWriter(options, nodes);
}

class RoutedIdempotentWriter implements IdempotentGroupWriter {
  readonly #options: IdempotentWriterOptions;
  readonly #nodes: Nodes;
  readonly #writers = new Map<DataNode | null, IdempotentWriter>();
  /** By node, the write that was begun last: an app that has just been moved brings another one. */
  readonly #last = new Map<DataNode | null, Promise<unknown>>();

  constructor(options: IdempotentWriterOptions, nodes: Nodes) {
    this.#options = options;
    this.#nodes = nodes;
  }

  async write(requests: readonly IdempotentRequest[]): Promise<readonly IdempotentOutcome[]> {
    await this.#nodes.ready().catch(() => undefined); // The coordinator then says what is wrong with it.
    const parts = new Map<DataNode | null, number[]>();
    for (const [index, { appId }] of requests.entries()) {
      const node = this.#nodes.nodeOf(appId);
      parts.set(node, [...(parts.get(node) ?? []), index]);
    }
    const outcomes: IdempotentOutcome[] = requests.map(() => NODE_IS_AWAY);
    await Promise.all(
      [...parts].map(async ([node, indexes]) => {
        if (node !== null && this.#nodes.isUnreachable(node)) return;
        const part = indexes.flatMap((index) => requests[index] ?? []);
        const found = await this.#inTurn(node, () => this.#writerOf(node).write(part));
        for (const [at, index] of indexes.entries()) outcomes[index] = found[at] ?? NODE_IS_AWAY;
      }),
    );
    return outcomes;
  }

  /** Writes after what was begun before on the same node. */
  #inTurn<T>(node: DataNode | null, write: () => Promise<T>): Promise<T> {
    const turn = (this.#last.get(node) ?? Promise.resolve()).then(write);
    this.#last.set(
      node,
      turn.catch(() => undefined),
    );
    return turn;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#writers.values()].map((writer) => writer.close()));
  }

  #writerOf(node: DataNode | null): IdempotentWriter {
    const known = this.#writers.get(node);
    if (known !== undefined) return known;
    const nodes = this.#nodes;
    const writer = new IdempotentWriter(
      node === null
        ? this.#options
        : {
            ...this.#options,
            connect: connectionsTo(nodes.addressOf(node)),
            isUnreachable: () => nodes.isUnreachable(node),
            onAway: (error) => nodes.suspect(node, error),
          },
    );
    this.#writers.set(node, writer);
    return writer;
  }
}
