/**
 * Sums over sliding windows that end at each minute of an interval, from the counts alone: what alert rules are judged by. Windows of
 * many rules are read in one snapshot, and those of an app that have the same length by one statement.
 */
import { grouped } from '../../base/grouped.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import type { Sql, Transactions } from '../database/connect.ts';
import type { FieldCounts } from '../fields/counts-relation.ts';
import {
  type FieldFilter,
  findField,
  isComplete,
  type NotCounted,
  resolveFieldScope,
} from '../fields/field-scope.ts';
import { readAppSnapshot, readSnapshot } from '../read/snapshot.ts';
import { readRetention } from '../retention.ts';
import { countsIn, readSources, scopeOf } from './count-sql.ts';
import { valuesWithin } from './field-series.ts';
import { type Interval, type LevelInterval, splitByLevel } from './intervals.ts';
import { ALL_TYPES, coarsestLevel, DAY_MS, floorTo, MINUTE_MS } from './levels.ts';
import { exactSources, type Snapshot } from './stale.ts';

/** Windows `[end - windowMs, end)` for every step from `first` to `last`, both included. Milliseconds since 1970. */
export interface WindowRequest {
  readonly appId: number;
  /** Internal ids; null: all types. */
  readonly typeIds: readonly number[] | null;
  /** Events that pass it alone, where a declared field has counts of it. Not together with `by`. */
  readonly filter: FieldFilter | null;
  /** The path of a declared field, whose values are counted apart; null: all events together. */
  readonly by: readonly string[] | null;
  readonly windowMs: number;
  /** Whole minutes, of which all times and the window are multiples. */
  readonly stepMs: number;
  readonly first: number;
  readonly last: number;
}

/** Value of `by` as JSON, or the empty text → one sum for each end. Values without events in any window are absent. */
export type WindowSums = ReadonlyMap<string, Float64Array>;

/**
 * Values of a field times the cells of their windows that one request may have: about 16 MB. Beyond it a request is refused before
 * anything of it is read.
 */
export const MOST_WINDOW_CELLS = 2_000_000;

/** Why windows are not read: counts do not answer them, or they are too many. */
export type NoWindows = NotCounted | 'too many values';

/** Windows of more steps are read as steps at their two ends and coarser buckets between them. */
const LONGEST_BY_STEP = 180;

/** Reads windows in one snapshot, in the order of the requests. */
export async function readWindows(
  sql: Transactions,
  requests: readonly WindowRequest[],
): Promise<readonly (WindowSums | NoWindows)[]> {
  return await readSnapshot(sql, async (tx) => {
    const found = new Map<WindowRequest, WindowSums | NoWindows>();
    const plain = requests.filter(({ filter, by }) => filter === null && by === null);
    // Requests of one app with the same windows.
    const keyOf = ({ appId, windowMs, stepMs, first, last }: WindowRequest): string =>
      `${appId} ${windowMs} ${stepMs} ${first} ${last}`;
    for (const alike of grouped(plain, keyOf).values()) await readPlain(tx, alike, found);
    for (const request of requests)
      if (!found.has(request)) found.set(request, await readOfField(tx, request));
    return requests.map((request) => found.get(request) ?? 'not counted');
  });
}

/** The end of the first window all of whose minutes are kept: minutes before the retention boundary are not, nor everywhere those of archived days. */
export async function readFirstWindow(sql: Sql, appId: number, windowMs: number): Promise<number> {
  return await readSnapshot(sql, async (tx) => {
    const retention = await readRetention(tx, appId);
    return Math.max(retention.whole(), tx.stale.minutesOutliveRows ? 0 : retention.archivedUntil) + windowMs;
  });
}

