/** What the writer adds to the counts on TimescaleDB: marks of the minutes that its aggregates may lack rows of. */
import { MINUTE_MS } from '../../counts/levels.ts';
import type { EventRow } from '../../write/accepted-event.ts';
import type { CopyMessages } from '../../write/copy-messages.ts';
import { AGAINST_ROWS, type EngineWrites, OF_OTHERS } from '../../write/engine-writes.ts';

/** The level of minutes (sql/0002). */
const MINUTE_LEVEL = 0;

const MARKS = 'stale_buckets (level, bucket)';

function copyMarks(events: readonly EventRow[], into: CopyMessages): void {
  const minutes = new Set<number>();
  for (const { createdAt } of events) minutes.add(Math.floor(createdAt / MINUTE_MS));
  for (const minute of minutes) into.markRow(MINUTE_LEVEL, minute * MINUTE_MS);
}

export const writes: EngineWrites = {
  changes: MARKS,
  changesOf: (events) => ({ table: MARKS, copy: (into) => copyMarks(events, into) }),
  changeTables: ['stale_buckets'],
  deltasOfInserted: `SELECT DISTINCT ${MINUTE_LEVEL}, date_bin('1 minute', created_at, 'epoch') FROM inserted`,
  changesOfErased: () =>
    `SELECT DISTINCT ${MINUTE_LEVEL}, date_bin('1 minute', created_at, 'epoch') FROM erased`,
  createPartitions: 'SELECT make_room_for_events(day) FROM unnest($1::date[]) AS wanted (day) ORDER BY day',
  // A chunk comes with the rows that need it, but it is as narrow as those of now.
  createsPartitionsAhead: true,
  lockedDays: `
    SELECT day::text AS day
      FROM (SELECT day, day::timestamp AT TIME ZONE 'UTC' AS midnight FROM unnest($1::date[]) AS wanted (day)) AS wanted
     WHERE EXISTS (
             SELECT FROM pg_locks
              WHERE ${OF_OTHERS} AND mode IN (${AGAINST_ROWS})
                AND (relation = 'events'::regclass OR relation IN (
                      SELECT format('%I.%I', chunk_schema, chunk_name)::regclass FROM timescaledb_information.chunks
                       WHERE hypertable_schema = current_schema() AND hypertable_name = 'events'
                         AND range_start < midnight + interval '1 day' AND range_end > midnight)))`,
  copiedNow: 'xmin = pg_current_xact_id()::xid',
  singleNodeStatements: false,
  // What is in the columnstore is opened up to look for duplicates; by default for 100,000 rows at most.
  session: { 'timescaledb.max_tuples_decompressed_per_dml_transaction': '0' },
};
