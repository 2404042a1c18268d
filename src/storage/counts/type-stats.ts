/** The stats of apps and of their types: how many events each has, and when the last of them was. */
import type { Fragment, Sql, Transaction } from '../database/connect.ts';
import { readAppSnapshot } from '../read/snapshot.ts';
import { type CountScope, countsIn } from './count-sql.ts';
import { ALL_TIME, type SourceInterval } from './intervals.ts';
import { ALL_TYPES, countTable, DAYS, HOURS, type Level, MINUTES, QUARTER_HOURS } from './levels.ts';
import { coarseSources, type Snapshot } from './stale.ts';

export interface TypeStats {
  /** All events ever counted. */
  readonly count: number;
  /** Where retention has removed its row, the start of its quarter-hour. Null where there is none. */
  readonly lastEventAt: Date | null;
}

/** The stats of an app's types, by the type's public id; types without events are left out. */
export async function readTypeStats(sql: Sql, appId: number): Promise<Map<string, TypeStats>> {
  return await readAppSnapshot(sql, appId, async (tx) => {
    const scope = {
      apps: tx`${[appId]}::integer[]`,
      types: tx`ARRAY(SELECT id FROM type_names WHERE app_id = ${appId})`,
    };
    const rows = await tx<{ typeId: string; count: number; lastEventAt: Date | null }[]>`
      SELECT public_id AS "typeId", total AS count, at AS "lastEventAt"
        FROM (${selectLastEvents(tx, scope, await coarseSources(tx, ALL_TIME))}) AS stats
        JOIN type_names ON type_names.app_id = ${appId} AND type_names.id = type_id`;
    return new Map(rows.map(({ typeId, count, lastEventAt }) => [typeId, { count, lastEventAt }]));
  });
}

/**
 * A SELECT of `app_id`, `type_id`, `total` and `at`, the time of the last event, of each app and type of a scope that has
 * events.
 *
 * The last event is found by descending from the last bucket that holds one, each step one access to an index. The sources of
 * the first step have no stale bucket; so what it finds is a bucket without stale buckets in it, or a row, and what the
 * finer levels lack after it are no events of the type. Every relation is filtered by app, by which a cluster finds the node.
 * @param sources of all time
 */
export function selectLastEvents(
  tx: Snapshot,
  scope: CountScope,
  sources: readonly SourceInterval[],
): Fragment {
  return tx`
    ${tx.unpacksDeltas ? tx`WITH pending AS MATERIALIZED (${lastPending(tx, scope)})` : tx``}
    SELECT counted.app_id, counted.type_id, total, coalesce(newest.at, quarter_hour.start) AS at
      FROM (SELECT app_id, type_id, sum(count)::float8 AS total, max(bucket) AS last
              FROM (${countsIn(tx, scope, sources)}) counts
             WHERE count > 0 GROUP BY app_id, type_id) counted
      ${tx.unpacksDeltas ? tx`LEFT JOIN pending ON pending.app_id = counted.app_id AND pending.type_id = counted.type_id` : tx``}
     CROSS JOIN retention
     CROSS JOIN LATERAL (${lastBucket(tx, scope, DAYS, tx`last`, tx`interval '31 days'`)}) day
     CROSS JOIN LATERAL (${lastBucket(tx, scope, HOURS, tx`day.start`, tx`interval '24 hours'`)}) hour
     CROSS JOIN LATERAL (${lastBucket(tx, scope, QUARTER_HOURS, tx`hour.start`, tx`interval '1 hour'`)}) quarter_hour
     CROSS JOIN LATERAL (${lastBucket(tx, scope, MINUTES, tx`quarter_hour.start`, tx`interval '15 minutes'`)}) minute
      LEFT JOIN LATERAL (
             SELECT created_at AS at FROM events
              WHERE events.app_id = counted.app_id AND events.app_id = ANY(${scope.apps}) AND counted.type_id IN (events.type_id, ${ALL_TYPES})
                AND created_at >= readable_from
                AND created_at >= minute.start AND created_at < minute.start + interval '1 minute'
              ORDER BY created_at DESC LIMIT 1) newest ON true`;
}

/** The last minute with deltas of each app and type: where many apps share rows, these are unpacked once, and not for each app and level. */
function lastPending(tx: Transaction, { apps, types }: CountScope): Fragment {
  return tx`
    SELECT app_id, kind AS type_id, max(bucket) AS minute
      FROM pending_deltas CROSS JOIN LATERAL (VALUES (type_id), (${ALL_TYPES})) AS kinds (kind)
     WHERE app_id = ANY(${apps}) AND kind = ANY(${types}) AND count > 0 GROUP BY app_id, kind`;
}

/** The last bucket of a level in an interval that begins with the coarser bucket; never before the last event known. */
function lastBucket(
  tx: Snapshot,
  { apps }: CountScope,
  level: Level,
  from: Fragment,
  length: Fragment,
): Fragment {
  const bucketOf = (time: Fragment): Fragment =>
    tx`date_bin(${level.ms} * interval '1 ms', ${time}, 'epoch')`;
  const start = bucketOf(from);
  const ofPending = tx`CASE WHEN pending.minute >= ${start} THEN ${bucketOf(tx`pending.minute`)} END`;
  return tx`
    SELECT greatest(max(bucket), ${bucketOf(tx`last`)} ${tx.unpacksDeltas ? tx`, ${ofPending}` : tx``}) AS start
      FROM ${tx(tx.unpacksDeltas ? countTable(level.name) : level.view)} AS level
     WHERE level.app_id = counted.app_id AND level.app_id = ANY(${apps}) AND level.type_id = counted.type_id AND count > 0
       AND bucket >= ${start} AND bucket < ${start} + ${length}`;
}
