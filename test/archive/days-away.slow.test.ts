/** In a cluster, and with more deaths: see days-away.contract.ts. */
import { afterAll, beforeAll, describe } from 'vitest';
import { TestCitus } from '../support/citus.ts';
import { hasCitus } from '../support/citus-home.ts';
import { testDatabase } from '../support/database.ts';
import { daysAway } from './days-away.contract.ts';

describe('days away, at each statement', () => {
  daysAway(() => testDatabase(undefined, { prepared: true }), { deathEvery: 1 });
});

describe.runIf(hasCitus)('days away in a Citus cluster', () => {
  let cluster: TestCitus;
  beforeAll(async () => {
    cluster = await TestCitus.start(2);
  }, 120_000);
  afterAll(() => cluster.stop());

  daysAway(() => cluster.database(), { deathEvery: 5 });
});
