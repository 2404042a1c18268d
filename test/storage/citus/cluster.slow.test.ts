import { afterAll, beforeAll, describe } from 'vitest';
import { hasCitus, TestCitus } from '../../support/citus.ts';
import { storageContract } from '../storage.contract.ts';

describe.runIf(hasCitus)('a Citus cluster', () => {
  let cluster: TestCitus;
  beforeAll(async () => {
    cluster = await TestCitus.start();
  });
  afterAll(() => cluster.stop());

  storageContract('citus', (options) => cluster.database(options));
});
