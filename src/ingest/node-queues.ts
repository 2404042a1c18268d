/**
 * Queues of a cluster: one for each node, with a share of the room. What waits for a node that does not answer takes neither the
 * room nor the turns of what is for the others.
 */
import type { DataNode, Nodes } from '../storage/storage.ts';
import { CommitBuffer, type CommitBufferOptions } from './commit-buffer.ts';
import { IdempotentQueue, type IdempotentQueueOptions } from './idempotent-queue.ts';

/** What events wait in. */
export type EventBuffer = Pick<CommitBuffer, 'add' | 'addAll' | 'depth' | 'stored' | 'repeated' | 'drain'>;

/** What idempotent requests wait in. */
export type RequestQueue = Pick<IdempotentQueue, 'add' | 'depth' | 'stored' | 'repeated' | 'drain'>;

/**
 * @param nodes   of a cluster; null for one server
 * @param largest most events of one request: each share has room for it
 */
export function openEventBuffer(
  nodes: Pick<Nodes, 'nodeOf' | 'names'> | null,
  options: CommitBufferOptions,
  largest: number,
): EventBuffer {
  if (nodes === null) return new CommitBuffer(options);
  const queues = new NodeQueues(nodes, () => new CommitBuffer(shared(nodes, options, largest)));
  return Object.assign(queues, {
    add: (event: Parameters<EventBuffer['add']>[0]) => queues.of(event.appId).add(event),
    addAll: (events: Parameters<EventBuffer['addAll']>[0]) => queues.of(events[0]?.appId ?? 0).addAll(events),
  });
}

/** The same for idempotent requests. */
export function openRequestQueue(
  nodes: Pick<Nodes, 'nodeOf' | 'names'> | null,
  options: IdempotentQueueOptions,
  largest: number,
): RequestQueue {
  if (nodes === null) return new IdempotentQueue(options);
  const queues = new NodeQueues(nodes, () => new IdempotentQueue(shared(nodes, options, largest)));
  return Object.assign(queues, {
    add: (request: Parameters<RequestQueue['add']>[0]) => queues.of(request.appId).add(request),
  });
}

interface Limits {
  readonly maxEvents: number;
  readonly maxBytes: number;
}

/** Options with the limits of one node's share, which follows the number of nodes. */
function shared<Options extends Limits>(
  nodes: Pick<Nodes, 'names'>,
  options: Options,
  largest: number,
): Options {
  const share = (limit: number): number => Math.ceil(limit / Math.max(1, nodes.names.length));
  return {
    ...options,
    get maxEvents() {
      return Math.max(share(options.maxEvents), Math.min(options.maxEvents, largest));
    },
    get maxBytes() {
      return share(options.maxBytes);
    },
  };
}

/** Queues by the nodes of their apps; null: the coordinator, and apps of which the node is not known yet. */
class NodeQueues<Queue extends Pick<CommitBuffer, 'depth' | 'stored' | 'repeated' | 'drain'>> {
  readonly #nodes: Pick<Nodes, 'nodeOf'>;
  readonly #open: () => Queue;
  readonly #queues = new Map<DataNode | null, Queue>();

  constructor(nodes: Pick<Nodes, 'nodeOf'>, open: () => Queue) {
    this.#nodes = nodes;
    this.#open = open;
  }

  of(appId: number): Queue {
    const node = this.#nodes.nodeOf(appId);
    const known = this.#queues.get(node);
    if (known !== undefined) return known;
    const queue = this.#open();
    this.#queues.set(node, queue);
    return queue;
  }

  get depth(): number {
    return this.#sum(({ depth }) => depth);
  }

  get stored(): number {
    return this.#sum(({ stored }) => stored);
  }

  get repeated(): number {
    return this.#sum(({ repeated }) => repeated);
  }

  async drain(): Promise<void> {
    await Promise.all([...this.#queues.values()].map((queue) => queue.drain()));
  }

  #sum(of: (queue: Queue) => number): number {
    return [...this.#queues.values()].reduce((sum, queue) => sum + of(queue), 0);
  }
}
