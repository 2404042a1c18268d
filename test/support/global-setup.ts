/** Starts the PostgreSQL clusters that a run of the tests shares, and makes a migrated template database in each. */

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { readConfig } from '../../src/config.ts';
import { platformPackage, STATE_FOLDER, usableBinaries } from '../../src/embedded/binaries.ts';
import { canReach, isRoot, type SystemUser, unprivilegedUser } from '../../src/embedded/user.ts';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { chooseEngine } from '../../src/storage/database/engine.ts';
import { migrate } from '../../src/storage/migrate.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { CHROMIUM, hasChromium } from './chromium.ts';
import type { CitusAddresses, TestCitus } from './citus.ts';
import { addressOf, BUILTIN_LOCALE, type Cluster, type ClusterAddress, startCluster } from './cluster.ts';
import { missingDaemons } from './daemons.ts';
import { hasCitus, hasPostgres15, hasTimescale, POSTGRES15_BIN, TIMESCALE_HOME } from './engine-homes.ts';
import { hasTypesGenerator } from './openapi-types.ts';
import { REDIS_SERVER } from './redis-server.ts';
import { missingZstd } from './zstd-cuts.ts';

/** What the suites run on: PostgreSQL alone in two versions, TimescaleDB, and a Citus cluster. */
export type TestEngine = 'postgres18' | 'postgres15' | 'timescale' | 'citus';

/** Every database of a test is a copy of one of these: with the schema, or also with what a first start of the service makes. */
export const TEMPLATE = 'tidemark_template';
export const PREPARED_TEMPLATE = 'tidemark_prepared_template';

declare module 'vitest' {
  interface ProvidedContext {
    clusters: Partial<Record<Exclude<TestEngine, 'citus'>, ClusterAddress>>;
    /** The cluster of this run; null where none of its projects needs one. */
    citus: CitusAddresses | null;
    /** A PostgreSQL installation with TimescaleDB that {@link startCluster} can start; null where there is none. */
    timescaleHome: string | null;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const needed = new Set(
    project.vitest.projects.flatMap(({ config }) => config.env.TEST_ENGINES?.split(' ') ?? []),
  );

  const skipped = missingPrograms();
  if (process.env.CI === 'true' && skipped.length > 0)
    throw new Error(
      `In CI nothing may be skipped but TimescaleDB, Citus and power cuts: ${skipped.join('; ')}`,
    );
  // Not every distribution has them.
  skipped.push(...missingDaemons(), ...missingZstd());

