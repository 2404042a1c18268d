/** On one server: see summaries.contract.ts. */
import { describe } from 'vitest';
import { availableEngines } from '../../support/database.ts';
import { fieldDatabase } from '../../support/field-database.ts';
import { fieldSummaries } from './summaries.contract.ts';

describe.each(availableEngines())('on %s', (engine) => {
  fieldSummaries((time) => fieldDatabase(engine, time));
});
