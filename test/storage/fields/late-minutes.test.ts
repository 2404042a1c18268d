/** What nothing but counts answers is read from rows where minutes are not counted yet, as far as one read may look. */
import { describe } from 'vitest';
import { availableEngines } from '../../support/database.ts';
import { fieldDatabase } from '../../support/field-database.ts';
import { lateMinutes } from './late-minutes.contract.ts';

describe.each(availableEngines())('minutes that are counted late on %s', (engine) =>
  lateMinutes((time) => fieldDatabase(engine, time)),
);
