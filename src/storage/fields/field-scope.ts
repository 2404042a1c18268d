/**
 * Whether, and how, the counts of a declared field answer a filter, in one snapshot.
 *
 * The counts of a scope are those of its series, with corrections: in some minutes they do not tell how many events match,
 * because rows are not counted yet, or were counted as "other" or "many". The rows of these minutes are looked at, and what
 * the counts of the minute lack, or have too much, is added to them at every level. So whatever reads counts need not know.
 */
import type { Transaction } from '../connect.ts';
import type { Fragment } from '../counts/exact-counts.ts';
import { floorTo, MINUTE_MS } from '../counts/levels.ts';
import type { RowFilter } from '../event-scan.ts';
import { readBoundary } from '../retention.ts';
import { matchingRows } from './matching-rows.ts';
import { MANY, OTHER } from './value-text.ts';

/** A filter that may be one on a declared field. */
export interface FieldFilter {
  /** Names from the payload's top on. */
  readonly path: readonly string[];
  /** The texts (value-text.ts) of the values of which the field must have one. */
  readonly values: readonly string[];
  /** The same filter, for rows. */
  readonly rows: RowFilter;
}

export interface FieldScopeRequest {
  /** Internal id. */
  readonly appId: number;
  /** Internal ids; null: all types. */
  readonly typeIds: readonly number[] | null;
  /** Milliseconds since 1970; null: from the beginning. */
  readonly from: number | null;
  /** Not included; null: to the end. */
  readonly until: number | null;
}

/** What the counts of a series lack in a minute. */
export interface Correction {
  readonly id: number;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly count: number;
}

/** What of a scope's counts to read. */
export interface FieldScope {
  /** Internal ids of series; never empty. */
  readonly ids: readonly number[];
  readonly typeIds: readonly number[] | null;
  readonly corrections: readonly Correction[];
  readonly filter: RowFilter;
}

/** Minutes of which a read looks at the rows. With more, the counts do not answer it. */
const MOST_MINUTES = 60;
/** Series whose counts a read adds up. */
const MOST_SERIES = 500;
/** Stands for values that have no series: their events are in corrections alone. */
const NO_SERIES = -1;

interface FieldRow {
  readonly id: number;
  readonly typeId: number | null;
  readonly generation: number;
  readonly completeFrom: number;
  readonly isFull: boolean;
}

interface SeriesRow {
  readonly id: number;
  readonly typeId: number;
  readonly value: string;
  readonly isComplete: boolean;
}

/** @returns null where the counts cannot answer it: the rows must be searched */
export async function resolveFieldScope(
  tx: Transaction,
  request: FieldScopeRequest,
  filter: FieldFilter,
): Promise<FieldScope | null> {
  const field = await findField(tx, request, filter.path);
  if (field === null) return null;
  const { typeIds, until } = request;
  const [boundary, series] = await Promise.all([
    readBoundary(tx),
    readSeriesOf(tx, field, request, [...filter.values, MANY, OTHER]),
  ]);
  const start = Math.max(request.from ?? 0, boundary);
  if (start < field.completeFrom && (await hasEvents(tx, request, start, field.completeFrom))) return null;
  const wanted = series.filter(({ value }) => filter.values.includes(value));
  const unsure = unsureSeries(field, filter, series);
  if (wanted.length > MOST_SERIES || (await isLost(tx, request, unsure, boundary))) return null;
  const interval = { from: floorTo(Math.max(start, field.completeFrom), MINUTE_MS), until };
  const minutes = await readUnsureMinutes(tx, field, request, filter, unsure, interval);
  if (minutes.length > MOST_MINUTES) return null;
  const ids = wanted.length === 0 ? [NO_SERIES] : wanted.map(({ id }) => id);
  const corrections = await correct(tx, { appId: request.appId, typeIds, filter: filter.rows }, ids, minutes);
  return { ids, typeIds, corrections, filter: filter.rows };
}

