/**
 * Compares the counts of declared fields with rows, and coarser counts with finer ones, in one snapshot; and makes those of a UTC day
 * what the rows say.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { grouped } from '../../base/grouped.ts';
import { type CountDifference, type DayComparison, EXAMPLES } from '../counts/differences.ts';
import { type Interval, startOfMonth } from '../counts/intervals.ts';
import { ALL_TYPES, DAY_MS, finerThan, HOUR_MS, LEVELS, type Level, startIn } from '../counts/levels.ts';
import type { Fragment, Sql, Transaction, Transactions } from '../database/connect.ts';
import { readRetention } from '../retention.ts';
import {
  addSummary,
  cellsOfRows,
  coarserCells,
  countMinutes,
  isLimited,
  isSame,
  newSummary,
  otherKey,
  readCells,
  rebuildSeries,
  type Summary,
  seriesName,
} from './count-minutes.ts';
import { type Decimal, decimalText } from './decimal-sum.ts';
import { type FieldState, namesOf, readFieldStates } from './declared-fields.ts';
import { DistinctValues } from './distinct-values.ts';
import { withFieldsLocked } from './fields-lock.ts';
import { NumberSummary } from './number-summary.ts';
import { Bins } from './sketch.ts';
import { areRowsAway, forgetUncounted, joinMinutes, selectUncounted, stepsOf } from './uncounted-minutes.ts';

/** Summaries of so much of a day are in memory at once. */
const STEP_MS = 6 * HOUR_MS;

/** A count that differs, with internal ids. */
interface Difference extends Omit<Compared, 'counted' | 'expected'> {
  readonly level: Level['name'] | 'month';
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
  const ofRows: Difference[] = [];
  const ofLevels = await differencesOfCounts(tx, states, day);
  for (const [id, ofApp] of grouped(states, (state) => state.appId)) {
    // A part of the day has no rows to compare with.
    if ((await readRetention(tx, id)).whole() > day) continue;
    if (await areRowsAway(tx, id, { from: day, until: day + DAY_MS })) continue;
    const uncounted = await uncountedMinutes(tx, id, day);
    for (const step of await stepsOf(tx, id, [{ from: day, until: day + DAY_MS }])) {
      if (isOver()) return null;
      ofRows.push(...(await differencesOfRows(tx, id, ofApp, step, uncounted)));
    }
    ofLevels.push(...(await differencesOfSummaries(tx, id, ofApp, day)));
  }
  // The finest that differs is what is wrong: coarser ones are compared with it.
  const examples = [...ofRows.slice(0, EXAMPLES), ...ofLevels.slice(0, EXAMPLES)];
  return {
    differing: ofLevels.length + ofRows.length,
    examples: await named(names, examples.slice(0, EXAMPLES)),
  };
}

/** Minutes of a day that readers count from rows. */
async function uncountedMinutes(tx: Transaction, appId: number, day: number): Promise<ReadonlySet<number>> {
  const rows = await tx<{ at: number }[]>`
    SELECT (extract(epoch FROM bucket) * 1000)::float8 AS at FROM (${selectUncounted(tx, appId)}) AS minutes
     WHERE bucket >= ${new Date(day)} AND bucket < ${new Date(day + DAY_MS)}`;
  return new Set(rows.map(({ at }) => at));
}

/** What a series has in a minute, on both sides. */
interface Compared {
  readonly fieldId: number;
  readonly typeId: number;
  readonly value: string;
  readonly bucket: number;
  readonly counted: Side;
  readonly expected: Side;
}

interface Side {
  count: number;
  readonly summary: Summary | null;
}

