/** Numbers of events as a chart: stacked bars, or what has accumulated as stacked areas. */
import type { Series } from '../../src/api-types/answers.ts';
import { average, bucketName, bucketSpan, change, changeText, compact, count, share } from '../format.ts';
import { DAY, HOUR, MINUTE } from '../range.ts';
import type { Mode } from '../url.ts';
import {
  across,
  type Drawing,
  FAINT,
  type Figure,
  type Geometry,
  heightOf,
  type Marks,
  multiples,
  type Palette,
  powers,
  up,
} from './drawing.ts';
import {
  accumulated,
  bucketEnd,
  comparedName,
  isCounted,
  type Line,
  type Stack,
  type Summary,
  stackOf,
  summaryOf,
  totalOf,
  valueAt,
  verticalRange,
} from './series-data.ts';

/** Events that a search has found, by bucket: the stack is then the faint background; null: nothing is searched. */
type Found = readonly number[] | null;

const NAMES: Record<Mode, string> = {
  histogram: 'Events',
  accumulated: 'Events accumulated from 0',
  running: 'Total of events so far',
};
const TOTALS: Record<Mode, string> = {
  histogram: 'Total',
  accumulated: 'Accumulated',
  running: 'Total so far',
};
/** The average of fewer events would be about one of them. */
const LEAST_AVERAGED = 10;
/** Units of an average, from the shortest on. */
const UNITS: readonly (readonly [string, number])[] = [
  ['minute', MINUTE],
  ['hour', HOUR],
  ['day', DAY],
  ['week', 7 * DAY],
];

export function stackDrawing(
  series: Series,
  lines: readonly Line[],
  mode: Mode,
  found: Found = null,
): Drawing {
  const stack = stackOf(lines, mode);
  const summary = summaryOf(lines, series.starts.length);
  const isOfBars = mode === 'histogram';
  /** Accumulated numbers have one point more, at the range's beginning. */
  const at = (values: Float64Array | null, index: number): number | undefined =>
    values?.[isOfBars ? index : index + 1];
  const totals = lines.map((line) => totalOf(line, mode));
  const all = lines.reduce((sum, line, index) => (isCounted(line) ? sum + (totals[index] ?? 0) : sum), 0);
  // One format for all.
  const short = Math.max(...totals) < 1e6 ? count : compact;
  const text = (value: number | null): string => count(value ?? 0);
  return {
    ...{ series, name: NAMES[mode], label: null, text },
    ...{ overall: summary.total, compared: series.compared, before: summary.compared },
    figures: () => figuresOf(series, summary, mode),
    ...{ by: series.by, isApart: true, parts: [] },
    legend: lines.map((line, index) => {
      const { key, name, color, shown, compared: then } = line;
      const own = totals[index] ?? 0;
      const isCompared = then !== null && mode !== 'running';
      return {
        ...{ key, name, color, shown, value: short(own), exact: count(own) },
        share: isCounted(line) ? share(own, all) : '',
        before: isCompared ? count(then.total) : null,
        change: isCompared ? changeText(own, then.total) : null,
      };
    }),
    columns: () => {
      const columns = stack.layers.map(({ name, color, counts, before }) => ({
        ...{ name, color, values: accumulated(counts, mode, before), text },
      }));
      const values = series.starts.map((_, index) => at(stack.total, index) ?? 0);
      // A sum of the other columns is left to the reader of a file.
      return [{ name: 'Total', values, text, file: null }, ...columns];
    },
    rowsAt: (index) => {
      const own = at(stack.total, index) ?? 0;
      const then = at(stack.ghost, index);
      const percent = then === undefined ? null : change(own, then);
      const changed = percent === null ? '' : ` · ${percent}`;
      const isWhole = !isOfBars || own >= (series.all[index] ?? 0);
      const name = found !== null ? 'All, before the filter' : isWhole ? TOTALS[mode] : 'Lines drawn';
      return {
        whole: ['', name, count(own)],
        spoken: `${count(own)} in all${isOfBars ? '' : ' by then'}`,
        lines: stack.layers
          .map((line) => ({ line, value: valueAt(line, index, mode) }))
          .filter(({ value }) => value > 0)
          .sort((a, b) => b.value - a.value)
          .map(({ line, value }) => [line.color, line.name, count(value)]),
        more: [
          then !== undefined && ['dashes', comparedName(series, index) + changed, count(then)],
          found !== null && ['found', 'Found so far', count(found[index] ?? 0)],
        ],
      };
    },
    // Events are whole numbers.
    ticks: (range, most) =>
      (range.scale === 'log' ? powers(range.max) : multiples(range, most, 1)).map((value) => [
        value,
        compact(value),
      ]),
    hasScales: true,
    ...barsOf(stack, found),
  };
}

