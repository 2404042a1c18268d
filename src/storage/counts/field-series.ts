/** Series of what declared fields count: of the events that pass a filter, or by the values of a field. */
import type { Sql, Transaction } from '../connect.ts';
import type { Correction, FieldCounts } from '../fields/counts-relation.ts';
import {
  correctionsOf,
  type FieldFilter,
  type FieldRow,
  type FieldScopeRequest,
  findField,
  isComplete,
  type NotCounted,
  readUncountedMinutes,
  resolveFieldScope,
} from '../fields/field-scope.ts';
import { type MatchingRow, matchingRows } from '../fields/matching-rows.ts';
import { PayloadValues } from '../fields/payload-values.ts';
import { MANY, OTHER } from '../fields/value-text.ts';
import { readSnapshot } from '../snapshot.ts';
import type { BucketsProblem } from './buckets.ts';
import type { Interval } from './intervals.ts';
import { ALL_TYPES, floorTo, MINUTE_MS } from './levels.ts';
import {
  type CountedSeries,
  countSeries,
  planSeries,
  type Series,
  type SeriesPlan,
  type SeriesRequest,
  topOf,
} from './series.ts';

export interface FieldSeriesRequest extends SeriesRequest {
  /** Whether what is before the interval is counted, too. */
  readonly withBefore: boolean;
  /** With values of a field: these are shown apart, as JSON, and not those with the most events. */
  readonly values?: readonly string[];
  /** Whether values are numbered. */
  readonly withNumbers?: boolean;
}

export interface FieldSeries
  extends Pick<Series, 'bucket' | 'timezone' | 'starts' | 'end' | 'interval' | 'countsOnlyBefore'> {
  readonly lines: readonly FieldLine[];
}

export interface FieldLine {
  /** A value as JSON; null: all events of the series, or all others. */
  readonly value: string | null;
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
  sql: Sql,
  request: FieldSeriesRequest,
  filter: FieldFilter,
): Promise<FieldSeries | Problem> {
  return await readSnapshot(sql, async (tx) => {
    const plan = await planSeries(tx, request);
    if (typeof plan === 'string') return plan;
    const { appId } = request;
    const scope = await resolveFieldScope(tx, scopeOf(request, plan), filter);
    if (typeof scope === 'string') return scope;
    const [id = 0] = scope.ids;
    const rows = await ragged(tx, { ...scope, appId }, plan.interval, () => id);
    const field = { appId, corrections: scope.corrections, rows };
    const counted = await countSeries(tx, { appId, ids: scope.ids, stale: [], field }, plan);
    return assemble(request, plan, [{ value: null, ...sumOf(counted, scope.ids) }]);
  });
}

/**
 * A line for each of the values with the most events, and one for all other events, those without the field among them.
 * @param request of one type at most
 */
export async function readValueSeries(
  sql: Sql,
  request: FieldSeriesRequest,
  path: readonly string[],
): Promise<FieldSeries | Problem> {
  return await readSnapshot(sql, async (tx) => {
    const plan = await planSeries(tx, request);
    if (typeof plan === 'string') return plan;
    const { appId, typeIds } = request;
    const scope = scopeOf(request, plan);
    const declared = await findField(tx, scope, path);
    if (declared === null || !(await isComplete(tx, scope, declared))) return 'not counted';
    const minutes = await readUncountedMinutes(tx, scope, declared);
    if (typeof minutes === 'string') return minutes;
    const top = await topValues(tx, request, declared, plan);
    const ids = [...top.keys()];
    const field = await valueCounts(tx, request, { path, top, minutes, interval: plan.interval });
    const events = typeIds ?? [ALL_TYPES];
    const [counted, all] = await Promise.all([
      countSeries(tx, { appId, ids, stale: [], field }, plan),
      countSeries(tx, { appId, ids: events, stale: plan.stale }, plan),
    ]);
    const shown = ids.map((id) => ({ ...(top.get(id) ?? NO_VALUE), ...sumOf(counted, [id]) }));
    const rest = { value: null, ...without(sumOf(all, events), sumOf(counted, ids)) };
    return assemble(request, plan, [...shown, rest]);
  });
}

function scopeOf(
  { appId, typeIds, withBefore }: FieldSeriesRequest,
  { interval: { from, until } }: SeriesPlan,
): FieldScopeRequest {
  return { appId, typeIds, from: withBefore ? 0 : from, until, withCountsOnly: true, isCountedAlone: true };
}

