/** Compares the counts of declared fields with rows, and coarser counts with finer ones, in one snapshot. */
import type postgres from 'postgres';
import { type CountDifference, type DayComparison, EXAMPLES } from '../counts/differences.ts';
import { type Interval, startOfMonth } from '../counts/intervals.ts';
import { ALL_TYPES, DAY_MS, LEVELS, type Level } from '../counts/levels.ts';
import type { Sql, Transaction } from '../database/connect.ts';
import { type FieldState, lackingDeltas, readFieldStates, stepsOf } from './compare.ts';
import { type FieldKind, namesOf } from './declared-fields.ts';
import {
  differencesOfLevels as differencesOfCoarser,
  differencesOfMinutes,
  differingPart,
  type NumberDifference,
} from './numbers/compare-numbers.ts';
import { OTHER } from './value-text.ts';

type Fragment = postgres.PendingQuery<postgres.Row[]>;

/** A count that differs, with internal ids. */
interface Difference {
  readonly level: Level['name'] | 'month';
  readonly fieldId: number;
  readonly typeId: number;
  readonly value: string;
  readonly bucket: number;
  readonly counted: number;
  readonly expected: number;
}

/**
 * Compares the counts of fields of a UTC day: those of minutes with the rows, but for minutes that readers count from rows
 * and those before a field is complete; then each level with the finer one.
 * @param tx     of readSnapshot
 * @param day    its midnight, milliseconds since 1970; not before the retention boundary
 * @param appId  internal id of the one app that is compared; null for all of them
 * @param isOver whether to stop
 * @param names  what knows the public ids of apps and types, if that is not the server of the counts
 * @returns null if it has stopped
 */
export async function compareFieldDay(
  tx: Transaction,
  day: number,
  appId: number | null,
  isOver: () => boolean = () => false,
  names: Sql | Transaction = tx,
): Promise<DayComparison | null> {
  const states = (await readFieldStates(tx, appId)).filter(
    ({ completeFrom }) => completeFrom !== null && completeFrom < day + DAY_MS,
  );
  if (states.length === 0) return { differing: 0, examples: [] };
  const ofLevels = await differencesOfLevels(tx, states, day);
  const ofRows: Difference[] = [];
  const ofNumbers: NumberDifference[] = [];
  for (const id of new Set(states.map((state) => state.appId))) {
    const [values, numbers] = byKind(states.filter((state) => state.appId === id));
    const uncounted = await uncountedMinutes(tx, id, day);
    for (const step of await stepsOf(tx, id, [{ from: day, until: day + DAY_MS }])) {
      if (isOver()) return null;
      ofRows.push(...(await differencesOfRows(tx, values, step, uncounted)));
      for (const field of numbers) {
        const isCompared = (at: number): boolean => at >= (field.completeFrom ?? 0) && !uncounted.has(at);
        ofNumbers.push(...(await differencesOfMinutes(tx, field, step, isCompared)));
      }
    }
    for (const field of numbers) ofNumbers.push(...(await differencesOfCoarser(tx, field, day)));
  }
  // The finest that differs is what is wrong: coarser ones are compared with it.
  const examples = [
    ...(await Promise.all(ofRows.slice(0, EXAMPLES).map((difference) => withCount(tx, states, difference)))),
    ...ofLevels.slice(0, EXAMPLES),
    ...ofNumbers.slice(0, EXAMPLES).map((one) => ({ ...one, ...differingPart(one) })),
  ];
  return {
    differing: ofLevels.length + ofRows.length + ofNumbers.length,
    examples: await named(names, examples.slice(0, EXAMPLES)),
  };
}

function byKind(fields: readonly FieldState[]): [values: FieldState[], numbers: FieldState[]] {
  const of = (wanted: FieldKind): FieldState[] => fields.filter(({ kind }) => kind === wanted);
  return [of('value'), of('number')];
}

