/** Counts rows that were copied into the events table as they are, as a restore does. */
import type pg from 'pg';
import { EVERY_FIELD } from '../fields/uncounted-minutes.ts';
import type { EngineWrites } from './engine-writes.ts';

/**
 * Counts the rows of an interval that the current transaction has written, in that transaction. To be called once for
 * them.
 * @param interval bounds as ISO 8601; `until` is not included
 */
export async function countCopied(
  client: pg.Client,
  writes: EngineWrites,
  interval: { readonly from: string; readonly until: string },
): Promise<void> {
  const { changes, deltasOfInserted, copiedNow } = writes;
  // The counts of fields are restored, or begin anew: their minutes need no note.
  const noted = changes.replace(')', ', fields)');
  await client.query(
    `WITH inserted AS (
       SELECT app_id, type_id, created_at FROM events
        WHERE created_at >= $1::timestamptz AND created_at < $2::timestamptz
          AND ${copiedNow})
     INSERT INTO ${noted} SELECT changes.*, ${EVERY_FIELD} FROM (${deltasOfInserted}) AS changes`,
    [interval.from, interval.until],
  );
}
