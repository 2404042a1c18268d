/**
 * Whether, and how, the counts of a declared field answer a filter, in one snapshot.
 *
 * The counts of a scope are those of its series, with corrections: in some minutes they do not tell how many events match,
 * because rows are not counted yet, or were counted as "other" or "many". The rows of these minutes are looked at, and what
 * the counts of the minute lack, or have too much, is added to them at every level. So whatever reads counts need not know.
 */

import type { Interval } from '../counts/intervals.ts';
import { ALL_TYPES, DAY_MS, DAYS, floorTo, MINUTE_MS } from '../counts/levels.ts';
import type { Snapshot } from '../counts/stale.ts';
import type { Fragment, Transaction } from '../database/connect.ts';
import { type Retention, readRetention, selectBoundary } from '../retention.ts';
import type { Correction } from './counts-relation.ts';
import { hasMoreRows, type MatchingRow, matchingRows, type RowScope } from './matching-rows.ts';
import type { FieldKind } from './payload-values.ts';
import type { RowFilter } from './row-filter.ts';
import { joinMinutes, selectUncounted } from './uncounted-minutes.ts';
import { MANY, OTHER } from './value-text.ts';

/** A filter that may be one on a declared field. */
export interface FieldFilter {
  /** Names from the payload's top on. */
  readonly path: readonly string[];
  /** The texts (value-text.ts) of the values of which the field must have one. */
  readonly values: readonly string[];
  /** This filter, for rows. */
  readonly rows: RowFilter;
}

export interface FieldScopeRequest {
  readonly appId: number;
  /** Internal ids; null: all types. */
  readonly typeIds: readonly number[] | null;
  /** Milliseconds since 1970; null: from the beginning. */
  readonly from: number | null;
  /** Not included; null: to the end. */
  readonly until: number | null;
  /** Whether the time before the retention boundary belongs to it, of which there are counts and no rows. */
  readonly withCountsOnly?: boolean;
  /** Whether nothing but the counts answers it: then the rows of more minutes are looked at. */
  readonly isCountedAlone?: boolean;
  /** Whether each of the chosen types has series of its own. */
  readonly isApart?: boolean;
}

/** What of a scope's counts to read. */
export interface FieldScope {
  /** Internal ids of series; never empty. */
  readonly ids: readonly number[];
  readonly typeIds: readonly number[] | null;
  readonly corrections: readonly Correction[];
  readonly filter: RowFilter;
  /** The series that counts a row which passes the filter. */
  readonly seriesOf: (row: Pick<MatchingRow, 'typeId'>) => number | undefined;
  /** Where types are apart: series → internal id of the type. */
  readonly typeOf: ReadonlyMap<number, number>;
}

/**
 * Minutes of which a read looks at the rows. With more of them a page is found by a search; a total or a series, which nothing else
 * answers, looks at more.
 */
const MOST_MINUTES = 60;
const MOST_MINUTES_OF_COUNTS = 5_000;
/** Rows of these minutes: some tenths of a second. */
const MOST_ROWS = 50_000;
/** Rows of a minute that an end of the interval cuts: as many as a page of a search looks at. */
const MOST_ROWS_OF_END = 200_000;
/** Series whose counts a read adds up. */
const MOST_SERIES = 500;
/** Stands for values that have no series: their events are in corrections alone. Of one type: less its id. */
const NO_SERIES = -1;

export interface FieldRow {
  readonly id: number;
  readonly typeId: number | null;
  readonly completeFrom: number;
  readonly isFull: boolean;
}

export interface SeriesRow {
  readonly id: number;
  readonly typeId: number;
  readonly value: string;
  readonly isComplete: boolean;
}

/**
 * Why counts answer nothing: they do not have it, so that the rows must be searched; or they will have it as soon as
 * maintenance has counted what is late.
 */
export type NotCounted = 'not counted' | 'not counted yet';

