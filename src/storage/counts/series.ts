/** The series of an app's types for a chart, with names and totals, from the counts alone and from one snapshot. */
import { sum } from '../../base/sum.ts';
import type { Fragment, Sql } from '../database/connect.ts';
import { readCounts, withKeptPlan } from '../read/snapshot.ts';
import { readRetention } from '../retention.ts';
import { type Counting, countBefore, countBuckets, countInterval } from './bucket-counts.ts';
import {
  type Buckets,
  type BucketsProblem,
  bucketsFrom,
  bucketsOf,
  bucketsOfWidth,
  type Width,
  type WidthName,
} from './buckets.ts';
import { type CountScope, countsIn, readSources, scopeOf } from './count-sql.ts';
import { ALL_TIME, type Interval, type SourceInterval, startOfMonth, wholeBuckets } from './intervals.ts';
import {
  ALL_TYPES,
  ceilTo,
  DAY_MS,
  DAYS,
  floorTo,
  HOUR_MS,
  HOURS,
  LEVELS,
  QUARTER_HOUR_MS,
} from './levels.ts';
import { coarseSources, exactSources, type Snapshot, staleSpan } from './stale.ts';

export interface SeriesRequest {
  readonly appId: number;
  /** Internal ids; null: the types with the most events in the interval. */
  readonly typeIds: readonly number[] | null;
  /** Internal ids of types that are left out of everything; only without a choice of types. */
  readonly exceptTypes?: readonly number[];
  /** Milliseconds since 1970; null: from the first event. */
  readonly from: number | null;
  /** The end of the interval, not included. */
  readonly until: number;
  readonly timezone: string;
  /** Most buckets, of a width that is chosen so; or the width; or the finest one of which there are not too many, from one on. */
  readonly buckets: number | WidthName | { readonly from: WidthName };
  /**
   * Which end is exact: the bucket there counts only events of the interval. By default the first and the last bucket are
   * whole. Before the retention boundary, where only counts are kept, an exact end grows to a whole quarter-hour.
   */
  readonly exactEnds?: 'start' | 'both';
  /** Without a choice of types, how many of those with the most events to show apart; by default those of a chart. */
  readonly topTypes?: number;
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
  /** The interval whose events are counted: with whole ends that of the buckets. */
  readonly interval: Interval;
  /** The types with the most events come first. */
  readonly types: readonly TypeSeries[];
  /** All types asked for together; without a choice, all types of the app. */
  readonly all: readonly number[];
  /** Counts of `all` without those of `types`; null if there are no others. */
  readonly other: readonly number[] | null;
  /** Counts of everything before the interval, for accumulated lines. */
  readonly before: { readonly all: number; readonly byType: Readonly<Record<string, number>> };
  /** The retention boundary: before it only counts are kept. Null where the series begins after it. */
  readonly countsOnlyBefore: number | null;
}

/** Lines that a chart can distinguish by color. */
const TOP_TYPES = 9;

/** @returns the problem if there would be too many buckets, or finer ones than are kept */
export async function readSeries(sql: Sql, request: SeriesRequest): Promise<Series | BucketsProblem> {
  return await readCounts(sql, request.appId, async (tx) => {
    const plan = await planSeries(tx, request);
    if (typeof plan === 'string') return plan;
    const { appId, exceptTypes = [] } = request;
    const chosen = request.typeIds ?? (await topTypes(tx, request, plan));
    const ids = request.typeIds === null ? [ALL_TYPES, ...chosen, ...exceptTypes] : chosen;
    const [counted, names] = await Promise.all([
      countSeries(tx, { appId, ids }, plan),
      nameTypes(tx, appId, chosen),
    ]);
    return assemble(request, plan, { chosen, names, ...counted });
  });
}

/** The columns of a series that has not been counted yet. */
export type SeriesFrame = Pick<
  Series,
  'bucket' | 'timezone' | 'starts' | 'end' | 'interval' | 'countsOnlyBefore'
>;

/** The buckets that a series would have. @returns the problem as {@link readSeries} */
export async function readFrame(sql: Sql, request: SeriesRequest): Promise<SeriesFrame | BucketsProblem> {
  return await readCounts(sql, request.appId, async (tx) => {
    const plan = await planSeries(tx, request);
    return typeof plan === 'string' ? plan : frameOf(request, plan);
  });
}

