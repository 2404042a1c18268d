/** Summaries of numbers through recounts, deletions, retention and removals. */
import { describe } from 'vitest';
import { availableEngines } from '../../support/database.ts';
import { fieldDatabase } from '../../support/field-database.ts';
import { fieldNumbers } from './field-numbers.contract.ts';

describe.each(availableEngines())('on %s', (engine) => fieldNumbers((time) => fieldDatabase(engine, time)));