/** Minutes that are not what their rows say. */
async function differencesOfRows(
  tx: Transaction,
  appId: number,
  fields: readonly FieldState[],
  interval: Interval,
  uncounted: ReadonlySet<number>,
): Promise<Difference[]> {
  const ofId = new Map(fields.map((field) => [field.id, field]));
  const isCompared = (field: FieldState, bucket: number): boolean =>
    bucket >= (field.completeFrom ?? 0) && !uncounted.has(bucket);
  const complete = await completeSeries(tx, fields);
  const compared = new Map<string, Compared>();
  const of = (field: FieldState, typeId: number, value: string, by: string, bucket: number): Compared => {
    // All or some events of other values are counted as "other".
    const isTold = complete.has(seriesName(field.id, ALL_TYPES, value, by));
    const key = isTold ? { value, by } : otherKey(field, { value, by });
    const name = `${seriesName(field.id, typeId, key.value, key.by)} ${bucket}`;
    const known = compared.get(name);
    if (known !== undefined) return known;
    const side = (): Side => ({ count: 0, summary: newSummary(field.kind) });
    const text = key.by === '' ? key.value : `${key.value} ${key.by}`;
    const made = { fieldId: field.id, typeId, value: text, bucket, counted: side(), expected: side() };
    compared.set(name, made);
    return made;
  };
  for (const { field, typeId, value, by, bucket, count, summary } of (
    await cellsOfRows(tx, appId, fields, interval)
  ).cells) {
    const state = ofId.get(field.id);
    if (state === undefined || !isCompared(state, bucket)) continue;
    const { expected } = of(state, typeId, value, by, bucket);
    expected.count += count;
    if (expected.summary !== null && summary !== null) addSummary(expected.summary, summary);
  }
  const stored = tx<StoredRow[]>`
    SELECT field_id AS "fieldId", type_id AS "typeId", value, by_value AS by, count::float8 AS count, summary,
           (extract(epoch FROM bucket) * 1000)::float8 AS bucket
      FROM field_minute_counts AS counts JOIN field_series AS series ON series.id = series_id
     WHERE counts.app_id = ${appId} AND bucket >= ${new Date(interval.from)} AND bucket < ${new Date(interval.until)}
       AND field_id = ANY(${fields.map(({ id }) => id)})`;
  for await (const some of stored.cursor(1_000))
    for (const { fieldId, typeId, value, by, bucket, count, summary } of some) {
      const state = ofId.get(fieldId);
      if (state === undefined || !isCompared(state, bucket)) continue;
      const { counted } = of(state, typeId, value, by, bucket);
      counted.count += count;
      if (summary !== null) counted.summary?.addBytes(summary);
    }
  return [...compared.values()].flatMap((one) => {
    const part = differingPart(one);
    return part === null
      ? []
      : [{ level: 'minute' as const, fieldId: one.fieldId, typeId: one.typeId, bucket: one.bucket, ...part }];
  });
}

interface StoredRow {
  readonly fieldId: number;
  readonly typeId: number;
  readonly value: string;
  readonly by: string;
  readonly bucket: number;
  readonly count: number;
  readonly summary: Uint8Array | null;
}

/** Names of the series that have all events of their values. */
async function completeSeries(tx: Transaction, fields: readonly FieldState[]): Promise<ReadonlySet<string>> {
  const rows = await tx<{ fieldId: number; value: string; by: string }[]>`
    SELECT field_id AS "fieldId", value, by_value AS by FROM field_series
     WHERE field_id = ANY(${fields.map(({ id }) => id)}) AND type_id = ${ALL_TYPES} AND is_complete`;
  return new Set(rows.map(({ fieldId, value, by }) => seriesName(fieldId, ALL_TYPES, value, by)));
}

/** The part that differs, and its two values; null: none. For a sketch: in how many places numbers lie in other bins. */
function differingPart({
  value,
  counted,
  expected,
}: Pick<Compared, 'value' | 'counted' | 'expected'>): Pick<
  Difference,
  'value' | 'counted' | 'expected'
> | null {
  const [a, b] = [counted.summary, expected.summary];
  if (a === null || b === null)
    return counted.count === expected.count
      ? null
      : { value, counted: counted.count, expected: expected.count };
  if (a.toBytes().equals(b.toBytes())) return null;
  if (a instanceof DistinctValues || b instanceof DistinctValues)
    return { value, counted: a.count, expected: b.count };
  const parts = [
    ['count', a.count, b.count],
    ['sum', decimalText(a.sum), decimalText(b.sum)],
    ['squares', textOf(a.squares), textOf(b.squares)],
    ['min', a.min, b.min],
    ['max', a.max, b.max],
    ['several', a.leftOut.several, b.leftOut.several],
    ['unrepresentable', a.leftOut.unrepresentable, b.leftOut.unrepresentable],
  ] as const;
  const part = parts.find(([, one, other]) => one !== other);
  if (part !== undefined) return { value: part[0], counted: Number(part[1]), expected: Number(part[2]) };
  const moved = new Bins();
  moved.addBins(a.bins);
  b.bins.forEach((bin, count) => {
    moved.add(bin, -count);
  });
  return { value: 'sketch', counted: moved.size, expected: 0 };
}

