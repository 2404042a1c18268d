/** Reads of archived days in a cluster. */
import { afterAll, beforeAll, describe } from 'vitest';
import { TestCitus } from '../support/citus.ts';
import { hasCitus } from '../support/citus-home.ts';
import { clusterFieldDatabase } from '../support/field-database.ts';
import { archivedReads } from './archived-reads.contract.ts';

describe.runIf(hasCitus)('in a Citus cluster', () => {
  let cluster: TestCitus;
  beforeAll(async () => {
    cluster = await TestCitus.start();
  });
  afterAll(() => cluster.stop());

  archivedReads((time) => clusterFieldDatabase(cluster, time), { countsBy: 'minute' });
});
