/** The nodes of a cluster, as far as those who read and write know of them. A database on one server has none. */
import type { Logger } from 'pino';
import { type DatabaseAddress, errorCode } from './connect.ts';
import { withCode } from './dial.ts';

/** A node that holds events. */
export interface DataNode {
  /** Host and port: its name in logs and metrics. */
  readonly name: string;
  readonly host: string;
  readonly port: number;
}

export interface NodeWatchOptions {
  readonly log: Pick<Logger, 'info' | 'warn'>;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  /** A node that was away takes events again. */
  readonly onBack: () => void;
}

/** Which node holds the events of an app, and which of them answer. */
export interface Nodes {
  /** Resolves when it is known where apps are. */
  ready(): Promise<void>;
  /** The node of an app's events; null if it is the server of the address itself. Known once it is {@link ready}. */
  nodeOf(appId: number): DataNode | null;
  addressOf(node: DataNode): DatabaseAddress;
  /** Whether a node is known not to answer. */
  isUnreachable(node: DataNode): boolean;
  /** Names of the nodes that do not answer. */
  readonly away: readonly string[];
  /** All nodes that hold events, by name. */
  readonly names: readonly string[];
  /** A node took no events: it is left alone for a moment, and where apps are is read again. */
  suspect(node: DataNode, error: unknown): void;
  /** Begins to ask nodes whether they answer; until then none is away. */
  start(options: NodeWatchOptions): void;
  stop(): Promise<void>;
}

const NODE_AWAY = 'NODE_AWAY';

/** The failure of whatever needs a node that does not answer. */
export function nodeIsAway(node: DataNode): Error {
  return withCode(`The node ${node.name} of the cluster does not answer`, NODE_AWAY);
}

/** Whether an error says that a node of a cluster does not answer: what is on the others can be done. */
export function saysNodeIsAway(error: unknown): boolean {
  return errorCode(error) === NODE_AWAY;
}
