/** Reads of declared fields are exact in every snapshot while writers, imports, replays, folds, backfills, retention and the removal of an app run beside them. */
import { describe } from 'vitest';
import { availableEngines } from '../../support/database.ts';
import { fieldDatabase } from '../../support/field-database.ts';
import { fieldsInParallel } from './field-parallel.contract.ts';

describe.each(availableEngines())('on %s', (engine) =>
  fieldsInParallel((time) => fieldDatabase(engine, time)),
);
