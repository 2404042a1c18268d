/** In a cluster: see query.contract.ts. */
import { afterAll, beforeAll, describe } from 'vitest';
import { TestCitus } from '../../support/citus.ts';
import { hasCitus } from '../../support/citus-home.ts';
import { clusterFieldDatabase } from '../../support/field-database.ts';
import { queries } from './query.contract.ts';

describe.runIf(hasCitus)('queries in a Citus cluster', () => {
  let cluster: TestCitus;
  beforeAll(async () => {
    cluster = await TestCitus.start();
  });
  afterAll(() => cluster.stop());

  queries((time) => clusterFieldDatabase(cluster, time));
});
