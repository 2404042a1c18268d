/** Series of what declared fields count: of the events that pass a filter, or by the values of a field. */
import { ownText } from '../../base/own-text.ts';
import { sum } from '../../base/sum.ts';
import type { Fragment, Transactions } from '../database/connect.ts';
import type { Correction, FieldCounts } from '../fields/counts-relation.ts';
import {
  correctionsOf,
  type FieldFilter,
  type FieldRow,
  type FieldScope,
  type FieldScopeRequest,
  findField,
  isComplete,
  minutesWithin,
  type NotCounted,
  resolveFieldScope,
} from '../fields/field-scope.ts';
import { type MatchingRow, matchingRows } from '../fields/matching-rows.ts';
import { PayloadValues } from '../fields/payload-values.ts';
import { EVERY_ROW } from '../fields/row-filter.ts';
import { MANY, OTHER } from '../fields/value-text.ts';
import { readCounts } from '../read/snapshot.ts';
import type { BucketsProblem } from './buckets.ts';
import type { Interval } from './intervals.ts';
import { ALL_TYPES, floorTo, MINUTE_MS } from './levels.ts';
import {
  type CountedSeries,
  countSeries,
  frameOf,
  nameTypes,
  planSeries,
  type SeriesFrame,
  type SeriesPlan,
  type SeriesRequest,
  topOf,
  topTypes,
} from './series.ts';
import type { Snapshot } from './stale.ts';

export interface FieldSeriesRequest extends SeriesRequest {
  /** Whether what is before the interval is counted, too. */
  readonly withBefore: boolean;
  /** With values of a field: these are shown apart, as JSON, and not those with the most events. */
  readonly values?: readonly string[];
  /** Whether values are numbered. */
  readonly withNumbers?: boolean;
}

export interface FieldSeries extends SeriesFrame {
  readonly lines: readonly FieldLine[];
}

export interface FieldLine {
  /** A value as JSON; null: all events of the series, or all others. */
  readonly value: string | null;
  /** The type whose events these are, where types are apart; otherwise absent. */
  readonly type?: { readonly typeId: string; readonly name: string };
  readonly counts: readonly number[];
  /** Events before the interval; 0 unless they were asked for. */
  readonly before: number;
  /** The place of a value among those of its field, in the order in which they were first counted; 0 unless asked for. */
  readonly number?: number;
}

/** Not counted: the field is not declared, or not complete. */
type Problem = BucketsProblem | NotCounted;

/** One line: the events whose payload passes a filter. */
export async function readFilteredSeries(
  sql: Transactions,
  request: FieldSeriesRequest,
  filter: FieldFilter,
): Promise<FieldSeries | Problem> {
  return await readCounts(sql, request.appId, async (tx) => {
    const plan = await planSeries(tx, request);
    if (typeof plan === 'string') return plan;
    const all = await countPassing(tx, request, plan, filter);
    return typeof all === 'string' ? all : assemble(request, plan, [{ value: null, ...all }]);
  });
}

/** A filtered series with a line for each of the types with the most such events, or of those chosen, and one for all others. */
export async function readFilteredTypes(
  sql: Transactions,
  request: FieldSeriesRequest,
  filter: FieldFilter,
): Promise<FieldSeries | Problem> {
  return await readCounts(sql, request.appId, async (tx) => {
    const plan = await planSeries(tx, request);
    if (typeof plan === 'string') return plan;
    const all = await countPassing(tx, request, plan, filter);
    if (typeof all === 'string') return all;
    const typeIds = await passingTypes(tx, request, plan, filter);
    if (typeIds === null) return 'not counted';
    const asked = { ...fieldScopeOf(request, plan), typeIds, isApart: true };
    const scope = typeIds.length === 0 ? null : await resolveFieldScope(tx, asked, filter);
    if (typeof scope === 'string') return scope;
    const [counted, names] = await Promise.all([
      scope && countScope(tx, request.appId, scope, plan),
      nameTypes(tx, request.appId, typeIds),
    ]);
    const lines = typeIds.flatMap((typeId): FieldLine[] => {
      const ids = scope?.ids.filter((id) => scope.typeOf.get(id) === typeId) ?? [];
      const type = names.get(typeId);
      return counted === null || type === undefined
        ? []
        : [{ value: null, type, ...sumOfSeries(counted, ids) }];
    });
    const shown = {
      counts: compact(lines.map(({ counts }) => counts)),
      before: sum(lines.map(({ before }) => before)),
    };
    return assemble(request, plan, [...lines, { value: null, ...without(all, shown) }]);
  });
}

