/** A Citus cluster: a coordinator and workers, each a PostgreSQL of its own. A run shares one; a test that breaks nodes starts its own. */
import { randomUUID } from 'node:crypto';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { migrate } from '../../src/storage/migrate.ts';
import { readPage } from '../docs/pages.ts';
import { addressOf, type ClusterAddress, USER, urlOf } from './cluster.ts';
import type { TestDatabase } from './database.ts';
import { CITUS_HOME } from './engine-homes.ts';
import { RestartablePostgres } from './restartable-postgres.ts';

/** Few shards: each partition is a table for every one of them. */
const SHARDS = 4;
const OPTIONS = [
  'shared_preload_libraries=citus',
  'fsync=off',
  'full_page_writes=off',
  'synchronous_commit=on',
  // Shards are moved by logical replication.
  'wal_level=logical',
  'max_prepared_transactions=100',
  'max_worker_processes=16',
  'shared_buffers=32MB',
  'citus.enable_statistics_collection=off',
  `citus.shard_count=${SHARDS}`,
  'citus.node_conninfo=sslmode=prefer',
];

/** The SQL of a section of docs/scaling.md, block by block. */
export function documentedSql(section: string): readonly string[] {
  const [, text = ''] = readPage('docs/scaling.md').split(`### ${section}\n`);
  const own = text.split('\n### ', 1)[0] ?? '';
  return [...own.matchAll(/```sql\n([\s\S]*?)```/g)].map(([, block = '']) => block);
}

/** Puts what a cluster of tests has in place of what the documentation names. @throws where it does not name that */
function inPlaceOf(
  text: string,
  ...changes: readonly (readonly [documented: string, own: string])[]
): string {
  return changes.reduce((changed, [documented, own]) => {
    if (!changed.includes(documented)) throw new Error(`docs/scaling.md has no ${documented} here: ${text}`);
    return changed.replaceAll(documented, own);
  }, text);
}

/** By their addresses, the coordinator first: what travels to the processes of a run. */
export interface CitusAddresses {
  readonly coordinator: ClusterAddress;
  readonly workers: readonly ClusterAddress[];
}

export interface CitusDatabaseOptions {
  /** Without the schema of this release. */
  readonly empty?: boolean;
  /** The workers that it has at first; by default all. */
  readonly workers?: readonly { readonly port: number }[];
  /** Of each table. */
  readonly shards?: number;
  /** The port by which everybody reaches a worker, where that is not its own. */
  readonly portOf?: (worker: { readonly port: number }) => number;
}

/** What Citus says where it has lost a connection to a worker. It was seen once while a database was set up, and its cause is not known. */
const LOST = 'failure on connection marked as essential';
const MOST_TRIES = 3;

/** Makes a database on every node of a cluster: another one where Citus has lost a worker meanwhile. */
export async function citusDatabase(
  addresses: CitusAddresses,
  options: CitusDatabaseOptions = {},
): Promise<TestDatabase> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await makeDatabase(addresses, options);
    } catch (error) {
      if (tries === MOST_TRIES || !String(error).includes(LOST)) throw error;
    }
  }
}

/** By the documented statements. */
async function makeDatabase(
  { coordinator, workers: all }: CitusAddresses,
  { empty = false, workers = all, shards = SHARDS, portOf = ({ port }) => port }: CitusDatabaseOptions,
): Promise<TestDatabase> {
  const name = `test_${randomUUID().replaceAll('-', '')}`;
  const [onEach = '', onCoordinator = '', ofShards = ''] = documentedSql('Set up a cluster');
  const nodes = [coordinator, ...all];
  await Promise.all(
    nodes.map(async (node) => {
      await once(node, 'postgres', (sql) => sql`CREATE DATABASE ${sql(name)}`);
      const own = inPlaceOf(
        onEach,
        ["'tidemark'", `'${USER}'`],
        ["'password=secret'", `'password=''${node.password}'''`],
      );
      await once(node, name, (sql) => sql.unsafe(own));
    }),
  );
  const ownShards = inPlaceOf(
    ofShards,
    ['DATABASE tidemark', `DATABASE ${name}`],
    ['count = 32', `count = ${shards}`],
  );
  await once(coordinator, 'postgres', (sql) => sql.unsafe(ownShards));
  const url = urlOf(coordinator, name).replaceAll(' ', '%20');
  const address = { url };
  const sql = connect(address, { connections: 10, name: 'test' });
  sql.pool.database.adopt(ENGINES.citus);
  const [setHost = '', addNode = ''] = onCoordinator.split(';');
  try {
    await sql.unsafe(inPlaceOf(setHost, ["'db-0', 5432", `'127.0.0.1', ${coordinator.port}`]));
    for (const worker of workers)
      await sql.unsafe(inPlaceOf(addNode, ["'db-1', 5432", `'127.0.0.1', ${portOf(worker)}`]));
    if (!empty) await migrate(sql, 'citus');
  } catch (error) {
    await sql.end({ timeout: 1 });
    throw error;
  }
  return {
    engine: 'citus',
    sql,
    address,
    url,
    drop: async () => {
      await sql.end({ timeout: 1 });
      await Promise.all(
        nodes.map((node) =>
          once(node, 'postgres', (admin) => admin`DROP DATABASE IF EXISTS ${admin(name)} WITH (FORCE)`),
        ),
      );
    },
  };
}

export class TestCitus {
  readonly coordinator: RestartablePostgres;
  readonly workers: readonly RestartablePostgres[];

  private constructor(coordinator: RestartablePostgres, workers: readonly RestartablePostgres[]) {
    this.coordinator = coordinator;
    this.workers = workers;
  }

  static async start(workers = 2): Promise<TestCitus> {
    const installation = { home: CITUS_HOME, options: OPTIONS.map((option) => `-c ${option}`).join(' ') };
    const [coordinator, ...others] = await Promise.all(
      Array.from({ length: workers + 1 }, () => RestartablePostgres.make({}, installation)),
    );
    if (coordinator === undefined) throw new Error('A cluster has a coordinator.');
    return new TestCitus(coordinator, others);
  }

  get addresses(): CitusAddresses {
    return {
      coordinator: this.coordinator.cluster,
      workers: this.workers.map(({ cluster }) => cluster),
    };
  }

  database(options?: CitusDatabaseOptions): Promise<TestDatabase> {
    return citusDatabase(this.addresses, options);
  }

  async stop(): Promise<void> {
    await Promise.all([this.coordinator, ...this.workers].map((server) => server.stop()));
  }
}

async function once(
  node: ClusterAddress,
  database: string,
  work: (sql: Sql) => Promise<unknown>,
): Promise<void> {
  const sql = connect(addressOf(node, database), { connections: 1, name: 'test setup' });
  try {
    await work(sql);
  } finally {
    await sql.end();
  }
}