export async function resolveFieldScope(
  tx: Snapshot,
  request: FieldScopeRequest,
  filter: FieldFilter,
): Promise<FieldScope | NotCounted> {
  const texts = [...filter.values, MANY, OTHER];
  const [found, retention] = await Promise.all([
    findFieldWithSeries(tx, request, filter.path, texts),
    readRetention(tx, request.appId),
  ]);
  if (found === null || !haveOneBoundary(retention, request)) return 'not counted';
  const { field, series } = found;
  const { typeIds } = request;
  const start = Math.max(request.from ?? 0, retention.first(request));
  const wanted = series.filter(({ value }) => filter.values.includes(value));
  if (wanted.length > MOST_SERIES) return 'not counted';
  const ambiguous = ambiguousSeries(field, filter, series);
  // Sent together: none waits for the answers to the others.
  const [isWhole, isPartLost, minutes] = await Promise.all([
    isCompleteFrom(tx, request, field, retention),
    isLost(tx, request, ambiguous, retention.whole(request)),
    minutesWithin(tx, request, { ambiguous, from: Math.max(start, field.completeFrom) }),
  ]);
  if (!isWhole || isPartLost) return 'not counted';
  if (typeof minutes === 'string') return minutes;
  const { ids, seriesOf, typeOf } = request.isApart ? seriesByType(field, request, wanted) : together(wanted);
  const scope = { appId: request.appId, typeIds, filter: filter.rows };
  const corrections = await correctionsOf(tx, scope, { ids, minutes, seriesOf });
  return { ids, typeIds, corrections, filter: filter.rows, seriesOf, typeOf };
}

/**
 * Whether the counts of values are of what can be read: not where some of the types can be read for longer than others. Then the rows are
 * searched. Counts alone are of all that there was.
 */
function haveOneBoundary(
  retention: Retention,
  { typeIds, from, until, withCountsOnly = false }: FieldScopeRequest,
): boolean {
  if (withCountsOnly || retention.own.size === 0) return true;
  const parts = retention.parts({ typeIds }, { from: from ?? 0, until: until ?? Number.POSITIVE_INFINITY });
  return (
    parts.length <= 1 &&
    parts.every((part) => part.exceptTypes.length === 0 && part.typeIds?.length === typeIds?.length)
  );
}

type Chosen = Pick<FieldScope, 'ids' | 'seriesOf' | 'typeOf'>;

function together(wanted: readonly SeriesRow[]): Chosen {
  const ids = wanted.length === 0 ? [NO_SERIES] : wanted.map(({ id }) => id);
  return { ids, seriesOf: () => ids[0], typeOf: new Map() };
}

function seriesByType(
  { typeId: onlyType }: FieldRow,
  { typeIds }: FieldScopeRequest,
  wanted: readonly SeriesRow[],
): Chosen {
  const typeOf = new Map(wanted.map(({ id, typeId }) => [id, onlyType ?? typeId]));
  const known = new Set(typeOf.values());
  for (const typeId of typeIds ?? []) if (!known.has(typeId)) typeOf.set(NO_SERIES - typeId, typeId);
  const first = new Map([...typeOf].toReversed().map(([id, typeId]) => [typeId, id]));
  return { ids: [...typeOf.keys()], seriesOf: ({ typeId }) => first.get(typeId), typeOf };
}

/** The field of a path whose counts are those of the types that are asked for. */
export async function findField(
  tx: Snapshot,
  request: FieldScopeRequest,
  path: readonly string[],
): Promise<FieldRow | null> {
  const fields = await readDeclarations(tx, request, { kind: 'value', path, by: null });
  return fields.find((field) => answersFor(field, request)) ?? null;
}

