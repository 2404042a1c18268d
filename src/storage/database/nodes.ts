/** The servers that hold events: one, or the nodes of a cluster. Each has its own connections, writers and queues. */
import type { Logger } from 'pino';
import type { Connect } from './copy-connection.ts';
import { withCode } from './dial.ts';
import { errorCode } from './error-codes.ts';

/** A server that holds events. */
export interface DataNode {
  /** Host and port, or {@link HOME}: its name in logs and metrics. */
  readonly name: string;
  /** Makes connections for writing to it. */
  readonly connect: Connect;
  /** Whether it is known not to answer. */
  readonly isUnreachable: boolean;
  /** It took no events: it is left alone for a moment, and where apps are is read again. */
  suspect(error: unknown): void;
}

export interface NodeWatchOptions {
  readonly log: Pick<Logger, 'info' | 'warn'>;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  /** A node that was unreachable takes events again. */
  readonly onBack: () => void;
}

/** Which server holds the events of an app, and which of them answer. */
export interface Nodes {
  /** The server of the address. In a cluster it is the coordinator, which takes the events of apps whose node is not known. */
  readonly home: DataNode;
  /** Resolves when it is known where apps are. */
  ready(): Promise<void>;
  /** The server of an app's events. Known once it is {@link ready}. */
  nodeOf(appId: number): DataNode;
  /** An app for each server that holds events; the apps need not exist. */
  sampleApps(): ReadonlyMap<DataNode, number>;
  /** The nodes of a cluster that hold events, by name; none if the database is one server. */
  readonly names: readonly string[];
  /** The names of the nodes that do not answer. */
  readonly unreachable: readonly string[];
  /** Begins to ask nodes whether they answer; until then none is unreachable. */
  start(options: NodeWatchOptions): void;
  stop(): Promise<void>;
}

/** The name of {@link Nodes.home}. */
export const HOME = 'coordinator';

/** A database on one server: a cluster of one node. */
export function oneServer(connect: Connect): Nodes {
  // Whether it answers is what the availability probe finds out.
  const home: DataNode = { name: HOME, connect, isUnreachable: false, suspect: () => undefined };
  return {
    home,
    ready: async () => undefined,
    nodeOf: () => home,
    sampleApps: () => new Map([[home, 0]]),
    names: [],
    unreachable: [],
    start: () => undefined,
    stop: async () => undefined,
  };
}

/** Something for each server that holds events, made when it is first needed. */
export class ByNode<T> {
  readonly #nodes: Pick<Nodes, 'nodeOf'>;
  readonly #make: (node: DataNode) => T;
  readonly #made = new Map<DataNode, T>();

  constructor(nodes: Pick<Nodes, 'nodeOf'>, make: (node: DataNode) => T) {
    this.#nodes = nodes;
    this.#make = make;
  }

  /** What is made for the server that holds an app. */
  of(appId: number): T {
    return this.at(this.#nodes.nodeOf(appId));
  }

  at(node: DataNode): T {
    const known = this.#made.get(node);
    if (known !== undefined) return known;
    const made = this.#make(node);
    this.#made.set(node, made);
    return made;
  }

  /** All that were made, with their servers. */
  get entries(): readonly (readonly [DataNode, T])[] {
    return [...this.#made];
  }

  get all(): readonly T[] {
    return [...this.#made.values()];
  }
}

/** Units of one server, with their indexes among all. */
export interface NodePart<Unit> {
  readonly node: DataNode;
  readonly units: Unit[];
  readonly indexes: number[];
}

/** Splits units of several apps by the servers of these, for what has not waited in the queue of a server. */
export function partsByNode<Unit extends { readonly appId: number }>(
  nodes: Pick<Nodes, 'nodeOf'>,
  units: readonly Unit[],
): readonly NodePart<Unit>[] {
  const parts = new ByNode<NodePart<Unit>>(nodes, (node) => ({ node, units: [], indexes: [] }));
  for (const [index, unit] of units.entries()) {
    const part = parts.of(unit.appId);
    part.units.push(unit);
    part.indexes.push(index);
  }
  return parts.all;
}

const NODE_UNREACHABLE = 'NODE_AWAY';

/** The failure of whatever needs a node that does not answer. */
export function nodeUnreachable({ name }: Pick<DataNode, 'name'>): Error {
  return withCode(`The node ${name} of the cluster does not answer`, NODE_UNREACHABLE);
}

/** Whether an error says that a node of a cluster does not answer: what is on the others can be done. */
export function saysNodeUnreachable(error: unknown): boolean {
  return errorCode(error) === NODE_UNREACHABLE;
}
