/** How much of an app is listed. */
import type { Sql } from '../database/connect.ts';

export interface WordsListed {
  /** Events that lists name; null where the engine keeps none. */
  readonly listedEvents: number | null;
  /** Whether only events of the present day, and late ones, are not listed. */
  readonly isComplete: boolean;
}

/** @param appId internal id */
export async function readListed(sql: Sql, appId: number): Promise<WordsListed> {
  const [engine] = await sql<{ has: boolean }[]>`SELECT to_regclass('word_states') IS NOT NULL AS has`;
  if (engine?.has !== true) return { listedEvents: null, isComplete: false };
  const [listed] = await sql<WordsListed[]>`
    SELECT coalesce((SELECT sum(events) FROM word_segments WHERE app_id = ${appId}), 0)::float8 AS "listedEvents",
           EXISTS (SELECT FROM word_states WHERE app_id = ${appId} AND begun_at IS NOT NULL)
             AND NOT EXISTS (SELECT FROM unlisted_minutes
                              WHERE app_id = ${appId} AND finish - start = interval '1 day'
                                AND start < date_bin('1 day', now(), 'epoch')) AS "isComplete"`;
  return listed ?? { listedEvents: 0, isComplete: false };
}
