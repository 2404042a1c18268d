/** The counts of a scope, and the way down in them: from the coarser buckets to the finer ones that hold an event. */

import type { Interval, LevelInterval } from '../counts/intervals.ts';
import { ALL_TYPES, type Level } from '../counts/levels.ts';
import type { Snapshot } from '../counts/stale.ts';
import type { Fragment, Transaction } from '../database/connect.ts';
import { countsRelation } from '../fields/counts-relation.ts';
import type { PageRequest, Scope } from './page-request.ts';
import { withKeptPlan } from './snapshot.ts';

/** An interval, and how many of its events, in the order of the page, to skip. */
export interface SkipInterval extends Interval {
  readonly skip: number;
}

export interface CountedInterval extends LevelInterval {
  /** What is counted in it: where the retention of types differs, fewer types the older it is. */
  readonly scope: Scope;
  readonly count: number;
}

/** The interval that holds one event. @param skip how many events of the walk come before it */
export function intervalOf(
  walk: readonly CountedInterval[],
  skip: number,
): { readonly interval: CountedInterval; readonly skip: number } {
  let before = 0;
  for (const interval of walk) {
    if (skip - before < interval.count) return { interval, skip: skip - before };
    before += interval.count;
  }
  throw new Error(`There is no event ${skip} among ${before}.`);
}

/**
 * Goes from intervals of whole buckets down to the bucket in which the `skip` of each is passed, in one statement.
 * @param levels the coarsest first; the buckets of the last are returned
 */
export async function descend(
  tx: Snapshot,
  { scope, order }: Pick<PageRequest, 'scope' | 'order'>,
  levels: readonly Level[],
  intervals: readonly SkipInterval[],
): Promise<SkipInterval[]> {
  const direction = order === 'asc' ? tx`ASC` : tx`DESC`;
  const instants = (times: readonly number[]): string[] => times.map((time) => new Date(time).toISOString());
  const bounds = tx`
    bucket >= ${Math.min(...intervals.map((one) => one.from))} AND bucket < ${Math.max(...intervals.map((one) => one.until))}`;
  let found = tx`
    SELECT * FROM unnest(${instants(intervals.map(({ from }) => from))}::timestamptz[],
                         ${instants(intervals.map(({ until }) => until))}::timestamptz[],
                         ${intervals.map(({ skip }) => skip)}::numeric[]) WITH ORDINALITY AS whole (start, finish, skip, nth)`;
  for (const level of levels) {
    found = tx`
      SELECT below.*, nth
        FROM (${found}) above
       CROSS JOIN LATERAL (
              SELECT bucket AS start, bucket + ${level.ms} * interval '1 ms' AS finish, above.skip - (passed - here) AS skip
                FROM (SELECT bucket, sum(${countOf(tx, scope)}) AS here,
                             sum(sum(${countOf(tx, scope)})) OVER (ORDER BY bucket ${direction}) AS passed
                        FROM ${relationOf(tx, scope, level)}
                       WHERE ${countFilter(tx, scope)} AND ${bounds} AND bucket >= above.start AND bucket < above.finish
                       GROUP BY bucket) running
               WHERE passed > above.skip
               ORDER BY bucket ${direction}
               LIMIT 1) below`;
  }
  return await withKeptPlan(
    tx,
    tx<SkipInterval[]>`
      SELECT (extract(epoch FROM start) * 1000)::float8 AS from, (extract(epoch FROM finish) * 1000)::float8 AS until,
             skip::float8
        FROM (${found}) found ORDER BY nth`,
  );
}

export function hasExceptions({ exceptTypes = [], field }: Scope): boolean {
  return field === undefined && exceptTypes.length > 0;
}

export function relationOf(tx: Transaction, { appId, field }: Scope, { view }: Level): Fragment {
  return countsRelation(tx, view, field && { appId, corrections: field.corrections });
}

export function countFilter(tx: Transaction, scope: Scope): Fragment {
  const { appId, typeIds, field, exceptTypes = [] } = scope;
  if (field !== undefined) return tx`app_id = ${appId} AND type_id = ANY(${[...field.ids]})`;
  if (hasExceptions(scope))
    return tx`app_id = ${appId} AND type_id = ANY(${[ALL_TYPES, ...exceptTypes]}::integer[])`;
  return tx`app_id = ${appId} AND ${ofTypes(tx, typeIds ?? [ALL_TYPES])}`;
}

/** A condition on rows of `events`. */
export function rowsOf(tx: Transaction, scope: Scope): Fragment {
  const { appId, typeIds, exceptTypes = [] } = scope;
  if (typeIds !== null) return tx`app_id = ${appId} AND ${ofTypes(tx, typeIds)}`;
  if (hasExceptions(scope)) return tx`app_id = ${appId} AND type_id <> ALL(${[...exceptTypes]}::integer[])`;
  return tx`app_id = ${appId}`;
}

/** A condition on `type_id`: of one type by equality, by which an index keeps its order. */
export function ofTypes(tx: Transaction, typeIds: readonly number[]): Fragment {
  const [first] = typeIds;
  return typeIds.length === 1 && first !== undefined
    ? tx`type_id = ${first}`
    : tx`type_id = ANY(${[...typeIds]}::integer[])`;
}

/** What a row of {@link countFilter} adds: the types that are left out are subtracted from the count of all. */
export function countOf(tx: Transaction, scope: Scope): Fragment {
  return hasExceptions(scope) ? tx`CASE WHEN type_id = ${ALL_TYPES} THEN count ELSE -count END` : tx`count`;
}
