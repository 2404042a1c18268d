/** How much of the past the backfills of an app's fields have yet to count. */

import { countsIn, scopeOf } from '../counts/count-sql.ts';
import { ALL_TIME, splitByLevel } from '../counts/intervals.ts';
import { ALL_TYPES } from '../counts/levels.ts';
import { exactSources } from '../counts/stale.ts';
import { isUnavailable, type Sql } from '../database/connect.ts';
import { readSnapshot } from '../read/snapshot.ts';
import { readBoundary } from '../retention.ts';
import { readFieldStates } from './compare.ts';

/**
 * Events that can be read and that backfills have not come to, by the internal id of the field: of its type, or of all types.
 * Fields that count no past, or whose counting has not begun, are left out.
 * @param appId internal id
 */
export async function readEventsLeft(sql: Sql, appId: number): Promise<ReadonlyMap<number, number>> {
  return await readSnapshot(sql, async (tx) => {
    const left = new Map<number, number>();
    const boundary = await readBoundary(tx);
    for (const { id, typeId, backfill, completeFrom } of await readFieldStates(tx, appId)) {
      if (!backfill || completeFrom === null) continue;
      const interval = { from: Math.max(boundary, ALL_TIME.from), until: completeFrom };
      if (interval.from >= interval.until) continue;
      const sources = await exactSources(tx, splitByLevel(interval));
      const scope = scopeOf(tx, appId, [typeId ?? ALL_TYPES]);
      const [row] = await tx<{ count: number }[]>`
        SELECT coalesce(sum(count), 0)::float8 AS count
          FROM (${countsIn(tx, scope, sources)}) AS counts`;
      left.set(id, row?.count ?? 0);
    }
    return left;
  });
}

/** Whether an app has any event; true where the server that has its events does not answer. @param appId internal id */
export async function hasEvents(sql: Sql, appId: number): Promise<boolean> {
  try {
    const [event] = await sql`SELECT FROM events WHERE app_id = ${appId} LIMIT 1`;
    return event !== undefined;
  } catch (error) {
    if (isUnavailable(error)) return true;
    throw error;
  }
}
