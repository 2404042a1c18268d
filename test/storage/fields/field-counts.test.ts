/** Counts of declared fields stay what the rows say, while fields are declared, filled and removed beside writers. */
import { describe } from 'vitest';
import { availableEngines } from '../../support/database.ts';
import { fieldDatabase } from '../../support/field-database.ts';
import { fieldCounts } from './field-counts.contract.ts';

describe.each(availableEngines())('on %s', (engine) => fieldCounts((time) => fieldDatabase(engine, time)));