/** All events of a series that pass a filter. */
async function countPassing(
  tx: Snapshot,
  request: FieldSeriesRequest,
  plan: SeriesPlan,
  filter: FieldFilter,
): Promise<Line | NotCounted> {
  const { appId, exceptTypes = [] } = request;
  const asked = fieldScopeOf(request, plan);
  const scope = await resolveFieldScope(tx, asked, filter);
  if (typeof scope === 'string') return scope;
  const all = sumOfSeries(await countScope(tx, appId, scope, plan), scope.ids);
  if (exceptTypes.length === 0) return all;
  const except = await resolveFieldScope(tx, { ...asked, typeIds: exceptTypes }, filter);
  if (typeof except === 'string') return except;
  return without(all, sumOfSeries(await countScope(tx, appId, except, plan), except.ids));
}

async function countScope(
  tx: Snapshot,
  appId: number,
  scope: FieldScope,
  plan: SeriesPlan,
): Promise<CountedSeries> {
  const rows = await ragged(tx, { ...scope, appId }, plan.interval, scope.seriesOf);
  const field = { appId, corrections: scope.corrections, rows };
  return await countSeries(tx, { appId, ids: scope.ids, field }, plan);
}

/** The types that are chosen, or those with the most events that pass a filter, as internal ids; null where the field is not declared. */
async function passingTypes(
  tx: Snapshot,
  request: FieldSeriesRequest,
  plan: SeriesPlan,
  { path, values }: FieldFilter,
): Promise<readonly number[] | null> {
  const { appId, typeIds, exceptTypes = [], topTypes: most = 0 } = request;
  if (typeIds !== null) return typeIds;
  const declared = await findField(tx, fieldScopeOf(request, plan), path);
  if (declared === null) return null;
  const groups = tx`
    SELECT id, type_id AS key, 1 AS sign FROM field_series
     WHERE field_id = ${declared.id} AND type_id <> 0 AND type_id <> ALL(${[...exceptTypes]}::integer[]) AND value = ANY(${[...values]})`;
  const [passing, busiest] = await Promise.all([
    topSeries(tx, appId, groups, plan, most),
    // What has come in the last second may have no series yet.
    topTypes(tx, { ...request, topTypes: most }, plan),
  ]);
  return [...new Set([...passing, ...busiest])].slice(0, most);
}

/**
 * A line for each of the values with the most events, and one for all other events, those without the field among them.
 * @param only events whose payload passes it alone: a filter on the same field
 */
