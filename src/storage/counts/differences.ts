/** Compares counts with rows in one snapshot, so that concurrent commits make no difference; and corrects tables of counts by what differs. */
import { utcDay } from '../../base/time-units.ts';
import type { Fragment, Sql, Transaction } from '../database/connect.ts';
import { startOfMonth } from './intervals.ts';
import { ALL_TYPES, DAY_MS, DAYS, LEVELS, type Level } from './levels.ts';

/** `month` is compared with its days, `profile` (sql/0002) with its day, the others with rows. */
export type ComparedLevel = Level['name'] | 'month' | 'profile';

/** A count that is not what it should be. */
export interface CountDifference {
  readonly level: ComparedLevel;
  /** Public ids; internal ones where the app or the type is gone. The type is null for all types of the app. */
  readonly app: string;
  readonly type: string | null;
  /** Where the count is of a declared field's value: the names of its path, and the value's text. */
  readonly field?: { readonly path: readonly string[]; readonly value: string };
  /** Start of the bucket, milliseconds since 1970. */
  readonly bucket: number;
  readonly counted: number;
  readonly expected: number;
}

export interface DayComparison {
  readonly differing: number;
  /** Some of them: of coarse levels before finer ones, and of months and profiles, which other counts explain, last. */
  readonly examples: readonly CountDifference[];
}

/** Most examples of one comparison. */
export const EXAMPLES = 3;

/** What stands for a table or a view in a statement. */
export type RelationOf = (name: string) => Fragment;

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
  const found = await sql<FoundDifference[]>`
    SELECT level, app_id AS "appId", nullif(type_id, ${ALL_TYPES}) AS "typeId",
           (extract(epoch FROM bucket) * 1000)::float8 AS bucket, counted::float8, expected::float8,
           (count(*) OVER ())::float8 AS differing
      FROM (${differencesOfDay(sql, day, appId)}) AS differing
     ORDER BY array_position(${EXAMPLES_FIRST}::text[], level), bucket, app_id, type_id
     LIMIT ${EXAMPLES}`;
  const publicIds = await readNames(names, found);
  return {
    differing: found[0]?.differing ?? 0,
    examples: found.map(({ level, appId: app, typeId: type, differing: _, ...counts }) => ({
      level,
      app: publicIds.apps.get(app) ?? String(app),
      type: type === null ? null : (publicIds.types.get(type) ?? String(type)),
      ...counts,
    })),
  };
}

const EXAMPLES_FIRST: readonly ComparedLevel[] = [
  ...LEVELS.map(({ name }) => name).reverse(),
  'month',
  'profile',
];

/**
 * A SELECT of `level, app_id, type_id, bucket, counted, expected`: the counts of a day that are not what they should be, and
 * those of its month.
 * @param relation what stands for a table or a view in the statement
 */
