/**
 * Series of what is kept beside counts, and of pairs of values: statistics of numbers, numbers of different values, and either of them, or
 * the events themselves, by the values of a second path.
 *
 * What the counts of a minute do not tell yet is computed from its rows, in the same snapshot: coarser buckets around it are then read
 * from finer ones.
 */

import { countWhile } from '../../base/bisect.ts';
import { HISTOGRAM, type MEASURES, SHARES, type Stat } from '../../base/measures.ts';
import { sum } from '../../base/sum.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import type { Transaction, Transactions } from '../database/connect.ts';
import {
  addSummary,
  type CountedCell,
  MinuteCells,
  newSummary,
  type Summary,
} from '../fields/count-minutes.ts';
import { decimalText, quotient } from '../fields/decimal-sum.ts';
import type { DeclaredField } from '../fields/declared-fields.ts';
import { DistinctValues } from '../fields/distinct-values.ts';
import {
  answersFor,
  type FieldFilter,
  type FieldRow,
  type FieldScopeRequest,
  isComplete,
  minutesWithin,
  type NotCounted,
  readDeclarations,
  type SeriesRow,
} from '../fields/field-scope.ts';
import { matchingRows } from '../fields/matching-rows.ts';
import { type LeftOut, NumberSummary, partsFor } from '../fields/number-summary.ts';
import type { FieldKind } from '../fields/payload-values.ts';
import { EVERY_ROW } from '../fields/row-filter.ts';
import type { Bins } from '../fields/sketch.ts';
import { MANY, NONE, OTHER } from '../fields/value-text.ts';
import { readAppSnapshot } from '../read/snapshot.ts';
import { readRetention } from '../retention.ts';
import { type BucketsProblem, levelsOf } from './buckets.ts';
import { ALL_TIME, type Interval, joined, type LevelInterval, splitByLevel } from './intervals.ts';
import { ALL_TYPES, DAY_MS, finerThan, floorTo, type Level, MINUTE_MS } from './levels.ts';
import { frameOf, planSeries, type SeriesFrame, type SeriesPlan, type SeriesRequest } from './series.ts';
import type { Snapshot } from './stale.ts';
import { layoutOf, MOST_WINDOW_CELLS, type NoWindows, startsOf, type WindowRequest } from './windows.ts';

/** Values that are shown apart where the request does not say how many. */
const TOP_VALUES = 50;
/** Cells of sliding windows that are in memory at once. */
const WINDOW_CELLS_AT_ONCE = 2_000;

/** Statistics of the numbers of some events. Texts are exact, as JSON; null where there are no numbers. @prop bins for the histogram alone */
export type NumberStats = { readonly count: number; readonly sum: string; readonly bins?: Bins } & {
  readonly [name in Stat]: (typeof MEASURES)[name]['kind'] extends 'exact' ? string | null : number | null;
};

/** How many different values some events have. */
export interface DistinctStats {
  /** Events that have a value. */
  readonly count: number;
  readonly distinct: number;
  /** Whether `distinct` is exact, and not an estimate within 0.81 % (standard error). */
  readonly exact: boolean;
}

export interface CountStats {
  readonly count: number;
}

export type Stats = NumberStats | DistinctStats | CountStats;

/** What is asked for: a declaration with the same paths and kind answers it. */
export interface SummaryQuestion {
  readonly kind: FieldKind;
  /** The path of the numbers, or of the different values; null: events are counted. */
  readonly of: readonly string[] | null;
  /** The path by whose values lines are shown apart. */
  readonly by: readonly string[] | null;
  /** Events whose payload passes it alone. */
  readonly filter: FieldFilter | null;
  /** Whether lines are shown apart by event type, for each of the request's types: `by` is null, and a value is the type's internal id. */
  readonly byType?: boolean;
  /** The statistics of numbers that are needed; absent: all but the histogram. Others need not be right. */
  readonly stats?: readonly string[];
}

export interface SummaryRequest extends SeriesRequest {
  readonly question: SummaryQuestion;
  /** With `by`: these values are shown apart, as JSON, and not those with the most events. */
  readonly values?: readonly string[];
}

export interface SummaryLine {
  /** With `by`: a value as JSON, with `byType` a type; null: all other events, or without either all. */
  readonly value: string | null;
  /** One for each start. */
  readonly stats: readonly Stats[];
  /** Statistics of the whole interval. */
  readonly overall: Stats;
}

