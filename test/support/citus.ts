/** A Citus cluster of one test file: a coordinator and workers, each a PostgreSQL of its own. */
import { randomUUID } from 'node:crypto';
import { connect, type Sql } from '../../src/storage/connect.ts';
import { migrate } from '../../src/storage/migrate.ts';
import { CITUS_HOME } from './citus-home.ts';
import type { TestDatabase } from './database.ts';
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

  get all(): readonly RestartablePostgres[] {
    return [this.coordinator, ...this.workers];
  }

  async stop(): Promise<void> {
    await Promise.all(this.all.map((server) => server.stop()));
  }

  /**
   * Makes a database on every node.
   * @param options.empty   without the schema of this release
   * @param options.workers those that it has at first; by default all
   * @param options.shards  of each table
   * @param options.portOf  by which everybody reaches a worker, where that is not its own
   */
  async database({
    empty = false,
    workers = this.workers,
    shards = SHARDS,
    portOf = ({ port }: RestartablePostgres): number => port,
  } = {}): Promise<TestDatabase> {
    const name = `test_${randomUUID().replaceAll('-', '')}`;
    await Promise.all(
      this.all.map(async (server) => {
        await once(server.url, (sql) => sql`CREATE DATABASE ${sql(name)}`);
        await once(server.urlOf(name), async (sql) => {
          await sql`CREATE EXTENSION citus`;
          await sql`INSERT INTO pg_dist_authinfo (nodeid, rolename, authinfo)
                    VALUES (0, current_user, ${`password='${server.password}'`})`;
        });
      }),
    );
    await once(this.coordinator.url, (sql) =>
      sql.unsafe(`ALTER DATABASE ${name} SET citus.shard_count = ${shards}`),
    );
    const url = this.coordinator.urlOf(name);
    const address = { url };
    const sql = connect(address, { connections: 10, name: 'test' });
    await sql`SELECT citus_set_coordinator_host('127.0.0.1', ${this.coordinator.port})`;
    for (const worker of workers) await sql`SELECT citus_add_node('127.0.0.1', ${portOf(worker)})`;
    if (!empty) await migrate(sql, 'citus');
    return {
      engine: 'citus',
      sql,
      address,
      url,
      drop: async () => {
        await sql.end({ timeout: 1 });
        await Promise.all(
          this.all.map((server) =>
            once(server.url, (admin) => admin`DROP DATABASE IF EXISTS ${admin(name)} WITH (FORCE)`),
          ),
        );
      },
    };
  }
}

async function once(url: string, work: (sql: Sql) => Promise<unknown>): Promise<void> {
  const sql = connect({ url }, { connections: 1, name: 'test setup' });
  try {
    await work(sql);
  } finally {
    await sql.end();
  }
}
