/**
 * Queues by server: one for each that holds events, with a share of the room and with a writer of its own. What waits for a node that
 * does not answer takes neither the room nor the turns of what is for the others.
 */
import { ByNode, type DataNode, type Nodes } from '../storage/storage.ts';
import { CommitBuffer, type CommitBufferOptions } from './commit-buffer.ts';
import { IdempotentQueue, type IdempotentQueueOptions } from './idempotent-queue.ts';

type Placement = Pick<Nodes, 'nodeOf' | 'names'>;

/** Commit buffers. */
export class EventBuffer {
  readonly #queues: ByNode<CommitBuffer>;

  /**
   * @param writeAt how the groups of a server are written
   * @param largest most events of one request: each share has room for it
   */
  constructor(
    nodes: Placement,
    options: Omit<CommitBufferOptions, 'write'>,
    largest: number,
    writeAt: (node: DataNode) => CommitBufferOptions['write'],
  ) {
    this.#queues = new ByNode(
      nodes,
      (node) => new CommitBuffer(shared(nodes, { ...options, write: writeAt(node) }, largest)),
    );
  }

  add(event: Parameters<CommitBuffer['add']>[0]): ReturnType<CommitBuffer['add']> {
    return this.#queues.of(event.appId).add(event);
  }

  /** @param events of one app */
  addAll(events: Parameters<CommitBuffer['addAll']>[0]): ReturnType<CommitBuffer['addAll']> {
    return this.#queues.of(events[0]?.appId ?? 0).addAll(events);
  }

  get depth(): number {
    return this.#queues.all.reduce((sum, { depth }) => sum + depth, 0);
  }

  get stored(): number {
    return this.#queues.all.reduce((sum, { stored }) => sum + stored, 0);
  }

  get repeated(): number {
    return this.#queues.all.reduce((sum, { repeated }) => sum + repeated, 0);
  }

  async drain(): Promise<void> {
    await Promise.all(this.#queues.all.map((queue) => queue.drain()));
  }
}

/** What writes the idempotent requests of a server. */
export interface RequestWriter {
  readonly write: IdempotentQueueOptions['write'];
  close(): Promise<void>;
}

/** Queues of idempotent requests. */
export class RequestQueue {
  readonly #queues: ByNode<{ readonly queue: IdempotentQueue; readonly writer: RequestWriter }>;

  /** The parameters are those of {@link EventBuffer}. */
  constructor(
    nodes: Placement,
    options: Omit<IdempotentQueueOptions, 'write'>,
    largest: number,
    writerAt: (node: DataNode) => RequestWriter,
  ) {
    this.#queues = new ByNode(nodes, (node) => {
      const writer = writerAt(node);
      return {
        writer,
        queue: new IdempotentQueue(shared(nodes, { ...options, write: writer.write }, largest)),
      };
    });
  }

  add(request: Parameters<IdempotentQueue['add']>[0]): ReturnType<IdempotentQueue['add']> {
    return this.#queues.of(request.appId).queue.add(request);
  }

  get depth(): number {
    return this.#queues.all.reduce((sum, { queue }) => sum + queue.depth, 0);
  }

  get stored(): number {
    return this.#queues.all.reduce((sum, { queue }) => sum + queue.stored, 0);
  }

  get repeated(): number {
    return this.#queues.all.reduce((sum, { queue }) => sum + queue.repeated, 0);
  }

  async drain(): Promise<void> {
    await Promise.all(this.#queues.all.map(({ queue }) => queue.drain()));
  }

  /** Closes the writers of a queue that is drained. */
  async close(): Promise<void> {
    await Promise.all(this.#queues.all.map(({ writer }) => writer.close()));
  }
}

interface Limits {
  readonly maxEvents: number;
  readonly maxBytes: number;
}

/** Options with the limits of one server's share, which follows the number of nodes. */
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