function textOf(squares: Decimal | null): string | null {
  return squares && decimalText(squares);
}

/** Coarser summaries of a day that are not those of the finer level. */
async function differencesOfSummaries(
  tx: Transaction,
  appId: number,
  fields: readonly FieldState[],
  day: number,
): Promise<Difference[]> {
  const ids = fields.filter(({ kind }) => kind !== 'value').map(({ id }) => id);
  if (ids.length === 0) return [];
  const series = await tx<{ id: number; fieldId: number; typeId: number; value: string }[]>`
    SELECT id, field_id AS "fieldId", type_id AS "typeId", value FROM field_series WHERE field_id = ANY(${ids})`;
  const ofId = new Map(series.map((one) => [one.id, one]));
  const found: Difference[] = [];
  for (const level of LEVELS) {
    const finer = finerThan(level);
    if (finer === null) continue;
    for (let from = day; from < day + DAY_MS; from += Math.max(STEP_MS, level.ms)) {
      const interval = { from, until: from + Math.max(STEP_MS, level.ms) };
      const expected = await coarserCells(tx, appId, level, finer, interval, [...ofId.keys()]);
      const counted = await readCells(tx, appId, level, interval, [...ofId.keys()]);
      for (const key of new Set([...expected.keys(), ...counted.keys()])) {
        const [a, b] = [counted.get(key), expected.get(key)];
        if (a !== undefined && b !== undefined && isSame(a, b)) continue;
        const one = ofId.get((a ?? b)?.seriesId ?? 0);
        if (one === undefined) continue;
        const kind = fields.find(({ id }) => id === one.fieldId)?.kind ?? 'number';
        const part = differingPart({
          value: one.value,
          counted: sideOf(kind, a?.summary),
          expected: sideOf(kind, b?.summary),
        });
        if (part === null) continue;
        found.push({
          level: level.name,
          fieldId: one.fieldId,
          typeId: one.typeId,
          bucket: (a ?? b)?.bucket ?? 0,
          ...part,
        });
      }
    }
  }
  return found;
}

function sideOf(kind: FieldState['kind'], bytes: Uint8Array | null | undefined): Side {
  const summary = newSummary(kind) ?? new NumberSummary();
  if (bytes) summary.addBytes(bytes);
  return { count: 0, summary };
}

/** A table of counts, the condition of what is compared of it, and what its counts are expected to be. */
interface Comparison {
  readonly name: Difference['level'];
  readonly within: Fragment;
  readonly expected: Fragment;
}