/** What is drawn as bars or areas. */
export function barsOf(
  stack: Stack,
  found: Found = null,
): Pick<Drawing, 'stack' | 'isDotted' | 'range' | 'draw' | 'highest'> {
  const { mode, total } = stack;
  return {
    stack,
    isDotted: stack.ghost !== null,
    range: (scale) => [...verticalRange(stack, scale), scale],
    draw: (context, geometry, palette, marks) =>
      drawStack(context, stack, geometry, palette, { ...marks, found }),
    highest: Math.max(
      0,
      ...(mode === 'histogram' ? total : total.map((value, i) => value - (total[i - 1] ?? value))),
    ),
  };
}

function figuresOf(
  series: Series,
  { total, running, peak, peakCount }: Summary,
  mode: Mode,
): readonly Figure[] {
  const { interval, bucket, starts, timezone } = series;
  const elapsed = Math.max(MINUTE, Math.min(interval.until, Date.now()) - interval.from);
  const [unit, length] = unitOf(total, elapsed);
  const when = bucketSpan(starts[peak] ?? 0, bucketEnd(series, peak), bucket, timezone);
  return [
    ...(mode === 'running'
      ? [['Total so far', count(running)] as const]
      : total >= LEAST_AVERAGED
        ? [[`Average per ${unit}`, average((total / elapsed) * length)] as const]
        : []),
    ...(peak < 0 ? [] : [[`Busiest ${bucketName(bucket)}`, count(peakCount), when] as const]),
  ];
}

/** The shortest unit of which the average has at least one event, if that is not longer than what is shown. */
function unitOf(total: number, elapsed: number): readonly [string, number] {
  const known = UNITS.filter(([, ms]) => ms <= 1.1 * elapsed);
  return known.find(([, ms]) => (total / elapsed) * ms >= 1) ?? known.at(-1) ?? ['minute', MINUTE];
}

function drawStack(
  context: CanvasRenderingContext2D,
  stack: Stack,
  geometry: Geometry,
  palette: Palette,
  { focus, partial, found }: Marks & { readonly found: Found },
): void {
  if (stack.mode === 'running') drawBase(context, stack, geometry, palette);
  stack.layers.forEach((line, k) => {
    const [lower, upper] = stack.parts[k] ?? [];
    if (lower === undefined || upper === undefined) return;
    const isFaint = found !== null || (focus !== null && focus !== line.key);
    context.globalAlpha = isFaint ? FAINT : 1;
    context.fillStyle = palette.layers[line.color] ?? palette.found;
    if (stack.mode === 'histogram') fillBars(context, { lower, upper, totals: stack.total }, geometry);
    else fillArea(context, lower, upper, geometry);
  });
  context.globalAlpha = 1;
  if (found !== null && stack.mode === 'histogram') drawFound(context, found, geometry, palette);
  if (stack.mode === 'histogram') drawCuts(context, stack, geometry, palette);
  for (const run of runsOf(partial)) hatch(context, run, geometry, palette);
  if (stack.ghost !== null) drawGhost(context, stack, partial, geometry, palette);
  if (stack.mode !== 'histogram') drawTotal(context, stack, geometry, palette);
}

/** Where a part of a bar ends: on a logarithmic axis the whole bar is, and its parts are their shares of it. */
function upWithin(geometry: Geometry, value: number, total: number): number {
  if (geometry.scale !== 'log' || total === 0) return up(geometry, value);
  return geometry.top + geometry.height * (1 - (heightOf(total, geometry) * value) / total);
}

/** A bar's place on whole pixels: neighbors leave no seam, and share columns only where there are more of them than columns. */
function barAt(geometry: Geometry, index: number): [left: number, width: number] {
  const pitch = geometry.width / geometry.buckets;
  const gap = pitch > 12 ? Math.round(pitch * 0.14) : pitch > 3 ? 1 : 0;
  const left = Math.round(across(geometry, index));
  return [left, Math.max(1, Math.round(across(geometry, index + 1)) - left - gap)];
}

interface Layer {
  readonly lower: Float64Array;
  readonly upper: Float64Array;
  readonly totals: Float64Array | undefined;
}

/** One rectangle after the other, which is faster than a path of all; where bars share a pixel's column, a path, as faint colors would add up. */
function fillBars(
  context: CanvasRenderingContext2D,
  { lower, upper, totals }: Layer,
  geometry: Geometry,
): void {
  const isShared = geometry.width < geometry.buckets;
  context.beginPath();
  for (let i = 0; i < upper.length; i++) {
    const [from = 0, to = 0] = [lower[i], upper[i]];
    if (to === from) continue;
    const [x, width] = barAt(geometry, i);
    const total = totals?.[i] ?? to;
    // A single event among thousands is still seen: the topmost pixel of its bucket.
    const bottom = Math.round(upWithin(geometry, from, total));
    const top = Math.min(bottom - 1, Math.round(upWithin(geometry, to, total)));
    if (isShared) context.rect(x, top, width, bottom - top);
    else context.fillRect(x, top, width, bottom - top);
  }
  context.fill();
}

