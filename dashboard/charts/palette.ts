/** The chart's colours as the stylesheet has them now: a canvas does not follow custom properties by itself. */
import type { Palette } from './drawing.ts';
import { COLOURS } from './series-data.ts';

/** Reads the colours through an element, in whose place light or dark is decided. */
export function readPalette(place: HTMLElement): Palette {
  const probe = document.createElement('span');
  place.append(probe);
  const colour = (name: string): string => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const palette = {
    layers: Array.from({ length: COLOURS + 1 }, (_, index) => colour(`series-${index}`)),
    line: colour('text'),
    base: colour('series-base'),
    grid: colour('grid'),
    text: colour('muted'),
  };
  probe.remove();
  return palette;
}
