/** Alerts against a truth that is worked out from the events alone. */
import { describe } from 'vitest';
import { availableEngines } from '../support/database.ts';
import { fieldDatabase } from '../support/field-database.ts';
import { alertTruth } from './alert-truth.contract.ts';

describe.each(availableEngines())('alerts on %s', (engine) =>
  alertTruth((time) => fieldDatabase(engine, time)),
);
