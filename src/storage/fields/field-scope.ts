/**
 * Whether, and how, the counts of a declared field answer a filter, in one snapshot.
 *
 * The counts of a scope are those of its series, with corrections: in some minutes they do not tell how many events match,
 * because rows are not counted yet, or were counted as "other" or "many". The rows of these minutes are looked at, and what
 * the counts of the minute lack, or have too much, is added to them at every level. So whatever reads counts need not know.
 */
import type { Transaction } from '../connect.ts';
import { ALL_TYPES, DAY_MS, DAYS, floorTo, MINUTE_MS } from '../counts/levels.ts';
import type { RowFilter } from '../event-scan.ts';
import { readBoundary } from '../retention.ts';
import type { Correction, Fragment } from './counts-relation.ts';
import type { FieldKind } from './declared-fields.ts';
import { type MatchingRow, matchingRows, type RowScope } from './matching-rows.ts';
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
  /** Whether the time before the retention boundary belongs to it, of which there are counts and no rows. */
  readonly withCountsOnly?: boolean;
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
export const MOST_MINUTES = 60;
/** Series whose counts a read adds up. */
const MOST_SERIES = 500;
/** Stands for values that have no series: their events are in corrections alone. */
const NO_SERIES = -1;

export interface FieldRow {
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
  if (field === null || !(await isComplete(tx, request, field))) return null;
  const { typeIds, until } = request;
  const [boundary, series] = await Promise.all([
    readBoundary(tx),
    readSeriesOf(tx, field, request, [...filter.values, MANY, OTHER]),
  ]);
  const start = Math.max(request.from ?? 0, boundary);
  const wanted = series.filter(({ value }) => filter.values.includes(value));
  const unsure = unsureSeries(field, filter, series);
  if (wanted.length > MOST_SERIES || (await isLost(tx, request, unsure, boundary))) return null;
  const interval = { from: floorTo(Math.max(start, field.completeFrom), MINUTE_MS), until };
  const minutes = await readUnsureMinutes(tx, field, request, filter, unsure, interval);
  if (minutes.length > MOST_MINUTES) return null;
  const ids = wanted.length === 0 ? [NO_SERIES] : wanted.map(({ id }) => id);
  const [id] = ids;
  const scope = { appId: request.appId, typeIds, filter: filter.rows };
  const corrections = await correctionsOf(tx, scope, { ids, minutes, seriesOf: () => id });
  return { ids, typeIds, corrections, filter: filter.rows };
}