interface ShownValue {
  /** As JSON. */
  readonly value: string | null;
  readonly number: number;
}

const NO_VALUE: ShownValue = { value: null, number: 0 };

/** Internal ids of series → their values, those with the most events first. */
async function topValues(
  tx: Transaction,
  { appId, typeIds, topTypes: most = 0, values, withNumbers = false }: FieldSeriesRequest,
  { id, typeId, isFull }: FieldRow,
  plan: SeriesPlan,
): Promise<ReadonlyMap<number, ShownValue>> {
  const type = typeId !== null ? ALL_TYPES : (typeIds?.[0] ?? ALL_TYPES);
  // Of values that came late some events may be among the others: all of them are, so that no line has a part of its own.
  const isSure = isFull ? tx`is_complete` : tx`true`;
  const isWanted = values === undefined ? tx`true` : tx`value = ANY(${[...values]})`;
  const types = tx`
    ARRAY(SELECT id FROM field_series
           WHERE field_id = ${id} AND type_id = ${type} AND value NOT IN (${MANY}, ${OTHER}) AND ${isSure} AND ${isWanted})`;
  const field = { appId, corrections: [], rows: [] };
  const scope = { apps: tx`${[appId]}::integer[]`, types, field };
  const ids = await topOf(tx, scope, { whole: plan.whole, stale: [] }, most);
  const numbered = withNumbers
    ? tx`SELECT id, value, (row_number() OVER (ORDER BY id) - 1)::integer AS number
           FROM field_series WHERE field_id = ${id} AND type_id = ${type}`
    : tx`SELECT id, value, 0 AS number FROM field_series WHERE id = ANY(${ids})`;
  const rows = await tx<(ShownValue & { id: number })[]>`
    SELECT id, value, number FROM (${numbered}) AS series
     WHERE id = ANY(${ids}) ORDER BY array_position(${ids}::integer[], id)`;
  return new Map(rows.map(({ id: series, value, number }) => [series, { value, number }]));
}

interface ValueRequest {
  readonly path: readonly string[];
  readonly top: ReadonlyMap<number, ShownValue>;
  readonly minutes: readonly number[];
  readonly interval: Interval;
}

/** What the rows say of the top values where their counts do not. */
async function valueCounts(
  tx: Transaction,
  { appId, typeIds }: FieldSeriesRequest,
  { path, top, minutes, interval }: ValueRequest,
): Promise<FieldCounts> {
  const values = new PayloadValues([path]);
  const idOf = new Map([...top].map(([id, { value }]) => [value, id]));
  const filter = { contains: [], matches: () => true };
  const scope = { appId, typeIds, filter };
  const seriesOf = ({ payload }: MatchingRow): number | undefined =>
    idOf.get(values.read(payload)[0] ?? MANY);
  const rows = await ragged(tx, scope, interval, seriesOf);
  const lacking = await correctionsOf(tx, scope, { ids: [...top.keys()], minutes, seriesOf });
  return { appId, corrections: lacking, rows };
}

/** The rows of minutes that an interval begins or ends in, each as a count of its series. */
async function ragged(
  tx: Transaction,
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

function sumOf(
  { counts, before }: CountedSeries,
  ids: readonly number[],
): { readonly counts: readonly number[]; readonly before: number } {
  const columns = ids.map((id) => counts.get(id) ?? []);
  const length = Math.max(0, ...columns.map((column) => column.length));
  return {
    counts: Array.from({ length }, (_, index) =>
      columns.reduce((sum, column) => sum + (column[index] ?? 0), 0),
    ),
    before: ids.reduce((sum, id) => sum + (before.get(id) ?? 0), 0),
  };
}

type Line = Pick<FieldLine, 'counts' | 'before'>;

function without(all: Line, shown: Line): Line {
  return {
    counts: all.counts.map((count, index) => count - (shown.counts[index] ?? 0)),
    before: all.before - shown.before,
  };
}

function assemble(
  { timezone }: FieldSeriesRequest,
  { buckets, interval, countsOnlyBefore }: SeriesPlan,
  lines: readonly FieldLine[],
): FieldSeries {
  const { width, starts, end } = buckets;
  return { bucket: width.name, timezone, starts, end, interval, countsOnlyBefore, lines };
}
