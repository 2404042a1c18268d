/** A primary and its standby, PostgreSQL 15 of Debian: frozen, promoted and left by the address of the service. */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isRoot, run, type SystemUser, unprivilegedUser } from '../../src/embedded/user.ts';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { chooseEngine } from '../../src/storage/database/engine.ts';
import { migrate } from '../../src/storage/migrate.ts';
import { childrenOf } from '../e2e/server-process.ts';
import { addressOf, type Cluster, runCluster, startCluster, temporaryFolder } from './cluster.ts';
import type { TestDatabase } from './database.ts';
import { until } from './service.ts';

const BIN = process.env.POSTGRES15_BIN ?? '/usr/lib/postgresql/15/bin';
export const hasFailover = existsSync(join(BIN, 'pg_basebackup'));
const DATABASE = 'postgres';
const REPLICATION = '-c wal_level=replica -c max_wal_senders=4 -c hot_standby=on -c wal_receiver_timeout=0';

/** One server of the two. */
export class ReplicatedServer {
  readonly #cluster: Cluster;
  /** Straight to it. */
  readonly sql: Sql;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
    this.sql = connect(this.database.address, { connections: 4, name: 'test' });
  }

  get database(): Pick<TestDatabase, 'address'> & { readonly host: string; readonly password: string } {
    const { address } = this.#cluster;
    return {
      address: addressOf(address, DATABASE),
      host: `${address.host}:${address.port}`,
      password: address.password,
    };
  }

  /** For a service of the tests: it must not be dropped. */
  get testDatabase(): TestDatabase {
    const { host, password, address } = this.database;
    const url = `postgres://tidemark:${password}@${host}/${DATABASE}`;
    return { engine: 'postgres', sql: this.sql, address, url, drop: async () => undefined };
  }

  /** SIGSTOP: its connections stay, and nothing answers. */
  async freeze(): Promise<void> {
    await this.#signal('SIGSTOP');
  }

  async thaw(): Promise<void> {
    await this.#signal('SIGCONT');
  }

  async promote(): Promise<void> {
    await this.sql`SELECT pg_promote(true)`;
  }

  async stop(): Promise<void> {
    await this.sql.end({ timeout: 1 });
    await this.#cluster.stop();
  }

  get folder(): string {
    return this.#cluster.address.socket ?? '';
  }

  async #signal(signal: NodeJS.Signals): Promise<void> {
    const text = await readFile(join(this.folder, 'data', 'postmaster.pid'), 'utf8');
    const postmaster = Number.parseInt(text, 10);
    for (const pid of [postmaster, ...childrenOf(postmaster)]) {
      try {
        process.kill(pid, signal);
      } catch {
        // It has ended by itself meanwhile.
      }
    }
  }
}

export interface ServerPair {
  readonly primary: ReplicatedServer;
  readonly standby: ReplicatedServer;
  stop(): Promise<void>;
}

/** @param synchronous whether a commit waits for the standby */
export async function startPair(synchronous = false): Promise<ServerPair> {
  const user: SystemUser | undefined = isRoot() ? await unprivilegedUser() : undefined;
  const cluster = await startCluster(BIN, ['--locale=C.UTF-8'], user, REPLICATION);
  const primary = new ReplicatedServer(cluster);
  const { engine } = await chooseEngine(primary.sql);
  await migrate(primary.sql, engine);
  const folder = await temporaryFolder(user);
  const { address } = cluster;
  const copy = ['-h', address.socket ?? '', '-p', String(address.port), '-U', address.user];
  const outcome = await run(
    join(BIN, 'pg_basebackup'),
    [...copy, '-D', join(folder, 'data'), '-R', '-X', 'stream', '-c', 'fast', '--no-sync'],
    { user },
  );
  if (outcome.code !== 0) throw new Error(`pg_basebackup failed: ${outcome.stderr}`);
  const standby = new ReplicatedServer(await runCluster(BIN, folder, address, user, REPLICATION));
  await until(async () => {
    const rows = await primary.sql`SELECT FROM pg_stat_replication WHERE state = 'streaming'`;
    return rows.length === 1;
  }, 'the standby follows');
  if (synchronous) {
    await primary.sql`ALTER SYSTEM SET synchronous_standby_names = '*'`;
    await primary.sql`SELECT pg_reload_conf()`;
    await until(async () => {
      const rows = await primary.sql`SELECT FROM pg_stat_replication WHERE sync_state = 'sync'`;
      return rows.length === 1;
    }, 'the standby is synchronous');
  }
  return {
    primary,
    standby,
    stop: async () => {
      for (const server of [standby, primary]) {
        await server.thaw().catch(() => undefined);
        await server.stop();
      }
    },
  };
}
