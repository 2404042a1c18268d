/** Compares counts with rows in one snapshot, so that concurrent commits make no difference. */
import type postgres from 'postgres';
import type { Sql, Transaction } from '../database/connect.ts';
import { startOfMonth } from './intervals.ts';
import { ALL_TYPES, DAY_MS, DAYS, LEVELS, type Level } from './levels.ts';

type Fragment = postgres.PendingQuery<postgres.Row[]>;

/** A count that is not what it should be. */
export interface CountDifference {
  /** `month` is compared with its days, `profile` (sql/0002) with its day, the others with rows. */
  readonly level: Level['name'] | 'month' | 'profile';
  /** Public ids; internal ones where the app or the type is gone. The type is null for all types of the app. */
  readonly app: string;
  readonly type: string | null;
  /** Of the count of a declared field's value: the names of its path, and the value's text. */
  readonly field?: { readonly path: readonly string[]; readonly value: string };
  /** Start of the bucket, milliseconds since 1970. */
  readonly bucket: number;
  readonly counted: number;
  readonly expected: number;
}

export interface DayComparison {
  /** Number of counts that differ. */
  readonly differing: number;
  /** Some of them: of coarse levels before finer ones, and of months and profiles, which other counts explain, last. */
  readonly examples: readonly CountDifference[];
}

/** Most examples of one comparison. */
export const EXAMPLES = 3;

/**
 * Compares the counts of a UTC day: those of readers, hence with what is still to be settled and without buckets that
 * readers do not take. Apps that are being removed are left out, as their rows go before their counts do.
 * @param day   its midnight, milliseconds since 1970; not before the retention boundary
 * @param appId internal id of the one app that is compared; null for all of them
 * @param names where apps and types have their names
 */
