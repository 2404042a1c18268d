/** Starts the PostgreSQL clusters that a run of the tests shares, and makes a migrated template database in each. */

import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { connect } from '../../src/database/connect.ts';
import { platformPackage, STATE_FOLDER, usableBinaries } from '../../src/database/embedded-binaries.ts';
import { isRoot, unprivilegedUser } from '../../src/database/embedded-user.ts';
import { migrate } from '../../src/database/migrate.ts';
import { type Cluster, type ClusterAddress, startCluster } from './cluster.ts';

/** The PostgreSQL versions that the suites run on. */
export type TestEngine = 'postgres18' | 'postgres15';

/** Every database of a test is a copy of this one. */
export const TEMPLATE = 'tidemark_template';

declare module 'vitest' {
  interface ProvidedContext {
    clusters: Partial<Record<TestEngine, ClusterAddress>>;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const bin15 = process.env.POSTGRES15_BIN ?? '/usr/lib/postgresql/15/bin';
  const skipped = existsSync(join(bin15, 'initdb'))
    ? ''
    : `PostgreSQL 15 is not at ${bin15} (POSTGRES15_BIN)`;
  if (skipped !== '' && process.env.CI === 'true')
    throw new Error(`${skipped}: in CI the suites must run on it`);

  // The copy of PostgreSQL that an ordinary user may need, where the package's links can not be completed.
  const store = await mkdtemp(join(tmpdir(), 'tidemark-test-store-'));
  const clusters: Cluster[] = [];
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
    const builtin = ['--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'];
    const [postgres18, postgres15] = await Promise.all([
      startTemplated(embedded.bin, builtin, user, clusters),
      skipped === '' ? startTemplated(bin15, ['--locale=C.UTF-8'], user, clusters) : undefined,
    ]);
    project.provide('clusters', { postgres18, ...(postgres15 && { postgres15 }) });
  } catch (error) {
    await stop();
    throw error;
  }
  return async () => {
    await stop();
    if (skipped !== '') console.log(`\nSkipped: the suites on PostgreSQL 15. ${skipped}.`);
  };
}

async function startTemplated(
  bin: string,
  locale: readonly string[],
  user: Parameters<typeof startCluster>[2],
  clusters: Cluster[],
): Promise<ClusterAddress> {
  const cluster = await startCluster(bin, locale, user);
  clusters.push(cluster);
  const { host, port, user: role } = cluster.address;
  const admin = connect(
    { host, port, user: role, database: 'postgres' },
    { connections: 1, name: 'test setup' },
  );
  await admin`CREATE DATABASE ${admin(TEMPLATE)}`;
  await admin.end();
  const sql = connect({ host, port, user: role, database: TEMPLATE }, { connections: 1, name: 'test setup' });
  await migrate(sql, 'postgres');
  await sql.end();
  return cluster.address;
}