/** What a plan says of every series that is made by it. */
export function frameOf(
  { timezone }: Pick<SeriesRequest, 'timezone'>,
  { buckets: { width, starts, end }, interval, countsOnlyBefore }: SeriesPlan,
): SeriesFrame {
  return { bucket: width.name, timezone, starts, end, interval, countsOnlyBefore };
}

/** Which buckets a series has, and what else is the same for all of its lines. */
export interface SeriesPlan {
  readonly buckets: Buckets;
  /** From the start of the first bucket to the end of the last one. */
  readonly whole: Interval;
  /** The interval whose events are counted. */
  readonly interval: Interval;
  /** The retention boundary if the series begins before it. */
  readonly countsOnlyBefore: number | null;
  /** The end of the last day whose rows are in the archive alone; 0: there is none. */
  readonly archivedUntil: number;
}

/** Plans a series in the snapshot of a transaction. */
export async function planSeries(tx: Snapshot, request: SeriesRequest): Promise<SeriesPlan | BucketsProblem> {
  // Looked for once, whatever the parts of the series ask for.
  const [retention] = await Promise.all([readRetention(tx, request.appId), tx.stale.within(ALL_TIME)]);
  const boundary = retention.whole(request);
  const fineFrom = Math.max(boundary, tx.stale.minutesOutliveRows ? 0 : retention.archivedUntil);
  const wanted = request.from ?? (await firstHour(tx, request.appId)) ?? request.until - 1;
  const asked = { from: Math.min(wanted, request.until - 1), until: request.until };
  const buckets = chooseBuckets(request, asked, fineFrom);
  if (typeof buckets === 'string') return buckets;
  const whole = { from: buckets.starts[0] ?? asked.from, until: buckets.end };
  const interval = countedInterval(request, { asked, whole }, fineFrom);
  const countsOnlyBefore = whole.from < boundary ? boundary : null;
  return { buckets, whole, interval, countsOnlyBefore, archivedUntil: retention.archivedUntil };
}

/** Type or series → its events in each bucket, and all before. */
export interface CountedSeries {
  readonly counts: ReadonlyMap<number, readonly number[]>;
  readonly before: ReadonlyMap<number, number>;
}

/** Counts the events of each bucket, once for all charts of a snapshot that have the same buckets: each type, and the same series of a field. */
export async function countSeries(
  tx: Snapshot,
  counting: Counting,
  plan: SeriesPlan,
): Promise<CountedSeries> {
  const { appId, ids, field } = counting;
  const { buckets, interval } = plan;
  const key = `counts ${appId} ${buckets.width.name} ${buckets.starts} ${buckets.end} ${interval.from} ${interval.until}`;
  if (field !== undefined)
    return await tx.once.get(`${key} ${ids} ${JSON.stringify(field)}`, () =>
      readSeriesCounts(tx, counting, plan),
    );
  return await tx.once
    .get(key, () => new SharedCounts((wanted) => readSeriesCounts(tx, { appId, ids: wanted }, plan)))
    .of(ids);
}

/** Counts that are read once for each type, and together for those who ask in the same turn of the event loop. */
class SharedCounts {
  readonly #read: (ids: readonly number[]) => Promise<CountedSeries>;
  readonly #known = new Map<number, Promise<CountedSeries>>();
  #next: { readonly ids: number[]; readonly counted: Promise<CountedSeries> } | null = null;

  constructor(read: (ids: readonly number[]) => Promise<CountedSeries>) {
    this.#read = read;
  }

  async of(ids: readonly number[]): Promise<CountedSeries> {
    for (const id of ids) {
      if (this.#known.has(id)) continue;
      this.#next ??= this.#gather();
      this.#next.ids.push(id);
      this.#known.set(id, this.#next.counted);
    }
    const parts = await Promise.all(ids.map((id) => this.#known.get(id)));
    return {
      counts: new Map(ids.map((id, index) => [id, parts[index]?.counts.get(id) ?? []])),
      before: new Map(ids.map((id, index) => [id, parts[index]?.before.get(id) ?? 0])),
    };
  }

  #gather(): { readonly ids: number[]; readonly counted: Promise<CountedSeries> } {
    const ids: number[] = [];
    const counted = new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
      this.#next = null;
      return this.#read(ids);
    });
    return { ids, counted };
  }
}

