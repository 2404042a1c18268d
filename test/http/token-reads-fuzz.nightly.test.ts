/** The same for longer, on every engine. */
import { describe } from 'vitest';
import { availableEngines } from '../support/database.ts';
import { fuzzReads } from './fuzzed-reads.ts';

describe.each(availableEngines())('on %s,', (engine) => fuzzReads(engine, 2_000));