/** Declarations of an app, for whatever types, those that are complete for longest first. @param by the other path; `any`: whichever */
export async function readDeclarations(
  tx: Snapshot,
  { appId }: Pick<FieldScopeRequest, 'appId'>,
  {
    kind,
    path,
    by,
  }: {
    readonly kind: FieldKind;
    readonly path: readonly string[];
    readonly by: readonly string[] | 'any' | null;
  },
): Promise<readonly FieldRow[]> {
  const isBy = by === 'any' ? tx`by_path <> ''` : tx`by_path = ${by === null ? '' : JSON.stringify(by)}`;
  return await tx.once.get(
    JSON.stringify(['declarations', appId, kind, path, by]),
    async () =>
      await tx<FieldRow[]>`
    SELECT ${fieldColumns(tx)} FROM declared_fields AS field
     WHERE app_id = ${appId} AND path = ${JSON.stringify(path)} AND kind = ${kind} AND ${isBy}
       AND removed_at IS NULL AND complete_from IS NOT NULL
     ORDER BY complete_from, field.id`,
  );
}

/** Finds a field with the series of values: with all types, or with each of those that are asked for. */
async function findFieldWithSeries(
  tx: Transaction,
  request: FieldScopeRequest,
  path: readonly string[],
  values: readonly string[],
): Promise<{ readonly field: FieldRow; readonly series: readonly SeriesRow[] } | null> {
  const { typeIds } = request;
  // A field for one type has only series with all of its events.
  const types = tx`CASE WHEN field.type_id IS NULL THEN ${[...(typeIds ?? [ALL_TYPES])]}::integer[] ELSE ARRAY[${ALL_TYPES}::integer] END`;
  const rows = await tx<(FieldRow & (FoundSeries | { readonly seriesId: null }))[]>`
    SELECT ${fieldColumns(tx)}, series.id AS "seriesId", series.type_id AS "seriesType", value, is_complete AS "isComplete"
      FROM declared_fields AS field
      LEFT JOIN field_series AS series
        ON series.field_id = field.id AND series.value = ANY(${[...values]}) AND series.type_id = ANY(${types})
     WHERE app_id = ${request.appId} AND path = ${JSON.stringify(path)} AND kind = 'value' AND by_path = ''
       AND removed_at IS NULL AND complete_from IS NOT NULL
     ORDER BY complete_from, field.id`;
  const field = rows.find((row) => answersFor(row, request));
  if (field === undefined) return null;
  const ofField = rows.filter(
    (row): row is FieldRow & FoundSeries => row.id === field.id && row.seriesId !== null,
  );
  const series = ofField.map(({ seriesId, seriesType, value, isComplete }) => {
    return { id: seriesId, typeId: seriesType, value, isComplete };
  });
  return { field, series };
}

interface FoundSeries {
  readonly seriesId: number;
  readonly seriesType: number;
  readonly value: string;
  readonly isComplete: boolean;
}

function fieldColumns(tx: Transaction): Fragment {
  return tx`field.id, field.type_id AS "typeId", (extract(epoch FROM complete_from) * 1000)::float8 AS "completeFrom",
            full_since IS NOT NULL AS "isFull"`;
}

/** Whether a declaration counts the events of the types that are asked for. */
export function answersFor({ typeId }: FieldRow, { typeIds }: FieldScopeRequest): boolean {
  return typeId === null || (typeIds?.length === 1 && typeIds[0] === typeId);
}

/** Whether a scope has no events before the time from which on the field's counts are complete. */
export async function isComplete(
  tx: Snapshot,
  request: FieldScopeRequest,
  field: FieldRow,
): Promise<boolean> {
  return await isCompleteFrom(tx, request, field, await readRetention(tx, request.appId));
}

