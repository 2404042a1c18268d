/** Counts rows that were copied into the events table as they are, as a restore does. */
import type pg from 'pg';
import { EVERY_FIELD } from '../fields/uncounted.ts';
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
  const { rows } = await client.query<{ counts: boolean; hasFields: boolean }>(`
    SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'events'::regclass
                      AND tgname IN ('count_new_events', 'mark_stale_minutes')) AS counts,
           to_regclass('field_generation') IS NOT NULL AS "hasFields"`);
  // Up to schema 9 a trigger counts them.
  if (rows[0]?.counts === true) return;
  const { changes, stampedChanges, changesOfInserted, copiedNow } = writes;
  // A restore counts the values of fields again, so its minutes need no note.
  const into = rows[0]?.hasFields === true ? stampedChanges : changes;
  const stamp = rows[0]?.hasFields === true ? `, ${EVERY_FIELD}` : '';
  await client.query(
    `WITH inserted AS (
       SELECT app_id, type_id, created_at FROM events
        WHERE created_at >= $1::timestamptz AND created_at < $2::timestamptz
          AND ${copiedNow})
     INSERT INTO ${into} SELECT changes.*${stamp} FROM (${changesOfInserted}) AS changes`,
    [interval.from, interval.until],
  );
}
