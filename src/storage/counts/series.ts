/** Time series for charts: counts per bucket and type, from the counts alone, all of it from one snapshot. */

import type { Sql, Transaction } from '../connect.ts';
import { countBefore, countBuckets } from './bucket-counts.ts';
import { type Buckets, bucketsOf, type Width } from './buckets.ts';
import { ALL_TYPES, LEVELS, refine, type StaleBucket } from './count-segments.ts';
import { countsIn, EVER, stretchesOf } from './exact-counts.ts';
import { readStaleBuckets } from './stale-buckets.ts';
import { topTypes } from './type-ranking.ts';

export interface SeriesRequest {
  /** Internal id of the app. */
  readonly appId: number;
  /** Internal ids; null: the types with the most events in the range. */
  readonly typeIds: readonly number[] | null;
  /** Milliseconds since 1970; null: from the first event. */
  readonly from: number | null;
  /** Behind the range. */
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
  /** Milliseconds since 1970. The first may be before the range asked for, as buckets are whole. */
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
  /** Before it only counts are kept, rows are gone (retention); null where the range begins behind it. */
  readonly countsOnlyBefore: number | null;
}

/** Lines that a chart tells apart by colour. */
const TOP_TYPES = 9;
const QUARTER_HOUR_MS = 900_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** @returns null where the range is too long for months */
export async function readSeries(sql: Sql, request: SeriesRequest): Promise<Series | null> {
  return await sql.begin('isolation level repeatable read read only', async (tx) => {
    const [readableFrom, stale] = await Promise.all([readBoundary(tx), readStaleBuckets(tx, EVER)]);
    const wanted = request.from ?? (await firstHour(tx, request.appId, stale)) ?? request.until - 1;
    const from = Math.min(wanted, request.until - 1);
    // Behind the retention edge counts are kept by the quarter-hour.
    const finestMs = from >= readableFrom ? 0 : QUARTER_HOUR_MS;
    const { timezone: zone, buckets: most, until } = request;
    const buckets = bucketsOf({ from, until }, { zone, most, finestMs });
    if (buckets === null) return null;
    const begin = buckets.starts[0] ?? from;
    const range = { from: begin, until: buckets.end };
    const chosen = request.typeIds ?? (await topTypes(tx, request.appId, range, TOP_TYPES, stale));
    const ids = request.typeIds === null ? [ALL_TYPES, ...chosen] : chosen;
    const [counts, before, names] = await Promise.all([
      countBuckets(tx, request.appId, ids, buckets, stale),
      countBefore(tx, request.appId, ids, begin, stale),
      nameTypes(tx, chosen),
    ]);
    return assemble(request, buckets, {
      chosen,
      counts,
      before,
      names,
      countsOnlyBefore: begin < readableFrom ? readableFrom : null,
    });
  });
}

/** Milliseconds since 1970 from which on rows are kept. */
async function readBoundary(tx: Transaction): Promise<number> {
  const [row] = await tx<{ readableFrom: number }[]>`
    SELECT (extract(epoch FROM greatest(readable_from, '1970-01-01')) * 1000)::float8 AS "readableFrom" FROM retention`;
  if (row === undefined) throw new Error('The table retention has lost its row.');
  return row.readableFrom;
}

/** The hour of the app's first event; null where it has none. */
async function firstHour(
  tx: Transaction,
  appId: number,
  stale: readonly StaleBucket[],
): Promise<number | null> {
  const [counted] = await tx<{ day: number | null }[]>`
    SELECT (extract(epoch FROM min(bucket)) * 1000)::float8 AS day FROM events_per_day
     WHERE app_id = ${appId} AND type_id = ${ALL_TYPES}`;
  const day = counted?.day ?? null;
  const [earliest, latest] = [stale[0]?.start, stale.at(-1)?.start].map((start) =>
    start === undefined ? null : Math.floor(start / DAY_MS) * DAY_MS,
  );
  const last = day ?? latest ?? null;
  if (last === null) return null;
  const [from, until] = [Math.min(earliest ?? last, last), last + DAY_MS];
  const level = LEVELS.find(({ ms }) => ms === HOUR_MS) ?? LEVELS[0];
  const scope = { apps: tx`${[appId]}::integer[]`, types: tx`${[ALL_TYPES]}::integer[]` };
  const [row] = await tx<{ first: number | null }[]>`
    SELECT (extract(epoch FROM min(bucket)) * 1000)::float8 AS first
      FROM (${countsIn(tx, scope, stretchesOf(refine({ level, from, until }, stale)))}) counts WHERE count > 0`;
  return row?.first == null ? null : Math.floor(row.first / HOUR_MS) * HOUR_MS;
}

async function nameTypes(
  tx: Transaction,
  ids: readonly number[],
): Promise<Map<number, { typeId: string; name: string }>> {
  const rows = await tx<{ id: number; typeId: string; name: string }[]>`
    SELECT id, public_id AS "typeId", name FROM event_types WHERE id = ANY(${[...ids]})`;
  return new Map(rows.map(({ id, typeId, name }) => [id, { typeId, name }]));
}

interface Parts {
  readonly chosen: readonly number[];
  readonly counts: ReadonlyMap<number, readonly number[]>;
  readonly before: ReadonlyMap<number, number>;
  readonly names: ReadonlyMap<number, { typeId: string; name: string }>;
  readonly countsOnlyBefore: number | null;
}

function assemble(request: SeriesRequest, { width, starts, end }: Buckets, parts: Parts): Series {
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
  const together = starts.map((_, place) => sum(types.map((type) => type.counts[place] ?? 0)));
  const hasChoice = request.typeIds !== null;
  const all = hasChoice ? together : (counts.get(ALL_TYPES) ?? together);
  const other = all.map((count, place) => count - (together[place] ?? 0));
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