export async function readValueSeries(
  sql: Transactions,
  request: FieldSeriesRequest,
  path: readonly string[],
  only: FieldFilter | null = null,
): Promise<FieldSeries | Problem> {
  return await readCounts(sql, request.appId, async (tx) => {
    const plan = await planSeries(tx, request);
    if (typeof plan === 'string') return plan;
    const scope = fieldScopeOf(request, plan);
    const declared = await findField(tx, scope, path);
    if (declared === null || !(await isComplete(tx, scope, declared))) return 'not counted';
    const minutes = await minutesWithin(tx, scope);
    if (typeof minutes === 'string') return minutes;
    const values = only === null ? request.values : only.values.filter(isAmong(request.values));
    const known = await knownValues(tx, { ...request, ...(values && { values }) }, declared);
    const { field, all: candidates } = await valueCounts(tx, request, {
      path,
      known,
      minutes,
      interval: plan.interval,
      declared,
      values,
    });
    const top = await topValues(tx, request, candidates, field, plan);
    const ids = top.flatMap(({ series }) => series.map(({ id }) => id));
    const [counted, all] = await Promise.all([
      countSeries(tx, { appId: request.appId, ids, field }, plan),
      only === null ? countEvents(tx, request, plan) : countPassing(tx, request, plan, only),
    ]);
    if (typeof all === 'string') return all;
    const shown = top.map(({ value, number, series }) => ({ value, number, ...signedSum(counted, series) }));
    const together = {
      counts: compact(shown.map(({ counts }) => counts)),
      before: sum(shown.map(({ before }) => before)),
    };
    return assemble(request, plan, [...shown, { value: null, ...without(all, together) }]);
  });
}

/**
 * The series of all values of a field that are counted apart, with what their counts lack in an interval of whole minutes. Those that
 * have just come are among them.
 */
export async function valuesWithin(
  tx: Snapshot,
  scope: Pick<SeriesRequest, 'appId' | 'typeIds'> & {
    readonly path: readonly string[];
    readonly interval: Interval;
  },
  declared: FieldRow,
): Promise<{ readonly field: FieldCounts; readonly all: readonly ShownValue[] } | NotCounted> {
  const { appId, typeIds, path, interval } = scope;
  const asked = { appId, typeIds, ...interval, withCountsOnly: true, isCountedAlone: true };
  const minutes = await minutesWithin(tx, asked);
  if (typeof minutes === 'string') return minutes;
  const known = await knownValues(tx, { appId, typeIds }, declared);
  return await valueCounts(tx, { appId, typeIds }, { path, known, minutes, interval, declared });
}

function isAmong(values: readonly string[] | undefined): (value: string) => boolean {
  return (value) => values === undefined || values.includes(value);
}

/** All events of a series, whatever their payloads have. */
async function countEvents(
  tx: Snapshot,
  { appId, typeIds, exceptTypes = [] }: FieldSeriesRequest,
  plan: SeriesPlan,
): Promise<Line> {
  const ids = typeIds ?? [ALL_TYPES];
  const counted = await countSeries(tx, { appId, ids: [...ids, ...exceptTypes] }, plan);
  return without(sumOfSeries(counted, ids), sumOfSeries(counted, exceptTypes));
}

function fieldScopeOf(
  { appId, typeIds, withBefore }: FieldSeriesRequest,
  { interval: { from, until } }: SeriesPlan,
): FieldScopeRequest {
  return { appId, typeIds, from: withBefore ? 0 : from, until, withCountsOnly: true, isCountedAlone: true };
}

/** Whose values are counted. */
type ValueScope = Pick<FieldSeriesRequest, 'appId' | 'typeIds' | 'exceptTypes' | 'values' | 'withNumbers'>;

/** Whose series a line adds up: internal ids of types, 0 for all; those of types that are left out are subtracted. */
function signedTypes(
  { typeIds, exceptTypes = [] }: ValueScope,
  field: FieldRow,
): readonly { readonly typeId: number; readonly sign: 1 | -1 }[] {
  // A field for one type has only series with all of its events.
  if (field.typeId !== null) return [{ typeId: ALL_TYPES, sign: 1 }];
  const added = (typeIds ?? [ALL_TYPES]).map((typeId) => ({ typeId, sign: 1 as const }));
  return [...added, ...exceptTypes.map((typeId) => ({ typeId, sign: -1 as const }))];
}

interface ShownValue {
  /** As JSON. */
  readonly value: string;
  readonly number: number;
  /** The series that are added up; the first one takes what rows say. */
  readonly series: readonly { readonly id: number; readonly sign: number }[];
}