/** The field of a path whose counts are those of the types that are asked for. */
export async function findField(
  tx: Transaction,
  { appId, typeIds }: FieldScopeRequest,
  path: readonly string[],
  kind: FieldKind = 'value',
): Promise<FieldRow | null> {
  const fields = await tx<FieldRow[]>`
    SELECT id, type_id AS "typeId", generation, (extract(epoch FROM complete_from) * 1000)::float8 AS "completeFrom",
           full_since IS NOT NULL AS "isFull"
      FROM declared_fields
     WHERE app_id = ${appId} AND path = ${JSON.stringify(path)} AND kind = ${kind}
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

/** Whether a scope has no events before the time from which on the field's counts are complete. */
export async function isComplete(
  tx: Transaction,
  { appId, typeIds, from, until, withCountsOnly = false }: FieldScopeRequest,
  { completeFrom }: FieldRow,
): Promise<boolean> {
  const boundary = await readBoundary(tx);
  const end = Math.min(until ?? completeFrom, completeFrom);
  const start = Math.max(from ?? 0, boundary);
  if (start < end) {
    const isOfType = typeIds === null ? tx`true` : tx`type_id = ANY(${[...typeIds]}::integer[])`;
    const [row] = await tx`
      SELECT FROM events
       WHERE app_id = ${appId} AND ${isOfType} AND created_at >= ${new Date(start)} AND created_at < ${new Date(end)} LIMIT 1`;
    if (row !== undefined) return false;
  }
  if (!withCountsOnly || (from ?? 0) >= Math.min(boundary, end)) return true;
  const [day] = await tx`
    SELECT FROM ${tx(DAYS.view)}
     WHERE app_id = ${appId} AND type_id = ${ALL_TYPES} AND count > 0
       AND bucket >= ${new Date(floorTo(from ?? 0, DAY_MS))} AND bucket < ${new Date(Math.min(boundary, end))} LIMIT 1`;
  return day === undefined;
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

/** Whether some of these events lie before the retention boundary, where no rows are left. */
async function isLost(
  tx: Transaction,
  { appId, from, withCountsOnly = false }: FieldScopeRequest,
  unsure: readonly number[],
  boundary: number,
): Promise<boolean> {
  if (!withCountsOnly || unsure.length === 0 || boundary <= (from ?? 0)) return false;
  const [row] = await tx`
    SELECT FROM fields_per_day
     WHERE app_id = ${appId} AND type_id = ANY(${[...unsure]}) AND count > 0
       AND bucket >= ${new Date(from ?? 0)}::timestamptz - interval '1 day' AND bucket < ${new Date(boundary)} LIMIT 1`;
  return row !== undefined;
}

/** SELECT of the minutes that have rows whose values are not counted. */
function selectUncounted(tx: Transaction, appId: number, { generation }: FieldRow): Fragment {
  return tx`
    SELECT bucket FROM uncounted_minutes WHERE app_id = ${appId}
     UNION SELECT bucket FROM stamped_minutes WHERE app_id = ${appId} AND fields < ${generation}`;
}

/** The minutes of an interval that have rows whose values are not counted; one more than {@link MOST_MINUTES} where there are more. */
export async function readUncountedMinutes(
  tx: Transaction,
  { appId, from, until }: FieldScopeRequest,
  field: FieldRow,
): Promise<number[]> {
  const rows = await tx<{ at: number }[]>`
    SELECT (extract(epoch FROM bucket) * 1000)::float8 AS at FROM (${selectUncounted(tx, appId, field)}) AS minutes, retention
     WHERE bucket >= greatest(${new Date(floorTo(from ?? 0, MINUTE_MS))}, readable_from) AND bucket < ${new Date(until ?? 0)}
     ORDER BY at LIMIT ${MOST_MINUTES + 1}`;
  return rows.map(({ at }) => at);
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
      FROM (${selectUncounted(tx, appId, field)}
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

/** Which rows of which minutes belong to which series. */
export interface UnsureMinutes {
  readonly ids: readonly number[];
  /** Milliseconds since 1970. */
  readonly minutes: readonly number[];
  /** The series of a row; undefined: none of the ids. */
  readonly seriesOf: (row: MatchingRow) => number | undefined;
}

/** Counts the rows of minutes, and takes off what the counts have of each series. */
export async function correctionsOf(
  tx: Transaction,
  scope: RowScope,
  { ids, minutes, seriesOf }: UnsureMinutes,
): Promise<Correction[]> {
  if (minutes.length === 0) return [];
  const lacking = new Map<string, { readonly id: number; readonly at: number; count: number }>();
  const add = (id: number, time: number, count: number): void => {
    const at = floorTo(time, MINUTE_MS);
    const known = lacking.get(`${id} ${at}`);
    if (known === undefined) lacking.set(`${id} ${at}`, { id, at, count });
    else known.count += count;
  };
  const intervals = minutes.map((from) => ({ from, until: from + MINUTE_MS }));
  for await (const rows of matchingRows(tx, scope, intervals, 'asc')) {
    for (const row of rows) {
      const id = seriesOf(row);
      if (id !== undefined) add(id, row.at, 1);
    }
  }
  const counted = await tx<{ id: number; at: number; count: number }[]>`
    SELECT type_id AS id, (extract(epoch FROM bucket) * 1000)::float8 AS at, sum(count)::float8 AS count FROM fields_per_minute
     WHERE app_id = ${scope.appId} AND type_id = ANY(${[...ids]})
       AND bucket = ANY(${minutes.map((at) => new Date(at).toISOString())}::timestamptz[])
     GROUP BY 1, 2`;
  for (const { id, at, count } of counted) add(id, at, -count);
  return [...lacking.values()].filter(({ count }) => count !== 0);
}