export interface SummarySeries extends SeriesFrame {
  readonly lines: readonly SummaryLine[];
  readonly leftOut: LeftOut;
  /** From when on the declaration that answers it is complete, milliseconds since 1970. */
  readonly completeFrom: number;
}

/** @returns `not counted` where no declaration answers it, or the one that does is not complete for the interval */
export async function readSummarySeries(
  sql: Transactions,
  request: SummaryRequest,
): Promise<SummarySeries | BucketsProblem | NotCounted> {
  return await readAppSnapshot(sql, request.appId, async (tx) => {
    const plan = await planSeries(tx, request);
    if (typeof plan === 'string') return plan;
    const scope = await countedScope(tx, request, plan.interval);
    return typeof scope === 'string' ? scope : await readLines(tx, request, plan, scope);
  });
}

/** Windows as those of counts, of which statistics are asked for. */
export interface SummaryWindowsRequest extends Omit<WindowRequest, 'filter' | 'by'> {
  readonly question: SummaryQuestion;
}

/** Value of `by` as JSON, or the empty text → statistics at each end; null where the value has no events. */
export type SummaryWindows = ReadonlyMap<string, readonly (Stats | null)[]>;

/** Statistics of sliding windows: each count is read once, however many windows it is in. The values of some lines are in memory at once. */
export async function readSummaryWindows(
  sql: Transactions,
  request: SummaryWindowsRequest,
): Promise<SummaryWindows | NoWindows> {
  return await readAppSnapshot(sql, request.appId, async (tx) => {
    await tx.stale.within(ALL_TIME);
    const interval = { from: request.first - request.windowMs, until: request.last };
    const scope = await countedScope(tx, request, interval);
    if (typeof scope === 'string') return scope;
    const layout = layoutOf(request);
    const starts = startsOf(request);
    const parts = layout.intervals.flatMap((part) => splitAround(part, scope.minutes));
    const cells = await singleCells(tx, scope, parts, interval);
    const lines = scope.line === null ? [null] : await topLines(tx, {}, scope, parts, cells);
    if (lines.length * layout.cells > MOST_WINDOW_CELLS) return 'too many values';
    const windows = new Map<string, readonly (Stats | null)[]>();
    const atOnce = Math.max(1, Math.floor(WINDOW_CELLS_AT_ONCE / layout.cells));
    for (let at = 0; at < lines.length; at += atOnce) {
      const some = new Map(
        lines.slice(at, at + atOnce).map((line) => [line, new LineBuckets(starts, scope.question)]),
      );
      for (const { line, cell } of cells) some.get(line)?.add(cell.bucket, cell.count, cell.summary);
      const chosen = scope.chosen.filter(({ line }) => some.has(line));
      await addCells(tx, { ...scope, chosen }, parts, (line) => some.get(line));
      for (const [line, buckets] of some)
        windows.set(line ?? '', await buckets.windows(layout.length, line !== null));
    }
    return windows;
  });
}

/** What answers a question in an interval, with the minutes that are computed from rows. */
async function countedScope(
  tx: Snapshot,
  request: Pick<SummaryRequest, 'appId' | 'typeIds' | 'question'>,
  interval: Interval,
): Promise<CountedScope | NotCounted> {
  const { appId, typeIds } = request;
  const asked = { appId, typeIds, ...interval, withCountsOnly: true, isCountedAlone: true };
  const declaration = await findDeclaration(tx, asked, request.question);
  if (declaration === null || !(await isComplete(tx, asked, declaration.field))) return 'not counted';
  const scope = await readSummaryScope(tx, request, declaration);
  const minutes = await minutesFromRows(tx, asked, scope);
  return typeof minutes === 'string' ? minutes : { ...scope, minutes };
}

/** A declaration that answers a question. */
interface Declaration {
  readonly field: FieldRow;
  /** Which of its two values tells the line, and which one is filtered; null: neither. */
  readonly line: 'value' | 'by' | null;
  readonly filtered: 'value' | 'by' | null;
}

