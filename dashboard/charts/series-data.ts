/** The server's columns as the lines of a chart: which are shown, in which color, and how they stack. */
import type { Series } from '../../src/api-types/answers.ts';
import { sum } from '../../src/base/sum.ts';
import { clock, dayMonth, month, year } from '../format.ts';
import { toWalls } from '../time-zone.ts';
import { HIDDEN, type Mode, type Scale, type View } from '../url.ts';

/** Key of the line that sums up the other lines. */
export const OTHER = 'other';
/** Colors of the palette, without the one of {@link OTHER}. */
export const COLORS = 12;

export interface Line {
  /** The type's identifier, a value as JSON, or {@link OTHER}. */
  readonly key: string;
  readonly name: string;
  /** Index into the palette; COLORS is the gray of the rest. */
  readonly color: number;
  readonly counts: readonly number[];
  readonly total: number;
  /** Events before the range. */
  readonly before: number;
  /** What it is compared with; null: nothing. */
  readonly compared: ComparedLine | null;
  readonly shown: boolean;
}

/** A line in the interval that is compared with. */
interface ComparedLine {
  /** For each bucket of the chart, the bucket at the same time of the clock. */
  readonly counts: readonly number[];
  /** Events of the whole interval: days may differ in length. */
  readonly total: number;
}

/** What is drawn: layers on top of each other, those below 0 under it. */
export interface Stack {
  readonly mode: Mode;
  readonly layers: readonly Line[];
  /** Where each layer lies, bucket by bucket; accumulated ones have one point more, at the range's beginning. */
  readonly parts: readonly (readonly [lower: Float64Array, upper: Float64Array])[];
  /** All layers together. */
  readonly total: Float64Array;
  /** What the layers stand on: the count before the range in a running total, else 0. */
  readonly base: number;
  readonly min: number;
  readonly max: number;
  /** The total of the interval that is compared with; null: none. */
  readonly ghost: Float64Array | null;
}

/** Lines with the most events first, the rest last. Hidden ones keep their colors. */
export function linesOf(series: Series, view: Pick<View, 'hidden'> & Partial<Pick<View, 'mode'>>): Line[] {
  const taken = new Set<number>();
  const shown = (key: string): boolean => view.hidden.includes(key) === (key === HIDDEN);
  const compared = comparison(series);
  const lines = series.lines.map(
    ({ key, name, counts, total, number }): Line => ({
      key,
      name,
      color: freeColor(number, taken),
      counts,
      total,
      before: series.before.byKey[key] ?? 0,
      compared: compared?.(series.compared?.byKey[key] ?? []) ?? null,
      shown: shown(key),
    }),
  );
  const before = Math.max(0, series.before.all - sum(lines.map((line) => line.before)));
  const rest = restOf(compared?.(series.compared?.all ?? []) ?? null, lines);
  // Others that have no event any more were counted once.
  if (series.other !== null || (rest?.total ?? 0) > 0 || (view.mode === 'running' && before > 0)) {
    const counts = series.other ?? series.starts.map(() => 0);
    lines.push({
      key: OTHER,
      name: series.by === null ? 'Other types' : 'All other events',
      color: COLORS,
      counts,
      total: sum(counts),
      before,
      compared: rest,
      shown: shown(OTHER),
    });
  }
  if (series.hidden != null) {
    const { typeIds, counts, before, compared: earlier } = series.hidden;
    lines.push({
      key: HIDDEN,
      name: typeIds.length === 1 ? 'The hidden type' : `${typeIds.length} hidden types`,
      color: COLORS,
      counts,
      total: sum(counts),
      before,
      compared: compared?.(earlier ?? []) ?? null,
      shown: shown(HIDDEN),
    });
  }
  // A link may name a line that is not among the top ones any more: an empty chart would look like lost events.
  return lines.some((line) => line.shown)
    ? lines
    : lines.map((line) => ({ ...line, shown: line.key !== HIDDEN || lines.length === 1 }));
}

/** A line has the color of its number, unless a busier one of the same chart has it. */
export function freeColor(number: number, taken: Set<number>): number {
  let color = number % COLORS;
  for (let tries = 0; taken.has(color) && tries < COLORS; tries++) color = (color + 1) % COLORS;
  taken.add(color);
  return color;
}

function restOf(all: ComparedLine | null, lines: readonly Line[]): ComparedLine | null {
  if (all === null) return null;
  const known = (value: (compared: ComparedLine) => number): number =>
    sum(lines.map(({ compared }) => (compared === null ? 0 : value(compared))));
  return {
    counts: all.counts.map((count, i) => count - known(({ counts }) => counts[i] ?? 0)),
    total: all.total - known(({ total }) => total),
  };
}

/**
 * For each bucket of the chart, the index of the bucket at the same time of the clock among those of the interval that is
 * compared with; null where nothing is compared.
 */