async function isCompleteFrom(
  tx: Snapshot,
  { appId, typeIds, from, until, withCountsOnly = false }: FieldScopeRequest,
  { completeFrom }: FieldRow,
  retention: Retention,
): Promise<boolean> {
  const boundary = retention.whole({ typeIds });
  const end = Math.min(until ?? completeFrom, completeFrom);
  const start = Math.max(from ?? 0, retention.first({ typeIds }));
  if (start < end) {
    const isOfType = typeIds === null ? tx`true` : tx`type_id = ANY(${[...typeIds]}::integer[])`;
    const [row] = await tx`
      SELECT FROM events
       WHERE app_id = ${appId} AND ${isOfType} AND created_at >= ${new Date(start)} AND created_at < ${new Date(end)} LIMIT 1`;
    if (row !== undefined || (await tx.archived.has(retention, { appId, typeIds, from: start, until: end })))
      return false;
  }
  if (!withCountsOnly || (from ?? 0) >= Math.min(boundary, end)) return true;
  const [day] = await tx`
    SELECT FROM ${tx(DAYS.view)}
     WHERE app_id = ${appId} AND type_id = ${ALL_TYPES} AND count > 0
       AND bucket >= ${new Date(floorTo(from ?? 0, DAY_MS))} AND bucket < ${new Date(Math.min(boundary, end))} LIMIT 1`;
  return day === undefined;
}

/** The series under which events may be counted that match: those with several values, and values beyond their number. */
function ambiguousSeries(
  { isFull }: FieldRow,
  { values }: FieldFilter,
  series: readonly SeriesRow[],
): readonly number[] {
  const isExact = (value: string): boolean => {
    const known = series.find((one) => one.value === value);
    return known === undefined ? !isFull : known.isComplete;
  };
  const ambiguous = values.every(isExact) ? [MANY] : [MANY, OTHER];
  return series.filter(({ value }) => ambiguous.includes(value)).map(({ id }) => id);
}

/** Whether some of these events lie before the retention boundary, where no rows are left. */
async function isLost(
  tx: Transaction,
  { appId, from, withCountsOnly = false }: FieldScopeRequest,
  ambiguous: readonly number[],
  boundary: number,
): Promise<boolean> {
  if (!withCountsOnly || ambiguous.length === 0 || boundary <= (from ?? 0)) return false;
  const [row] = await tx`
    SELECT FROM fields_per_day
     WHERE app_id = ${appId} AND type_id = ANY(${[...ambiguous]}) AND count > 0
       AND bucket >= ${new Date(from ?? 0)}::timestamptz - interval '1 day' AND bucket < ${new Date(boundary)} LIMIT 1`;
  return row !== undefined;
}

/** A minute whose rows must be looked at. */
interface UnsureMinute {
  readonly at: number;
  /** Whether maintenance will count it, so that it need not be looked at any more. */
  readonly isLate: boolean;
}

/**
 * The minutes of an interval that are computed from rows, in order of time: those that are not counted yet, and those in which series
 * have events of which the counts do not tell what is asked for.
 * @param options.ambiguous internal ids of these series
 * @param options.from   where it begins, if not where the request does
 */
export async function minutesWithin(
  tx: Snapshot,
  request: FieldScopeRequest,
  {
    ambiguous = [],
    from = request.from,
  }: { readonly ambiguous?: readonly number[]; readonly from?: number | null } = {},
): Promise<readonly number[] | NotCounted> {
  const { appId, until } = request;
  const end = until === null ? tx`true` : tx`bucket < ${new Date(until)}`;
  const ofUnsure =
    ambiguous.length === 0
      ? tx``
      : tx`
             UNION ALL
            SELECT bucket, false FROM fields_per_minute
             WHERE app_id = ${appId} AND type_id = ANY(${[...ambiguous]}::integer[]) AND count > 0`;
  // Minutes that stay come first: whether they alone are too many tells whether it would help to wait.
  const limit = mostMinutes(request) + 1;
  const key = JSON.stringify(['minutes', appId, ambiguous, from, until, limit]);
  const read = async (): Promise<readonly UnsureMinute[]> =>
    await tx<UnsureMinute[]>`
    SELECT (extract(epoch FROM bucket) * 1000)::float8 AS at, bool_and(is_late) AS "isLate"
      FROM (SELECT bucket, true AS is_late FROM (${selectUncounted(tx, appId)}) AS uncounted ${ofUnsure}) AS minutes,
           (${selectBoundary(tx, appId)}) AS retention
     WHERE bucket >= greatest(${new Date(floorTo(from ?? 0, MINUTE_MS))}, readable_from) AND ${end}
     GROUP BY bucket ORDER BY "isLate", bucket LIMIT ${limit}`;
  const minutes = await tx.once.get(key, read);
  return await tx.once.get(`${key} ${request.from} ${request.typeIds}`, () =>
    withinBudget(tx, request, minutes),
  );
}

