/** Erased events leave no trace in what is read and counted. */
import { describe } from 'vitest';
import { availableEngines } from '../../support/database.ts';
import { fieldDatabase } from '../../support/field-database.ts';
import { erasing } from './erasing.contract.ts';

describe.each(availableEngines())('erased events on %s', (engine) =>
  erasing(
    (time) => fieldDatabase(engine, time),
    engine === 'timescale'
      ? (sql) =>
          sql`SELECT compress_chunk(chunk) FROM show_chunks('events', older_than => now() - interval '1 day') AS chunk`
      : undefined,
  ),
);