/** The values of a declared field that events had since the start of the UTC day a week before; null where it is not declared. */
export async function readRecentValues(
  sql: Transactions,
  { appId, typeIds, by }: Pick<WindowRequest, 'appId' | 'typeIds'> & { readonly by: readonly string[] },
  until: number,
): Promise<ReadonlySet<string> | NotCounted> {
  return await readAppSnapshot(sql, appId, async (tx) => {
    const interval = { from: floorTo(until, DAY_MS) - 7 * DAY_MS, until: floorTo(until, DAY_MS) + DAY_MS };
    // What was not counted is not missed: a value that is absent has been counted before.
    const asked = {
      appId,
      typeIds,
      from: until - MINUTE_MS,
      until,
      withCountsOnly: true,
      isCountedAlone: true,
    };
    const field = await findField(tx, asked, by);
    if (field === null) return 'not counted';
    const types = field.typeId !== null ? [ALL_TYPES] : (typeIds ?? [ALL_TYPES]);
    const rows = await tx<{ value: string }[]>`
      SELECT DISTINCT value FROM field_series JOIN fields_per_day AS day ON day.type_id = field_series.id
       WHERE day.app_id = ${appId} AND field_id = ${field.id} AND field_series.type_id = ANY(${[...types]}::integer[])
         AND value NOT IN ('many', 'other') AND count > 0
         AND bucket >= ${new Date(interval.from)} AND bucket < ${new Date(interval.until)}`;
    return new Set(rows.map(({ value }) => value));
  });
}

async function readPlain(
  tx: Snapshot,
  requests: readonly WindowRequest[],
  found: Map<WindowRequest, WindowSums | NoWindows>,
): Promise<void> {
  const [any] = requests;
  if (any === undefined) return;
  const idsOf = ({ typeIds }: WindowRequest): readonly number[] => typeIds ?? [ALL_TYPES];
  const ids = [...new Set(requests.flatMap(idsOf))];
  const cells = await readCells(tx, any, ids);
  for (const request of requests) found.set(request, new Map([['', slide(request, cells, idsOf(request))]]));
}

async function readOfField(tx: Snapshot, request: WindowRequest): Promise<WindowSums | NoWindows> {
  const { appId, typeIds, filter, by, first, last, windowMs } = request;
  const interval = { from: first - windowMs, until: last };
  const asked = { appId, typeIds, ...interval, withCountsOnly: true, isCountedAlone: true };
  if (filter !== null) {
    const scope = await resolveFieldScope(tx, asked, filter);
    if (typeof scope === 'string') return scope;
    const cells = await readCells(tx, request, scope.ids, {
      appId,
      corrections: scope.corrections,
      rows: [],
    });
    return new Map([['', slide(request, cells, scope.ids)]]);
  }
  const field = await findField(tx, asked, by ?? []);
  if (field === null || !(await isComplete(tx, asked, field))) return 'not counted';
  const values = await valuesWithin(tx, { appId, typeIds, path: by ?? [], interval }, field);
  if (typeof values === 'string') return values;
  if (values.all.length * layoutOf(request).cells > MOST_WINDOW_CELLS) return 'too many values';
  const ids = values.all.flatMap(({ series }) => series.map(({ id }) => id));
  const cells = await readCells(tx, request, ids, values.field);
  const sums = new Map<string, Float64Array>();
  const slices = new TimeSlice();
  for (const { value, series } of values.all) {
    if (slices.isOver) await slices.next();
    const own = series.map(({ id }) => id);
    if (own.some((id) => cells.has(id))) sums.set(value, slide(request, cells, own));
  }
  return sums;
}

/** How the counts of windows are read: as cells, of which each window is a run of the same length. */
interface Layout {
  /** In order of time, without gaps. */
  readonly intervals: readonly LevelInterval[];
  /** Steps before the block in the middle; without a block, all of them. */
  readonly head: number;
  /** Cells of a window. */
  readonly length: number;
  readonly cells: number;
  readonly hasBlock: boolean;
}

type Windows = Pick<WindowRequest, 'first' | 'last' | 'windowMs' | 'stepMs'>;

export function layoutOf({ first, last, windowMs, stepMs }: Windows): Layout {
  const ends = (last - first) / stepMs;
  const steps = windowMs / stepMs;
  const level = coarsestLevel(({ ms }) => stepMs % ms === 0 && first % ms === 0);
  const whole: Interval = { from: first - windowMs, until: last };
  if (ends > 0 && (steps <= LONGEST_BY_STEP || steps <= ends + 1)) {
    const cells = ends + steps;
    return { intervals: [{ level, ...whole }], head: cells, length: steps, cells, hasBlock: false };
  }
  const intervals = [
    { level, from: whole.from, until: last - windowMs },
    ...splitByLevel({ from: last - windowMs, until: first }),
    { level, from: first, until: last },
  ].filter(({ from, until }) => from < until);
  return { intervals, head: ends, length: ends + 1, cells: 2 * ends + 1, hasBlock: true };
}

