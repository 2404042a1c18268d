/**
 * The queues in which accepted events wait for their commit, and which of them waits where. Each server that holds events has queues
 * of its own with a share of the room: what waits for a node that does not answer takes neither the room nor the turns of others.
 */
import type { RoomLimits } from '../../base/room.ts';
import type { Rejection } from '../../errors.ts';
import type { Answer } from '../../http/exchange.ts';
import { ByNode, type DataNode, type Nodes } from '../../storage/database/nodes.ts';
import { type AcceptedEvent, isKeyed } from '../../storage/write/accepted-event.ts';
import type { Outcomes, WriteOutcome } from '../../storage/write/event-writer.ts';
import type { IdempotentRequest } from '../../storage/write/idempotent-writer.ts';
import { CommitBuffer, type CommitBufferOptions, type WriteGroup } from './commit-buffer.ts';
import { IdempotentQueue, type WriteRequests } from './idempotent-queue.ts';

export interface NodeQueues {
  /** Events of the current day. */
  readonly now: CommitBuffer;
  /** Events of past days, which may wait for one of these days. */
  readonly past: CommitBuffer;
  /** Requests with an Idempotency-Key, and atomic batches. */
  readonly requests: IdempotentQueue;
}

/** How what waits for a server is stored there. */
export interface NodeWriters {
  readonly now: WriteGroup;
  readonly past: WriteGroup;
  readonly requests: WriteRequests;
}

/** As those of the commit buffer; the limits are of each queue of all servers together. */
export interface WriteQueuesOptions extends Omit<CommitBufferOptions, 'write'> {
  readonly nodes: Pick<Nodes, 'nodeOf' | 'names'>;
  readonly writersAt: (node: DataNode) => NodeWriters;
  /** Why the day of a time is not writable now, or null. */
  readonly refusalOf: (time: number) => Rejection | null;
  /** Connections to each server for events of past days. What else the commit buffer is given concerns those of the current day. */
  readonly pastConnections: number;
  /** Most events of one request: each share has room for it. */
  readonly largest: number;
}

/** Accepted events of one request, in order of time. */
export interface AcceptedEvents {
  readonly accepted: readonly AcceptedEvent[];
  /** How many of these, the first ones, are of past days. */
  readonly past: number;
  readonly keyed: number;
}

interface Group {
  readonly events: AcceptedEvent[];
  /** Places of the events among those of the request. */
  readonly indexes: number[];
}

export class WriteQueues {
  /** Why the day of a time is not writable now, or null. */
  readonly refusalOf: (time: number) => Rejection | null;
  readonly #nodes: ByNode<NodeQueues>;

  constructor(options: WriteQueuesOptions) {
    const { nodes, writersAt, refusalOf, holderOf, onStored, connections, pastConnections } = options;
    const { stall, phases } = options;
    this.refusalOf = refusalOf;
    const common = { holderOf, ...(onStored !== undefined && { onStored }) };
    const ofNow = { ...(stall !== undefined && { stall }), ...(phases !== undefined && { phases }) };
    this.#nodes = new ByNode(nodes, (node) => {
      const { now, past, requests } = writersAt(node);
      return {
        now: new CommitBuffer(withShare(options, { ...common, ...ofNow, write: now, connections })),
        past: new CommitBuffer(withShare(options, { ...common, write: past, connections: pastConnections })),
        requests: new IdempotentQueue(withShare(options, { ...common, write: requests })),
      };
    });
  }

  /** The queues of the server that holds an app. */
  of(appId: number): NodeQueues {
    return this.#nodes.of(appId);
  }

  /** Stores a single event of the current day that has no key. */
  add(event: AcceptedEvent): Promise<WriteOutcome> {
    return this.of(event.appId).now.add(event);
  }

  /**
   * Stores the events of a request, each as soon as it can be: those of now do not wait for those of past days, nor those without
   * keys for those that may be there already.
   * @param events of one app
   */
  async storeApart({ accepted, past, keyed }: AcceptedEvents): Promise<Outcomes> {
    const [first] = accepted;
    if (first === undefined) return [];
    const queues = this.of(first.appId);
    if (past === 0 && keyed === 0) return await queues.now.addAll(accepted);
    const newGroup = (): Group => ({ events: [], indexes: [] });
    const groups = { past: [newGroup(), newGroup()], now: [newGroup(), newGroup()] } as const;
    for (const [index, event] of accepted.entries()) {
      const group = groups[index < past ? 'past' : 'now'][isKeyed(event) ? 1 : 0];
      group?.events.push(event);
      group?.indexes.push(index);
    }
    const outcomes = new Array<WriteOutcome>(accepted.length);
    const add = async (buffer: CommitBuffer, group: Group): Promise<void> => {
      const stored = await buffer.addAll(group.events);
      for (const [at, index] of group.indexes.entries()) {
        const outcome = stored[at];
        if (outcome === undefined) throw new Error('Events were stored without an outcome for each of them.');
        outcomes[index] = outcome;
      }
    };
    await Promise.all([
      ...groups.past.map((group) => add(queues.past, group)),
      ...groups.now.map((group) => add(queues.now, group)),
    ]);
    return outcomes;
  }

  /**
   * Stores the events of a request in one commit, which waits until each of their days takes events.
   * @param past how many of them, the first ones, are of past days
   */
  async storeTogether(request: IdempotentRequest, past: number): Promise<Answer | Rejection> {
    const { requests } = this.of(request.appId);
    if (past === 0) return await requests.add(request, request.events.length === 1 ? 'event' : 'batch');
    for (const { createdAt } of request.events) {
      const refusal = this.refusalOf(createdAt);
      if (refusal?.isRetryable) return refusal;
    }
    return await requests.add(request, 'past');
  }

  /** Events that wait or are being committed. */
  get depth(): number {
    return this.#sum(({ depth }) => depth);
  }

  /** Events of past days that wait or are being committed, without those of requests that are stored as a whole. */
  get pastDepth(): number {
    return this.#nodes.all.reduce((sum, { past }) => sum + past.depth, 0);
  }

  /** Events that were acknowledged, each key once. */
  get stored(): number {
    return this.#sum(({ stored }) => stored);
  }

  /** Events whose keys were stored before. */
  get repeated(): number {
    return this.#sum(({ repeated }) => repeated);
  }

  /** Refuses new events and waits until none is left. */
  async drain(): Promise<void> {
    await Promise.all(this.#all.map((queue) => queue.drain()));
  }

  get #all(): readonly (CommitBuffer | IdempotentQueue)[] {
    return this.#nodes.all.flatMap(({ now, past, requests }) => [now, past, requests]);
  }

  #sum(of: (queue: CommitBuffer | IdempotentQueue) => number): number {
    return this.#all.reduce((sum, queue) => sum + of(queue), 0);
  }
}

/** Options with the limits of one server's share, which follows the number of nodes. */
function withShare<Options extends object>(
  { nodes, maxEvents, maxBytes, largest }: WriteQueuesOptions,
  options: Options,
): Options & RoomLimits {
  const share = (limit: number): number => Math.ceil(limit / Math.max(1, nodes.names.length));
  return {
    ...options,
    get maxEvents() {
      return Math.max(share(maxEvents), Math.min(maxEvents, largest));
    },
    get maxBytes() {
      return share(maxBytes);
    },
  };
}
