/** In a cluster: see while-reading.contract.ts. */
import { afterAll, beforeAll, describe } from 'vitest';
import { TestCitus } from '../support/citus.ts';
import { hasCitus } from '../support/citus-home.ts';
import { erasedWhileReading } from './while-reading.contract.ts';

describe.runIf(hasCitus)('in a Citus cluster', () => {
  let cluster: TestCitus;
  beforeAll(async () => {
    cluster = await TestCitus.start(2);
  }, 120_000);
  afterAll(() => cluster.stop());

  erasedWhileReading(() => cluster.database());
});