/** The field of a path whose counts are those of the types that are asked for. */
async function findField(
  tx: Transaction,
  { appId, typeIds }: FieldScopeRequest,
  path: readonly string[],
): Promise<FieldRow | null> {
  const fields = await tx<FieldRow[]>`
    SELECT id, type_id AS "typeId", generation, (extract(epoch FROM complete_from) * 1000)::float8 AS "completeFrom",
           full_since IS NOT NULL AS "isFull"
      FROM declared_fields
     WHERE app_id = ${appId} AND path = ${JSON.stringify(path)} AND kind = 'value'
       AND removed_at IS NULL AND complete_from IS NOT NULL
     ORDER BY complete_from, id`;
  const fits = ({ typeId }: FieldRow): boolean =>
    typeId === null || (typeIds?.length === 1 && typeIds[0] === typeId);
  return fields.find(fits) ?? null;
}

/** The series of values: with all types, or with each of those that are asked for. */
async function readSeriesOf(
  tx: Transaction,
  { id, typeId }: FieldRow,
  { typeIds }: FieldScopeRequest,
  values: readonly string[],
): Promise<SeriesRow[]> {
  // Of a field for one type there are only series with all of its events.
  const types = typeId !== null || typeIds === null ? [0] : typeIds;
  return await tx<SeriesRow[]>`
    SELECT id, type_id AS "typeId", value, is_complete AS "isComplete" FROM field_series
     WHERE field_id = ${id} AND type_id = ANY(${[...types]}) AND value = ANY(${[...values]})`;
}

/** Whether there are events before the counts of a field begin. */
async function hasEvents(
  tx: Transaction,
  { appId, typeIds, until }: FieldScopeRequest,
  from: number,
  completeFrom: number,
): Promise<boolean> {
  const end = Math.min(until ?? completeFrom, completeFrom);
  const isOfType = typeIds === null ? tx`true` : tx`type_id = ANY(${[...typeIds]}::integer[])`;
  const [row] = await tx`
    SELECT FROM events
     WHERE app_id = ${appId} AND ${isOfType} AND created_at >= ${new Date(from)} AND created_at < ${new Date(end)} LIMIT 1`;
  return row !== undefined;
}

/** The series under which events may be counted that match: those with several values, and values beyond their number. */
function unsureSeries(
  { isFull }: FieldRow,
  { values }: FieldFilter,
  series: readonly SeriesRow[],
): readonly number[] {
  const isSure = (value: string): boolean => {
    const known = series.find((one) => one.value === value);
    return known === undefined ? !isFull : known.isComplete;
  };
  const unsure = values.every(isSure) ? [MANY] : [MANY, OTHER];
  return series.filter(({ value }) => unsure.includes(value)).map(({ id }) => id);
}

/** Whether some of these events lie before the retention boundary, where no row tells about them. */
async function isLost(
  tx: Transaction,
  { appId, from }: FieldScopeRequest,
  unsure: readonly number[],
  boundary: number,
): Promise<boolean> {
  if (unsure.length === 0 || boundary <= (from ?? 0)) return false;
  const [row] = await tx`
    SELECT FROM fields_per_day
     WHERE app_id = ${appId} AND type_id = ANY(${[...unsure]}) AND count > 0
       AND bucket >= ${new Date(from ?? 0)}::timestamptz - interval '1 day' AND bucket < ${new Date(boundary)} LIMIT 1`;
  return row !== undefined;
}

