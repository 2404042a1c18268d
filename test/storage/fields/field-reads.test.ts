/** Totals, pages and series of a declared field are what a computation over all payloads gives, whatever is counted yet. */
import { describe } from 'vitest';
import { availableEngines } from '../../support/database.ts';
import { fieldDatabase } from '../../support/field-database.ts';
import { fieldReads } from './field-reads.contract.ts';

describe.each(availableEngines())('on %s', (engine) => fieldReads((time) => fieldDatabase(engine, time)));
