/** Draws the plot area: stacked bars, stacked areas, and the background, in device pixels. */
import type { Scale } from '../url.ts';
import type { Curve, Values } from './curve.ts';
import type { Stack } from './series-data.ts';

/** From indices and counts to the canvas. */
export interface Geometry {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** Buckets across the width. */
  readonly buckets: number;
  readonly min: number;
  readonly max: number;
  readonly scale: Scale;
}

export interface Palette {
  /** By a line's color index. */
  readonly layers: readonly (string | CanvasPattern)[];
  /** The accumulated total's line. */
  readonly line: string;
  /** The ground of what lies before the range. */
  readonly base: string;
  readonly grid: string;
  readonly text: string;
  /** An annotation of an incident. */
  readonly incident: string;
  /** The ground of the chart. */
  readonly ground: string;
  /** Events that a search has found, and the line of a measure. */
  readonly found: string;
}

/** What is drawn in addition to the stack. */
export interface Marks {
  /** Key of the layer that stands out, null for none. */
  readonly focus: string | null;
  /** Buckets that are counted in part. */
  readonly partial: readonly number[];
  /** Events found by a search, by bucket: the stack is then the faint background. */
  readonly found: readonly number[] | null;
}

/** Opacity of the other layers while one is highlighted, and of all layers behind search results. */
const FAINT = 0.22;

export function drawStack(
  context: CanvasRenderingContext2D,
  stack: Stack,
  geometry: Geometry,
  palette: Palette,
  marks: Marks,
): void {
  if (stack.mode === 'running') drawBase(context, stack, geometry, palette);
  stack.layers.forEach((line, k) => {
    const [lower, upper] = stack.parts[k] ?? [];
    if (lower === undefined || upper === undefined) return;
    const isFaint = marks.found !== null || (marks.focus !== null && marks.focus !== line.key);
    context.globalAlpha = isFaint ? FAINT : 1;
    context.fillStyle = palette.layers[line.color] ?? palette.found;
    if (stack.mode === 'histogram') fillBars(context, { lower, upper, totals: stack.total }, geometry);
    else fillArea(context, lower, upper, geometry);
  });
  context.globalAlpha = 1;
  if (marks.found !== null && stack.mode === 'histogram') drawFound(context, marks.found, geometry, palette);
  if (stack.mode === 'histogram') drawCuts(context, stack, geometry, palette);
  for (const run of runsOf(marks.partial)) hatch(context, run, geometry, palette);
  if (stack.ghost !== null) drawGhost(context, stack, marks.partial, geometry, palette);
  if (stack.mode !== 'histogram') drawTotal(context, stack, geometry, palette);
}

/** Lines through the middles of the buckets, with gaps where there is no number; what a single one is compared with is dashed. */
export function drawCurve(
  context: CanvasRenderingContext2D,
  { values, compared, lines }: Curve,
  geometry: Geometry,
  palette: Palette,
  focus: string | null,
): void {
  const ratio = devicePixelRatio;
  context.lineJoin = 'round';
  const drawn = lines.filter(({ shown }) => shown);
  // The line with the most events lies on top.
  for (const line of drawn.toReversed()) {
    context.globalAlpha = focus !== null && focus !== line.key ? FAINT : 1;
    const color = palette.layers[line.color] ?? palette.text;
    strokeValues(context, line.values, geometry, color);
  }
  context.globalAlpha = 1;
  if (drawn.length > 0) return;
  context.strokeStyle = palette.text;
  context.lineWidth = 1.5 * ratio;
  context.setLineDash([2 * ratio, 2 * ratio]);
  strokeRuns(context, compared?.values ?? [], geometry);
  context.setLineDash([]);
  strokeValues(context, values, geometry, palette.found);
}

function strokeValues(
  context: CanvasRenderingContext2D,
  values: Values,
  geometry: Geometry,
  color: string | CanvasPattern,
): void {
  const ratio = devicePixelRatio;
  context.strokeStyle = color;
  context.fillStyle = color;
  context.lineWidth = 2 * ratio;
  strokeRuns(context, values, geometry);
  context.beginPath();
  values.forEach((value, i) => {
    // A number between two gaps has no line: it is a dot.
    if (value === null || (values[i - 1] ?? null) !== null || (values[i + 1] ?? null) !== null) return;
    const x = across(geometry, i + 0.5);
    context.moveTo(x, up(geometry, value));
    context.arc(x, up(geometry, value), 2.5 * ratio, 0, 2 * Math.PI);
  });
  context.fill();
}

function strokeRuns(context: CanvasRenderingContext2D, values: Values, geometry: Geometry): void {
  context.beginPath();
  values.forEach((value, i) => {
    if (value === null) return;
    const [x, y] = [across(geometry, i + 0.5), up(geometry, value)];
    if ((values[i - 1] ?? null) === null) context.moveTo(x, y);
    else context.lineTo(x, y);
  });
  context.stroke();
}

export const across = ({ left, width, buckets }: Geometry, index: number): number =>
  left + (index / buckets) * width;

/** The share of the height at which a value stands. */
export function heightOf(
  value: number,
  { min, max, scale }: Pick<Geometry, 'min' | 'max' | 'scale'>,
): number {
  if (scale === 'log') return Math.log10(1 + value) / Math.log10(1 + max);
  return (value - min) / (max - min);
}

const up = (geometry: Geometry, value: number): number =>
  geometry.top + geometry.height * (1 - heightOf(value, geometry));

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
