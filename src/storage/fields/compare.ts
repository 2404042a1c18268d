/**
 * Compares the rows of an interval with the counts of an app's fields, in one snapshot, and writes what the counts lack as
 * deltas: so an interval is counted that never was, or only in part. Writers, folds and readers go on meanwhile.
 */

import type { Interval } from '../counts/intervals.ts';
import { ALL_TYPES, MINUTE_MS, MINUTES } from '../counts/levels.ts';
import { bytesArray } from '../database/array-types.ts';
import type { Transaction } from '../database/connect.ts';
import { FIELD_DELTAS, type FieldDelta, FieldDeltas } from './copy-values.ts';
import { type AppFields, appFields, type DeclaredField, type FieldKind, namesOf } from './declared-fields.ts';
import { NumberSummary } from './numbers/number-summary.ts';

/** Rows that are in memory at once. */
const ROWS_AT_ONCE = 500;
/** Deltas of one statement. */
const DELTAS_AT_ONCE = 5_000;
/** Summaries of numbers that are in memory at once, as bytes. */
const NUMBERS_AT_ONCE = 200;

/** A field with what the database knows of its counts. */
export interface FieldState extends DeclaredField {
  readonly appId: number;
  /** Milliseconds since 1970: from here on it is counted; null: not at all. */
  readonly completeFrom: number | null;
  /** Whether it is to be counted back to the first event. */
  readonly backfill: boolean;
}

/** The fields that writers count. @param appId null: those of all apps */
export async function readFieldStates(tx: Transaction, appId: number | null): Promise<FieldState[]> {
  const rows = await tx<(Omit<FieldState, 'path'> & { path: string; kind: FieldKind })[]>`
    SELECT id, app_id AS "appId", type_id AS "typeId", path, kind, backfill,
           (extract(epoch FROM complete_from) * 1000)::float8 AS "completeFrom"
      FROM declared_fields
     WHERE removed_at IS NULL AND generation > 0 ${appId === null ? tx`` : tx`AND app_id = ${appId}`}
     ORDER BY app_id, id`;
  return rows.map((row) => ({ ...row, path: namesOf(row.path) }));
}

/**
 * Counts an interval of whole minutes from its rows.
 * @param tx       of repeatable read, with the fields locked (fold.ts)
 * @param fields   of the app
 * @returns how many rows were looked at
 */
export async function countFromRows(
  tx: Transaction,
  appId: number,
  fields: readonly FieldState[],
  interval: Interval,
): Promise<number> {
  const { deltas, rows } = await lackingDeltas(tx, appId, fields, interval);
  for (let from = 0; from < deltas.length; from += DELTAS_AT_ONCE)
    await insertDeltas(tx, deltas.slice(from, from + DELTAS_AT_ONCE));
  return rows;
}

/** Forgets which minutes of an interval are uncounted. All fields that are complete there must have been counted. */
export async function forgetUncounted(tx: Transaction, appId: number, interval: Interval): Promise<void> {
  const [from, until] = [new Date(interval.from), new Date(interval.until)];
  await tx`DELETE FROM uncounted_minutes WHERE app_id = ${appId} AND bucket >= ${from} AND bucket < ${until}`;
}

/**
 * What the counts of an app's fields by the minute lack of the rows of an interval, or (below 0) have too much.
 * @param interval of whole minutes
 */
export async function lackingDeltas(
  tx: Transaction,
  appId: number,
  fields: readonly FieldState[],
  interval: Interval,
): Promise<{ readonly deltas: readonly FieldDelta[]; readonly rows: number }> {
  const lacking = new FieldDeltas();
  const rows = await addRows(tx, appId, appFields(fields), interval, lacking);
  await subtractCounts(tx, fields, appId, interval, lacking);
  await subtractNumbers(tx, fields, appId, interval, lacking);
  return { deltas: lacking.list(), rows };
}

async function addRows(
  tx: Transaction,
  appId: number,
  fields: AppFields,
  { from, until }: Interval,
  deltas: FieldDeltas,
): Promise<number> {
  const ofApp = { of: () => fields };
  let count = 0;
  const rows = tx<{ typeId: number; createdAt: number; payload: string }[]>`
    SELECT type_id AS "typeId", (extract(epoch FROM created_at) * 1000)::float8 AS "createdAt", payload::text AS payload
      FROM events
     WHERE app_id = ${appId} AND created_at >= ${new Date(from)} AND created_at < ${new Date(until)}
       AND created_at >= (SELECT readable_from FROM retention)`;
  for await (const page of rows.cursor(ROWS_AT_ONCE)) {
    count += page.length;
    for (const row of page) deltas.addEvent(ofApp, { ...row, appId, id: '' });
  }
  return count;
}