export async function compareDay(
  sql: Sql | Transaction,
  day: number,
  appId: number | null,
  names: Sql | Transaction = sql,
): Promise<DayComparison> {
  const scope = (time: Fragment, from: number, until: number): Fragment => sql`
    ${time} >= ${new Date(from)} AND ${time} < ${new Date(until)}
    AND ${appId === null ? sql`app_id NOT IN (SELECT app_id FROM deleted_apps)` : sql`app_id = ${appId}`}`;
  const within = (time: Fragment): Fragment => scope(time, day, day + DAY_MS);
  const counted = LEVELS.map(
    ({ view }, level) => sql`
      UNION ALL SELECT ${level}::integer, app_id, type_id, bucket, 0, count FROM ${sql(view)} WHERE ${within(sql`bucket`)}`,
  );
  const [from, until] = [startOfMonth(day), startOfMonth(day, 1)];
  const found = await sql<FoundDifference[]>`
    WITH minutes AS MATERIALIZED (
      SELECT app_id, type_id, date_bin('1 minute', created_at, 'epoch') AS bucket, count(*) AS rows
        FROM events WHERE ${within(sql`created_at`)} GROUP BY 1, 2, 3
    ), found AS (
      SELECT app_id, type_id, bucket, rows FROM minutes
      UNION ALL SELECT app_id, ${ALL_TYPES}::integer, bucket, sum(rows) FROM minutes GROUP BY app_id, bucket
    ), levels AS (
      SELECT level::integer - 1 AS level, ms * interval '1 ms' AS width
        FROM unnest(${LEVELS.map(({ ms }) => ms)}::float8[]) WITH ORDINALITY AS level (ms, level)
    ), buckets AS (
      SELECT level, app_id, type_id, bucket, sum(rows) AS expected, sum(count) AS counted
        FROM (SELECT level, app_id, type_id, date_bin(width, bucket, 'epoch') AS bucket, rows, 0 AS count
                FROM found CROSS JOIN levels
              ${counted}) AS compared
       GROUP BY 1, 2, 3, 4
      HAVING sum(rows) <> sum(count)
    ), days AS (
      SELECT app_id, type_id, sum(count) AS count FROM ${sql(DAYS.view)} WHERE ${within(sql`bucket`)} GROUP BY 1, 2
    ), differing AS (
      SELECT level, app_id, type_id, bucket, expected, counted
        FROM buckets JOIN levels USING (level)
       WHERE NOT EXISTS (SELECT FROM stale_buckets AS stale
                          WHERE stale.level <= buckets.level AND stale.bucket >= buckets.bucket
                            AND stale.bucket < buckets.bucket + width)
      UNION ALL
      SELECT ${LEVELS.length}::integer, app_id, type_id, ${new Date(from)}::timestamptz, sum(of_days), sum(count)
        FROM (SELECT app_id, type_id, count AS of_days, 0 AS count FROM ${sql(DAYS.view)}
               WHERE ${scope(sql`bucket`, from, until)}
              UNION ALL
              SELECT app_id, type_id, 0, count FROM events_per_month WHERE ${scope(sql`bucket`, from, from + 1)}) AS month
       WHERE NOT EXISTS (SELECT FROM stale_buckets WHERE bucket >= ${new Date(from)} AND bucket < ${new Date(until)})
       GROUP BY app_id, type_id
      HAVING sum(of_days) <> sum(count)
      UNION ALL
      SELECT ${LEVELS.length + 1}::integer, app_id, type_id, day, coalesce(days.count, 0), running[96]
        FROM ready_profiles JOIN daily_prefix_sums USING (app_id, day) LEFT JOIN days USING (app_id, type_id)
       WHERE ${within(sql`day`)} AND running[96] <> coalesce(days.count, 0)
    )
    SELECT level, app_id AS "appId", nullif(type_id, ${ALL_TYPES}) AS "typeId",
           (extract(epoch FROM bucket) * 1000)::float8 AS bucket, counted::float8, expected::float8,
           (count(*) OVER ())::float8 AS differing
      FROM differing
     ORDER BY level >= ${LEVELS.length}::integer, level DESC, bucket, differing.app_id, type_id
     LIMIT ${EXAMPLES}`;
  const publicIds = await readNames(names, found);
  return {
    differing: found[0]?.differing ?? 0,
    examples: found.map(({ level, appId: app, typeId: type, bucket, counted, expected }) => ({
      level: LEVEL_NAMES[level] ?? 'profile',
      app: publicIds.apps.get(app) ?? String(app),
      type: type === null ? null : (publicIds.types.get(type) ?? String(type)),
      ...{ bucket, counted, expected },
    })),
  };
}

/** By the numbers of {@link compareDay}. */
const LEVEL_NAMES = [...LEVELS.map(({ name }) => name), 'month', 'profile'] as const;

interface FoundDifference {
  readonly level: number;
  readonly appId: number;
  readonly typeId: number | null;
  readonly bucket: number;
  readonly counted: number;
  readonly expected: number;
  readonly differing: number;
}

interface Names {
  readonly apps: ReadonlyMap<number, string>;
  readonly types: ReadonlyMap<number, string>;
}

/** Public ids of apps and types that still exist. */
async function readNames(sql: Sql | Transaction, found: readonly FoundDifference[]): Promise<Names> {
  if (found.length === 0) return { apps: new Map(), types: new Map() };
  const [appIds, typeIds] = [found.map(({ appId }) => appId), found.map(({ typeId }) => typeId)];
  const rows = await sql<{ isApp: boolean; id: number; publicId: string }[]>`
    SELECT true AS "isApp", id, public_id AS "publicId" FROM apps WHERE id = ANY(${appIds}::integer[])
    UNION ALL SELECT false, id, public_id FROM event_types WHERE id = ANY(${typeIds}::integer[])`;
  const namesOf = (isApp: boolean): ReadonlyMap<number, string> =>
    new Map(rows.filter((row) => row.isApp === isApp).map(({ id, publicId }) => [id, publicId]));
  return { apps: namesOf(true), types: namesOf(false) };
}