export function comparedPlaces(
  { starts, timezone, bucket, compared }: Series,
  earlier: readonly number[] | undefined = compared?.starts,
): (number | undefined)[] | null {
  if (earlier === undefined) return null;
  const places = (instants: readonly number[]): number[] => {
    const walls = toWalls(instants, timezone);
    return walls.map((wall) => wall - (walls[0] ?? 0));
  };
  const index = new Map(places(earlier).map((place, i) => [place, i]));
  // Months differ in length: a day may not exist in the other one.
  return bucket === '1mo' ? starts.map((_, i) => i) : places(starts).map((place) => index.get(place));
}

/** The series that {@link comparedName} was asked about last: a pointer that moves asks for the same again. */
let last: { readonly series: Series; readonly places: readonly (number | undefined)[] } | null = null;

/** When the bucket begins that a bucket is compared with. */
export function comparedName(series: Series, index: number): string {
  const { compared, bucket, timezone } = series;
  if (compared?.interval == null) return 'Compared';
  if (last?.series !== series) last = { series, places: comparedPlaces(series) ?? [] };
  const start = compared.starts[last.places[index] ?? -1];
  if (start === undefined) return 'Compared';
  if (bucket === '1mo') return `${month(start, timezone)} ${year(start, timezone)}`;
  return `${dayMonth(start, timezone)}${/[dw]$/.test(bucket) ? '' : ` ${clock(start, timezone)}`}`;
}

/** Aligns counts of the compared interval with the buckets at the same clock time. */
function comparison(series: Series): ((counts: readonly number[]) => ComparedLine) | null {
  const matching = comparedPlaces(series);
  if (matching === null) return null;
  return (counts) => ({
    counts: matching.map((i) => (i === undefined ? 0 : (counts[i] ?? 0))),
    total: sum(counts),
  });
}

/** The counts of all events that a view asks for, hidden types among them or not; the same of what it is compared with. */
export function allOf(
  { all, hidden, compared }: Series,
  withHidden: boolean,
): { readonly all: readonly number[]; readonly compared: readonly number[] | null } {
  const add = (counts: readonly number[], more: readonly number[] | null | undefined): readonly number[] =>
    withHidden && more ? counts.map((count, index) => count + (more[index] ?? 0)) : counts;
  return { all: add(all, hidden?.counts), compared: compared && add(compared.all, hidden?.compared) };
}

/** What lines had together in the interval that is compared with; null where nothing is compared. */
function comparedTotal(lines: readonly Line[]): number | null {
  const totals = lines.flatMap(({ compared }) => (compared === null ? [] : [compared.total]));
  return totals.length === 0 ? null : sum(totals);
}

/**
 * Stacks the lines that are shown. Accumulated layers are what each type has added since the range began; in a running
 * total they lie on top of the true count before it.
 */
export function stackOf(lines: readonly Line[], mode: Mode): Stack {
  // The busiest type lies at the bottom, where its shape is not bent by the others.
  const layers = lines.filter(({ shown }) => shown);
  const buckets = layers[0]?.counts.length ?? 0;
  const base = mode === 'running' ? sum(layers.map(({ before }) => before)) : 0;
  const flat = new Float64Array(mode === 'histogram' ? buckets : buckets + 1).fill(base);
  let [above, below, total] = [flat, flat, flat];
  const parts = layers.map(({ counts }): [Float64Array, Float64Array] => {
    const [own, up, down] = [pointsOf(counts, mode), above, below];
    const at = (i: number): number => own[i] ?? 0;
    above = up.map((edge, i) => edge + Math.max(0, at(i)));
    below = down.map((edge, i) => edge + Math.min(0, at(i)));
    total = total.map((edge, i) => edge + at(i));
    const pick = (outer: Float64Array, inner: Float64Array, isUpper: boolean): Float64Array =>
      flat.map((_, i) => (at(i) < 0 === isUpper ? inner : outer)[i] ?? 0);
    return [pick(below, up, false), pick(above, down, true)];
  });
  const ghost = ghostOf(layers, buckets, mode);
  let [min, max] = [base, base];
  for (const edge of [above, below, ghost ?? []])
    for (const value of edge) [min, max] = [Math.min(min, value), Math.max(max, value)];
  return { mode, layers, parts, total, base, min, max, ghost };
}

/** What has accumulated until the end of each bucket, on top of what was before; or the numbers as they are. */
export function accumulated<T extends number | null>(
  values: readonly T[],
  mode: Mode,
  before = 0,
): readonly (T | number)[] {
  if (mode === 'histogram') return values;
  let value = mode === 'running' ? before : 0;
  return values.map((added) => {
    value += added ?? 0;
    return value;
  });
}

