/** SELECTs of counts over the sources of intervals. */
import type postgres from 'postgres';
import type { Fragment, Transaction } from '../database/connect.ts';
import { countsRelation, type FieldCounts, rowCounts } from '../fields/counts-relation.ts';
import { withKeptPlan } from '../read/snapshot.ts';
import type { Interval, SourceInterval } from './intervals.ts';
import { ALL_TYPES } from './levels.ts';
import type { Snapshot } from './stale.ts';

/** Whose counts: arrays of internal ids in SQL. {@link ALL_TYPES} is the sum of an app's types. */
export interface CountScope {
  readonly apps: Fragment;
  readonly types: Fragment;
  /** Counts of values of a declared field: then `types` are series. */
  readonly field?: FieldCounts | undefined;
}

/** The scope of one app. */
export function scopeOf(
  tx: Transaction,
  appId: number,
  typeIds: readonly number[],
  field?: FieldCounts,
): CountScope {
  return { apps: tx`${[appId]}::integer[]`, types: tx`${[...typeIds]}::integer[]`, field };
}

/**
 * A SELECT of `app_id, type_id, bucket, count`; for rows, `bucket` is their time. Each relation appears once, with the
 * outer bounds of its intervals, so that chunks and partitions outside of them are not even planned ({@link readSources}).
 */
export function countsIn(tx: Snapshot, scope: CountScope, intervals: readonly SourceInterval[]): Fragment {
  const views = [...new Set(intervals.map(({ view }) => view))];
  if (views.length === 0) {
    return tx`SELECT 0 AS app_id, 0 AS type_id, now() AS bucket, 0::bigint AS count WHERE false`;
  }
  const selects = views.map((view) =>
    countsFrom(
      tx,
      scope,
      view,
      intervals.filter((one) => one.view === view),
    ),
  );
  return tx`${selects.flatMap((select, i) => (i === 0 ? [select] : [tx` UNION ALL `, select]))}`;
}

/** Runs a statement that reads sources, by {@link countsIn}. Rows are in partitions; all others keep their plans. */
export async function readSources<T extends postgres.Row[]>(
  tx: Snapshot,
  sources: readonly SourceInterval[],
  statement: postgres.PendingQuery<T>,
): Promise<T> {
  return sources.some(({ view }) => view === null) ? await statement : await withKeptPlan(tx, statement);
}

function countsFrom(
  tx: Snapshot,
  { apps, types, field }: CountScope,
  view: string | null,
  intervals: readonly Interval[],
): Fragment {
  const from = intervals[0]?.from ?? 0;
  const until = intervals.at(-1)?.until ?? 0;
  const within = (time: Fragment): Fragment => {
    const bounds = tx`${time} >= ${from} AND ${time} < ${until}`;
    if (intervals.length === 1) return bounds;
    return tx`${bounds} AND ${time} >= to_timestamp(start) AND ${time} < to_timestamp(finish)`;
  };
  const ofRows =
    field !== undefined
      ? tx`SELECT app_id, type_id, bucket, count FROM ${rowCounts(tx, field)}
            WHERE type_id = ANY(${types}) AND ${within(tx`bucket`)}`
      : tx`SELECT app_id, kind AS type_id, created_at AS bucket, 1::bigint AS count
             FROM events CROSS JOIN LATERAL (VALUES (type_id), (${ALL_TYPES})) AS kinds (kind)
            WHERE app_id = ANY(${apps}) AND kind = ANY(${types}) AND ${within(tx`created_at`)}
            UNION ALL
           SELECT app_id, type_id, bucket, count FROM outlived_counts
            WHERE app_id = ANY(${apps}) AND type_id = ANY(${types}) AND ${within(tx`bucket`)}`;
  const counts =
    view === null
      ? ofRows
      : tx`SELECT app_id, type_id, bucket, count FROM ${countsRelation(tx, view, field)}
            WHERE app_id = ANY(${apps}) AND type_id = ANY(${types}) AND ${within(tx`bucket`)}`;
  if (intervals.length === 1) return counts;
  // Without OFFSET 0 everything between the intervals may be read for each of them.
  const each = field !== undefined || tx.stale.countsAreExact ? tx`OFFSET 0` : tx``;
  return tx`
    SELECT counted.*
      FROM unnest(${intervals.map((one) => one.from / 1_000)}::float8[],
                  ${intervals.map((one) => one.until / 1_000)}::float8[]) AS part (start, finish)
     CROSS JOIN LATERAL (${counts} ${each}) counted`;
}
