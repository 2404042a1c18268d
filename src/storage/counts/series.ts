/** The series of an app's types for a chart, with names and totals, from the counts alone and from one snapshot. */
import type { Sql, Transaction } from '../connect.ts';
import { readBoundary } from '../retention.ts';
import { readSnapshot } from '../snapshot.ts';
import { countBefore, countBuckets } from './bucket-counts.ts';
import { type Buckets, bucketsOf, type Width } from './buckets.ts';
import { countsIn, type Fragment, readStaleBuckets, scopeOf } from './exact-counts.ts';
import {
  ALL_TIME,
  coarseSourcesOf,
  type Interval,
  type SourceInterval,
  type StaleBucket,
  sourcesOf,
  startOfMonth,
  wholeBuckets,
  withoutStale,
} from './intervals.ts';
import { ALL_TYPES, DAY_MS, DAYS, floorTo, HOUR_MS, HOURS, LEVELS, QUARTER_HOUR_MS } from './levels.ts';

export interface SeriesRequest {
  /** Internal id of the app. */
  readonly appId: number;
  /** Internal ids; null: the types with the most events in the interval. */
  readonly typeIds: readonly number[] | null;
  /** Milliseconds since 1970; null: from the first event. */
  readonly from: number | null;
  /** The end of the interval, not included. */
  readonly until: number;
  readonly timezone: string;
  /** Most buckets. */
  readonly buckets: number;
}

export interface TypeSeries {
  readonly typeId: string;
  readonly name: string;
  readonly counts: readonly number[];
  readonly total: number;
}

/** Columns: every array of counts has one number per start. */
export interface Series {
  readonly bucket: Width['name'];
  readonly timezone: string;
  /** Milliseconds since 1970. The first may be before the interval asked for, as buckets are whole. */
  readonly starts: readonly number[];
  readonly end: number;
  /** Those with the most events first. */
  readonly types: readonly TypeSeries[];
  /** All types asked for together; without a choice, all types of the app. */
  readonly all: readonly number[];
  /** What `all` has beyond `types`; null where there is nothing beyond. */
  readonly other: readonly number[] | null;
  /** Counts of everything before the first bucket, for accumulated lines. */
  readonly before: { readonly all: number; readonly byType: Readonly<Record<string, number>> };
  /** The retention boundary: before it only counts are kept. Null where the series begins after it. */
  readonly countsOnlyBefore: number | null;
}

/** Lines that a chart tells apart by color. */
const TOP_TYPES = 9;

/** @returns null where the interval is too long for months */
export async function readSeries(sql: Sql, request: SeriesRequest): Promise<Series | null> {
  return await readSnapshot(sql, async (tx) => {
    const [boundary, stale] = await Promise.all([readBoundary(tx), readStaleBuckets(tx, ALL_TIME)]);
    const wanted = request.from ?? (await firstHour(tx, request.appId, stale)) ?? request.until - 1;
    const from = Math.min(wanted, request.until - 1);
    // Before the retention boundary counts are kept by the quarter-hour.
    const finestMs = from >= boundary ? 0 : QUARTER_HOUR_MS;
    const { timezone: zone, buckets: most, until } = request;
    const buckets = bucketsOf({ from, until }, { zone, most, finestMs });
    if (buckets === null) return null;
    const begin = buckets.starts[0] ?? from;
    const interval = { from: begin, until: buckets.end };
    const chosen = request.typeIds ?? (await topTypes(tx, request.appId, interval, TOP_TYPES, stale));
    const ids = request.typeIds === null ? [ALL_TYPES, ...chosen] : chosen;
    const [counts, before, names] = await Promise.all([
      countBuckets(tx, request.appId, ids, buckets, stale),
      countBefore(tx, request.appId, ids, begin, stale),
      nameTypes(tx, chosen),
    ]);
    const countsOnlyBefore = begin < boundary ? boundary : null;
    return assemble(request, buckets, { chosen, counts, before, names, countsOnlyBefore });
  });
}

/** The hour of the app's first event; null where it has none. */
async function firstHour(
  tx: Transaction,
  appId: number,
  stale: readonly StaleBucket[],
): Promise<number | null> {
  const [counted] = await tx<{ day: number | null }[]>`
    SELECT (extract(epoch FROM min(bucket)) * 1000)::float8 AS day FROM ${tx(DAYS.view)}
     WHERE app_id = ${appId} AND type_id = ${ALL_TYPES}`;
  const [earliest, latest] = [stale[0]?.start, stale.at(-1)?.start].map((start) =>
    start === undefined ? null : floorTo(start, DAY_MS),
  );
  const last = counted?.day ?? latest ?? null;
  if (last === null) return null;
  const days = { from: Math.min(earliest ?? last, last), until: last + DAY_MS };
  const sources = sourcesOf(withoutStale([{ level: HOURS, ...days }], stale));
  const [row] = await tx<{ first: number | null }[]>`
    SELECT (extract(epoch FROM min(bucket)) * 1000)::float8 AS first
      FROM (${countsIn(tx, scopeOf(tx, appId, [ALL_TYPES]), sources)}) counts WHERE count > 0`;
  return row?.first == null ? null : floorTo(row.first, HOUR_MS);
}

