/** One database of the process: where its servers are, who watches the connections to it, and what its engine keeps of it. */
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type pg from 'pg';
import { withHosts } from '../../base/url-hosts.ts';
import type { ArchiveSource } from './archive-source.ts';
import { Hosts, type OpenedSocket, withCode } from './dial.ts';
import { type Purpose, sessionTimeouts } from './pools.ts';
import type { DatabaseAddress, WalPositions } from './server-address.ts';

/** What watches the connections to a server (server-watch.ts). */
export interface ConnectionWatch {
  /** Changes whenever the database changes: earlier lookups are invalid then. */
  readonly epoch: number;
  /** True once the service leaves the database: no connection is opened any more. */
  readonly isDisconnecting: boolean;
  /** Whether the server says where its write-ahead log ends. */
  readonly followsWal: boolean;
  noteWal(positions: WalPositions): void;
  /** Watches a connection from before its first statement until it is closed. */
  follow(socket: Socket, purpose: Purpose): void;
  /** Called when a client has given up a connection itself, after a statement without a response. */
  reportDeadline(socket: Duplex): void;
  /** Closes all connections: their server must not be used any more. */
  breakAll(): void;
  /** Watches the connections to a node of the same cluster. */
  watchNode(address: DatabaseAddress): { readonly database: Database };
}

/** How an engine wants the snapshots of readers. */
export interface SnapshotRules {
  /** Readers lock out statements that remove rows from older snapshots. In a cluster the lock would be taken on all nodes. */
  readonly locks: boolean;
  /** Counts are tables without partitions, so that statements on them can keep their plans. */
  readonly keepsPlans: boolean;
  /** The counts of every bucket are exact; otherwise the engine says which buckets are stale. */
  readonly countsAreExact: boolean;
  /** What transactions add to the counts of several apps may share rows, which readers of one app unpack once. */
  readonly groupsDeltas: boolean;
}

/** What an engine has to say of a database beside its statements. */
export interface DatabaseEngine {
  readonly snapshots: SnapshotRules;
  /** Events are on the nodes of a cluster, and what is counted of fields with them. */
  readonly hasNodes: boolean;
}

/** What is right for every engine: of a database whose engine has not been detected. */
const UNKNOWN: DatabaseEngine = {
  snapshots: { locks: true, keepsPlans: false, countsAreExact: false, groupsDeltas: false },
  hasNodes: true,
};

/**
 * The database of a process, made once: pools (connect.ts) and connections for writing (copy-connection.ts) are opened on it.
 * Each node of a cluster is a database that belongs to the one of the coordinator.
 */
export class Database {
  readonly address: DatabaseAddress;
  readonly watch: ConnectionWatch | null;
  readonly #hosts: Hosts;
  readonly #coordinator: Database | null;
  readonly #nodes = new Map<string, Database>();
  readonly #parts: object[] = [];
  #engine = UNKNOWN;
  #archive: ArchiveSource | null = null;

  /** @param more.coordinator of a database on a node of its cluster */
  constructor(
    address: DatabaseAddress,
    {
      watch = null,
      coordinator = null,
    }: { watch?: ConnectionWatch | null; coordinator?: Database | null } = {},
  ) {
    this.address = address;
    this.watch = watch;
    this.#coordinator = coordinator;
    this.#hosts = new Hosts(address);
  }

  get engine(): DatabaseEngine {
    return this.#coordinator?.engine ?? this.#engine;
  }

  /** Called by the storage, which knows the engine. */
  adopt(engine: DatabaseEngine): void {
    this.#engine = engine;
  }

  /** What reads the events of days that are in the archive alone; null: nothing does. */
  get archive(): ArchiveSource | null {
    return this.#coordinator?.archive ?? this.#archive;
  }

  set archive(archive: ArchiveSource | null) {
    this.#archive = archive;
  }

  /** True once the service has left the database: no connection answers any more. */
  get hasLeft(): boolean {
    return this.watch?.isDisconnecting === true;
  }

  /** This database on a node of its cluster: user, password, database and encryption are the same on all nodes. */
  node({ host, port }: { readonly host: string; readonly port: number }): Database {
    const name = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
    const known = this.#nodes.get(name);
    if (known !== undefined) return known;
    const { address } = this;
    const ofNode: DatabaseAddress =
      'url' in address
        ? { url: withHosts(address.url, name) }
        : { host, port, user: address.user, database: address.database };
    const made = this.watch?.watchNode(ofNode).database ?? new Database(ofNode, { coordinator: this });
    this.#nodes.set(name, made);
    return made;
  }

  /** The one object of a class that belongs to this database, made at its first use: what an engine keeps of the database. */
  part<T extends object>(Part: new (database: Database) => T): T {
    const known = this.#parts.find((part): part is T => part instanceof Part);
    if (known !== undefined) return known;
    const made = new Part(this);
    this.#parts.push(made);
    return made;
  }

  /**
   * Opens a connection that a client can use as its socket: connected, and encrypted if the address says so. Of several hosts
   * it chooses the one that takes writes.
   * @throws Error with a system error code if there is none; the socket is destroyed then
   */
  async openSocket(purpose: Purpose): Promise<OpenedSocket> {
    const opened = this.hasLeft
      ? null
      : await this.#hosts.connect({ readsInPlace: purpose.readsInPlace === true });
    // The service may have left the database meanwhile.
    if (opened === null || this.hasLeft) {
      opened?.socket.destroy();
      throw withCode('The service stops and has left the database', 'CONNECTION_ENDED');
    }
    this.watch?.follow(opened.socket, purpose);
    return opened;
  }

  /**
   * Opens another connection to the server that connections are made to now, encrypted likewise. Nobody looks after it.
   * @param timeoutMs for each step of it
   */
  async openBeside(timeoutMs: number): Promise<Socket> {
    return (await this.#hosts.connect({ timeoutMs })).socket;
  }

  /** Makes the next connection search for a server that takes writes. */
  chooseAgain(): void {
    this.#hosts.forget();
  }

  /** User and database for the client. Hosts and encryption are handled below it. */
  get identity(): DatabaseAddress {
    return 'url' in this.address ? { url: this.#hosts.address.url } : this.address;
  }

  /**
   * Settings for the package `pg`: user and database, and session parameters, which come after those of the URL. In the URL
   * they would replace ours.
   */
  clientSettings(parameters: Readonly<Record<string, string>>): pg.ClientConfig {
    const options = Object.entries(parameters).map(([name, value]) => `-c ${name}=${value}`);
    const { identity } = this;
    if (!('url' in identity)) return { ...identity, options: options.join(' ') };
    const url = new URL(identity.url);
    url.searchParams.delete('options');
    return { connectionString: url.href, options: [this.#givenOptions, ...options].join(' ').trim() };
  }

  /** The session parameters of a purpose, as the option `options` of its start, after those of the URL. */
  sessionOptions({ kind }: Purpose): string {
    return [this.#givenOptions, kind === null ? '' : sessionTimeouts(kind)].join(' ').trim();
  }

  get #givenOptions(): string {
    const { identity } = this;
    return 'url' in identity ? (new URL(identity.url).searchParams.get('options') ?? '') : '';
  }
}

/** A database of its own for an address, or the one that is given. */
export function databaseAt(target: DatabaseAddress | Database): Database {
  return target instanceof Database ? target : new Database(target);
}