/** The values of a field that are counted separately, each with its series. */
async function knownValues(
  tx: Snapshot,
  request: ValueScope,
  field: FieldRow,
): Promise<readonly ShownValue[]> {
  const { values, withNumbers = false } = request;
  const parts = signedTypes(request, field);
  // Some events of values that came late may be among the others: all of them are, so that no line has a part of its own.
  const isSure = field.isFull
    ? tx`bool_and(is_complete) OVER same AND count(*) OVER same = ${parts.length}`
    : tx`true`;
  const isWanted = values === undefined ? tx`true` : tx`value = ANY(${[...values]})`;
  const series = tx`
    SELECT field_series.id, value, sign, ${isSure} AS sure
      FROM field_series
      JOIN unnest(${parts.map(({ typeId }) => typeId)}::integer[], ${parts.map(({ sign }) => sign)}::integer[]) AS part (type, sign)
        ON field_series.type_id = part.type
     WHERE field_id = ${field.id} AND value NOT IN (${MANY}, ${OTHER}) AND ${isWanted}
    WINDOW same AS (PARTITION BY value)`;
  // Numbered as those of all types are: a value keeps its number whatever types are chosen.
  const numbered = withNumbers
    ? tx`SELECT value, (row_number() OVER (ORDER BY id) - 1)::integer AS number
           FROM field_series WHERE field_id = ${field.id} AND type_id = ${ALL_TYPES}`
    : tx`SELECT NULL AS value, 0 AS number WHERE false`;
  return await tx<ShownValue[]>`
    SELECT sure.value, coalesce(number, 0) AS number,
           json_agg(json_build_object('id', id, 'sign', sign) ORDER BY sign DESC, id) AS series
      FROM (SELECT * FROM (${series}) AS series WHERE sure) AS sure LEFT JOIN (${numbered}) AS numbered ON numbered.value = sure.value
     GROUP BY sure.value, number`;
}

/** The values with the most events, most first. */
async function topValues(
  tx: Snapshot,
  { appId, topTypes: most = 0 }: FieldSeriesRequest,
  candidates: readonly ShownValue[],
  { corrections }: FieldCounts,
  plan: SeriesPlan,
): Promise<readonly ShownValue[]> {
  const members = candidates.flatMap(({ series }, key) => series.map(({ id, sign }) => ({ id, sign, key })));
  const groups = tx`
    SELECT * FROM unnest(${members.map(({ id }) => id)}::integer[], ${members.map(({ key }) => key)}::integer[],
                         ${members.map(({ sign }) => sign)}::integer[]) AS member (id, key, sign)`;
  const keys = await topSeries(tx, appId, groups, plan, most, corrections);
  return keys.flatMap((key) => candidates[key] ?? []);
}

/** The keys of a relation (id, key, sign) of series whose events are the most, most first. */
async function topSeries(
  tx: Snapshot,
  appId: number,
  groups: Fragment,
  { whole }: SeriesPlan,
  most: number,
  corrections: readonly Correction[] = [],
): Promise<number[]> {
  const types = tx`ARRAY(SELECT id FROM (${groups}) AS groups)`;
  const scope = { apps: tx`${[appId]}::integer[]`, types, field: { appId, corrections, rows: [] } };
  return await topOf(tx, scope, whole, most, groups);
}

interface ValueRequest {
  readonly path: readonly string[];
  readonly known: readonly ShownValue[];
  readonly minutes: readonly number[];
  readonly interval: Interval;
  readonly declared: FieldRow;
  readonly values?: readonly string[] | undefined;
}

/** Ids of series that are not made yet, of values that rows have: less than 0. */
const FIRST_NEW = -2;

/**
 * What the rows say of values where their counts do not, and all values that are shown apart: also those that have just come, unless
 * the field has too many.
 */
