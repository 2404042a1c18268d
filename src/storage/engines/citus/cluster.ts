/** The nodes of a cluster in this process: where apps are, and which nodes answer. */
import type { DatabaseAddress } from '../../database/connect.ts';
import { addressOfNode } from '../../database/node-address.ts';
import type { DataNode, Nodes, NodeWatchOptions } from '../../database/nodes.ts';
import { ASK_WAL, type WalPositions } from '../../database/server-watch.ts';
import { ConnectionLost, CopyConnection } from '../../write/copy-connection.ts';
import { type Place, type PlaceRow, PlaceTable, READ_PLACES } from './placement.ts';

const CLUSTERS = new WeakMap<DatabaseAddress, Cluster>();

/** The cluster behind the address of its coordinator: one for all pools and writers of the address. */
export function clusterAt(address: DatabaseAddress): Cluster {
  const known = CLUSTERS.get(address) ?? new Cluster(address);
  CLUSTERS.set(address, known);
  return known;
}

/** Of a question to a node, in milliseconds. */
const TIMEOUTS = { pool: 'probe', connectMs: 700, answerMs: 700 } as const;
const QUESTION = 'SELECT 1';
/** Between two questions to each node. */
const ASK_MS = 1_000;
/** Where apps are is read again after so long, because shards are moved: until then moved apps are reached by a detour. */
const RENEW_MS = 10_000;
/** A node that could not be written to is left alone for so long, also if it answers. */
const REST_MS = 1_000;
/** Questions in a row without an answer after which a node counts as away. One that refuses a connection is away at once. */
const MISSES = 2;

interface Health {
  readonly connection: CopyConnection;
  misses: number;
  away: boolean;
  awaySince: number;
  asking: Promise<void> | null;
}

export class Cluster implements Nodes {
  readonly #address: DatabaseAddress;
  readonly #health = new Map<string, Health>();
  readonly #known = new Map<string, DataNode>();
  #table: PlaceTable | null = null;
  #loading: Promise<void> | null = null;
  #loadedAt = 0;
  #watch: NodeWatchOptions | null = null;
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> | null = null;

  constructor(address: DatabaseAddress) {
    this.#address = address;
  }

  async ready(): Promise<void> {
    if (this.#table === null || this.#table.places.length === 0) await this.renew();
  }

  /** Reads where apps are. Concurrent calls share one read. */
  renew(): Promise<void> {
    this.#loading ??= this.#load().finally(() => {
      this.#loading = null;
    });
    return this.#loading;
  }

  async #load(): Promise<void> {
    const connection = new CopyConnection(this.#address, 'tidemark placement');
    try {
      const { rows } = await connection.query<PlaceRow>(READ_PLACES, []);
      this.#table = new PlaceTable(rows, this.#known);
      this.#loadedAt = this.#watch?.now() ?? 0;
    } finally {
      await connection.close();
    }
    await this.#leaveRemoved();
  }

  /** Ends the connections to nodes that hold nothing any more. */
  async #leaveRemoved(): Promise<void> {
    const removed = [...this.#health].filter(([name]) => !this.names.includes(name));
    for (const [name] of removed) this.#health.delete(name);
    await Promise.all(removed.map(([, { connection }]) => connection.close()));
  }

  /** The place of an app, once the cluster is {@link ready}. */
  placeOf(appId: number): Place | null {
    return this.#table?.placeOf(appId) ?? null;
  }

  nodeOf(appId: number): DataNode | null {
    const place = this.placeOf(appId);
    return place === null || place.isCoordinator ? null : place.node;
  }

  /** All places, once the cluster is {@link ready}. */
  get places(): readonly Place[] {
    return this.#table?.places ?? [];
  }

  get names(): readonly string[] {
    return this.#table?.nodes.map(({ name }) => name) ?? [];
  }

  get away(): readonly string[] {
    return this.names.filter((name) => this.#health.get(name)?.away === true);
  }

  addressOf(node: DataNode): DatabaseAddress {
    return addressOfNode(this.#address, node);
  }

  isUnreachable({ name }: DataNode): boolean {
    return this.#health.get(name)?.away === true;
  }

  suspect(node: DataNode, error: unknown): void {
    this.renew().catch(() => undefined); // What is known stays; the next round reads again.
    this.#lose(node, this.#healthOf(node), error);
  }

  #lose(node: DataNode, health: Health, error: unknown): void {
    const watch = this.#watch;
    if (health.away || watch === null) return;
    health.away = true;
    health.awaySince = watch.now();
    watch.log.warn({ node: node.name, err: error }, 'cluster: node not writable');
    // What waits for it fails now, and keeps nothing of other nodes waiting.
    this.addressOf(node).watch?.breakAll();
  }

  start(options: NodeWatchOptions): void {
    this.#watch = options;
    this.#timer = setInterval(() => {
      this.#round ??= this.#look().finally(() => {
        this.#round = null;
      });
    }, ASK_MS);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
    this.#watch = null;
    await this.#round;
    await this.#loading?.catch(() => undefined);
    await Promise.all([...this.#health.values()].map(({ connection }) => connection.close()));
    this.#health.clear();
  }

  async #look(): Promise<void> {
    const now = this.#watch?.now() ?? 0;
    if (this.#table === null || now - this.#loadedAt >= RENEW_MS) await this.renew().catch(() => undefined);
    await Promise.all((this.#table?.nodes ?? []).map((node) => this.#ask(node)));
  }

  /** Asks a node whether it answers. Concurrent calls share one question. Never rejects. */
  #ask(node: DataNode): Promise<void> {
    const health = this.#healthOf(node);
    health.asking ??= this.#answer(node, health).finally(() => {
      health.asking = null;
    });
    return health.asking;
  }

  async #answer(node: DataNode, health: Health): Promise<void> {
    try {
      const { watch } = this.addressOf(node);
      const { rows } = await health.connection.query<Partial<WalPositions>>(
        watch?.followsWal === true ? ASK_WAL : QUESTION,
        [],
      );
      const { written = null, flushed = null } = rows[0] ?? {};
      watch?.noteWal({ written, flushed });
      health.misses = 0;
      const ms = Math.round((this.#watch?.now() ?? 0) - health.awaySince);
      if (!health.away || this.#watch === null || ms < REST_MS) return;
      health.away = false;
      this.#watch.log.info({ node: node.name, ms }, 'cluster: a node takes events again');
      this.#watch.onBack();
    } catch (error) {
      // The node holds nothing any more, and its connection has just been ended.
      if (this.#health.get(node.name) !== health) return;
      health.misses += 1;
      const isSilent = error instanceof ConnectionLost && error.timedOut;
      // An idle connection may have been closed: the next question opens a new one.
      const isClosed = error instanceof ConnectionLost && error.sent && !error.timedOut;
      if ((!isSilent && !isClosed) || health.misses >= MISSES) this.#lose(node, health, error);
    }
  }

  #healthOf(node: DataNode): Health {
    const known = this.#health.get(node.name);
    if (known !== undefined) return known;
    const connection = new CopyConnection(this.addressOf(node), 'tidemark node probe', TIMEOUTS);
    const made = { connection, misses: 0, away: false, awaySince: 0, asking: null };
    this.#health.set(node.name, made);
    return made;
  }
}
