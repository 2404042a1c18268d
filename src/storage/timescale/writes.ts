/** What the writer adds to the counts on TimescaleDB: marks of the minutes that its aggregates may lack rows of. */
import { MINUTE_MS } from '../counts/levels.ts';
import type { EventRow } from '../write/accepted-event.ts';
import type { CopyMessages } from '../write/copy-messages.ts';
import type { EngineWrites } from '../write/engine-writes.ts';

/** The level of minutes (sql/0002). */
const MINUTE_LEVEL = 0;

function copyMarks(events: readonly EventRow[], into: CopyMessages): void {
  const minutes = new Set<number>();
  for (const { createdAt } of events) minutes.add(Math.floor(createdAt / MINUTE_MS));
  for (const minute of minutes) into.markRow(MINUTE_LEVEL, minute * MINUTE_MS);
}

export const writes: EngineWrites = {
  changes: 'stale_buckets (level, bucket)',
  copyChanges: copyMarks,
  changesOfInserted: `SELECT DISTINCT ${MINUTE_LEVEL}, date_bin('1 minute', created_at, 'epoch') FROM inserted`,
  makeRoom: null,
  // What is in the columnstore is opened up to look for duplicates; by default for 100,000 rows at most.
  session: { 'timescaledb.max_tuples_decompressed_per_dml_transaction': '0' },
};