function differencesOfDay(
  sql: Sql | Transaction,
  day: number,
  appId: number | null,
  relation: RelationOf = (name) => sql`${sql(name)}`,
): Fragment {
  // Nor are those of which retention has removed a part of the day, or whose rows are in the archive.
  const cut = (ofApp: Fragment): Fragment => sql`
    SELECT app_id FROM ${relation('app_boundaries')} AS own WHERE readable_from > ${new Date(day)} ${ofApp}
     UNION ALL
    SELECT app_id FROM ${relation('archived_parts')} AS away WHERE day = ${utcDay(day)}::text::date ${ofApp}`;
  const ofApps =
    appId === null
      ? sql`app_id NOT IN (SELECT app_id FROM ${relation('deleted_apps')} AS deleted) AND app_id NOT IN (${cut(sql``)})`
      : sql`app_id = ${appId} AND app_id NOT IN (${cut(sql`AND app_id = ${appId}`)})`;
  const within = (time: Fragment): Fragment =>
    sql`${time} >= ${new Date(day)} AND ${time} < ${new Date(day + DAY_MS)} AND ${ofApps}`;
  const ofLevels = LEVELS.flatMap(({ name, view, ms }, level) => {
    const width = sql`${ms} * interval '1 ms'`;
    const counted = sql`SELECT app_id, type_id, bucket, count FROM ${relation(view)} AS level WHERE ${within(sql`bucket`)}`;
    const wanted = sql`SELECT app_id, type_id, date_bin(${width}, bucket, 'epoch'), count FROM wanted_minutes`;
    // Readers take nothing from a stale bucket.
    const isStale = sql`
      SELECT FROM ${relation('stale_buckets')} AS stale
       WHERE stale.level <= ${level} AND stale.bucket >= compared.bucket AND stale.bucket < compared.bucket + ${width}`;
    return [diff(sql, name, { counted, wanted, isStale }), sql` UNION ALL `];
  });
  return sql`
    WITH rows_of_minutes AS MATERIALIZED (
      SELECT app_id, type_id, date_bin('1 minute', created_at, 'epoch') AS bucket, count(*) AS count
        FROM ${relation('events')} AS events WHERE ${within(sql`created_at`)} GROUP BY 1, 2, 3
    ), wanted_minutes AS (
      SELECT app_id, type_id, bucket, count FROM rows_of_minutes
      UNION ALL SELECT app_id, ${ALL_TYPES}::integer, bucket, sum(count) FROM rows_of_minutes GROUP BY app_id, bucket
    ), days AS (
      SELECT app_id, type_id, sum(count) AS count
        FROM ${relation(DAYS.view)} AS level WHERE ${within(sql`bucket`)} GROUP BY 1, 2
    )
    ${ofLevels}
    ${differencesOfMonth(sql, day, ofApps, relation)}
    UNION ALL
    SELECT 'profile', app_id, type_id, day, running[96], coalesce(days.count, 0)
      FROM ${relation('ready_profiles')} AS ready
      JOIN ${relation('daily_prefix_sums')} AS sums USING (app_id, day) LEFT JOIN days USING (app_id, type_id)
     WHERE ${within(sql`day`)} AND running[96] <> coalesce(days.count, 0)`;
}

/** The counts of a day's month that are not the sum of its days, as {@link differencesOfDay}. */
function differencesOfMonth(
  sql: Sql | Transaction,
  day: number,
  ofApps: Fragment,
  relation: RelationOf,
): Fragment {
  const [from, until] = [new Date(startOfMonth(day)), new Date(startOfMonth(day, 1))];
  const within = sql`bucket >= ${from} AND bucket < ${until}`;
  const ofRelation = (name: string): Fragment =>
    sql`SELECT app_id, type_id, ${from}::timestamptz AS bucket, count FROM ${relation(name)} AS level WHERE ${within} AND ${ofApps}`;
  return diff(sql, 'month', {
    counted: ofRelation('events_per_month'),
    wanted: ofRelation(DAYS.view),
    isStale: sql`SELECT FROM ${relation('stale_buckets')} AS stale WHERE ${within}`,
  });
}

/** Two relations (app_id, type_id, bucket, count) that should add up to the same counts, and which of their buckets are not compared. */
interface Compared {
  readonly counted: Fragment;
  readonly wanted: Fragment;
  readonly isStale: Fragment;
}

function diff(
  sql: Sql | Transaction,
  level: ComparedLevel,
  { counted, wanted, isStale }: Compared,
): Fragment {
  return sql`
    SELECT ${level}::text AS level, app_id, type_id, bucket, sum(counted) AS counted, sum(expected) AS expected
      FROM (SELECT app_id, type_id, bucket, count AS counted, 0 AS expected FROM (${counted}) AS counted
             UNION ALL
            SELECT app_id, type_id, bucket, 0, count FROM (${wanted}) AS wanted (app_id, type_id, bucket, count)) AS compared
     GROUP BY app_id, type_id, bucket
    HAVING sum(counted) <> sum(expected) AND NOT EXISTS (${isStale})`;
}

