/** The nodes of a cluster in this process: where apps are, and which nodes answer. */
import { Rounds } from '../../../base/rounds.ts';
import type { Sql } from '../../database/connect.ts';
import { type Connect, CopyConnection, connectionsTo } from '../../database/copy-connection.ts';
import type { Database } from '../../database/database.ts';
import { type DataNode, HOME, type Nodes, type NodeWatchOptions } from '../../database/nodes.ts';
import { Probe } from '../../database/probe.ts';
import {
  type NodeAddress,
  type PlacementRow,
  PlacementTable,
  READ_PLACEMENTS,
  type ShardPlacement,
} from './placement.ts';

/** The cluster of a database on its coordinator: one for all pools and writers of the database. */
export function clusterOf(database: Database): Cluster {
  return database.part(Cluster);
}

/** Between two questions to each node, in milliseconds. */
const ASK_MS = 1_000;
/** Where apps are is read again after so long, because shards are moved: until then moved apps are reached by a detour. */
const RENEW_MS = 10_000;
/** A node that could not be written to is left alone for so long, also if it answers. */
const REST_MS = 1_000;

/** A node of a cluster that holds shards. */
export class ClusterNode implements DataNode, NodeAddress {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  readonly database: Database;
  readonly connect: Connect;
  readonly #cluster: Cluster;
  #probe: Probe | null = null;
  #unreachableSince: number | null = null;
  #asking: Promise<void> | null = null;

  constructor(cluster: Cluster, coordinator: Database, { name, host, port }: NodeAddress) {
    this.#cluster = cluster;
    this.name = name;
    this.host = host;
    this.port = port;
    this.database = coordinator.node(this);
    this.connect = connectionsTo(this.database);
  }

  get isUnreachable(): boolean {
    return this.#unreachableSince !== null;
  }

  suspect(error: unknown): void {
    this.#cluster.renew().catch(() => undefined); // What is known stays; the next round reads again.
    this.#lose(error);
  }

  /** Asks whether it answers. Concurrent calls share one question. Never rejects. */
  ask(): Promise<void> {
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = null;
    });
    return this.#asking;
  }

  async #ask(): Promise<void> {
    const { watch } = this.database;
    this.#probe ??= new Probe(this.connect, 'tidemark node probe', watch);
    const probe = this.#probe;
    const answer = await probe.ask('SELECT 1');
    // Otherwise it holds nothing any more, or the cluster is watched no longer.
    if (this.#probe !== probe) return;
    if ('error' in answer) {
      if (answer.isGone) this.#lose(answer.error);
    } else this.#findAgain();
  }

  #findAgain(): void {
    const { watching } = this.#cluster;
    if (this.#unreachableSince === null || watching === null) return;
    const ms = Math.round(watching.now() - this.#unreachableSince);
    if (ms < REST_MS) return;
    this.#unreachableSince = null;
    watching.log.info({ node: this.name, ms }, 'cluster: node writable again');
    watching.onBack();
  }

  #lose(error: unknown): void {
    const { watching } = this.#cluster;
    if (this.isUnreachable || watching === null) return;
    this.#unreachableSince = watching.now();
    watching.log.warn({ node: this.name, err: error }, 'cluster: node not writable');
    // What waits for it fails now, and keeps nothing of other nodes waiting.
    this.database.watch?.breakAll();
  }

  /** Ends its probe, and forgets whether it answered. */
  async close(): Promise<void> {
    const probe = this.#probe;
    this.#probe = null;
    this.#unreachableSince = null;
    await probe?.close();
  }
}

export class Cluster implements Nodes {
  readonly home: DataNode;
  readonly #database: Database;
  readonly #nodes = new Map<string, ClusterNode>();
  #table: PlacementTable<ClusterNode> | null = null;
  #loading: Promise<void> | null = null;
  #loadedAt = 0;
  #watching: NodeWatchOptions | null = null;
  #rounds: Rounds | null = null;

  constructor(database: Database) {
    this.#database = database;
    this.home = {
      name: HOME,
      connect: connectionsTo(database),
      isUnreachable: false,
      suspect: () => undefined,
    };
  }