function mostMinutes({ isCountedAlone = false }: FieldScopeRequest): number {
  return isCountedAlone ? MOST_MINUTES_OF_COUNTS : MOST_MINUTES;
}

/**
 * Minutes in order of time, if a read may look at all of their rows, and at those of the parts of minutes at the ends of the interval.
 * @param minutes those that are late last
 */
async function withinBudget(
  tx: Snapshot,
  request: FieldScopeRequest,
  minutes: readonly UnsureMinute[],
): Promise<readonly number[] | NotCounted> {
  const fits = async (some: readonly UnsureMinute[]): Promise<boolean> => {
    if (some.length > mostMinutes(request)) return false;
    return !(await hasMoreRows(tx, request, joinMinutes(sortedStarts(some)), MOST_ROWS));
  };
  const [haveFew, start, end] = await Promise.all([
    fits(minutes),
    hasMoreRows(tx, request, partOfMinute(request.from), MOST_ROWS_OF_END),
    hasMoreRows(tx, request, partOfMinute(request.until), MOST_ROWS_OF_END),
  ]);
  if (start) return 'not counted';
  // Mostly it is the present minute, which will be whole.
  if (end) return 'not counted yet';
  if (haveFew) return sortedStarts(minutes);
  return (await fits(minutes.filter(({ isLate }) => !isLate))) ? 'not counted yet' : 'not counted';
}

function sortedStarts(minutes: readonly UnsureMinute[]): number[] {
  return minutes.map(({ at }) => at).sort((a, b) => a - b);
}

/** The minute that an end of an interval cuts, if it does. */
function partOfMinute(end: number | null): Interval[] {
  if (end === null || end % MINUTE_MS === 0) return [];
  const from = floorTo(end, MINUTE_MS);
  return [{ from, until: from + MINUTE_MS }];
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
  tx: Snapshot,
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
  for await (const rows of matchingRows(tx, scope, joinMinutes(minutes), 'asc')) {
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
  for (const { id, at, count } of await hiddenCounts(tx, scope.appId, ids, minutes)) add(id, at, count);
  return [...lacking.values()].filter(({ count }) => count !== 0);
}

/** What series have of types that retention hides in minutes: no rows say it any more. */
async function hiddenCounts(
  tx: Snapshot,
  appId: number,
  ids: readonly number[],
  minutes: readonly number[],
): Promise<Correction[]> {
  const retention = await readRetention(tx, appId);
  const earlier = minutes.filter((at) => at < retention.whole());
  if (earlier.length === 0) return [];
  const rows = await tx<{ id: number; type: number; at: number; count: number }[]>`
    SELECT own.id, coalesce(field.type_id, part.type_id) AS type, (extract(epoch FROM bucket) * 1000)::float8 AS at,
           sum(count)::float8 AS count
      FROM field_series AS own
      JOIN declared_fields AS field ON field.id = own.field_id
      JOIN field_series AS part USING (field_id, value, by_value)
      JOIN field_minute_counts AS counts ON counts.series_id = part.id AND counts.app_id = ${appId}
       AND bucket = ANY(${earlier.map((at) => new Date(at).toISOString())}::timestamptz[])
     WHERE own.id = ANY(${[...ids]}::integer[])
       AND CASE WHEN own.type_id = ${ALL_TYPES} AND field.type_id IS NULL THEN part.type_id <> ${ALL_TYPES} ELSE part.id = own.id END
     GROUP BY 1, 2, 3`;
  return rows.filter(({ type, at }) => at < retention.boundaryOf(type));
}
