/** Access that ends in every process: see ended-access.contract.ts. */
import { describe } from 'vitest';
import { availableEngines, testDatabase } from '../support/database.ts';
import { endedAccess } from './ended-access.contract.ts';

describe.each(availableEngines())('on %s', (engine) =>
  endedAccess(() => testDatabase(engine, { prepared: true })),
);
