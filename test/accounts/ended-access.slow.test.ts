/** In a cluster: see ended-access.contract.ts. */
import { afterAll, beforeAll, describe } from 'vitest';
import { TestCitus } from '../support/citus.ts';
import { hasCitus } from '../support/citus-home.ts';
import { endedAccess } from './ended-access.contract.ts';

describe.runIf(hasCitus)('in a Citus cluster', () => {
  let cluster: TestCitus;
  beforeAll(async () => {
    cluster = await TestCitus.start(1);
  }, 120_000);
  afterAll(() => cluster.stop());

  endedAccess(() => cluster.database());
});