/**
 * Adds to tables of counts what they lack of a day's rows, or takes away what they have too much, as one snapshot shows it. Deltas
 * count in it, and stay: later folds add them. So nothing but folds must be kept out meanwhile.
 * @param tx       read committed, with the lock of counts
 * @param day      its midnight, milliseconds since 1970; not changed if it is before the retention boundary
 * @param relation what stands for a table or a view in a statement
 * @returns how many counts differed
 */
export async function correctDay(
  tx: Transaction,
  day: number,
  relation: RelationOf = (name) => tx`${tx(name)}`,
): Promise<number> {
  // Retention must not take rows away while they are counted.
  const kept =
    await tx`SELECT FROM ${relation('retention')} AS retention WHERE readable_from <= ${new Date(day)} FOR SHARE`;
  if (kept.length === 0) return 0;
  await tx`CREATE TEMPORARY TABLE differences ON COMMIT DROP AS ${differencesOfDay(tx, day, null, relation)}`;
  const [found] = await tx<{ differing: number }[]>`SELECT count(*)::float8 AS differing FROM differences`;
  for (const { name } of LEVELS) await correct(tx, name, relation);
  // Maintenance makes them again.
  for (const table of ['profiled_days', 'daily_prefix_sums'])
    await tx`
      DELETE FROM ${relation(table)} AS made
       WHERE day = ${new Date(day)} AND app_id IN (SELECT app_id FROM differences)`;
  // A month consists of its days, which are right by now.
  await tx`DELETE FROM differences`;
  await tx`INSERT INTO differences ${differencesOfMonth(tx, day, tx`true`, relation)}`;
  await correct(tx, 'month', relation);
  // There may be another one in the same transaction.
  await tx`DROP TABLE differences`;
  return found?.differing ?? 0;
}

async function correct(tx: Transaction, level: string, relation: RelationOf): Promise<void> {
  const table = relation(`${level}_counts`);
  await tx`
    INSERT INTO ${table} AS known (app_id, type_id, bucket, count)
    SELECT app_id, type_id, bucket, (expected - counted)::bigint FROM differences WHERE level = ${level} ORDER BY 1, 2, 3
        ON CONFLICT (app_id, type_id, bucket) DO UPDATE SET count = known.count + excluded.count`;
  await tx`
    DELETE FROM ${table} AS known USING differences
     WHERE level = ${level} AND known.app_id = differences.app_id AND known.type_id = differences.type_id
       AND known.bucket = differences.bucket AND known.count = 0`;
}

interface FoundDifference extends Omit<CountDifference, 'app' | 'type' | 'field'> {
  readonly appId: number;
  readonly typeId: number | null;
  readonly differing: number;
}

/** Public ids of apps and types that still exist. */
export async function readNames(
  sql: Sql | Transaction,
  found: readonly Pick<FoundDifference, 'appId' | 'typeId'>[],
): Promise<{ apps: ReadonlyMap<number, string>; types: ReadonlyMap<number, string> }> {
  if (found.length === 0) return { apps: new Map(), types: new Map() };
  const [appIds, typeIds] = [found.map(({ appId }) => appId), found.map(({ typeId }) => typeId)];
  const rows = await sql<{ isApp: boolean; id: number; publicId: string }[]>`
    SELECT true AS "isApp", id, public_id AS "publicId" FROM apps WHERE id = ANY(${appIds}::integer[])
    UNION ALL SELECT false, id, public_id FROM event_types WHERE id = ANY(${typeIds}::integer[])`;
  const namesOf = (isApp: boolean): ReadonlyMap<number, string> =>
    new Map(rows.filter((row) => row.isApp === isApp).map(({ id, publicId }) => [id, publicId]));
  return { apps: namesOf(true), types: namesOf(false) };
}