/** Types that may become one of the top types of a long interval. */
const CANDIDATES = 16;
/** Most buckets of a type to rank by: 16,000 rows of a thousand types, 8 ms. */
const MOST_RANKED_BUCKETS = 16;

/**
 * The types with the most events, most first, as internal ids.
 *
 * An app with a thousand types has 365,000 counts by day in a year, too many to rank by. So long intervals are ranked in
 * two steps: the months that the interval touches give {@link CANDIDATES}, which are then ranked by the whole months and
 * days that it touches. Short intervals are ranked by the buckets that they touch. The ranking is approximate where an
 * interval begins or ends within a month (which types become candidates) or a bucket; the counts of the chosen types are
 * exact.
 */
async function topTypes(
  tx: Transaction,
  appId: number,
  interval: Interval,
  most: number,
  stale: readonly StaleBucket[],
): Promise<number[]> {
  const rank = async (
    types: Fragment,
    sources: readonly SourceInterval[],
    limit: number,
  ): Promise<number[]> => {
    const rows = await tx<{ id: number }[]>`
      SELECT type_id AS id FROM (${countsIn(tx, { apps: tx`${[appId]}::integer[]`, types }, sources)}) counts
       GROUP BY type_id ORDER BY sum(count) DESC, type_id LIMIT ${limit}`;
    return rows.map(({ id }) => id);
  };
  // An array, so that the index finds each type's few rows; PostgreSQL before 18 would read all of the app's.
  const every = tx`ARRAY(SELECT id FROM event_types WHERE app_id = ${appId})`;
  const level = LEVELS.find(({ ms }) => interval.until - interval.from <= MOST_RANKED_BUCKETS * ms);
  if (level !== undefined) {
    const sources = sourcesOf(withoutStale([{ level, ...wholeBuckets(interval, level.ms) }], stale));
    return await rank(every, sources, most);
  }
  const months = { from: startOfMonth(interval.from), until: startOfMonth(interval.until - 1, 1) };
  const candidates = await rank(every, coarseSourcesOf(months, stale), CANDIDATES);
  if (candidates.length < 2) return candidates;
  const days = coarseSourcesOf(wholeBuckets(interval, DAY_MS), stale);
  return await rank(tx`${candidates}::integer[]`, days, most);
}

async function nameTypes(
  tx: Transaction,
  ids: readonly number[],
): Promise<Map<number, { typeId: string; name: string }>> {
  const rows = await tx<{ id: number; typeId: string; name: string }[]>`
    SELECT id, public_id AS "typeId", name FROM event_types WHERE id = ANY(${[...ids]})`;
  return new Map(rows.map(({ id, typeId, name }) => [id, { typeId, name }]));
}

interface SeriesParts {
  readonly chosen: readonly number[];
  readonly counts: ReadonlyMap<number, readonly number[]>;
  readonly before: ReadonlyMap<number, number>;
  readonly names: ReadonlyMap<number, { typeId: string; name: string }>;
  readonly countsOnlyBefore: number | null;
}

function assemble(request: SeriesRequest, { width, starts, end }: Buckets, parts: SeriesParts): Series {
  const { chosen, counts, before, names } = parts;
  const byType: Record<string, number> = {};
  const types = chosen.flatMap((id): TypeSeries[] => {
    const type = names.get(id);
    const column = counts.get(id);
    if (type === undefined || column === undefined) return [];
    byType[type.typeId] = before.get(id) ?? 0;
    return [{ ...type, counts: column, total: sum(column) }];
  });
  types.sort((a, b) => b.total - a.total);
  const together = starts.map((_, index) => sum(types.map((type) => type.counts[index] ?? 0)));
  const hasChoice = request.typeIds !== null;
  const all = hasChoice ? together : (counts.get(ALL_TYPES) ?? together);
  const other = all.map((count, index) => count - (together[index] ?? 0));
  return {
    bucket: width.name,
    timezone: request.timezone,
    starts,
    end,
    types,
    all,
    other: other.some((count) => count > 0) ? other : null,
    before: { all: hasChoice ? sum(Object.values(byType)) : (before.get(ALL_TYPES) ?? 0), byType },
    countsOnlyBefore: parts.countsOnlyBefore,
  };
}

function sum(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}