async function findDeclaration(
  tx: Snapshot,
  asked: FieldScopeRequest,
  { kind, of, by, filter }: SummaryQuestion,
): Promise<Declaration | null> {
  const second = by ?? filter?.path ?? null;
  if (of !== null && by !== null && filter !== null && !isSamePath(by, filter.path)) return null;
  if (of !== null) {
    const field = (await readDeclarations(tx, asked, { kind, path: of, by: second })).find((one) =>
      answersFor(one, asked),
    );
    if (field !== undefined)
      return { field, line: by === null ? null : 'by', filtered: filter === null ? null : 'by' };
    if (second !== null) return null;
    // A declaration that counts by the values of another path has all of it, too.
    const pair = (await readDeclarations(tx, asked, { kind, path: of, by: 'any' })).find((one) =>
      answersFor(one, asked),
    );
    return pair === undefined ? null : { field: pair, line: null, filtered: null };
  }
  if (by === null || filter === null) return null;
  for (const [line, filtered, path, other] of [
    ['value', 'by', by, filter.path],
    ['by', 'value', filter.path, by],
  ] as const) {
    const field = (await readDeclarations(tx, asked, { kind, path, by: other })).find((one) =>
      answersFor(one, asked),
    );
    if (field !== undefined) return { field, line, filtered };
  }
  return null;
}

function isSamePath(a: readonly string[], b: readonly string[]): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** A series that belongs to what is asked for. */
interface ChosenSeries {
  readonly id: number;
  /** The text of the value of its line; null: that of all others, or the only one. */
  readonly line: string | null;
}

interface SummaryScope extends Declaration {
  readonly question: SummaryQuestion;
  readonly appId: number;
  /** Types of the events; null: all. */
  readonly typeIds: readonly number[] | null;
  readonly seriesTypes: readonly number[];
  readonly chosen: readonly ChosenSeries[];
  /** Series with events of which only the rows tell whether they pass the filter. */
  readonly ambiguous: readonly number[];
  /** Values that are counted separately, of a field that has too many. */
  readonly known: ReadonlySet<string> | null;
}

interface CountedScope extends SummaryScope {
  /** The minutes that are computed from rows, in order of time. */
  readonly minutes: readonly number[];
}

interface PairRow extends SeriesRow {
  readonly by: string;
}

async function readSummaryScope(
  tx: Transaction,
  { appId, typeIds, question }: Pick<SummaryRequest, 'appId' | 'typeIds' | 'question'>,
  declaration: Declaration,
): Promise<SummaryScope> {
  const { field, line, filtered } = declaration;
  // A field for one type has only series with all of its events.
  const seriesTypes = field.typeId !== null || typeIds === null ? [ALL_TYPES] : typeIds;
  const rows = await tx<PairRow[]>`
    SELECT id, type_id AS "typeId", value, by_value AS by, is_complete AS "isComplete" FROM field_series
     WHERE field_id = ${field.id} AND type_id = ANY(${[...new Set([ALL_TYPES, ...seriesTypes])]}::integer[])`;
  const complete = new Set(
    rows
      .filter((row) => row.typeId === ALL_TYPES && row.isComplete)
      .map(({ value, by }) => `${value}\n${by}`),
  );
  const ofTypes = rows.filter(({ typeId }) => seriesTypes.includes(typeId));
  const wanted = new Set(question.filter?.values);
  const chosen = ofTypes.flatMap((row): ChosenSeries[] => {
    if (filtered !== null && !wanted.has(row[filtered])) return [];
    if (question.byType) return [{ id: row.id, line: String(field.typeId ?? row.typeId) }];
    const text = line === null ? null : row[line];
    const isShown = text !== null && !isSpecial(text) && complete.has(`${row.value}\n${row.by}`);
    return [{ id: row.id, line: isShown ? text : null }];
  });
  const isExact = !field.isFull;
  const ambiguous =
    filtered === null
      ? []
      : ofTypes
          .filter((row) => row[filtered] === MANY || (row[filtered] === OTHER && !isExact))
          .map(({ id }) => id);
  const known = field.isFull && line !== null ? new Set(rows.map((row) => row[line])) : null;
  return { ...declaration, question, appId, typeIds, seriesTypes, chosen, ambiguous, known };
}

function isSpecial(text: string): boolean {
  return text === MANY || text === OTHER || text === NONE || text === '';
}