async function readSeriesCounts(
  tx: Snapshot,
  counting: Counting,
  { buckets, whole, interval, archivedUntil }: SeriesPlan,
): Promise<CountedSeries> {
  const [counts, before, head, tail] = await Promise.all([
    countBuckets(tx, counting, buckets),
    countBefore(tx, counting, whole.from),
    countInterval(tx, counting, { from: whole.from, until: interval.from }, archivedUntil),
    countInterval(tx, counting, { from: interval.until, until: whole.until }, archivedUntil),
  ]);
  const { ids } = counting;
  return {
    counts: new Map(ids.map((id) => [id, clip(counts.get(id) ?? [], head.get(id), tail.get(id))])),
    before: new Map(ids.map((id) => [id, (before.get(id) ?? 0) + (head.get(id) ?? 0)])),
  };
}

function chooseBuckets(
  { buckets, timezone: zone }: SeriesRequest,
  interval: Interval,
  fineFrom: number,
): Buckets | BucketsProblem {
  // Where rows have left, counts are kept by the quarter-hour.
  const finestMs = interval.from >= fineFrom ? 0 : QUARTER_HOUR_MS;
  if (typeof buckets === 'string') return bucketsOfWidth(interval, buckets, { zone, finestMs });
  const chosen =
    typeof buckets === 'number'
      ? bucketsOf(interval, { zone, most: buckets, finestMs })
      : bucketsFrom(interval, buckets.from, { zone, finestMs });
  return chosen ?? 'too many';
}

/** An end before the time from which finer counts and rows are kept is moved outward to a quarter-hour. */
function countedInterval(
  { exactEnds }: SeriesRequest,
  { asked, whole }: { readonly asked: Interval; readonly whole: Interval },
  fineFrom: number,
): Interval {
  if (exactEnds === undefined) return whole;
  const { from, until } = asked;
  return {
    from: from < fineFrom ? floorTo(from, QUARTER_HOUR_MS) : from,
    until: exactEnds === 'start' ? whole.until : until < fineFrom ? ceilTo(until, QUARTER_HOUR_MS) : until,
  };
}

/** Counts of buckets without what their first one has before the interval, and their last one after it. */
function clip(counts: readonly number[], head = 0, tail = 0): number[] {
  const clipped = [...counts];
  clipped[0] = (clipped[0] ?? 0) - head;
  const last = clipped.length - 1;
  clipped[last] = (clipped[last] ?? 0) - tail;
  return clipped;
}

/** The hour of the app's first event; null if it has none. */
async function firstHour(tx: Snapshot, appId: number): Promise<number | null> {
  const [counted] = await withKeptPlan(
    tx,
    tx<{ day: number | null }[]>`
      SELECT (extract(epoch FROM min(bucket)) * 1000)::float8 AS day FROM ${tx(DAYS.view)}
       WHERE app_id = ${appId} AND type_id = ${ALL_TYPES}`,
  );
  const stale = await staleSpan(tx);
  const last = counted?.day ?? (stale && floorTo(stale.until, DAY_MS));
  if (last === null) return null;
  const days = { from: Math.min(floorTo(stale?.from ?? last, DAY_MS), last), until: last + DAY_MS };
  const sources = await exactSources(tx, [{ level: HOURS, ...days }]);
  const [row] = await readSources(
    tx,
    sources,
    tx<{ first: number | null }[]>`
      SELECT (extract(epoch FROM min(bucket)) * 1000)::float8 AS first
        FROM (${countsIn(tx, scopeOf(tx, appId, [ALL_TYPES]), sources)}) counts WHERE count > 0`,
  );
  return row?.first == null ? null : floorTo(row.first, HOUR_MS);
}

/** Types that may become one of the top types of a long interval. */
const CANDIDATES = 16;
/** Most buckets of a type to rank by: hours of a day, which is 24,000 rows of a thousand types. */
const MOST_RANKED_BUCKETS = 25;

/**
 * The types with the most events, most first, as internal ids.
 *
 * An app with a thousand types has 365,000 counts by day in a year, too many to rank by. So long intervals are ranked in
 * two steps: the months that the interval touches give {@link CANDIDATES}, which are then ranked by the whole months and
 * days that it touches. Short intervals are ranked by the buckets that they touch. The ranking is approximate where an
 * interval begins or ends within a month (which types become candidates) or a bucket; the counts of the chosen types are
 * exact.
 */