  // Copies of programs that an ordinary user may need, where he cannot reach or complete the originals.
  const store = await mkdtemp(join(tmpdir(), 'tidemark-test-store-'));
  await chmod(store, 0o755);
  const clusters: Pick<Cluster, 'stop'>[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(clusters.map((cluster) => cluster.stop()));
    await rm(store, { recursive: true, force: true });
  };
  try {
    const user = isRoot() ? await unprivilegedUser() : undefined;
    const embedded = await usableBinaries(
      await platformPackage(),
      user,
      user === undefined ? store : STATE_FOLDER,
    );
    const start = async (...how: Parameters<typeof startCluster>): Promise<ClusterAddress> => {
      const cluster = await startCluster(...how);
      clusters.push(cluster);
      return await templated(cluster.address);
    };
    const home = await reachableTimescale(user, store);
    const [postgres18, postgres15, timescale, citus] = await Promise.all([
      start(embedded.bin, BUILTIN_LOCALE, user),
      hasPostgres15 && needed.has('postgres15')
        ? start(POSTGRES15_BIN, ['--locale=C.UTF-8'], user)
        : undefined,
      needed.has('timescale') ? startTimescale(start, home) : undefined,
      needed.has('citus') && hasCitus ? startCitus() : null,
    ]);
    if (citus !== null) clusters.push(citus);
    if (!hasTimescale)
      skipped.push(`the suites on TimescaleDB: no TIMESCALE_URL and nothing at ${TIMESCALE_HOME}`);
    if (!hasCitus) skipped.push('the suites on a Citus cluster: no installation with Citus at CITUS_PG_HOME');
    project.provide('timescaleHome', home);
    project.provide('citus', citus?.addresses ?? null);
    project.provide('clusters', {
      postgres18,
      ...(postgres15 && { postgres15 }),
      ...(timescale && { timescale }),
    });
  } catch (error) {
    await stop();
    throw error;
  }
  return async () => {
    await stop();
    for (const what of skipped) console.log(`\nSkipped: ${what}.`);
  };
}

/** Loaded only where a project needs a cluster. */
async function startCitus(): Promise<TestCitus> {
  const { TestCitus } = await import('./citus.ts');
  return await TestCitus.start();
}

/** The suites that are skipped on this machine, each with what it lacks. */
function missingPrograms(): string[] {
  const skipped: string[] = [];
  if (!hasPostgres15)
    skipped.push(`the suites on PostgreSQL 15, which is not at ${POSTGRES15_BIN} (POSTGRES15_BIN)`);
  if (!hasTypesGenerator) skipped.push('types from the API description (npm ci --prefix lint/openapi-types)');
  if (REDIS_SERVER === undefined)
    skipped.push('the suites with Redis: redis-server is not on the PATH (Debian: apt install redis-server)');
  if (!hasChromium) skipped.push(`the suites in a browser: Chromium is not at ${CHROMIUM} (CHROMIUM)`);
  if (process.platform === 'linux' && spawnSync('strace', ['-V']).status !== 0)
    skipped.push('the order of system calls: strace is not on the PATH (Debian: apt install strace)');
  return skipped;
}

/** No background workers: tests run the policies' jobs themselves, and a template may have no other connections. */
export const TIMESCALE_OPTIONS =
  '-c shared_preload_libraries=timescaledb -c timescaledb.max_background_workers=0 -c timescaledb.telemetry_level=off';

/** The installation at TIMESCALE_PG_HOME, or a copy where the user cannot reach it; null where there is none. */
async function reachableTimescale(user: SystemUser | undefined, store: string): Promise<string | null> {
  const home = TIMESCALE_HOME;
  if (!existsSync(join(home, 'bin/postgres'))) return null;
  if (user === undefined || (await canReach(join(home, 'bin'), user))) return home;
  const copy = join(store, 'timescale-pg');
  await cp(home, copy, { recursive: true, verbatimSymlinks: true });
  return copy;
}

/** The server of TIMESCALE_URL, or one of the installation with the extension. */
async function startTimescale(
  start: (...how: Parameters<typeof startCluster>) => Promise<ClusterAddress>,
  home: string | null,
): Promise<ClusterAddress | undefined> {
  const url = process.env.TIMESCALE_URL;
  if (url !== undefined) {
    const { hostname, port, username, password } = new URL(url);
    const server = { socket: null, host: hostname, port: Number(port || 5432), user: username, password };
    return await templated(server);
  }
  if (home === null) return undefined;
  const user = isRoot() ? await unprivilegedUser() : undefined;
  return await start(join(home, 'bin'), BUILTIN_LOCALE, user, TIMESCALE_OPTIONS);
}

/** Makes the databases that every test's database is a copy of. */
async function templated(cluster: ClusterAddress): Promise<ClusterAddress> {
  const admin = connect(addressOf(cluster, 'postgres'), { connections: 1, name: 'test setup' });
  for (const name of [TEMPLATE, PREPARED_TEMPLATE]) await admin`DROP DATABASE IF EXISTS ${admin(name)}`;
  await admin`CREATE DATABASE ${admin(TEMPLATE)}`;
  await fill(cluster, TEMPLATE, async (sql) => {
    const { engine } = await chooseEngine(sql);
    await migrate(sql, engine);
  });
  await close(admin, TEMPLATE);
  await admin`CREATE DATABASE ${admin(PREPARED_TEMPLATE)} TEMPLATE ${admin(TEMPLATE)}`;
  await fill(cluster, PREPARED_TEMPLATE, async (sql) => {
    const storage = await openStorage(sql);
    await storage.maintenance({ sql, slow: sql }, readConfig({}), Date.now).prepare();
  });
  await close(admin, PREPARED_TEMPLATE);
  await admin.end();
  return cluster;
}

async function fill(
  cluster: ClusterAddress,
  database: string,
  work: (sql: Sql) => Promise<void>,
): Promise<void> {
  const sql = connect(addressOf(cluster, database), { connections: 1, name: 'test setup' });
  await work(sql);
  await sql.end();
}

/** TimescaleDB's scheduler would connect to it, and a template may have no connections while it is copied. */
async function close(admin: Sql, template: string): Promise<void> {
  await admin`ALTER DATABASE ${admin(template)} ALLOW_CONNECTIONS false`;
  await admin`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ${template}`;
}