  async ready(): Promise<void> {
    if (this.#table === null || this.#table.places.length === 0) await this.renew();
  }

  /**
   * Reads where apps are. Concurrent calls share one read.
   * @param sql a pool on the coordinator; without it by a connection of its own, for whom no pool may be waited for
   */
  renew(sql?: Sql): Promise<void> {
    this.#loading ??= this.#load(sql).finally(() => {
      this.#loading = null;
    });
    return this.#loading;
  }

  async #load(sql: Sql | undefined): Promise<void> {
    const rows = await (sql === undefined ? this.#readApart() : sql.unsafe<PlacementRow[]>(READ_PLACEMENTS));
    this.#table = new PlacementTable(rows, (node) => this.#nodeAt(node));
    this.#loadedAt = this.#watching?.now() ?? 0;
    await this.#leaveRemoved();
  }

  async #readApart(): Promise<readonly PlacementRow[]> {
    const connection = new CopyConnection(this.#database, 'tidemark placement');
    try {
      return (await connection.query<PlacementRow>(READ_PLACEMENTS, [])).rows;
    } finally {
      await connection.close();
    }
  }

  /** A node stays the same object from one table of places to the next. */
  #nodeAt(address: NodeAddress): ClusterNode {
    const node = this.#nodes.get(address.name) ?? new ClusterNode(this, this.#database, address);
    this.#nodes.set(address.name, node);
    return node;
  }

  /** Ends the probes of nodes that hold nothing any more. */
  async #leaveRemoved(): Promise<void> {
    const removed = [...this.#nodes.values()].filter(({ name }) => !this.names.includes(name));
    await Promise.all(removed.map((node) => node.close()));
  }

  /** The place of an app, once the cluster is {@link ready}. */
  placeOf(appId: number): ShardPlacement<ClusterNode> | null {
    return this.#table?.placeOf(appId) ?? null;
  }

  nodeOf(appId: number): DataNode {
    return this.#writerOf(this.placeOf(appId));
  }

  /** What the coordinator holds is written by the connections to the address. */
  #writerOf(place: ShardPlacement<ClusterNode> | null): DataNode {
    return place === null || place.isCoordinator ? this.home : place.node;
  }

  sampleApps(): ReadonlyMap<DataNode, number> {
    const samples = this.#table?.samples ?? [];
    const apps = [...samples].map(([place, appId]) => [this.#writerOf(place), appId] as const);
    return new Map(apps.length === 0 ? [[this.home, 0]] : apps);
  }

  /** All places, once the cluster is {@link ready}. */
  get places(): readonly ShardPlacement<ClusterNode>[] {
    return this.#table?.places ?? [];
  }

  get names(): readonly string[] {
    return this.#table?.nodes.map(({ name }) => name) ?? [];
  }

  get unreachable(): readonly string[] {
    return (this.#table?.nodes ?? []).filter(({ isUnreachable }) => isUnreachable).map(({ name }) => name);
  }

  /** How its nodes are watched; null while they are not. */
  get watching(): NodeWatchOptions | null {
    return this.#watching;
  }

  start(options: NodeWatchOptions): void {
    this.#watching = options;
    this.#rounds = new Rounds({
      work: () => this.#look(),
      pauseMs: () => ASK_MS,
      onFailure: (error) => options.log.warn({ err: error }, 'cluster: unexpected error of the probes'),
    });
    this.#rounds.start();
  }

  async stop(): Promise<void> {
    this.#watching = null;
    await this.#rounds?.stop();
    await this.#loading?.catch(() => undefined); // It is closed either way.
    await Promise.all([...this.#nodes.values()].map((node) => node.close()));
  }

  async #look(): Promise<void> {
    const now = this.#watching?.now() ?? 0;
    if (this.#table === null || now - this.#loadedAt >= RENEW_MS) await this.renew().catch(() => undefined); // What is known stays.
    await Promise.all((this.#table?.nodes ?? []).map((node) => node.ask()));
  }
}