/** Where each cell starts. */
export function startsOf(windows: Windows): readonly number[] {
  const { first, last, windowMs, stepMs } = windows;
  const { head, hasBlock } = layoutOf(windows);
  const steps = (from: number): number[] => Array.from({ length: head }, (_, at) => from + at * stepMs);
  return [...steps(first - windowMs), ...(hasBlock ? [last - windowMs, ...steps(first)] : [])];
}

/** Counts of each series, each with its cell: some cells have several. */
type Cells = ReadonlyMap<number, { cells: Float64Array; counts: Float64Array }>;

async function readCells(
  tx: Snapshot,
  request: WindowRequest,
  ids: readonly number[],
  field?: FieldCounts,
): Promise<Cells> {
  const { appId, first, windowMs, stepMs } = request;
  const { intervals, head, hasBlock } = layoutOf(request);
  if (ids.length === 0 || intervals.length === 0) return new Map();
  const sources = await exactSources(tx, intervals, field === undefined ? 'events' : 'values');
  // Both are exact: times are whole seconds. Arithmetic in numeric would take as long as the rest.
  const [start, seconds] = [(first - windowMs) / 1_000, stepMs / 1_000];
  const step = tx`floor((date_part('epoch', bucket) - ${start}::float8) / ${seconds}::float8)::integer`;
  const block = windowMs / stepMs;
  const cell = hasBlock
    ? tx`CASE WHEN ${step} < ${head}::integer THEN ${step}
              WHEN ${step} < ${block}::integer THEN ${head}::integer
              ELSE ${step} - ${block}::integer + ${head}::integer + 1 END`
    : step;
  const counted = tx`
    SELECT type_id AS id, ${cell} AS cell, count
      FROM (${countsIn(tx, scopeOf(tx, appId, ids, field), sources)}) AS rows`;
  // A cell has a few counts at most, and any number of rows.
  const hasRows = sources.some(({ view }) => view === null);
  const columns = await readSources(
    tx,
    sources,
    tx<{ id: number; length: number; cells: string; counts: string }[]>`
      SELECT id, count(*)::integer AS length, array_agg(cell)::text AS cells, array_agg(count)::text AS counts
        FROM (${hasRows ? tx`SELECT id, cell, sum(count)::bigint AS count FROM (${counted}) AS some GROUP BY 1, 2` : counted}) AS counted
       GROUP BY id`,
  );
  return new Map(
    columns.map(({ id, length, cells, counts }) => [
      id,
      { cells: numbersOf(cells, length), counts: numbersOf(counts, length) },
    ]),
  );
}

const MINUS = 0x2d;
const DIGIT_0 = 0x30;
const DIGIT_9 = 0x39;

/** Whole numbers of an array as PostgreSQL writes it, such as `{1,-2}`: half a million of a year are quicker read than split. */
function numbersOf(text: string, length: number): Float64Array {
  const numbers = new Float64Array(length);
  let [index, value, sign] = [0, 0, 1];
  for (let at = 1; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code >= DIGIT_0 && code <= DIGIT_9) value = value * 10 + code - DIGIT_0;
    else if (code === MINUS) sign = -1;
    else {
      numbers[index] = sign * value;
      index += 1;
      value = 0;
      sign = 1;
    }
  }
  return numbers;
}

/** One sum for each end. */
function slide(request: WindowRequest, cells: Cells, ids: readonly number[]): Float64Array {
  const { length, cells: count } = layoutOf(request);
  // Sums of all cells before one.
  const before = new Float64Array(count + 1);
  for (const id of ids) {
    const own = cells.get(id);
    if (own === undefined) continue;
    for (let at = 0; at < own.cells.length; at += 1) {
      const cell = (own.cells[at] ?? 0) + 1;
      before[cell] = (before[cell] ?? 0) + (own.counts[at] ?? 0);
    }
  }
  for (let at = 1; at <= count; at += 1) before[at] = (before[at] ?? 0) + (before[at - 1] ?? 0);
  const ends = (request.last - request.first) / request.stepMs + 1;
  const sums = new Float64Array(ends);
  for (let at = 0; at < ends; at += 1) sums[at] = (before[at + length] ?? 0) - (before[at] ?? 0);
  return sums;
}
