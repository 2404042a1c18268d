/**
 * Counts that are exact in a snapshot, as SELECTs to add up: whole months where nothing is stale, else what
 * count-segments.ts cuts a range into, down to single rows.
 */
import type postgres from 'postgres';
import type { Transaction } from '../connect.ts';
import {
  ALL_TYPES,
  exactSegmentsOf,
  MAX_SEGMENTS,
  type Range,
  type Segment,
  type StaleBucket,
} from './count-segments.ts';

export type Fragment = postgres.PendingQuery<postgres.Row[]>;

/** All of time that counts are kept for. */
export const EVER: Range = { from: Date.UTC(1970, 0, 1), until: Date.UTC(9000, 0, 1) };

/** A stretch to be read from one relation of counts, or (null) from rows. */
export interface Stretch extends Range {
  readonly view: string | null;
}

/** Whose counts: arrays of internal ids in SQL. Of types 0 is all of them together. */
export interface CountScope {
  readonly apps: Fragment;
  readonly types: Fragment;
}

export function stretchesOf(segments: readonly Segment[]): Stretch[] {
  return segments.map(({ level, from, until }) => ({ view: level?.view ?? null, from, until }));
}

/** A range from as few counts as there are: whole months by the month, where none of their buckets is stale. */
export function coarseStretchesOf(range: Range, stale: readonly StaleBucket[]): Stretch[] {
  const months = { from: monthOf(range.from - 1, 1), until: monthOf(range.until, 0) };
  const exact = (part: Range): Stretch[] => stretchesOf(exactSegmentsOf(part, stale));
  if (months.from >= months.until) return exact(range);
  const stretches = exact({ from: range.from, until: months.from });
  const within = stale.filter(({ start }) => start >= months.from && start < months.until);
  const staleMonths = [...new Set(within.map(({ start }) => monthOf(start, 0)))].sort((a, b) => a - b);
  let from = months.from;
  for (const start of staleMonths) {
    const until = monthOf(start, 1);
    stretches.push({ view: 'events_per_month', from, until: start }, ...exact({ from: start, until }));
    from = until;
  }
  stretches.push({ view: 'events_per_month', from, until: months.until });
  stretches.push(...exact({ from: months.until, until: range.until }));
  return stretches.length > MAX_SEGMENTS ? exact(range) : stretches.filter((one) => one.from < one.until);
}

/** The start of the month (UTC) that holds an instant, or of a later one. */
export function monthOf(instant: number, later: number): number {
  const date = new Date(instant);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + later);
}

/**
 * A SELECT of `app_id, type_id, bucket, count`; of rows `bucket` is their time. Each relation comes once, with the ends
 * of its stretches as literal bounds, so that chunks and partitions outside of them are not even planned.
 */
export function countsIn(tx: Transaction, scope: CountScope, stretches: readonly Stretch[]): Fragment {
  const views = [...new Set(stretches.map(({ view }) => view))];
  if (views.length === 0) {
    return tx`SELECT 0 AS app_id, 0 AS type_id, now() AS bucket, 0::bigint AS count WHERE false`;
  }
  return joined(
    tx,
    views.map((view) =>
      countsFrom(
        tx,
        scope,
        view,
        stretches.filter((one) => one.view === view),
      ),
    ),
  );
}

function countsFrom(
  tx: Transaction,
  { apps, types }: CountScope,
  view: string | null,
  stretches: readonly Stretch[],
): Fragment {
  const from = stretches[0]?.from ?? 0;
  const until = stretches.at(-1)?.until ?? 0;
  const within = (time: Fragment): Fragment => {
    const bounds = tx`${time} >= ${from} AND ${time} < ${until}`;
    if (stretches.length === 1) return bounds;
    return tx`${bounds} AND ${time} >= to_timestamp(first) AND ${time} < to_timestamp(past)`;
  };
  const counts =
    view === null
      ? tx`SELECT app_id, kind AS type_id, created_at AS bucket, 1::bigint AS count
             FROM events CROSS JOIN LATERAL (VALUES (type_id), (${ALL_TYPES})) AS kinds (kind)
            WHERE app_id = ANY(${apps}) AND kind = ANY(${types}) AND ${within(tx`created_at`)}`
      : tx`SELECT app_id, type_id, bucket, count FROM ${tx(view)}
            WHERE app_id = ANY(${apps}) AND type_id = ANY(${types}) AND ${within(tx`bucket`)}`;
  if (stretches.length === 1) return counts;
  return tx`
    SELECT counted.*
      FROM unnest(${stretches.map((one) => one.from / 1_000)}::float8[],
                  ${stretches.map((one) => one.until / 1_000)}::float8[]) AS stretch (first, past)
     CROSS JOIN LATERAL (${counts}) counted`;
}

function joined(tx: Transaction, parts: readonly Fragment[]): Fragment {
  return tx`${parts.flatMap((part, i) => (i === 0 ? [part] : [tx` UNION ALL `, part]))}`;
}