/** Numbers as points of the drawing: accumulated ones begin with the range. */
const pointsOf = (counts: readonly number[], mode: Mode): readonly number[] =>
  mode === 'histogram' ? counts : [0, ...accumulated(counts, 'accumulated')];

/** None in a running total: it would be below the axis. */
function ghostOf(layers: readonly Line[], buckets: number, mode: Mode): Float64Array | null {
  if (mode === 'running' || layers.every(({ compared }) => compared === null)) return null;
  const counts = Array.from({ length: buckets }, (_, i) =>
    sum(layers.map(({ compared }) => compared?.counts[i] ?? 0)),
  );
  return Float64Array.from(pointsOf(counts, mode));
}

/** Above this share of the buckets nothing more is cut off. */
const CLIPPED_SHARE = 0.9;

/**
 * Where the vertical axis begins and ends. A running total shows its base from zero unless that would squash what the range
 * is about. A clipped axis ends a little above what nine of ten buckets have.
 */
export function verticalRange(stack: Stack, scale: Scale = 'linear'): [min: number, max: number] {
  const { base, max, mode } = stack;
  const grown = max - base;
  const min = Math.min(stack.min * 1.06, base > 3 * grown && grown > 0 ? base : 0);
  if (scale === 'clipped' && mode === 'histogram') {
    const full = [...stack.total].filter((value) => value > 0).sort((a, b) => a - b);
    const usual = full[Math.floor(full.length * CLIPPED_SHARE)] ?? max;
    if (usual * 1.5 < max) return [0, usual * 1.25];
  }
  return [min, min + ((max - min) * 1.06 || 1)];
}

/** A line's number at a bucket: its count there, or what has accumulated until the bucket's end. */
export const valueAt = ({ counts, before }: Line, index: number, mode: Mode): number =>
  accumulated(counts.slice(0, index + 1), mode, before)[index] ?? 0;

/** A line's number in the legend: what it has at the end of the chart. */
export const totalOf = (line: Line, mode: Mode): number =>
  line.total + (mode === 'running' ? line.before : 0);

/** Where a bucket ends. */
export function bucketEnd(series: Series, index: number): number {
  return series.starts[index + 1] ?? series.end;
}

/** The part of a bucket that is counted; the whole bucket unless the chart begins or ends within it. */
export function countedPart(series: Series, index: number): { readonly from: number; readonly to: number } {
  const { from, until } = series.interval;
  return {
    from: Math.max(series.starts[index] ?? from, from),
    to: Math.min(bucketEnd(series, index), until),
  };
}

/** Whether a bucket is counted in part: the chart begins or ends within it, or it is not over. */
export function isPartial(series: Series, index: number, now: number): boolean {
  const { from, to } = countedPart(series, index);
  return from > (series.starts[index] ?? from) || to < bucketEnd(series, index) || to > now;
}

export interface Summary {
  readonly total: number;
  /** Everything until the end of the range. */
  readonly running: number;
  /** Events of the interval that is compared with; null: none. */
  readonly compared: number | null;
  /** Index of the fullest bucket, -1 where all are empty. */
  readonly peak: number;
  readonly peakCount: number;
}

/** Whether the events of a line are among those that are asked for, drawn or not. */
export const isCounted = ({ key, shown }: Line): boolean => key !== HIDDEN || shown;

/** Numbers of all events that are asked for, so that they are those of the list. */
export function summaryOf(lines: readonly Line[], buckets: number): Summary {
  const counted = lines.filter(isCounted);
  let peak = -1;
  let peakCount = 0;
  for (let i = 0; i < buckets; i++) {
    let value = 0;
    for (const { counts } of counted) value += counts[i] ?? 0;
    if (value > peakCount) [peak, peakCount] = [i, value];
  }
  const total = sum(counted.map((line) => line.total));
  const running = total + sum(counted.map(({ before }) => before));
  return { total, running, compared: comparedTotal(counted), peak, peakCount };
}

/** Names of the lines: long ones without the beginning that they share, which tells nothing apart. */
export function shortNames(names: readonly string[], most: number): string[] {
  return names.map((name) => {
    const characters = [...name];
    if (characters.length <= most) return name;
    const common = Math.max(
      0,
      ...names.filter((other) => other !== name).map((other) => commonStart(characters, other)),
    );
    // The beginning says nothing then. A dot after the ellipsis would look like a fourth one.
    if (common > 8)
      return `…${characters
        .slice(characters.length - most + 1)
        .join('')
        .replace(/^[\s._/-]/, '')}`;
    const head = Math.ceil((most - 1) / 3);
    return `${characters.slice(0, head).join('')}…${characters.slice(characters.length - (most - 1 - head)).join('')}`;
  });
}

function commonStart(characters: readonly string[], other: string): number {
  const others = [...other];
  let length = 0;
  while (length < others.length && characters[length] === others[length]) length += 1;
  return length;
}