/** The minutes that are computed from rows: those that are not counted yet, and those whose counts do not tell what passes the filter. */
async function minutesFromRows(
  tx: Snapshot,
  asked: FieldScopeRequest,
  { ambiguous }: SummaryScope,
): Promise<readonly number[] | NotCounted> {
  const boundary = (await readRetention(tx, asked.appId)).whole(asked);
  if (ambiguous.length > 0 && boundary > (asked.from ?? 0)) {
    const [lost] = await tx`
      SELECT FROM fields_per_day WHERE app_id = ${asked.appId} AND type_id = ANY(${[...ambiguous]}) AND count > 0
         AND bucket >= ${new Date(floorTo(asked.from ?? 0, DAY_MS))} AND bucket < ${new Date(boundary)} LIMIT 1`;
    if (lost !== undefined) return 'not counted';
  }
  return await minutesWithin(tx, asked, { ambiguous });
}

async function readLines(
  tx: Snapshot,
  request: SummaryRequest,
  plan: SeriesPlan,
  scope: CountedScope,
): Promise<SummarySeries> {
  const parts = levelIntervals(plan).flatMap((part) => splitAround(part, scope.minutes));
  const cells = await singleCells(tx, scope, parts, plan.interval);
  const shown = new Set(
    scope.line === null
      ? scope.question.byType === true
        ? scope.typeIds?.map(String)
        : []
      : (request.values ?? (await topLines(tx, { topTypes: TOP_VALUES, ...request }, scope, parts, cells))),
  );
  const lines = new Map<string | null, LineBuckets>();
  const lineOf = (text: string | null): LineBuckets => {
    const key = text !== null && shown.has(text) ? text : null;
    const known = lines.get(key) ?? new LineBuckets(plan.buckets.starts, scope.question);
    lines.set(key, known);
    return known;
  };
  for (const text of shown) lineOf(text);
  lineOf(null);
  for (const { line, cell } of cells) lineOf(line).add(cell.bucket, cell.count, cell.summary);
  await addCells(tx, scope, parts, lineOf);
  const made = [...lines].map(([value, buckets]) => ({ value, ...buckets.finish() }));
  const leftOut = made.reduce(
    (sum, { left }) => ({
      several: sum.several + left.several,
      unrepresentable: sum.unrepresentable + left.unrepresentable,
    }),
    { several: 0, unrepresentable: 0 },
  );
  return {
    ...frameOf(request, plan),
    lines: made.map(({ left: _, ...line }) => line),
    leftOut,
    completeFrom: scope.field.completeFrom,
  };
}

/** What single minutes have that are not read from counts. */
async function singleCells(
  tx: Snapshot,
  scope: CountedScope,
  parts: readonly LevelInterval[],
  { from, until }: Interval,
): Promise<readonly LineCell[]> {
  const fromRows = parts.filter(({ level }) => level === null);
  const isWhole = (at: number): boolean => at >= from && at + MINUTE_MS <= until;
  return [
    ...(await cellsFromRows(tx, scope, fromRows)),
    ...(await hiddenCells(tx, scope, scope.minutes.filter(isWhole))),
  ];
}

/** A row of counts, with its time in seconds since 1970 and its summary in hexadecimal. */
interface CellRow {
  readonly seriesId: number;
  readonly at: number;
  readonly count: number;
  readonly summary: string | null;
}

/** Adds the counts of chosen series to their lines, as they come: none are kept, and their bytes are all written to one place. */
async function addCells(
  tx: Transaction,
  { appId, chosen }: SummaryScope,
  parts: readonly LevelInterval[],
  lineOf: (line: string | null) => LineBuckets | undefined,
): Promise<void> {
  const lineOfSeries = new Map(chosen.map(({ id, line }) => [id, line]));
  let room = Buffer.alloc(0);
  const bytesOf = (hex: string): Buffer => {
    if (room.length < hex.length / 2) room = Buffer.alloc(hex.length);
    return room.subarray(0, room.write(hex, 'hex'));
  };
  for (const [level, intervals] of byLevel(parts)) {
    const rows = tx<CellRow[]>`
      SELECT series_id AS "seriesId", date_part('epoch', bucket) AS at, count::float8 AS count, encode(summary, 'hex') AS summary
        FROM ${within(tx, level, appId, [...lineOfSeries.keys()], intervals)}`;
    await rows.forEach(({ seriesId, at, count, summary }) => {
      const line = lineOf(lineOfSeries.get(seriesId) ?? null);
      line?.addBytes(at * 1_000, count, summary === null ? null : bytesOf(summary));
    });
  }
}