async function valueCounts(
  tx: Snapshot,
  { appId, typeIds, exceptTypes = [] }: ValueScope,
  { path, known, minutes, interval, declared, values: wanted }: ValueRequest,
): Promise<{ readonly field: FieldCounts; readonly all: readonly ShownValue[] }> {
  const values = new PayloadValues([path]);
  const all: ShownValue[] = known.map((value) => ({ ...value, series: [...value.series] }));
  const places = new Map(all.map(({ value }, index) => [value, index]));
  let next = FIRST_NEW;
  // Behind those that have one, in the order of their events, as they get their ids.
  let nextNumber = known.reduce((most, { number }) => Math.max(most, number), -1) + 1;
  const idOf = (value: string): number | undefined => {
    const place = places.get(value);
    const first = place === undefined ? undefined : all[place]?.series.find(({ sign }) => sign > 0);
    if (first !== undefined) return first.id;
    if (value === MANY || value === OTHER || declared.isFull || !isAmong(wanted)(value)) return undefined;
    const id = next--;
    const added = { id, sign: 1 };
    if (place === undefined) {
      places.set(ownText(value), all.length);
      all.push({ value: ownText(value), number: nextNumber++, series: [added] });
    } else
      all[place] = {
        ...(all[place] ?? { value, number: 0 }),
        series: [added, ...(all[place]?.series ?? [])],
      };
    return id;
  };
  const scope = { appId, typeIds, filter: EVERY_ROW };
  const seriesOf = ({ typeId, payload }: MatchingRow): number | undefined => {
    const value = exceptTypes.includes(typeId) ? null : (values.read(payload)[0] ?? null);
    return value === null ? undefined : idOf(value);
  };
  const rows = await ragged(tx, scope, interval, seriesOf);
  const ids = known.flatMap(({ series }) => series.map(({ id }) => id));
  const lacking = await correctionsOf(tx, scope, { ids, minutes, seriesOf });
  const shown = all.filter(({ series }) => series.some(({ sign }) => sign > 0));
  return { field: { appId, corrections: lacking, rows }, all: shown };
}

/** The rows of minutes that an interval begins or ends in, each as a count of its series. */
async function ragged(
  tx: Snapshot,
  scope: Parameters<typeof matchingRows>[1],
  { from, until }: Interval,
  seriesOf: (row: MatchingRow) => number | undefined,
): Promise<Correction[]> {
  const cut = [from, until].filter((at) => at % MINUTE_MS !== 0).map((at) => floorTo(at, MINUTE_MS));
  const intervals = [...new Set(cut)].map((at) => ({ from: at, until: at + MINUTE_MS }));
  const counts: Correction[] = [];
  for await (const rows of matchingRows(tx, scope, intervals, 'asc')) {
    for (const row of rows) {
      const id = seriesOf(row);
      if (id !== undefined) counts.push({ id, at: row.at, count: 1 });
    }
  }
  return counts;
}

function sumOfSeries({ counts, before }: CountedSeries, ids: readonly number[]): Line {
  return {
    counts: compact(ids.map((id) => counts.get(id) ?? [])),
    before: sum(ids.map((id) => before.get(id) ?? 0)),
  };
}

/** The sum of series of which some are subtracted. */
function signedSum(counted: CountedSeries, series: ShownValue['series']): Line {
  const idsOf = (sign: number): number[] => series.filter((one) => one.sign === sign).map(({ id }) => id);
  return without(sumOfSeries(counted, idsOf(1)), sumOfSeries(counted, idsOf(-1)));
}

function compact(columns: readonly (readonly number[])[]): number[] {
  const length = Math.max(0, ...columns.map((column) => column.length));
  return Array.from({ length }, (_, index) => sum(columns.map((column) => column[index] ?? 0)));
}

type Line = Pick<FieldLine, 'counts' | 'before'>;

function without(all: Line, shown: Line): Line {
  return {
    counts: all.counts.map((count, index) => count - (shown.counts[index] ?? 0)),
    before: all.before - shown.before,
  };
}

function assemble(request: FieldSeriesRequest, plan: SeriesPlan, lines: readonly FieldLine[]): FieldSeries {
  return { ...frameOf(request, plan), lines };
}
