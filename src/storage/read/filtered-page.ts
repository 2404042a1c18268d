/**
 * The rows of a page of events that pass a filter. The counts of a declared field have told in which minutes the page lies; where it
 * is spread over many, one statement gives those that have some of its events, and another one reads the rows that may match in them.
 */

import type { Interval } from '../counts/intervals.ts';
import { floorTo, MINUTE_MS, MINUTES } from '../counts/levels.ts';
import type { Snapshot } from '../counts/stale.ts';
import type { Sql, Transaction } from '../database/connect.ts';
import type { FieldScope } from '../fields/field-scope.ts';
import { type MatchingRow, matchingRows } from '../fields/matching-rows.ts';
import { joinMinutes } from '../fields/uncounted-minutes.ts';
import type { CopiedRows } from './copied-rows.ts';
import { countFilter, relationOf, type SkipInterval } from './count-descent.ts';
import type { PageRequest, Scope, StoredEvent } from './page-request.ts';
import { inOrderOf } from './positions.ts';

/**
 * A page with fewer events than one in this many minutes is read minute by minute. One with more is faster read as a
 * whole, with the rows of other types: in the columnstore each lookup decompresses a batch of rows.
 */
const SPARSE_MINUTES = 2;

/** Whether the events of a page are far apart in the interval that holds them. */
export function isSpread({ from, until }: Interval, events: number): boolean {
  return until - from > SPARSE_MINUTES * (events + 1) * MINUTE_MS;
}

export interface FilteredPageRequest extends PageRequest {
  readonly field: FieldScope;
}

/**
 * Reads the rows of a page. Those before it are looked at, too, but no further than its first minute.
 * @param found the minutes from the first to the last event of the page
 * @param size  how many events the page has, at least 1
 */
export async function readFilteredRows(
  tx: Snapshot,
  request: FilteredPageRequest,
  found: SkipInterval,
  size: number,
): Promise<StoredEvent[]> {
  const { scope, field, order, maxBytes } = request;
  const intervals = isSpread(found, size) ? await minutesWith(tx, request, found) : [found];
  const page: MatchingRow[] = [];
  let left = found.skip;
  let bytes = 0;
  for await (const rows of matchingRows(tx, { ...field, appId: scope.appId }, intervals, order)) {
    for (const row of rows.slice(left)) {
      bytes += Buffer.byteLength(row.payload);
      if (page.length > 0 && bytes > maxBytes) return await withTypes(tx, scope.appId, page);
      page.push(row);
      if (page.length === size) return await withTypes(tx, scope.appId, page);
    }
    left = Math.max(0, left - rows.length);
  }
  return await withTypes(tx, scope.appId, page);
}

/** The parts of an interval with minutes that hold events of a scope, in the order of the page. */
async function minutesWith(
  tx: Snapshot,
  { scope, order }: PageRequest,
  { from, until }: Interval,
): Promise<readonly Interval[]> {
  const minutes = await tx<{ at: number }[]>`
    SELECT (extract(epoch FROM bucket) * 1000)::float8 AS at FROM ${relationOf(tx, scope, MINUTES)}
     WHERE ${countFilter(tx, scope)} AND bucket >= ${floorTo(from, MINUTE_MS)} AND bucket < ${until}
     GROUP BY bucket HAVING sum(count) > 0 ORDER BY bucket`;
  const whole = joinMinutes(minutes.map(({ at }) => at));
  const cut = whole.map((one) => ({ from: Math.max(one.from, from), until: Math.min(one.until, until) }));
  return inOrderOf(cut, order);
}

/** Counts the rows of an interval that a filter passes. */
export async function countMatchingRows(
  tx: Snapshot,
  { appId }: Scope,
  field: FieldScope,
  interval: Interval,
): Promise<number> {
  let count = 0;
  for await (const rows of matchingRows(tx, { ...field, appId }, [interval], 'asc')) count += rows.length;
  return count;
}

/** @returns types of an app by their internal ids, as many as there are, in one statement */
async function typesOf(
  sql: Sql | Transaction,
  appId: number,
  ids: ReadonlySet<number>,
): Promise<ReadonlyMap<number, { readonly publicId: string; readonly name: string }>> {
  if (ids.size === 0) return new Map();
  const types = await sql<{ id: number; publicId: string; name: string }[]>`
    SELECT id, public_id AS "publicId", name FROM type_names WHERE app_id = ${appId} AND id = ANY(${[...ids]}::integer[])`;
  return new Map(types.map(({ id, ...type }) => [id, type]));
}

/** The types of rows with payloads that are not known yet, as {@link typesOf}. */
export async function newTypesOf(
  sql: Sql | Transaction,
  appId: number,
  rows: CopiedRows,
  known: ReadonlyMap<number, unknown>,
): ReturnType<typeof typesOf> {
  const missing = new Set<number>();
  rows.rewind();
  while (rows.next()) if (rows.hasPayload && !known.has(rows.typeId)) missing.add(rows.typeId);
  return await typesOf(sql, appId, missing);
}

/** Gives rows the public ids of their types. */
export async function withTypes(
  sql: Sql | Transaction,
  appId: number,
  rows: readonly MatchingRow[],
): Promise<StoredEvent[]> {
  const types = await typesOf(sql, appId, new Set(rows.map(({ typeId }) => typeId)));
  return rows.map(({ id, typeId, at, payload }) => ({
    id,
    typeId: types.get(typeId)?.publicId ?? '',
    createdAt: new Date(at),
    payload,
  }));
}