/** Intervals of counts by their levels, the coarsest first: sets of values are large by then, and need not be told apart. */
function byLevel(parts: readonly LevelInterval[]): ReadonlyMap<Level, readonly LevelInterval[]> {
  const levels = new Set(parts.flatMap(({ level }) => level ?? []));
  const coarsest = [...levels].sort((a, b) => b.ms - a.ms);
  return new Map(coarsest.map((level) => [level, parts.filter((part) => part.level === level)]));
}

/** The intervals of a series by what they are read from: a first or last bucket that is cut off is not read as a whole. */
function levelIntervals({ buckets: { starts, end }, interval, whole }: SeriesPlan): LevelInterval[] {
  const from = interval.from === whole.from ? whole.from : (starts[1] ?? end);
  const until = interval.until === whole.until ? whole.until : (starts.at(-1) ?? end);
  if (from > until) return splitByLevel(interval);
  return [
    ...splitByLevel({ from: interval.from, until: from }),
    ...levelsOf({ starts, end }, { from, until }),
    ...splitByLevel({ from: until, until: interval.until }),
  ];
}

/** A part with single minutes from rows, and the buckets around these from finer ones. @param minutes in order of time */
function splitAround(part: LevelInterval, minutes: readonly number[]): LevelInterval[] {
  const { level, from, until } = part;
  if (level === null) return [part];
  const within = minutes.filter((at) => at >= from && at < until);
  if (within.length === 0) return [part];
  const split: LevelInterval[] = [];
  let last = from;
  for (const start of new Set(within.map((at) => floorTo(at, level.ms)))) {
    if (last < start) split.push({ level, from: last, until: start });
    split.push(...splitAround({ level: finerThan(level), from: start, until: start + level.ms }, within));
    last = start + level.ms;
  }
  if (last < until) split.push({ level, from: last, until });
  return split;
}

/** A cell of rows with the text of its line. */
interface LineCell {
  readonly line: string | null;
  readonly cell: Pick<CountedCell, 'bucket' | 'count' | 'summary'>;
}

async function cellsFromRows(
  tx: Snapshot,
  { question, appId, typeIds, field, line, known }: SummaryScope,
  intervals: readonly Interval[],
): Promise<LineCell[]> {
  if (intervals.length === 0) return [];
  const { kind, of, by, filter } = question;
  // What passes the filter is told by the rows themselves.
  const second = of === null ? (filter?.path ?? null) : by;
  const computed: DeclaredField = {
    id: field.id,
    typeId: field.typeId,
    kind,
    path: of ?? by ?? [],
    by: second,
  };
  const cells = new MinuteCells([computed]);
  const scope = { appId, typeIds, filter: filter?.rows ?? EVERY_ROW };
  for await (const rows of matchingRows(tx, scope, joined(intervals), 'asc'))
    for (const row of rows) cells.addRow(row);
  const isByType = question.byType === true && field.typeId === null;
  return cells.list().flatMap((cell) => {
    if ((cell.typeId === ALL_TYPES) === isByType) return [];
    if (question.byType) return [{ line: String(field.typeId ?? cell.typeId), cell }];
    const text = line === null ? null : of === null ? cell.value : cell.by;
    return [{ line: shownLine(text, known), cell }];
  });
}

function shownLine(text: string | null, known: SummaryScope['known']): string | null {
  return text !== null && !isSpecial(text) && (known === null || known.has(text)) ? text : null;
}

/** What is counted in minutes of types that retention hides there: no rows say it any more. */
async function hiddenCells(
  tx: Snapshot,
  { question, appId, typeIds, field, line, filtered, known }: SummaryScope,
  minutes: readonly number[],
): Promise<LineCell[]> {
  const retention = await readRetention(tx, appId);
  const earlier = minutes.filter((at) => at < retention.whole());
  if (earlier.length === 0) return [];
  const rows = await tx<(PairRow & { bucket: number; count: number; summary: Uint8Array | null })[]>`
    SELECT series.type_id AS "typeId", value, by_value AS by, (extract(epoch FROM bucket) * 1000)::float8 AS bucket,
           count::float8 AS count, summary
      FROM field_minute_counts AS counts JOIN field_series AS series ON series.id = series_id
     WHERE counts.app_id = ${appId} AND field_id = ${field.id} AND (series.type_id = ${ALL_TYPES}) = ${field.typeId !== null}
       AND bucket = ANY(${earlier.map((at) => new Date(at).toISOString())}::timestamptz[])`;
  return rows.flatMap(({ bucket, count, summary: bytes, ...series }): LineCell[] => {
    const type = field.typeId ?? series.typeId;
    if (bucket >= retention.boundaryOf(type) || typeIds?.includes(type) === false) return [];
    if (filtered !== null && question.filter?.values.includes(series[filtered]) !== true) return [];
    const summary = newSummary(question.kind);
    if (bytes !== null) summary?.addBytes(bytes);
    const text = question.byType ? String(type) : shownLine(line === null ? null : series[line], known);
    return [{ line: text, cell: { bucket, count, summary } }];
  });
}

