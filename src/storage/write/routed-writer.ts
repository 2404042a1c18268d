/**
 * The writer for a cluster: the part of a commit group that one node holds is sent to that node and committed there, in a
 * transaction of that node alone. A group by way of another node would be a two-phase commit over all of them.
 */
import { Rejection } from '../../errors.ts';
import type { Histogram } from '../../metrics/histogram.ts';
import { type DataNode, type Nodes, nodeIsAway } from '../database/nodes.ts';
import type { AcceptedEvent } from './accepted-event.ts';
import { connectionsTo } from './copy-connection.ts';
import {
  EventWriter,
  type EventWriterOptions,
  type GroupCounts,
  newGroupCounts,
  type Outcomes,
  type WriteOutcome,
} from './event-writer.ts';
import type { FinalFailure } from './group-commit.ts';

/** What writes commit groups, on one server or in a cluster. */
export interface GroupWriter extends GroupCounts {
  /** Tries of groups after their first one. */
  readonly retries: number;
  /** Milliseconds for which groups have been in flight and none has ended. */
  readonly stillMs: number;
  /** Of a cluster: groups by the name of the node that they were sent to, {@link COORDINATOR} included. */
  readonly groupsByNode?: ReadonlyMap<string, number>;
  write(events: readonly AcceptedEvent[], uncertain?: boolean): Promise<Outcomes>;
  /** Whether the database takes events of a time now. */
  canWrite(createdAt: number): Promise<boolean>;
  close(): Promise<void>;
}

/** @param options.nodes of a cluster; null for one server */
export function openWriter({
  nodes,
  ...options
}: EventWriterOptions & { readonly nodes: Nodes | null }): GroupWriter {
  return nodes === null ? new EventWriter(options) : new RoutedWriter(options, nodes);
}

export const NODE_IS_AWAY = new Rejection(
  'unavailable',
  'The part of the database that holds this app does not answer; try again shortly.',
);

/** In place of a node's name: groups of apps that the coordinator holds itself, or of which the node is not known. */
export const COORDINATOR = 'coordinator';

/** Most numbers that are tried to find an app of a node. */
const MOST_TRIED = 10_000;

class RoutedWriter implements GroupWriter {
  readonly groupEvents: Histogram;
  readonly groupSeconds: Histogram;
  readonly groupsByNode = new Map<string, number>();
  readonly #options: EventWriterOptions;
  readonly #nodes: Nodes;
  /** For what is on the coordinator itself, and while it is not known where apps are. */
  readonly #coordinator: EventWriter;
  readonly #writers = new Map<DataNode, EventWriter>();
  /** Groups that wait for a connection. */
  readonly #waiting: (() => void)[] = [];

  constructor(options: EventWriterOptions, nodes: Nodes) {
    const counts = newGroupCounts();
    ({ groupEvents: this.groupEvents, groupSeconds: this.groupSeconds } = counts);
    this.#options = { ...options, counts };
    this.#nodes = nodes;
    this.#coordinator = new EventWriter(this.#options);
  }

  get retries(): number {
    return this.#all().reduce((sum, { retries }) => sum + retries, 0);
  }

  /** Of a node that is known to be away nothing is expected. */
  get stillMs(): number {
    const present = [...this.#writers]
      .filter(([node]) => !this.#nodes.isUnreachable(node))
      .map(([, writer]) => writer);
    return Math.max(...[this.#coordinator, ...present].map(({ stillMs }) => stillMs));
  }

  /** Commits the part of each node. None waits for another but for its outcome. */
  async write(events: readonly AcceptedEvent[], uncertain = false): Promise<Outcomes> {
    await this.#nodes.ready().catch(() => undefined); // The coordinator then says what is wrong with it.
    const parts = new Map<DataNode | null, number[]>();
    for (const [index, { appId }] of events.entries()) {
      const node = this.#nodes.nodeOf(appId);
      const part = parts.get(node);
      if (part === undefined) parts.set(node, [index]);
      else part.push(index);
    }
    const [only] = parts.keys();
    if (only !== undefined && parts.size === 1) return await this.#writePart(only, events, uncertain);
    const outcomes: WriteOutcome[] = new Array(events.length);
    await Promise.all(
      [...parts].map(async ([node, indexes]) => {
        const part = indexes.flatMap((index) => events[index] ?? []);
        const found = await this.#writePart(node, part, uncertain);
        // A missing outcome must not pass for an acknowledgement.
        if (found.length !== indexes.length)
          throw new Error('A node has not given an outcome for every event.');
        for (const [at, index] of indexes.entries()) outcomes[index] = found[at] as WriteOutcome;
      }),
    );
    return outcomes;
  }

  async #writePart(
    node: DataNode | null,
    events: readonly AcceptedEvent[],
    uncertain: boolean,
  ): Promise<Outcomes> {
    const writer = node === null ? this.#coordinator : this.#writerOf(node);
    // Each node has as many groups at once as connections, but an app that has just been moved brings one more.
    while (!writer.hasIdleConnection && !(node !== null && this.#nodes.isUnreachable(node)))
      await this.#anEnd();
    if (node === null || !this.#nodes.isUnreachable(node)) {
      const name = node?.name ?? COORDINATOR;
      this.groupsByNode.set(name, (this.groupsByNode.get(name) ?? 0) + 1);
      try {
        return await writer.write(events, uncertain);
      } finally {
        this.#noteEnd();
      }
    }
    const attempt = { startedAt: this.#options.now(), uncertain, retries: 0, hasPartition: false };
    const error = nodeIsAway(node);
    const end: FinalFailure = {
      refusal: NODE_IS_AWAY,
      failure: 'unreachable',
      error,
      attempt,
      node: node.name,
    };
    return (await this.#options.onExhausted?.(events, end)) ?? events.map(() => NODE_IS_AWAY);
  }

  /** Asks a node that is there: one alone does not keep the others from taking events. */
  async canWrite(createdAt: number): Promise<boolean> {
    await this.#nodes.ready().catch(() => undefined);
    const tried = new Set<DataNode | null>();
    for (let appId = 0; appId < MOST_TRIED && tried.size <= this.#nodes.names.length; appId += 1) {
      const node = this.#nodes.nodeOf(appId);
      if (tried.has(node)) continue;
      tried.add(node);
      if (node !== null && this.#nodes.isUnreachable(node)) continue;
      const writer = node === null ? this.#coordinator : this.#writerOf(node);
      try {
        if (await writer.canWrite(createdAt, appId)) return true;
      } finally {
        this.#noteEnd();
      }
    }
    return false;
  }

  async close(): Promise<void> {
    await Promise.all(this.#all().map((writer) => writer.close()));
  }

  /** The end of a write: a connection may be free. */
  #anEnd(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
    });
  }

  #noteEnd(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  #all(): readonly EventWriter[] {
    return [this.#coordinator, ...this.#writers.values()];
  }

  #writerOf(node: DataNode): EventWriter {
    const known = this.#writers.get(node);
    if (known !== undefined) return known;
    const { onExhausted } = this.#options;
    const writer = new EventWriter({
      ...this.#options,
      connect: connectionsTo(this.#nodes.addressOf(node)),
      isUnreachable: () => this.#nodes.isUnreachable(node),
      onExhausted: async (events, end) => {
        if (end.failure === 'unreachable' || end.failure === 'lost') this.#nodes.suspect(node, end.error);
        const kept = await onExhausted?.(events, { ...end, node: node.name });
        return kept ?? events.map(() => end.refusal);
      },
    });
    this.#writers.set(node, writer);
    return writer;
  }
}
