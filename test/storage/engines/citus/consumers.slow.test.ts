/** Consumers in a cluster: the contract of one server. */
import { afterAll, beforeAll, describe } from 'vitest';
import { TestCitus } from '../../../support/citus.ts';
import { hasCitus } from '../../../support/citus-home.ts';
import { ConsumerWorld } from '../../feed/consumer-world.ts';
import { consumersInOrder } from '../../feed/consumers.contract.ts';

describe.runIf(hasCitus)('consumers in a Citus cluster', () => {
  let cluster: TestCitus;
  beforeAll(async () => {
    cluster = await TestCitus.start();
  });
  afterAll(() => cluster.stop());

  consumersInOrder(async () => ConsumerWorld.create(await cluster.database()));
});