/** What is counted already, folded or pending. */
async function subtractCounts(
  tx: Transaction,
  fields: readonly FieldState[],
  appId: number,
  { from, until }: Interval,
  deltas: FieldDeltas,
): Promise<void> {
  const within = tx`app_id = ${appId} AND bucket >= ${new Date(from)} AND bucket < ${new Date(until)}`;
  // Of a field for one type only the counts of all its events are kept.
  const isCounted = tx`(series.type_id = 0) = (field.type_id IS NOT NULL)`;
  const ids = fields.filter(({ kind }) => kind === 'value').map(({ id }) => id);
  if (ids.length === 0) return;
  const rows = tx<{ fieldId: number; typeId: number; minute: number; value: string; count: number }[]>`
    SELECT field_id AS "fieldId", type_id AS "typeId", value, sum(count)::float8 AS count,
           (extract(epoch FROM bucket) / 60)::float8 AS minute
      FROM (SELECT field.id AS field_id, coalesce(field.type_id, series.type_id) AS type_id, series.value, bucket, count
              FROM declared_fields AS field
              JOIN field_series AS series ON series.field_id = field.id AND ${isCounted}
              JOIN fields_per_minute AS counted ON counted.type_id = series.id
             WHERE field.id = ANY(${ids}) AND counted.${within}
            UNION ALL
            SELECT field_id, delta.type_id, value, bucket, count
              FROM pending_field_deltas AS delta JOIN declared_fields AS field ON field.id = delta.field_id
             WHERE field.id = ANY(${ids}) AND delta.${within}
               AND NOT EXISTS (SELECT FROM field_series AS series
                                WHERE series.field_id = delta.field_id AND series.value = delta.value
                                  AND series.type_id = CASE WHEN field.type_id IS NULL THEN delta.type_id ELSE 0 END)
           ) AS counted
     GROUP BY 1, 2, 3, bucket`;
  for await (const page of rows.cursor(DELTAS_AT_ONCE))
    for (const { fieldId, typeId, minute, value, count } of page)
      deltas.add(appId, fieldId, typeId, minute, value, -count);
}

async function subtractNumbers(
  tx: Transaction,
  fields: readonly FieldState[],
  appId: number,
  { from, until }: Interval,
  deltas: FieldDeltas,
): Promise<void> {
  const ids = fields.filter(({ kind }) => kind === 'number').map(({ id }) => id);
  if (ids.length === 0) return;
  const rows = tx<{ fieldId: number; typeId: number; minute: number; numbers: Uint8Array }[]>`
    SELECT field_id AS "fieldId", coalesce(field.type_id, counted.type_id) AS "typeId", numbers,
           (extract(epoch FROM bucket) / 60)::float8 AS minute
      FROM declared_fields AS field JOIN numbers_per_minute AS counted ON counted.field_id = field.id
     WHERE field.id = ANY(${ids}) AND counted.app_id = ${appId}
       AND bucket >= ${new Date(from)} AND bucket < ${new Date(until)}
       AND (counted.type_id = ${ALL_TYPES}) = (field.type_id IS NOT NULL)`;
  for await (const page of rows.cursor(NUMBERS_AT_ONCE)) {
    for (const { fieldId, typeId, minute, numbers } of page) {
      const counted = new NumberSummary();
      counted.addBytes(numbers);
      deltas.numbersOf(appId, fieldId, typeId, minute).subtract(counted);
    }
  }
}

async function insertDeltas(tx: Transaction, deltas: readonly FieldDelta[]): Promise<void> {
  await tx`
    INSERT INTO ${tx.unsafe(FIELD_DELTAS)}
    SELECT * FROM unnest(
      ${deltas.map(({ appId }) => appId)}::integer[], ${deltas.map(({ fieldId }) => fieldId)}::integer[],
      ${deltas.map(({ typeId }) => typeId)}::integer[],
      ${deltas.map(({ bucket }) => new Date(bucket).toISOString())}::timestamptz[],
      ${deltas.map(({ count }) => count)}::bigint[], ${deltas.map(({ value }) => value)}::text[],
      ${bytesArray(
        tx,
        deltas.map(({ numbers }) => numbers?.toBytes() ?? null),
      )}::bytea[])`;
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
