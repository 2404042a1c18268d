/** Reads of archived days on one server. */
import { describe } from 'vitest';
import { availableEngines } from '../support/database.ts';
import { fieldDatabase } from '../support/field-database.ts';
import { archivedReads } from './archived-reads.contract.ts';

describe.each(availableEngines())('with %s', (engine) => {
  archivedReads((time) => fieldDatabase(engine, time), {
    countsBy: engine === 'timescale' ? 'quarter-hour' : 'minute',
  });
});