/** Coarser counts of values that differ from those of the finer level; of months those of every kind. */
async function differencesOfCounts(
  tx: Transaction,
  fields: readonly FieldState[],
  day: number,
): Promise<Difference[]> {
  const found: Difference[] = [];
  for (const { name, expected, within } of comparisonsOf(tx, day)) {
    const ids = fields.filter(({ kind }) => name === 'month' || kind === 'value').map(({ id }) => id);
    const rows = await tx<Omit<Difference, 'level'>[]>`
      WITH series AS MATERIALIZED (
        SELECT series.id, series.field_id, series.type_id, series.value, field.app_id
          FROM field_series AS series JOIN declared_fields AS field ON field.id = field_id WHERE field_id = ANY(${ids}))
      SELECT field_id AS "fieldId", type_id AS "typeId", value, (extract(epoch FROM bucket) * 1000)::float8 AS bucket,
             sum(counted)::float8 AS counted, sum(expected)::float8 AS expected
        FROM (SELECT series_id AS id, bucket, 0 AS counted, expected FROM (${expected}) AS finer
               UNION ALL
              SELECT series_id, bucket, count, 0 FROM ${tx(`field_${name}_counts`)} AS counts
                JOIN series ON series.id = series_id AND series.app_id = counts.app_id
               WHERE ${within}) AS compared
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
  const levels = [...LEVELS.slice(1).map(({ name }) => name), 'month'] as const;
  return levels.map((name, index) => {
    const within = name === 'month' ? ofMonth : ofDay;
    return {
      name,
      within,
      expected: tx`
        SELECT series_id, ${startIn(tx, name, tx`bucket`)} AS bucket, count AS expected
          FROM ${tx(`field_${LEVELS[index]?.name ?? ''}_counts`)} AS finer ${ofSeries} WHERE ${within}`,
    };
  });
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

/** Counting and comparisons of other processes take less than a second. */
const RETRY_MS = 50;
/** Half a minute of them, which no step of others takes. */
const MOST_TRIES = 600;
const READ = 'isolation level read committed';

/**
 * Makes minutes what their rows say, a few rows at a time, then coarser counts what the finer ones say. Writers and readers go on,
 * and counts that were exact stay so.
 * @param day its midnight (UTC), milliseconds since 1970; skipped if it is before the retention boundary
 */
export async function recountFieldDay(sql: Transactions, day: number, now = Date.now()): Promise<void> {
  const apps = await sql.begin(
    READ,
    (tx) => tx<{ id: number }[]>`
      SELECT DISTINCT app_id AS id FROM declared_fields
       WHERE removed_at IS NULL AND complete_from < ${new Date(day + DAY_MS)} ORDER BY 1`,
  );
  for (const { id } of apps) {
    const steps = await sql.begin(READ, (tx) => stepsOf(tx, id, [{ from: day, until: day + DAY_MS }]));
    for (const step of steps) await whenFree(sql, (tx) => countStep(tx, id, step, now));
    await whenFree(sql, (tx) => rebuildDay(tx, id, day));
  }
}

/** Waits for other work on fields. @throws where it does not end: an erasure then has its turn again, a command says so */
async function whenFree(sql: Transactions, work: (tx: Transaction) => Promise<number>): Promise<void> {
  for (let tries = 0; (await withFieldsLocked(sql, work)) === null; tries += 1) {
    if (tries >= MOST_TRIES)
      throw new Error('Another session holds the lock on the counts of fields (table field_folds).');
    await sleep(RETRY_MS);
  }
}

async function countStep(tx: Transaction, appId: number, interval: Interval, now: number): Promise<number> {
  if (interval.from < (await readRetention(tx, appId)).whole()) return 0;
  if (await areRowsAway(tx, appId, interval)) return 0;
  const fields = (await readFieldStates(tx, appId)).filter(
    ({ completeFrom }) => completeFrom !== null && completeFrom < interval.until,
  );
  const { rows } = await countMinutes(tx, appId, fields, interval, now);
  await forgetUncounted(tx, appId, interval);
  return rows;
}

async function rebuildDay(tx: Transaction, appId: number, day: number): Promise<number> {
  // Before the boundary minutes are gone, and coarser counts are all that is left.
  if (day < (await readRetention(tx, appId)).whole()) return 0;
  const series = await tx<{ id: number; kind: string }[]>`
    SELECT series.id, kind FROM field_series AS series JOIN declared_fields AS field ON field.id = field_id
     WHERE field.app_id = ${appId} AND removed_at IS NULL`;
  const idsOf = (isPlain: boolean): number[] =>
    series.filter(({ kind }) => (kind === 'value') === isPlain).map(({ id }) => id);
  const rebuilt = { plain: idsOf(true), withSummary: idsOf(false), haveGone: true };
  await rebuildSeries(tx, appId, { from: day, until: day + DAY_MS }, rebuilt);
  return series.length;
}

/**
 * Makes minutes of an app what their rows say, and coarser counts what the finer ones say.
 * @param minutes their starts in order, milliseconds since 1970
 */
export async function recountMinutes(
  sql: Transactions,
  appId: number,
  minutes: readonly number[],
  now: number,
): Promise<void> {
  const steps = await sql.begin(READ, (tx) => stepsOf(tx, appId, joinMinutes(minutes)));
  for (const step of steps) await whenFree(sql, (tx) => countStep(tx, appId, step, now));
}

/** Values of a path, as the counts have them. */
export interface ErasedValues {
  readonly path: readonly string[];
  readonly values: readonly string[];
}

/** Series that one transaction removes. */
const SERIES_AT_ONCE = 2_000;

/**
 * Removes the values of an app's fields that nothing is counted of any more. Of a value whose rows retention has removed counts are
 * left: it loses its name.
 * @param values those that lose their names
 * @param name   what takes their place
 */
export async function forgetValues(
  sql: Transactions,
  appId: number,
  values: readonly ErasedValues[],
  name: string,
): Promise<void> {
  let removed = 0;
  do {
    await whenFree(sql, async (tx) => {
      removed = await removeEmptySeries(tx, appId);
      return removed;
    });
  } while (removed === SERIES_AT_ONCE);
  for (const { path, values: texts } of values)
    for (const [index, text] of texts.entries())
      await whenFree(sql, (tx) => renameValue(tx, appId, path, [text, JSON.stringify(`${name}:${index}`)]));
}

/** Which of some values the counts of an app do not know, of paths whose values are counted. */
export async function forgottenValues(
  sql: Transactions,
  appId: number,
  named: readonly ErasedValues[],
): Promise<readonly ErasedValues[]> {
  const forgotten: ErasedValues[] = [];
  for (const { path, values } of named) {
    const text = JSON.stringify(path);
    const rows = await sql.begin(
      READ,
      (tx) => tx<{ value: string }[]>`
        WITH of_path AS (SELECT id, path = ${text} AS "isOwn" FROM declared_fields
                          WHERE app_id = ${appId} AND removed_at IS NULL AND ${text} IN (path, by_path))
        SELECT value FROM unnest(${[...values]}::text[]) AS named (value)
         WHERE EXISTS (SELECT FROM of_path)
           AND NOT EXISTS (SELECT FROM field_series AS known JOIN of_path ON of_path.id = known.field_id
                            WHERE named.value = CASE WHEN "isOwn" THEN known.value ELSE by_value END)`,
    );
    if (rows.length > 0) forgotten.push({ path, values: rows.map(({ value }) => value) });
  }
  return forgotten;
}

async function removeEmptySeries(tx: Transaction, appId: number): Promise<number> {
  const tables = [...LEVELS.map(({ name }) => `field_${name}_counts`), 'field_month_counts'];
  const isEmpty = tables.map(
    (table) =>
      tx`AND NOT EXISTS (SELECT FROM ${tx(table)} AS counts WHERE counts.app_id = ${appId} AND counts.series_id = series.id)`,
  );
  const gone = await tx<{ id: number; fieldId: number; typeId: number; value: string; by: string }[]>`
    SELECT series.id, field_id AS "fieldId", series.type_id AS "typeId", value, by_value AS by
      FROM field_series AS series JOIN declared_fields AS field ON field.id = field_id
     WHERE field.app_id = ${appId} ${isEmpty} LIMIT ${SERIES_AT_ONCE}`;
  await tx`DELETE FROM field_series WHERE id = ANY(${gone.map(({ id }) => id)})`;
  for (const [fieldId, series] of grouped(gone, (one) => one.fieldId)) {
    const values = series.filter((one) => one.typeId === ALL_TYPES && isLimited(one));
    await tx`
      UPDATE declared_fields SET known_values = greatest(0, known_values - ${values.length}::integer) WHERE id = ${fieldId}`;
  }
  return gone.length;
}

async function renameValue(
  tx: Transaction,
  appId: number,
  path: readonly string[],
  [value, name]: readonly [string, string],
): Promise<number> {
  const text = JSON.stringify(path);
  let renamed = 0;
  for (const [of, column] of [
    ['path', 'value'],
    ['by_path', 'by_value'],
  ] as const) {
    const { count } = await tx`
      UPDATE field_series AS series SET ${tx(column)} = ${name}
       WHERE ${tx(column)} = ${value}
         AND field_id IN (SELECT id FROM declared_fields WHERE app_id = ${appId} AND ${tx(of)} = ${text})
         AND NOT EXISTS (SELECT FROM field_minute_counts AS counts WHERE counts.app_id = ${appId} AND counts.series_id = series.id)`;
    renamed += count;
  }
  return renamed;
}
