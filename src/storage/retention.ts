/** The retention boundary: the time before which events are gone. Every read applies it in its own snapshot. */

import { DAY_MS } from './counts/levels.ts';
import { errorCode, SQLSTATE, type Sql, type Transaction } from './database/connect.ts';

/** How long a move waits for imports: folds come after it in the same round. */
const LOCK_TIMEOUT_MS = 1_000;

/** The boundary in milliseconds since 1970, 0 if there is none. */
export async function readBoundary(sql: Sql | Transaction): Promise<number> {
  const [row] = await sql<{ boundary: number }[]>`
    SELECT (extract(epoch FROM greatest(readable_from, '1970-01-01Z')) * 1000)::float8 AS boundary FROM retention`;
  if (row === undefined) throw new Error('The table retention has lost its row.');
  return row.boundary;
}

/**
 * Moves the boundary forward to the start of a UTC day, if due. It never moves back. Imports hold it until they commit; where it
 * is not free in time, it stays, and a later call moves it.
 * @param options.days RETENTION_DAYS; 0 does not move the boundary
 * @param options.now  milliseconds since 1970
 * @returns the previous boundary as PostgreSQL's text
 */
export async function moveBoundary(sql: Sql, { days, now }: { days: number; now: number }): Promise<string> {
  const due = utcDay(days === 0 ? 0 : now - days * DAY_MS);
  const [before] = await sql<{ boundary: string; isDue: boolean }[]>`
    SELECT readable_from::text AS boundary,
           ${days > 0} AND readable_from < ${due}::date::timestamp AT TIME ZONE 'UTC' AS "isDue"
      FROM retention`;
  if (before === undefined) throw new Error('The table retention has lost its row.');
  if (!before.isDue) return before.boundary;
  try {
    await sql.begin(async (tx) => {
      await tx.unsafe(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
      await tx`
        UPDATE retention SET readable_from = ${due}::date::timestamp AT TIME ZONE 'UTC'
         WHERE readable_from < ${due}::date::timestamp AT TIME ZONE 'UTC'`;
    });
  } catch (error) {
    if (errorCode(error) !== SQLSTATE.lockNotAvailable) throw error;
  }
  return before.boundary;
}

/**
 * Whether every snapshot in use is newer than the boundary. Another process may just have moved it, and a reader with an
 * older snapshot must still find the rows that it has counted.
 * @param table what holds the boundary, where it has another name
 */
export async function hasNoOlderSnapshot(sql: Sql, table = 'retention'): Promise<boolean> {
  const [older] = await sql`
    SELECT FROM pg_stat_activity, ${sql(table)} AS retention
     WHERE datname = current_database() AND age(backend_xmin) >= age(retention.xmin)
       AND pid <> pg_backend_pid()
     LIMIT 1`;
  return older === undefined;
}

/** The UTC day of an instant, as YYYY-MM-DD. */
export function utcDay(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
}