export async function topTypes(
  tx: Snapshot,
  { appId, exceptTypes = [], topTypes: most = TOP_TYPES }: SeriesRequest,
  { whole }: SeriesPlan,
): Promise<number[]> {
  if (most === 0) return [];
  const read = async (): Promise<number[]> => {
    // An array, so that the index finds each type's few rows; PostgreSQL before 18 would read all of the app's.
    const every = tx`ARRAY(SELECT id FROM type_names WHERE app_id = ${appId} AND id <> ALL(${[...exceptTypes]}::integer[]))`;
    return await topOf(tx, { apps: tx`${[appId]}::integer[]`, types: every }, whole, most);
  };
  return await tx.once.get(`top ${appId} ${most} ${exceptTypes} ${whole.from} ${whole.until}`, read);
}

/**
 * The types, or series, of a scope with the most events.
 * @param groups a relation (id, key, sign) of series that are ranked together, by the sum of their counts: then keys are returned
 */
export async function topOf(
  tx: Snapshot,
  scope: CountScope,
  interval: Interval,
  most: number,
  groups?: Fragment,
): Promise<number[]> {
  const rank = async (
    types: Fragment,
    sources: readonly SourceInterval[],
    limit: number,
  ): Promise<number[]> => {
    const counts = tx`(${countsIn(tx, { ...scope, types }, sources)}) AS counts`;
    const ranking = tx<{ id: number }[]>`${
      groups === undefined
        ? tx`SELECT type_id AS id, sum(count) AS total FROM ${counts} GROUP BY type_id`
        : tx`SELECT key AS id, sum(count * sign) AS total FROM ${counts} JOIN (${groups}) AS groups ON groups.id = type_id GROUP BY key`
    } ORDER BY total DESC, id LIMIT ${limit}`;
    const rows = await readSources(tx, sources, ranking);
    return rows.map(({ id }) => id);
  };
  if (most === 0) return [];
  const counted = scope.field === undefined ? 'events' : 'values';
  const level = LEVELS.find(({ ms }) => interval.until - interval.from <= MOST_RANKED_BUCKETS * ms);
  if (level !== undefined) {
    const buckets = [{ level, ...wholeBuckets(interval, level.ms) }];
    const sources = await exactSources(tx, buckets, counted);
    return await rank(scope.types, sources, most);
  }
  const months = { from: startOfMonth(interval.from), until: startOfMonth(interval.until - 1, 1) };
  const ofMonths = await coarseSources(tx, months, counted);
  const candidates = await rank(scope.types, ofMonths, Math.max(CANDIDATES, 2 * most));
  if (candidates.length < 2) return candidates;
  const days = await coarseSources(tx, wholeBuckets(interval, DAY_MS), counted);
  const ofCandidates =
    groups === undefined
      ? tx`${candidates}::integer[]`
      : tx`ARRAY(SELECT id FROM (${groups}) AS groups WHERE key = ANY(${candidates}::integer[]))`;
  return await rank(ofCandidates, days, most);
}

/** Internal ids → public ids and names. */
export async function nameTypes(
  tx: Snapshot,
  appId: number,
  ids: readonly number[],
): Promise<Map<number, { typeId: string; name: string }>> {
  return await tx.once.get(`names ${appId} ${ids}`, async () => {
    const rows = await tx<{ id: number; typeId: string; name: string }[]>`
      SELECT id, public_id AS "typeId", name FROM type_names
       WHERE app_id = ${appId} AND id = ANY(${[...ids]})`;
    return new Map(rows.map(({ id, typeId, name }) => [id, { typeId, name }]));
  });
}

interface SeriesParts extends CountedSeries {
  readonly chosen: readonly number[];
  readonly names: ReadonlyMap<number, { typeId: string; name: string }>;
}

function assemble(
  request: SeriesRequest,
  { buckets: { width, starts, end }, interval, countsOnlyBefore }: SeriesPlan,
  parts: SeriesParts,
): Series {
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
  const { typeIds, exceptTypes = [] } = request;
  const hasChoice = typeIds !== null;
  const all = hasChoice
    ? together
    : (counts.get(ALL_TYPES) ?? together).map(
        (count, index) => count - sum(exceptTypes.map((id) => counts.get(id)?.[index] ?? 0)),
      );
  const beforeAll = (before.get(ALL_TYPES) ?? 0) - sum(exceptTypes.map((id) => before.get(id) ?? 0));
  const other = all.map((count, index) => count - (together[index] ?? 0));
  return {
    bucket: width.name,
    timezone: request.timezone,
    starts,
    end,
    interval,
    types,
    all,
    other: other.some((count) => count > 0) ? other : null,
    before: { all: hasChoice ? sum(Object.values(byType)) : beforeAll, byType },
    countsOnlyBefore,
  };
}
