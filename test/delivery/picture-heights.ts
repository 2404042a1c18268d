/** What a picture of a digest shows, from its pixels. */
import type { PNG } from 'pngjs';
import { PICTURE_COLORS } from '../../src/delivery/picture.ts';

/** The bars, or the line, of one ink: for each day its uppermost row from the axis up, 0 where there is none. */
export function heightsOf(png: PNG, ink: keyof typeof PICTURE_COLORS): number[] {
  const [red, green, blue] = [1, 3, 5].map((at) =>
    Number.parseInt(PICTURE_COLORS[ink].slice(at, at + 2), 16),
  );
  return Array.from({ length: 7 }, (_, day) => {
    for (let y = 0; y < png.height - 2; y += 1)
      for (let x = Math.floor((day * png.width) / 7); x < ((day + 1) * png.width) / 7; x += 1) {
        const at = 4 * (y * png.width + x);
        const [r, g, b, opacity] = png.data.subarray(at, at + 4);
        if (r === red && g === green && b === blue && opacity === 255) return png.height - 2 - y;
      }
    return 0;
  });
}
