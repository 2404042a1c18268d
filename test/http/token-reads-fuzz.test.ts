/** No request to a described read ends in a 500, or in an answer that the description does not have. */
import { describe } from 'vitest';
import { fuzzReads } from './fuzzed-reads.ts';

describe('on postgres18,', () => fuzzReads('postgres18', 300));