/** The minutes whose rows must be looked at; one more than {@link MOST_MINUTES} where there are more. */
async function readUnsureMinutes(
  tx: Transaction,
  field: FieldRow,
  { appId, typeIds }: FieldScopeRequest,
  { values }: FieldFilter,
  unsure: readonly number[],
  { from, until }: { readonly from: number; readonly until: number | null },
): Promise<number[]> {
  const isOfType = typeIds === null ? tx`true` : tx`delta.type_id = ANY(${[...typeIds]}::integer[])`;
  const type = field.typeId !== null || typeIds === null ? tx`0` : tx`delta.type_id`;
  const end = until === null ? tx`true` : tx`bucket < ${new Date(until)}`;
  const texts = [...values, MANY, OTHER];
  const rows = await tx<{ at: number }[]>`
    SELECT (extract(epoch FROM bucket) * 1000)::float8 AS at
      FROM (SELECT bucket FROM uncounted_minutes WHERE app_id = ${appId}
             UNION SELECT bucket FROM stamped_minutes WHERE app_id = ${appId} AND fields < ${field.generation}
             UNION SELECT bucket FROM pending_field_deltas AS delta
                    WHERE app_id = ${appId} AND field_id = ${field.id} AND value = ANY(${texts}) AND ${isOfType}
                      AND NOT EXISTS (SELECT FROM field_series AS known
                                       WHERE known.field_id = ${field.id} AND known.value = delta.value AND known.type_id = ${type})
             UNION SELECT bucket FROM fields_per_minute
                    WHERE app_id = ${appId} AND type_id = ANY(${[...unsure]}) AND count > 0
                      AND bucket >= ${new Date(from)} AND ${end}
           ) AS minutes
     WHERE bucket >= ${new Date(from)} AND ${end}
     ORDER BY at LIMIT ${MOST_MINUTES + 1}`;
  return rows.map(({ at }) => at);
}

/** Counts the rows of minutes, and takes off what their counts have. */
async function correct(
  tx: Transaction,
  scope: { readonly appId: number; readonly typeIds: readonly number[] | null; readonly filter: RowFilter },
  ids: readonly number[],
  minutes: readonly number[],
): Promise<Correction[]> {
  const [id = NO_SERIES] = ids;
  if (minutes.length === 0) return [];
  const lacking = new Map(minutes.map((at) => [at, 0]));
  const add = (at: number, count: number): void => {
    const minute = floorTo(at, MINUTE_MS);
    lacking.set(minute, (lacking.get(minute) ?? 0) + count);
  };
  const intervals = minutes.map((from) => ({ from, until: from + MINUTE_MS }));
  for await (const rows of matchingRows(tx, scope, intervals, 'asc')) for (const { at } of rows) add(at, 1);
  const counted = await tx<{ at: number; count: number }[]>`
    SELECT (extract(epoch FROM bucket) * 1000)::float8 AS at, sum(count)::float8 AS count FROM fields_per_minute
     WHERE app_id = ${scope.appId} AND type_id = ANY(${[...ids]})
       AND bucket = ANY(${minutes.map((at) => new Date(at).toISOString())}::timestamptz[])
     GROUP BY 1`;
  for (const { at, count } of counted) add(at, -count);
  return [...lacking].filter(([, count]) => count !== 0).map(([at, count]) => ({ id, at, count }));
}

/** Widths of the buckets of the relations of counts, for date_bin; a month has none. */
const WIDTHS: Readonly<Record<string, string>> = {
  minute: '1 minute',
  quarter_hour: '15 minutes',
  hour: '1 hour',
  day: '1 day',
};

/** A relation of counts of events, or the same of fields with corrections. @param view such as `events_per_hour` */
export function countsRelation(
  tx: Transaction,
  view: string,
  field: { readonly appId: number; readonly corrections: readonly Correction[] } | undefined,
): Fragment {
  if (field === undefined) return tx`${tx(view)}`;
  const level = view.slice('events_per_'.length);
  const counts = tx`${tx(`fields_per_${level}`)}`;
  const { appId, corrections } = field;
  if (corrections.length === 0) return counts;
  const width = WIDTHS[level];
  const bucket =
    width === undefined ? tx`date_trunc('month', at, 'UTC')` : tx`date_bin(${width}::interval, at, 'epoch')`;
  return tx`
    (SELECT app_id, type_id, bucket, count FROM ${counts}
      UNION ALL
     SELECT ${appId}::integer, id, ${bucket}, count
       FROM unnest(${corrections.map(({ id }) => id)}::integer[],
                   ${corrections.map(({ at }) => new Date(at).toISOString())}::timestamptz[],
                   ${corrections.map(({ count }) => count)}::bigint[]) AS correction (id, at, count)) AS corrected`;
}
