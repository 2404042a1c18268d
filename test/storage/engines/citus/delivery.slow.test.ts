/** Alerts in a cluster: the contract of one server. */
import { afterAll, beforeAll, describe } from 'vitest';
import { alertTruth } from '../../../delivery/alert-truth.contract.ts';
import { TestCitus } from '../../../support/citus.ts';
import { hasCitus } from '../../../support/citus-home.ts';
import { clusterFieldDatabase } from '../../../support/field-database.ts';

describe.runIf(hasCitus)('in a Citus cluster', () => {
  let cluster: TestCitus;
  beforeAll(async () => {
    cluster = await TestCitus.start();
  });
  afterAll(() => cluster.stop());

  describe('alerts', () => alertTruth((time) => clusterFieldDatabase(cluster, time)));
});
