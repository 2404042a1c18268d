/** Readers beside an erasure: see while-reading.contract.ts. */
import { describe } from 'vitest';
import { availableEngines, testDatabase } from '../support/database.ts';
import { erasedWhileReading } from './while-reading.contract.ts';

describe.each(availableEngines())('on %s', (engine) => {
  erasedWhileReading(() => testDatabase(engine, { prepared: true }));
});