/** The lines with the most events, most first. */
async function topLines(
  tx: Transaction,
  { topTypes: most = Number.POSITIVE_INFINITY }: Pick<SummaryRequest, 'topTypes'>,
  { appId, chosen, question }: SummaryScope,
  parts: readonly LevelInterval[],
  cells: readonly LineCell[],
): Promise<string[]> {
  const totals = new Map<string, number>();
  const add = (line: string | null, count: number): void => {
    if (line !== null) totals.set(line, (totals.get(line) ?? 0) + count);
  };
  for (const { line, cell } of cells) add(line, cell.count);
  const lineOf = new Map(chosen.flatMap(({ id, line }) => (line === null ? [] : [[id, line] as const])));
  for (const [level, intervals] of byLevel(parts)) {
    const rows = await tx<{ id: number; count: number }[]>`
      SELECT series_id AS id, sum(count)::float8 AS count
        FROM ${within(tx, level, appId, [...lineOf.keys()], intervals)} GROUP BY series_id`;
    for (const { id, count } of rows) add(lineOf.get(id) ?? null, count);
  }
  const wanted =
    question.filter !== null && question.by !== null && isSamePath(question.by, question.filter.path);
  return [...totals]
    .filter(([line, count]) => count > 0 && (!wanted || question.filter?.values.includes(line)))
    .sort(([a, one], [b, other]) => other - one || (a < b ? -1 : 1))
    .slice(0, most)
    .map(([line]) => line);
}

/** A relation of the cells of series in intervals of one level. */
function within(
  tx: Transaction,
  { name }: Level,
  appId: number,
  ids: readonly number[],
  intervals: readonly Interval[],
) {
  return tx`
    (SELECT counts.series_id, counts.bucket, counts.count, counts.summary
       FROM unnest(${intervals.map(({ from }) => new Date(from).toISOString())}::timestamptz[],
                   ${intervals.map(({ until }) => new Date(until).toISOString())}::timestamptz[]) AS part (start, finish)
      CROSS JOIN LATERAL (SELECT series_id, bucket, count, summary FROM ${tx(`field_${name}_counts`)} AS counts
                           WHERE counts.app_id = ${appId} AND counts.series_id = ANY(${[...ids]}::integer[])
                             AND counts.bucket >= start AND counts.bucket < finish OFFSET 0) AS counts) AS cells`;
}

/** What a line has in each bucket. */
class LineBuckets {
  readonly #starts: readonly number[];
  readonly #newSummary: () => Summary | null;
  readonly #withBins: boolean;
  readonly #counts: number[];
  readonly #summaries: (Summary | null)[];

  constructor(starts: readonly number[], { kind, stats }: SummaryQuestion) {
    const parts = partsFor(stats);
    this.#starts = starts;
    this.#newSummary = () => newSummary(kind, parts);
    this.#withBins = stats?.includes(HISTOGRAM) === true;
    this.#counts = starts.map(() => 0);
    this.#summaries = starts.map(() => null);
  }

  add(at: number, count: number, summary: Summary | null): void {
    const index = this.#indexOf(at);
    this.#counts[index] = (this.#counts[index] ?? 0) + count;
    const own = this.#summaryAt(index);
    if (summary !== null && own !== null) addSummary(own, summary);
  }

  addBytes(at: number, count: number, summary: Uint8Array | null): void {
    const index = this.#indexOf(at);
    this.#counts[index] = (this.#counts[index] ?? 0) + count;
    if (summary !== null) this.#summaryAt(index)?.addBytes(summary);
  }

