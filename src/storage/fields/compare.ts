/** What maintenance, comparisons and recounts of fields work on: fields with their state, steps of few rows, and minutes to be counted. */

import type { Interval } from '../counts/intervals.ts';
import { ALL_TYPES, MINUTE_MS, MINUTES } from '../counts/levels.ts';
import type { Transaction } from '../database/connect.ts';
import { byOf, type DeclaredField, type FieldKind, namesOf } from './declared-fields.ts';

/** A field with what the database knows of its counts. */
export interface FieldState extends DeclaredField {
  readonly appId: number;
  /** Milliseconds since 1970: from here on it is counted; null: not at all. */
  readonly completeFrom: number | null;
  /** Whether it is to be counted back to the first event. */
  readonly backfill: boolean;
}

/** The fields that are counted. @param appId null: those of all apps */
export async function readFieldStates(tx: Transaction, appId: number | null): Promise<FieldState[]> {
  const rows = await tx<(Omit<FieldState, 'path' | 'by'> & { path: string; kind: FieldKind; by: string })[]>`
    SELECT id, app_id AS "appId", type_id AS "typeId", path, kind, by_path AS by, backfill,
           (extract(epoch FROM complete_from) * 1000)::float8 AS "completeFrom"
      FROM declared_fields
     WHERE removed_at IS NULL AND generation > 0 ${appId === null ? tx`` : tx`AND app_id = ${appId}`}
     ORDER BY app_id, id`;
  return rows.map((row) => ({ ...row, path: namesOf(row.path), by: byOf(row.by) }));
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
 * counts tell: at most {@link STEP_ROWS}, or one minute.
 * @param intervals in order of time
 */
export async function stepsOf(
  tx: Transaction,
  appId: number,
  intervals: readonly Interval[],
): Promise<Step[]> {
  const rows = await tx<{ place: number; at: number; count: number }[]>`
    SELECT place::float8, (extract(epoch FROM first) * 1000)::float8 AS at, sum(count)::float8 AS count
      FROM (SELECT place, count, CASE WHEN sum(count) OVER (PARTITION BY place) > ${STEP_ROWS} THEN bucket ELSE start END AS first
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
      if (step.rows > 0 && step.rows + count > STEP_ROWS) {
        steps.push({ ...step, until: at });
        step = { from: at, rows: 0 };
      }
      step.rows += count;
    }
    return [...steps, { ...step, until }];
  });
}

/** The minutes of an app that readers count from rows, oldest first. */
export async function readUncounted(
  tx: Transaction,
  appId: number,
  until: number,
  most: number,
): Promise<number[]> {
  const rows = await tx<{ at: number }[]>`
    SELECT DISTINCT (extract(epoch FROM bucket) * 1000)::float8 AS at FROM uncounted_minutes
     WHERE app_id = ${appId} AND bucket < to_timestamp(${until / 1_000}::float8) ORDER BY at LIMIT ${most}`;
  return rows.map(({ at }) => at);
}

/** Whole minutes as intervals: one for those that are up to so many milliseconds apart. @param minutes ascending */
export function joinMinutes(minutes: readonly number[], apart = 0): Interval[] {
  const intervals: { from: number; until: number }[] = [];
  for (const at of minutes) {
    const last = intervals.at(-1);
    if (last !== undefined && at - last.until <= apart) last.until = at + MINUTE_MS;
    else intervals.push({ from: at, until: at + MINUTE_MS });
  }
  return intervals;
}