/** Points stand where buckets end; the first one is the range's beginning. */
function fillArea(
  context: CanvasRenderingContext2D,
  lower: Float64Array,
  upper: Float64Array,
  geometry: Geometry,
): void {
  context.beginPath();
  for (let i = 0; i < upper.length; i++) context.lineTo(across(geometry, i), up(geometry, upper[i] ?? 0));
  for (let i = lower.length - 1; i >= 0; i--)
    context.lineTo(across(geometry, i), up(geometry, lower[i] ?? 0));
  context.fill();
}

function drawFound(
  context: CanvasRenderingContext2D,
  found: readonly number[],
  geometry: Geometry,
  palette: Palette,
): void {
  const none = new Float64Array(found.length);
  const upper = Float64Array.from(found);
  context.fillStyle = palette.found;
  fillBars(context, { lower: none, upper, totals: upper }, geometry);
}

/** A gap in bars that are higher than a clipped axis. */
function drawCuts(
  context: CanvasRenderingContext2D,
  { total }: Stack,
  geometry: Geometry,
  palette: Palette,
): void {
  const ratio = devicePixelRatio;
  context.strokeStyle = palette.ground;
  context.lineWidth = 3 * ratio;
  context.beginPath();
  total.forEach((value, i) => {
    if (value <= geometry.max) return;
    const [x, width] = barAt(geometry, i);
    context.moveTo(x - ratio, geometry.top + 12 * ratio);
    context.lineTo(x + width + ratio, geometry.top + 7 * ratio);
  });
  context.stroke();
}

/** First and last of indices, in order, that follow each other. */
function runsOf(indices: readonly number[]): (readonly [first: number, last: number])[] {
  const ends = indices.filter((index, i) => indices[i + 1] !== index + 1);
  return indices
    .filter((index, i) => indices[i - 1] !== index - 1)
    .map((first, i) => [first, ends[i] ?? first]);
}

/** Stripes over neighbors that are counted in part. */
function hatch(
  context: CanvasRenderingContext2D,
  [first, last]: readonly [first: number, last: number],
  geometry: Geometry,
  palette: Palette,
): void {
  const [[x], [left, lastWidth]] = [barAt(geometry, first), barAt(geometry, last)];
  const width = left + lastWidth - x;
  const { top, height } = geometry;
  const step = 6 * devicePixelRatio;
  context.save();
  context.beginPath();
  context.rect(x, top, width, height);
  context.clip();
  context.strokeStyle = palette.ground;
  context.globalAlpha = 0.65;
  context.lineWidth = step / 3;
  context.beginPath();
  for (let y = top - width; y < top + height + width; y += step) {
    context.moveTo(x, y + width);
    context.lineTo(x + width, y);
  }
  context.stroke();
  context.restore();
}

/** The interval that is compared with: a line through the middles of the bars. */
function drawGhost(
  context: CanvasRenderingContext2D,
  { ghost, mode }: Stack,
  partial: readonly number[],
  geometry: Geometry,
  palette: Palette,
): void {
  context.strokeStyle = palette.text;
  context.lineWidth = 1.5 * devicePixelRatio;
  context.lineJoin = 'round';
  context.setLineDash([2 * devicePixelRatio, 2 * devicePixelRatio]);
  context.beginPath();
  const isOfBars = mode === 'histogram';
  ghost?.forEach((value, i) => {
    // What is counted in part was counted in the same part: the line would seem to fall.
    if (!isOfBars || !partial.includes(i))
      context.lineTo(across(geometry, isOfBars ? i + 0.5 : i), up(geometry, value));
  });
  context.stroke();
  context.setLineDash([]);
}

function drawBase(
  context: CanvasRenderingContext2D,
  stack: Stack,
  geometry: Geometry,
  palette: Palette,
): void {
  const y = up(geometry, stack.base);
  context.fillStyle = palette.base;
  context.fillRect(geometry.left, y, geometry.width, geometry.top + geometry.height - y);
}

function drawTotal(
  context: CanvasRenderingContext2D,
  { total: edge }: Stack,
  geometry: Geometry,
  palette: Palette,
): void {
  context.strokeStyle = palette.line;
  context.lineWidth = Math.max(1.5, devicePixelRatio * 1.5);
  context.lineJoin = 'round';
  context.beginPath();
  for (let i = 0; i < edge.length; i++) context.lineTo(across(geometry, i), up(geometry, edge[i] ?? 0));
  context.stroke();
}
