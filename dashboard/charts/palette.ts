/** The chart's colors as the stylesheet has them now: a canvas does not follow custom properties by itself. */
import type { Palette } from './drawing.ts';
import { COLORS } from './series-data.ts';

/** Reads the colors from an element, which inherits the light or dark theme. */
export function readPalette(place: HTMLElement): Palette {
  const probe = document.createElement('span');
  place.append(probe);
  const forced = matchMedia('(forced-colors: active)').matches;
  if (forced) probe.style.setProperty('forced-color-adjust', 'none');
  const color = (name: string): string => computed(probe, `var(--${name})`);
  const names = Array.from({ length: COLORS + 1 }, (_, index) => `series-${index}`);
  const text = forced ? computed(probe, 'CanvasText') : color('text');
  const palette = {
    // Forced colors are too few to distinguish types: patterns do.
    layers: forced ? names.map((_, index) => pattern(index, text)) : names.map(color),
    line: text,
    base: color('series-base'),
    grid: forced ? computed(probe, 'GrayText') : color('grid'),
    text: forced ? text : color('muted'),
    incident: forced ? text : color('danger'),
    ground: forced ? computed(probe, 'Canvas') : color('surface'),
    found: forced ? computed(probe, 'Highlight') : color('accent'),
  };
  probe.remove();
  return palette;
}

function computed(probe: HTMLElement, color: string): string {
  probe.style.color = color;
  return getComputedStyle(probe).color;
}

/** Strokes in a tile of 8 by 8; those of the style sheet's swatches. */
const STROKES: readonly string[] = [
  '',
  'M0 8 8 0',
  'M0 0 8 8',
  'M0 4h8',
  'M4 0v8',
  'M0 4h8M4 0v8',
  'M0 8 8 0M0 0 8 8',
];

/** A pattern in one color; the rest, and what is beyond the patterns, is filled. */
function pattern(index: number, color: string): string | CanvasPattern {
  const strokes = STROKES[index % STROKES.length] ?? '';
  const tile = document.createElement('canvas');
  tile.width = tile.height = 8 * Math.ceil(devicePixelRatio);
  const context = tile.getContext('2d');
  if (context === null || strokes === '') return color;
  context.scale(Math.ceil(devicePixelRatio), Math.ceil(devicePixelRatio));
  context.strokeStyle = color;
  context.lineWidth = 2;
  context.stroke(new Path2D(strokes));
  return context.createPattern(tile, 'repeat') ?? color;
}