/** Minutes of a day that readers count from rows. */
async function uncountedMinutes(tx: Transaction, appId: number, day: number): Promise<ReadonlySet<number>> {
  const within = tx`app_id = ${appId} AND bucket >= ${new Date(day)} AND bucket < ${new Date(day + DAY_MS)}`;
  const rows = await tx<{ at: number }[]>`
    SELECT (extract(epoch FROM bucket) * 1000)::float8 AS at FROM uncounted_minutes WHERE ${within}
    UNION
    SELECT (extract(epoch FROM bucket) * 1000)::float8 FROM stamped_minutes
     WHERE ${within} AND fields < (SELECT max(generation) FROM declared_fields WHERE app_id = ${appId} AND removed_at IS NULL)`;
  return new Set(rows.map(({ at }) => at));
}

/**
 * What the minutes of an interval lack, as if nothing were counted: see {@link withCount}.
 * @param fields of one app
 */
async function differencesOfRows(
  tx: Transaction,
  fields: readonly FieldState[],
  interval: Interval,
  uncounted: ReadonlySet<number>,
): Promise<Difference[]> {
  const [first] = fields;
  if (first === undefined) return [];
  const starts = new Map(fields.map(({ id, completeFrom }) => [id, completeFrom ?? 0]));
  const { deltas } = await lackingDeltas(tx, first.appId, fields, interval);
  const lacking = deltas.filter(
    ({ fieldId, bucket }) => bucket >= (starts.get(fieldId) ?? 0) && !uncounted.has(bucket),
  );
  if (lacking.length === 0) return [];
  const known = await tx<{ fieldId: number; value: string }[]>`
    SELECT field_id AS "fieldId", value FROM field_series
     WHERE field_id = ANY(${[...starts.keys()]}) AND type_id = ${ALL_TYPES} AND is_complete
       AND value = ANY(${[...new Set(lacking.map(({ value }) => value))]})`;
  const told = new Set(known.map(({ fieldId, value }) => `${fieldId} ${value}`));
  const sums = new Map<string, Difference>();
  for (const { fieldId, typeId, bucket, value, count } of lacking) {
    // All or some of the other values' events are counted as "other".
    const counted = told.has(`${fieldId} ${value}`) ? value : OTHER;
    const key = `${fieldId} ${typeId} ${bucket} ${counted}`;
    const sum = (sums.get(key)?.expected ?? 0) + count;
    sums.set(key, { level: 'minute', fieldId, typeId, value: counted, bucket, counted: 0, expected: sum });
  }
  return [...sums.values()].filter(({ expected }) => expected !== 0);
}

/** With what is counted in place of 0. */
async function withCount(
  tx: Transaction,
  fields: readonly FieldState[],
  difference: Difference,
): Promise<Difference> {
  const { fieldId, typeId, value, bucket, expected } = difference;
  const field = fields.find(({ id }) => id === fieldId);
  const [row] = await tx<{ count: number }[]>`
    SELECT coalesce(sum(count), 0)::float8 AS count
      FROM field_series AS series JOIN fields_per_minute AS counts ON counts.type_id = series.id
     WHERE field_id = ${fieldId} AND value = ${value} AND series.type_id = ${field?.typeId == null ? typeId : ALL_TYPES}
       AND counts.app_id = ${field?.appId ?? 0} AND bucket = ${new Date(bucket)}`;
  const counted = row?.count ?? 0;
  return { ...difference, counted, expected: counted + expected };
}

/** A table of folded counts, the condition of what is compared of it, and what its counts are expected to be. */
interface Comparison {
  readonly name: Difference['level'];
  readonly within: Fragment;
  readonly expected: Fragment;
}

/**
 * Folded counts differ from those of the finer level, or those of all types from the sum of single ones. One fold adds to all
 * of them, so that this holds in every snapshot, and wherever counting began.
 */
