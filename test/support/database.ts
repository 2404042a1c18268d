/** A database of its own for a test. */
import { randomUUID } from 'node:crypto';
import { inject } from 'vitest';
import { connect, type DatabaseAddress, type Sql } from '../../src/storage/database/connect.ts';
import type { Engine } from '../../src/storage/database/engine.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { citusDatabase } from './citus.ts';
import { addressOf, type ClusterAddress, urlOf } from './cluster.ts';
import { PREPARED_TEMPLATE, TEMPLATE, type TestEngine } from './global-setup.ts';

export type { TestEngine } from './global-setup.ts';

export interface TestDatabase {
  readonly engine: Engine;
  /** A pool on the database, closed by drop(). */
  readonly sql: Sql;
  /** By the Unix socket, where there is one. */
  readonly address: DatabaseAddress;
  /** By TCP and with a password: a DATABASE_URL. */
  readonly url: string;
  /** Ends every connection to the database and removes it. */
  drop(): Promise<void>;
}

/** The engines of one server that this run has started. */
export function everyEngine(): Exclude<TestEngine, 'citus'>[] {
  const clusters = inject('clusters');
  return (['postgres18', 'postgres15', 'timescale'] as const).filter(
    (engine) => clusters[engine] !== undefined,
  );
}

/** The engines of this project of vitest.config.ts, for `describe.each`. */
export function availableEngines(): TestEngine[] {
  const started: TestEngine[] = [...everyEngine(), ...(inject('citus') === null ? [] : (['citus'] as const))];
  const chosen = process.env.TEST_ENGINES?.split(' ') ?? [];
  return started.filter((engine) => chosen.includes(engine));
}

/**
 * Makes a database with the schema of this release.
 * @param options.empty    without any schema
 * @param options.prepared with what the first start of a service makes, such as the partitions of the coming days
 */
export async function testDatabase(
  engine: TestEngine = 'postgres18',
  options: { readonly empty?: boolean; readonly prepared?: boolean } = {},
): Promise<TestDatabase> {
  if (engine === 'citus') {
    const nodes = inject('citus');
    if (nodes === null) throw new Error('Citus is not available in this run');
    return await citusDatabase(nodes, { empty: options.empty ?? false });
  }
  const cluster = inject('clusters')[engine];
  if (cluster === undefined) throw new Error(`${engine} is not available in this run`);
  const database = `test_${randomUUID().replaceAll('-', '')}`;
  const schema = options.prepared === true ? PREPARED_TEMPLATE : TEMPLATE;
  const template = options.empty === true ? 'template0' : schema;
  // Copies files, which costs the server half of writing all pages to the WAL.
  const admin = adminOf(cluster);
  await admin`CREATE DATABASE ${admin(database)} TEMPLATE ${admin(template)} STRATEGY file_copy`;
  const address = addressOf(cluster, database);
  const sql = connect(address, { connections: 10, name: 'test' });
  sql.pool.database.adopt(ENGINES[engine === 'timescale' ? 'timescale' : 'postgres']);
  // On a server that is not ours TimescaleDB's scheduler works: tests run the jobs themselves.
  if (engine === 'timescale' && cluster.socket === null && options.empty !== true)
    await sql`SELECT _timescaledb_functions.stop_background_workers()`;
  return {
    engine: engine === 'timescale' ? 'timescale' : 'postgres',
    sql,
    address,
    url: urlOf(cluster, database),
    drop: async () => {
      await sql.end({ timeout: 1 });
      await admin`DROP DATABASE IF EXISTS ${admin(database)} WITH (FORCE)`;
    },
  };
}

/** By which this process makes and drops databases, by cluster: open for as long as it runs, as two connections cost as much as a database. */
const admins = new Map<string, Sql>();

function adminOf(cluster: ClusterAddress): Sql {
  const url = urlOf(cluster, 'postgres');
  const known = admins.get(url);
  if (known !== undefined) return known;
  const admin = connect(addressOf(cluster, 'postgres'), { connections: 2, name: 'test setup' });
  admins.set(url, admin);
  return admin;
}
