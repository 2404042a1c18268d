/** On one server: see query.contract.ts. */
import { describe } from 'vitest';
import { availableEngines } from '../../support/database.ts';
import { fieldDatabase } from '../../support/field-database.ts';
import { queries } from './query.contract.ts';

describe.each(availableEngines())('on %s', (engine) => {
  queries((time) => fieldDatabase(engine, time));
});