async function differencesOfLevels(
  tx: Transaction,
  fields: readonly FieldState[],
  day: number,
): Promise<Difference[]> {
  const ids = fields.map(({ id }) => id);
  const found: Difference[] = [];
  for (const { name, expected, within } of comparisonsOf(tx, day)) {
    const rows = await tx<Omit<Difference, 'level'>[]>`
      WITH series AS MATERIALIZED (
        SELECT series.id, series.field_id, series.type_id, series.value, field.type_id IS NULL AS by_type, field.app_id
          FROM field_series AS series JOIN declared_fields AS field ON field.id = field_id WHERE field_id = ANY(${ids}))
      SELECT field_id AS "fieldId", type_id AS "typeId", value, (extract(epoch FROM bucket) * 1000)::float8 AS bucket,
             sum(counted)::float8 AS counted, sum(expected)::float8 AS expected
        FROM (SELECT series_id AS id, bucket, 0 AS counted, expected FROM (${expected}) AS finer
               UNION ALL
              SELECT series_id, bucket, count, 0 FROM ${tx(`field_${name}_counts`)} AS counts
                JOIN series ON series.id = series_id AND series.app_id = counts.app_id
               WHERE ${within} ${name === 'minute' ? tx`AND by_type AND type_id = ${ALL_TYPES}` : tx``}) AS compared
        JOIN series USING (id)
       GROUP BY id, 1, 2, 3, 4 HAVING sum(counted) <> sum(expected)
       ORDER BY 4, 1, 2, 3`;
    found.push(...rows.map((row) => ({ level: name, ...row })));
  }
  return found;
}

/** Finest first. */
function comparisonsOf(tx: Transaction, day: number): Comparison[] {
  const during = (from: number, until: number): Fragment =>
    tx`bucket >= ${new Date(from)} AND bucket < ${new Date(until)}`;
  const [ofDay, ofMonth] = [during(day, day + DAY_MS), during(startOfMonth(day), startOfMonth(day, 1))];
  const ofSeries = tx`JOIN series ON series.id = series_id AND series.app_id = finer.app_id`;
  const coarser = LEVELS.slice(1).map(({ name, ms }, index) => ({
    name,
    within: ofDay,
    expected: tx`
      SELECT series_id, date_bin(${`${ms} ms`}::interval, bucket, 'epoch') AS bucket, count AS expected
        FROM ${tx(`field_${LEVELS[index]?.name ?? ''}_counts`)} AS finer ${ofSeries} WHERE ${ofDay}`,
  }));
  return [
    {
      name: 'minute',
      within: ofDay,
      expected: tx`
        SELECT total.id AS series_id, bucket, count AS expected
          FROM field_minute_counts AS finer ${ofSeries}
          JOIN series AS total ON total.field_id = series.field_id AND total.value = series.value AND total.type_id = ${ALL_TYPES}
         WHERE ${ofDay} AND series.by_type AND series.type_id <> ${ALL_TYPES}`,
    },
    ...coarser,
    {
      name: 'month',
      within: ofMonth,
      expected: tx`
        SELECT series_id, date_trunc('month', bucket, 'UTC') AS bucket, count AS expected
          FROM field_day_counts AS finer ${ofSeries} WHERE ${ofMonth}`,
    },
  ];
}

/** Differences with public ids. */
async function named(sql: Sql | Transaction, differences: readonly Difference[]): Promise<CountDifference[]> {
  return await Promise.all(
    differences.map(async ({ fieldId, typeId, value, ...difference }) => {
      const [row] = await sql<{ app: string; path: string; type: string | null }[]>`
        SELECT apps.public_id AS app, path, event_types.public_id AS type
          FROM declared_fields AS field JOIN apps ON apps.id = field.app_id
          LEFT JOIN event_types ON event_types.id = coalesce(nullif(${typeId}::integer, ${ALL_TYPES}), field.type_id)
         WHERE field.id = ${fieldId}`;
      const { app = '', path = '[]', type = null } = row ?? {};
      return { ...difference, app, type, field: { path: namesOf(path), value } };
    }),
  );
}
