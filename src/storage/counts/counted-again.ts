/**
 * Counts that an earlier release added once more: its `archive restore` stored events again that the retention of their app or type had
 * removed, whose counts had stayed. Rows do not tell, as there are none: only what the archive has written down of its files does, and
 * that every minute of the day has the same multiple, as no other fault leaves it.
 */
import { grouped } from '../../base/grouped.ts';
import { utcDay } from '../../base/time-units.ts';
import type { Sql } from '../database/connect.ts';
import type { ErasedMinute } from '../maintenance/erasing.ts';
import { readBoundary } from '../retention.ts';
import { DAY_MS, DAYS, MINUTES } from './levels.ts';

/** A day of a type whose events are counted more than once. */
export interface CountedAgain {
  readonly appId: number;
  readonly typeId: number;
  /** Its midnight (UTC), milliseconds since 1970. */
  readonly day: number;
  readonly counted: number;
  /** As the archive has them. */
  readonly events: number;
  /** What is to be taken away. */
  readonly excess: readonly ErasedMinute[];
}

/** Archived days that one look goes through, by chance where there are more. */
const MOST_DAYS = 1_000;

/**
 * @param at   where the events of an app and their counts are
 * @param only a day, as its midnight in milliseconds since 1970; null: all of them
 */
export async function findCountedAgain(
  sql: Sql,
  at: (appId: number) => Promise<Sql>,
  only: number | null,
): Promise<readonly CountedAgain[]> {
  const from = Math.max(await readBoundary(sql), 0);
  const archived = await sql<{ appId: number; typeId: number; day: number; events: number }[]>`
    SELECT app_id AS "appId", kind.key::integer AS "typeId", (extract(epoch FROM day::timestamp) * 1000)::float8 AS day,
           sum(kind.value::bigint)::float8 AS events
      FROM (SELECT app_id, day, parts FROM archived_days
             WHERE archived_at IS NOT NULL AND day >= ${utcDay(from)}::text::date
               AND (${only === null} OR day = ${utcDay(only ?? 0)}::text::date)
             ORDER BY random() LIMIT ${only === null ? MOST_DAYS : null}) AS known
     CROSS JOIN LATERAL jsonb_array_elements(parts) AS part (part)
     CROSS JOIN LATERAL jsonb_array_elements(part -> 'groups') AS group_of_rows (named)
     CROSS JOIN LATERAL jsonb_each_text(named -> 'types') AS kind
     GROUP BY 1, 2, 3 ORDER BY 1, 3, 2`;
  const found: CountedAgain[] = [];
  for (const [appId, own] of grouped(archived, (one) => one.appId)) {
    const place = await at(appId);
    const days = await place<{ typeId: number; day: number; counted: number }[]>`
      SELECT type_id AS "typeId", (extract(epoch FROM bucket) * 1000)::float8 AS day, sum(count)::float8 AS counted
        FROM ${place(DAYS.view)} AS counts
       WHERE app_id = ${appId} AND type_id = ANY(${own.map(({ typeId }) => typeId)})
         AND bucket = ANY(${own.map(({ day }) => new Date(day).toISOString())}::text[]::timestamptz[])
       GROUP BY 1, 2`;
    const counts = new Map(days.map(({ typeId, day, counted }) => [`${typeId} ${day}`, counted]));
    for (const { typeId, day, events } of own) {
      const counted = counts.get(`${typeId} ${day}`) ?? 0;
      const times = counted / events;
      if (times < 2 || !Number.isInteger(times)) continue;
      const excess = await excessOf(place, { appId, typeId, day, counted, times });
      if (excess !== null) found.push({ appId, typeId, day, counted, events, excess });
    }
  }
  return found;
}

/** What each minute has too much. @returns null where there are rows, or not all minutes have the same multiple */
async function excessOf(
  sql: Sql,
  of: Pick<CountedAgain, 'appId' | 'typeId' | 'day' | 'counted'> & { readonly times: number },
): Promise<readonly ErasedMinute[] | null> {
  const { appId, typeId, day, counted, times } = of;
  const within = (time: string) =>
    sql`${sql(time)} >= ${new Date(day)} AND ${sql(time)} < ${new Date(day + DAY_MS)}`;
  const minutes = await sql<{ minute: number; count: number }[]>`
    SELECT (extract(epoch FROM bucket) * 1000)::float8 AS minute, sum(count)::float8 AS count
      FROM ${sql(MINUTES.view)} AS counts
     WHERE app_id = ${appId} AND type_id = ${typeId} AND ${within('bucket')}
       AND NOT EXISTS (SELECT FROM events WHERE app_id = ${appId} AND type_id = ${typeId} AND ${within('created_at')})
       AND NOT EXISTS (SELECT FROM archived_parts WHERE app_id = ${appId} AND day = ${utcDay(day)}::text::date)
     GROUP BY 1`;
  const isWhole = minutes.reduce((sum, { count }) => sum + count, 0) === counted;
  if (!isWhole || minutes.some(({ count }) => count % times !== 0)) return null;
  return minutes.map(({ minute, count }) => ({ typeId, minute, count: count - count / times }));
}