  finish(): {
    readonly stats: readonly Stats[];
    readonly overall: Stats;
    readonly left: LeftOut;
  } {
    const whole = this.#newSummary();
    for (const summary of this.#summaries) if (summary !== null && whole !== null) addSummary(whole, summary);
    const stats = this.#counts.map((count, index) =>
      statsOf(this.#summaries[index] ?? this.#newSummary(), count, this.#withBins),
    );
    const left = whole instanceof NumberSummary ? whole.leftOut : { several: 0, unrepresentable: 0 };
    return {
      stats,
      overall: statsOf(whole, sum(this.#counts), this.#withBins),
      left,
    };
  }

  /**
   * Statistics of each run of so many buckets. As nothing is taken off a summary, a run is the end of one block of that length and the
   * beginning of the next one (van Herk, Gil and Werman).
   * @param isSparse whether a run without events is null
   */
  async windows(length: number, isSparse: boolean): Promise<readonly (Stats | null)[]> {
    const merged = (a: Summary | null, b: Summary | null): Summary | null => {
      if (a === null || b === null) return a ?? b;
      const both = this.#newSummary();
      for (const one of both === null ? [] : [a, b]) if (both !== null) addSummary(both, one);
      return both;
    };
    const slices = new TimeSlice();
    const [ends, begins, before] = [[...this.#summaries], [...this.#summaries], [0]];
    for (const [at, count] of this.#counts.entries()) {
      before.push((before[at] ?? 0) + count);
      if (at % length !== 0) begins[at] = merged(begins[at - 1] ?? null, begins[at] ?? null);
      if (slices.isOver) await slices.next();
    }
    for (let at = ends.length - 2; at >= 0; at -= 1) {
      if ((at + 1) % length !== 0) ends[at] = merged(ends[at] ?? null, ends[at + 1] ?? null);
      if (slices.isOver) await slices.next();
    }
    const found: (Stats | null)[] = [];
    for (let at = 0; at + length <= ends.length; at += 1) {
      const count = (before[at + length] ?? 0) - (before[at] ?? 0);
      const second = at % length === 0 ? null : (begins[at + length - 1] ?? null);
      const whole = merged(ends[at] ?? null, second) ?? this.#newSummary();
      found.push(isSparse && count === 0 ? null : statsOf(whole, count));
      if (slices.isOver) await slices.next();
    }
    return found;
  }

  #summaryAt(index: number): Summary | null {
    const known = this.#summaries[index] ?? this.#newSummary();
    this.#summaries[index] = known;
    return known;
  }

  /** Index of the last start that is not after a time. */
  #indexOf(time: number): number {
    return Math.max(0, countWhile(this.#starts.length, (index) => (this.#starts[index] ?? 0) <= time) - 1);
  }
}

/** @param count of the events */
export function statsOf(summary: Summary | null, count: number, withBins = false): Stats {
  if (summary instanceof NumberSummary)
    return { ...numberStatsOf(summary), ...(withBins && { bins: summary.bins }) };
  if (summary instanceof DistinctValues) return { count, distinct: summary.count, exact: summary.isExact };
  return { count };
}

/** The statistics of no events. */
export function noStats(kind: FieldKind): Stats {
  return statsOf(newSummary(kind), 0);
}

function numberStatsOf(numbers: NumberSummary): NumberStats {
  const { count, sum, min, max, bins } = numbers;
  const inRange = (quantile: number | null): number | null =>
    quantile === null ? null : Math.min(Math.max(quantile, Number(min)), Number(max));
  const [p50 = null, p90 = null, p95 = null, p99 = null] = bins.quantiles(SHARES).map(inRange);
  const avg = count === 0 ? null : quotient(sum, BigInt(count));
  const stddev = deviationOf(numbers);
  return { count, sum: decimalText(sum), avg, min, max, stddev, p50, p90, p95, p99 };
}

/** The standard deviation of a sample, from exact sums: √((n Σx² − (Σx)²) / (n (n − 1))). */
function deviationOf({ count, sum, squares }: NumberSummary): number | null {
  if (count < 2 || squares === null) return null;
  const n = BigInt(count);
  const scale = Math.max(squares.scale, 2 * sum.scale);
  const units =
    n * squares.units * 10n ** BigInt(scale - squares.scale) -
    sum.units ** 2n * 10n ** BigInt(scale - 2 * sum.scale);
  return Math.sqrt(quotient({ units, scale }, n * (n - 1n)));
}
