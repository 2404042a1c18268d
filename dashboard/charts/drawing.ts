/** What is painted inside the axes: stacked bars, stacked areas, and the background. Device pixels throughout. */
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
}

export interface Palette {
  /** By a line's colour index. */
  readonly layers: readonly string[];
  /** The accumulated total's line. */
  readonly line: string;
  /** The ground of what lies before the range. */
  readonly base: string;
  readonly grid: string;
  readonly text: string;
}

/** How faint the other layers are while one is pointed at. */
const FAINT = 0.22;

/** Paints the stack. @param focus key of the layer that stands out, null for none */
export function drawStack(
  context: CanvasRenderingContext2D,
  stack: Stack,
  geometry: Geometry,
  palette: Palette,
  focus: string | null,
): void {
  context.save();
  context.beginPath();
  context.rect(geometry.left, geometry.top, geometry.width, geometry.height);
  context.clip();
  if (stack.mode === 'accumulated') drawBase(context, stack, geometry, palette);
  stack.layers.forEach((line, k) => {
    const [lower, upper] = [stack.edges[k], stack.edges[k + 1]];
    if (lower === undefined || upper === undefined) return;
    context.globalAlpha = focus === null || focus === line.key ? 1 : FAINT;
    context.fillStyle = palette.layers[line.colour] ?? palette.text;
    context.beginPath();
    if (stack.mode === 'histogram') addBars(context, lower, upper, geometry);
    else addArea(context, lower, upper, geometry);
    context.fill();
  });
  context.globalAlpha = 1;
  if (stack.mode === 'accumulated') drawTotal(context, stack, geometry, palette);
  context.restore();
}

const across = ({ left, width, buckets }: Geometry, index: number): number =>
  left + (index / buckets) * width;
const up = ({ top, height, min, max }: Geometry, value: number): number =>
  top + height * (1 - (value - min) / (max - min));

/** Bars on whole pixels: neighbors neither overlap nor leave a seam. */
function addBars(
  context: CanvasRenderingContext2D,
  lower: Float64Array,
  upper: Float64Array,
  geometry: Geometry,
): void {
  const pitch = geometry.width / geometry.buckets;
  const gap = pitch > 12 ? Math.round(pitch * 0.12) : pitch > 3 ? 1 : 0;
  for (let i = 0; i < upper.length; i++) {
    const [from = 0, to = 0] = [lower[i], upper[i]];
    if (to === from) continue;
    const x = Math.round(across(geometry, i));
    const width = Math.max(1, Math.round(across(geometry, i + 1)) - x - gap);
    // A single event among thousands is still seen: the topmost pixel of its bucket.
    const bottom = Math.round(up(geometry, from));
    const top = Math.min(bottom - 1, Math.round(up(geometry, to)));
    context.rect(x, top, width, bottom - top);
  }
}

/** Points stand where buckets end; the first one is the range's beginning. */
function addArea(
  context: CanvasRenderingContext2D,
  lower: Float64Array,
  upper: Float64Array,
  geometry: Geometry,
): void {
  for (let i = 0; i < upper.length; i++) context.lineTo(across(geometry, i), up(geometry, upper[i] ?? 0));
  for (let i = lower.length - 1; i >= 0; i--)
    context.lineTo(across(geometry, i), up(geometry, lower[i] ?? 0));
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
  stack: Stack,
  geometry: Geometry,
  palette: Palette,
): void {
  const edge = stack.edges.at(-1);
  if (edge === undefined) return;
  context.strokeStyle = palette.line;
  context.lineWidth = Math.max(1.5, devicePixelRatio * 1.5);
  context.lineJoin = 'round';
  context.beginPath();
  for (let i = 0; i < edge.length; i++) context.lineTo(across(geometry, i), up(geometry, edge[i] ?? 0));
  context.stroke();
}
