/** How much of the past the fields of an app have yet to count: of an app without events nothing. */
import { setTimeout as sleep } from 'node:timers/promises';

import { countsIn, scopeOf } from '../counts/count-sql.ts';
import { ALL_TIME, splitByLevel } from '../counts/intervals.ts';
import { ALL_TYPES } from '../counts/levels.ts';
import { exactSources } from '../counts/stale.ts';
import { isUnavailable, type Sql } from '../database/connect.ts';
import { readAppSnapshot } from '../read/snapshot.ts';
import { readRetention } from '../retention.ts';
import { readFieldStates } from './declared-fields.ts';
import { withFieldsLocked } from './fields-lock.ts';
import { giveGenerations } from './upkeep.ts';

/**
 * Events that can be read and that backfills have not come to, by the internal id of the field: of its type, or of all types.
 * Fields that count no past, or whose counting has not begun, are left out.
 */
export async function readEventsLeft(sql: Sql, appId: number): Promise<ReadonlyMap<number, number>> {
  return await readAppSnapshot(sql, appId, async (tx) => {
    const left = new Map<number, number>();
    const boundary = (await readRetention(tx, appId)).first();
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

/** Whether an app has any event; true where the server that has its events does not answer. */
export async function hasEvents(sql: Sql, appId: number): Promise<boolean> {
  try {
    const [event] = await sql`SELECT FROM events WHERE app_id = ${appId} LIMIT 1`;
    const [archived] =
      event === undefined ? await sql`SELECT FROM archived_parts WHERE app_id = ${appId} LIMIT 1` : [event];
    return archived !== undefined;
  } catch (error) {
    if (isUnavailable(error)) return true;
    throw error;
  }
}

/** How often, and after how long, the lock of fields is tried for again: other work on fields takes a tenth of a second. */
const TRIES = 20;
const RETRY_MS = 50;

/**
 * Has the fields that an app without events has just declared be complete at once. In a cluster, and where others keep at work on
 * fields, maintenance does so a moment later, as for apps with events.
 */
export async function beginFieldsWithoutPast(sql: Sql, appId: number): Promise<void> {
  if (sql.pool.database.engine.hasNodes) return;
  // Committed before the snapshot below: whatever that does not see is noted as uncounted when it is folded.
  if (!(await giveGenerations(sql))) return;
  for (let tries = 1; tries <= TRIES; tries += 1) {
    const done = await withFieldsLocked(sql, async (tx) => {
      await tx`
        UPDATE declared_fields SET complete_from = greatest(readable_from, to_timestamp(0)), backfill = false FROM retention
         WHERE app_id = ${appId} AND removed_at IS NULL AND generation > 0 AND complete_from IS NULL
           AND NOT EXISTS (SELECT FROM events WHERE app_id = ${appId})
           AND NOT EXISTS (SELECT FROM archived_parts WHERE app_id = ${appId})`;
      return tries;
    });
    if (done !== null) return;
    await sleep(RETRY_MS);
  }
}
