/** A Citus cluster of one test file: a coordinator and workers, each a PostgreSQL of its own. */
import { randomUUID } from 'node:crypto';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { migrate } from '../../src/storage/migrate.ts';
import { readPage } from '../docs/pages.ts';
import { CITUS_HOME } from './citus-home.ts';
import { USER } from './cluster.ts';
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
   * Makes a database on every node, by the documented statements.
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
    const [onEach = '', onCoordinator = '', ofShards = ''] = documentedSql('Set up a cluster');
    await Promise.all(
      this.all.map(async (server) => {
        await once(server.url, (sql) => sql`CREATE DATABASE ${sql(name)}`);
        const own = inPlaceOf(
          onEach,
          ["'tidemark'", `'${USER}'`],
          ["'password=secret'", `'password=''${server.password}'''`],
        );
        await once(server.urlOf(name), (sql) => sql.unsafe(own));
      }),
    );
    const ownShards = inPlaceOf(
      ofShards,
      ['DATABASE tidemark', `DATABASE ${name}`],
      ['count = 32', `count = ${shards}`],
    );
    await once(this.coordinator.url, (sql) => sql.unsafe(ownShards));
    const url = this.coordinator.urlOf(name);
    const address = { url };
    const sql = connect(address, { connections: 10, name: 'test' });
    sql.pool.database.adopt(ENGINES.citus);
    const [setHost = '', addNode = ''] = onCoordinator.split(';');
    await sql.unsafe(inPlaceOf(setHost, ["'db-0', 5432", `'127.0.0.1', ${this.coordinator.port}`]));
    for (const worker of workers)
      await sql.unsafe(inPlaceOf(addNode, ["'db-1', 5432", `'127.0.0.1', ${portOf(worker)}`]));
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
