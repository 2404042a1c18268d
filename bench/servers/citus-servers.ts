/** PostgreSQL servers of one installation with Citus: a cluster on this machine, and one server by itself to compare it with. */
import { join } from 'node:path';
import { isRoot, unprivilegedUser } from '../../src/embedded/user.ts';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import {
  BUILTIN_LOCALE,
  type Cluster,
  newPassword,
  startCluster,
  urlOf,
} from '../../test/support/cluster.ts';

/** All of them: commits wait for the disk, as in production. */
const SERVER = ['fsync=on', 'full_page_writes=on', 'shared_buffers=128MB', 'max_wal_size=2GB'];
/** Twice as many as workers at most: each partition is a table for every one of them. */
const SHARDS = 8;
const NODE = [
  ...SERVER,
  'shared_preload_libraries=citus',
  'wal_level=logical',
  'max_prepared_transactions=200',
  'citus.enable_statistics_collection=off',
  'citus.node_conninfo=sslmode=prefer',
];
const DATABASE = 'bench';

export interface CitusServers {
  /** Of an empty database of the server by itself. */
  readonly server: string;
  /** Of an empty database of the cluster, at its coordinator. */
  readonly cluster: string;
  stop(): Promise<void>;
}

/** Starts them. @param home an installation with `bin`, `lib` and `share` */
export async function startCitusServers(home: string, workers: number): Promise<CitusServers> {
  const user = isRoot() ? await unprivilegedUser() : undefined;
  // The service connects to all nodes with the same one.
  const password = newPassword();
  const start = (settings: readonly string[]): Promise<Cluster> =>
    startCluster(
      join(home, 'bin'),
      BUILTIN_LOCALE,
      user,
      settings.map((setting) => `-c ${setting}`).join(' '),
      password,
    );
  // One after the other: together they would take each other's time to start.
  const started: Cluster[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(started.map((one) => one.stop()));
  };
  try {
    for (let at = 0; at < workers + 2; at += 1) started.push(await start(at === 0 ? SERVER : NODE));
    const [server, coordinator, ...others] = started;
    if (server === undefined || coordinator === undefined) throw new Error('A cluster has a coordinator.');
    await createDatabase(server);
    for (const node of [coordinator, ...others]) await createNode(node, password);
    await at(coordinator, DATABASE, async (sql) => {
      await sql`SELECT citus_set_coordinator_host('127.0.0.1', ${coordinator.address.port})`;
      for (const { address } of others) await sql`SELECT citus_add_node('127.0.0.1', ${address.port})`;
      await sql.unsafe(`ALTER DATABASE ${DATABASE} SET citus.shard_count = ${SHARDS}`);
    });
    return { server: urlOf(server.address, DATABASE), cluster: urlOf(coordinator.address, DATABASE), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function createDatabase(server: Cluster): Promise<void> {
  await at(server, 'postgres', (sql) => sql.unsafe(`CREATE DATABASE ${DATABASE}`));
}

/** A node takes queries of the others with its password. */
async function createNode(node: Cluster, password: string): Promise<void> {
  await createDatabase(node);
  await at(node, DATABASE, async (sql) => {
    await sql`CREATE EXTENSION citus`;
    await sql`INSERT INTO pg_dist_authinfo (nodeid, rolename, authinfo)
              VALUES (0, current_user, ${`password='${password}'`})`;
  });
}

async function at(
  { address }: Cluster,
  database: string,
  work: (sql: Sql) => Promise<unknown>,
): Promise<void> {
  const sql = connect({ url: urlOf(address, database) }, { connections: 1, name: 'bench setup' });
  try {
    await work(sql);
  } finally {
    await sql.end();
  }
}
