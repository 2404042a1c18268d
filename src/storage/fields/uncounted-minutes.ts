/** Minutes whose rows are yet to be counted by declared fields: how they are noted, read in steps of few rows, and forgotten. */
import { utcDay } from '../../base/time-units.ts';
import { type Interval, joined } from '../counts/intervals.ts';
import { ALL_TYPES, MINUTE_MS, MINUTES } from '../counts/levels.ts';
import type { Fragment, Sql, Transaction } from '../database/connect.ts';

/** The stamp (column `fields`) of changes whose minutes need not be noted as uncounted; that of all others is 0. */
export const EVERY_FIELD = 2_147_483_647;

/** What tells of which minutes fields are not counted. */
export type FieldTable = 'declared_fields' | 'uncounted_minutes';

/**
 * A CTE that notes what stamps tell when they are removed; in the same statement, so that no snapshot misses both.
 * @param stamps a CTE of removed stamps (bucket, fields), whose buckets are minutes
 * @param apps   whether it has an app_id; else a stamp holds for all apps
 * @param nameOf the name of a table, where it has another one
 */
export function noteUncounted(
  stamps: string,
  {
    apps,
    nameOf = (table) => table,
  }: { readonly apps: boolean; readonly nameOf?: (table: FieldTable) => string },
): string {
  const ofApp = apps ? `AND ${stamps}.app_id = counted.app_id` : '';
  return `uncounted AS (
      INSERT INTO ${nameOf('uncounted_minutes')} (app_id, bucket)
      SELECT DISTINCT counted.app_id, ${stamps}.bucket
        FROM ${stamps} JOIN (${selectAppsWithFields(nameOf('declared_fields'))}) AS counted ON ${stamps}.fields = 0 ${ofApp})`;
}

/** A SELECT of the apps whose fields are counted: maintenance has given one of them a generation. */
export function selectAppsWithFields(table = 'declared_fields'): string {
  return `SELECT DISTINCT app_id FROM ${table} WHERE removed_at IS NULL AND generation > 0`;
}

/** SELECT of the minutes of an app with counted fields that have rows whose values are not counted. */
export function selectUncounted(sql: Sql | Transaction, appId: number): Fragment {
  return sql`
    SELECT bucket FROM uncounted_minutes WHERE app_id = ${appId}
     UNION SELECT bucket FROM stamped_minutes WHERE app_id = ${appId} AND fields = 0`;
}

/** Forgets which minutes of an interval are uncounted. All fields that are complete there must have been counted. */
export async function forgetUncounted(tx: Transaction, appId: number, interval: Interval): Promise<void> {
  const [from, until] = [new Date(interval.from), new Date(interval.until)];
  await tx`DELETE FROM uncounted_minutes WHERE app_id = ${appId} AND bucket >= ${from} AND bucket < ${until}`;
}

/** Rows that one step of work on fields should look at, about: a tenth of a second. */
export const STEP_ROWS = 20_000;

export interface Step extends Interval {
  /** As the counts tell. */
  readonly rows: number;
}

/**
 * Splits intervals of whole minutes into steps that have few enough rows for the memory and for one transaction, as far as the
 * counts tell.
 * @param intervals in order of time
 * @param most      rows of a step that is longer than one minute
 */
export async function stepsOf(
  tx: Transaction,
  appId: number,
  intervals: readonly Interval[],
  most = STEP_ROWS,
): Promise<Step[]> {
  const rows = await tx<{ place: number; at: number; count: number }[]>`
    SELECT place::float8, (extract(epoch FROM first) * 1000)::float8 AS at, sum(count)::float8 AS count
      FROM (SELECT place, count, CASE WHEN sum(count) OVER (PARTITION BY place) > ${most} THEN bucket ELSE start END AS first
              FROM unnest(${intervals.map(({ from }) => new Date(from).toISOString())}::timestamptz[],
                          ${intervals.map(({ until }) => new Date(until).toISOString())}::timestamptz[])
                   WITH ORDINALITY AS part (start, finish, place)
             CROSS JOIN LATERAL (SELECT bucket, sum(count) AS count FROM ${tx(MINUTES.view)}
                                  WHERE app_id = ${appId} AND type_id = ${ALL_TYPES} AND bucket >= start AND bucket < finish
                                  GROUP BY bucket) AS minutes) AS counted
     GROUP BY 1, 2 ORDER BY 1, 2`;
  const ofInterval = intervals.map((): { at: number; count: number }[] => []);
  for (const { place, ...minute } of rows) ofInterval[place - 1]?.push(minute);
  return intervals.flatMap(({ from, until }, index) => {
    const steps: Step[] = [];
    let step = { from, rows: 0 };
    for (const { at, count } of ofInterval[index] ?? []) {
      if (step.rows > 0 && step.rows + count > most) {
        steps.push({ ...step, until: at });
        step = { from: at, rows: 0 };
      }
      step.rows += count;
    }
    return [...steps, { ...step, until }];
  });
}

/** The minutes of an app that readers count from rows, oldest first; those of days that are away stay so. */
export async function readUncounted(
  tx: Transaction,
  appId: number,
  until: number,
  most: number,
): Promise<number[]> {
  const rows = await tx<{ at: number }[]>`
    SELECT DISTINCT (extract(epoch FROM bucket) * 1000)::float8 AS at FROM uncounted_minutes
     WHERE app_id = ${appId} AND bucket < to_timestamp(${until / 1_000}::float8)
       AND (bucket AT TIME ZONE 'UTC')::date NOT IN (SELECT day FROM archived_parts AS away WHERE away.app_id = ${appId})
     ORDER BY at LIMIT ${most}`;
  return rows.map(({ at }) => at);
}

/** Whether rows of an interval have left for the archive: what is counted of them cannot be counted again. */
export async function areRowsAway(tx: Transaction, appId: number, interval: Interval): Promise<boolean> {
  const [away] = await tx`
    SELECT FROM archived_parts
     WHERE app_id = ${appId} AND day >= ${utcDay(interval.from)}::text::date AND day <= ${utcDay(interval.until - 1)}::text::date LIMIT 1`;
  return away !== undefined;
}

/** The end of the last day before an instant whose rows have left for the archive, milliseconds since 1970; 0: there is none. */
export async function archivedUntil(tx: Transaction, appId: number, until: number): Promise<number> {
  const [last] = await tx<{ end: number | null }[]>`
    SELECT (extract(epoch FROM (max(day) + 1)::timestamp AT TIME ZONE 'UTC') * 1000)::float8 AS end FROM archived_parts
     WHERE app_id = ${appId} AND day < ${new Date(until).toISOString()}::text::timestamptz AT TIME ZONE 'UTC'`;
  return last?.end ?? 0;
}

/** Whole minutes as intervals: one for those that are up to so many milliseconds apart. @param minutes ascending */
export function joinMinutes(minutes: readonly number[], apart = 0): Interval[] {
  return joined(
    minutes.map((at) => ({ from: at, until: at + MINUTE_MS })),
    apart,
  );
}
