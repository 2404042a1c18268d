/** On each engine of one server: see days-away.contract.ts. */
import { describe } from 'vitest';
import { availableEngines, testDatabase } from '../support/database.ts';
import { daysAway } from './days-away.contract.ts';

describe.each(availableEngines())('days away on %s', (engine) => {
  daysAway(() => testDatabase(engine, { prepared: true }), { deathEvery: 7 });
});
