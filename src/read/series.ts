/** Time series for charts: counts per bucket and type, from the counts alone, all of it from one snapshot. */
import type { Sql, Transaction } from '../database/connect.ts';
import { type Buckets, bucketsOf, LADDER, type Width } from './buckets.ts';
import { LEVELS, type Level, segmentsOf } from './count-segments.ts';

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
const ALL_TYPES = 0;
const EARLIEST = Date.UTC(1970, 0, 1);
const QUARTER_HOUR_MS = 900_000;

/** @returns null where the range is too long for months */
export async function readSeries(sql: Sql, request: SeriesRequest): Promise<Series | null> {
  return await sql.begin('isolation level repeatable read read only', async (tx) => {
    const { readableFrom, firstDay } = await readEdges(tx, request.appId);
    const from = Math.min(request.from ?? firstDay ?? request.until - 1, request.until - 1);
    // Behind the retention edge counts are kept by the quarter-hour.
    const finest = LADDER.find(({ ms }) => from >= readableFrom || ms >= QUARTER_HOUR_MS) ?? LADDER[0];
    const { timezone: zone, buckets: most, until } = request;
    const buckets = bucketsOf({ from, until }, { zone, most, finest });
    if (buckets === null) return null;
    const begin = buckets.starts[0] ?? from;
    const chosen = request.typeIds ?? (await topTypes(tx, request.appId, buckets));
    const ids = request.typeIds === null ? [ALL_TYPES, ...chosen] : chosen;
    const [counts, before, names] = await Promise.all([
      countBuckets(tx, request.appId, ids, buckets),
      countBefore(tx, request.appId, ids, begin),
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

interface Edges {
  /** Milliseconds since 1970 from which on rows are kept. */
  readonly readableFrom: number;
  /** The first UTC day with an event. */
  readonly firstDay: number | null;
}

async function readEdges(tx: Transaction, appId: number): Promise<Edges> {
  const [row] = await tx<Edges[]>`
    SELECT (extract(epoch FROM greatest(readable_from, '1970-01-01')) * 1000)::float8 AS "readableFrom",
           (SELECT (extract(epoch FROM min(bucket)) * 1000)::float8
              FROM events_per_day WHERE app_id = ${appId} AND type_id = ${ALL_TYPES}) AS "firstDay"
      FROM retention`;
  if (row === undefined) throw new Error('The table retention has lost its row.');
  return row;
}

/** The coarsest counts of which every bucket is made of whole ones. */
function levelOf({ starts, end }: Buckets): Level {
  const fits = ({ ms }: Level): boolean => end % ms === 0 && starts.every((start) => start % ms === 0);
  return LEVELS.find(fits) ?? LEVELS[LEVELS.length - 1] ?? LEVELS[0];
}

async function topTypes(tx: Transaction, appId: number, buckets: Buckets): Promise<number[]> {
  const rows = await tx<{ id: number }[]>`
    SELECT type_id AS id FROM ${tx(levelOf(buckets).view)}
     WHERE app_id = ${appId} AND type_id <> ${ALL_TYPES}
       AND bucket >= ${buckets.starts[0] ?? 0} AND bucket < ${buckets.end}
     GROUP BY type_id ORDER BY sum(count) DESC, type_id LIMIT ${TOP_TYPES}`;
  return rows.map(({ id }) => id);
}

/** Type → a count for each bucket. */
async function countBuckets(
  tx: Transaction,
  appId: number,
  ids: readonly number[],
  buckets: Buckets,
): Promise<Map<number, number[]>> {
  const { starts, end } = buckets;
  const counts = new Map(ids.map((id) => [id, new Array<number>(starts.length).fill(0)]));
  const rows = await tx<{ id: number; place: number; count: number }[]>`
    SELECT type_id AS id, width_bucket(bucket, ${starts.map(toIso)}::timestamptz[]) - 1 AS place, sum(count)::float8 AS count
      FROM ${tx(levelOf(buckets).view)}
     WHERE app_id = ${appId} AND type_id = ANY(${[...ids]}) AND bucket >= ${starts[0] ?? 0} AND bucket < ${end}
     GROUP BY 1, 2`;
  for (const { id, place, count } of rows) {
    const column = counts.get(id);
    if (column !== undefined) column[place] = count;
  }
  return counts;
}

/** Type → the count of everything before an instant that is a whole minute. */
async function countBefore(
  tx: Transaction,
  appId: number,
  ids: readonly number[],
  until: number,
): Promise<Map<number, number>> {
  const parts = segmentsOf({ from: EARLIEST, until }).flatMap(({ level, from, until: end }) =>
    level === null
      ? []
      : [
          tx`SELECT type_id, count FROM ${tx(level.view)}
              WHERE app_id = ${appId} AND type_id = ANY(${[...ids]}) AND bucket >= ${from} AND bucket < ${end}`,
        ],
  );
  if (parts.length === 0) return new Map();
  const rows = await tx<{ id: number; count: number }[]>`
    SELECT type_id AS id, sum(count)::float8 AS count
      FROM (${parts.flatMap((part, i) => (i === 0 ? [part] : [tx` UNION ALL `, part]))}) parts
     GROUP BY type_id`;
  return new Map(rows.map(({ id, count }) => [id, count]));
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

function toIso(ms: number): string {
  return new Date(ms).toISOString();
}
