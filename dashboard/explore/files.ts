/** Downloads that the browser builds from what is shown. */
import type { Series } from '../../src/api-types/answers.ts';
import type { Drawing, Palette } from '../charts/drawing.ts';
import { readPalette } from '../charts/palette.ts';
import { spanText } from '../format.ts';
import { toWall } from '../time-zone.ts';

/** `web-shop-2026-11-20t14-00-2026-11-21t14-00.csv`, by the clock of the page. */
export function fileName(name: string, { interval, timezone }: Series, kind: string): string {
  const clock = (instant: number): string => new Date(toWall(instant, timezone)).toISOString().slice(0, 16);
  const stem = [name, clock(interval.from), clock(interval.until)].join('-');
  return `${stem.replace(/[^\p{L}\p{N}]+/gu, '-').toLowerCase()}.${kind}`;
}

export function save(name: string, content: Blob): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  // After the browser has begun to read it.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

const HEAD = 48;
const LINE = 22;
const PADDING = 16;

/** The chart as it is drawn now, with its title and its legend; null where there is none. */
export async function chartPicture(
  name: string,
  { series, ...drawing }: Drawing,
  drawn: HTMLCanvasElement | null,
): Promise<Blob | null> {
  if (drawn === null) return null;
  const ratio = devicePixelRatio;
  const palette = readPalette(document.body);
  const rows = legendOf(drawing, palette);
  const canvas = document.createElement('canvas');
  canvas.width = drawn.width + 2 * PADDING * ratio;
  canvas.height = drawn.height + (HEAD + rows.length * LINE + 2 * PADDING) * ratio;
  const context = canvas.getContext('2d');
  if (context === null) return null;
  context.fillStyle = palette.ground;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(drawn, PADDING * ratio, (PADDING + HEAD) * ratio);
  context.scale(ratio, ratio);
  context.fillStyle = palette.line;
  context.font = '600 16px system-ui, sans-serif';
  context.fillText(name, PADDING, PADDING + 16);
  context.font = '13px system-ui, sans-serif';
  context.fillText(
    spanText(series.interval.from, series.interval.until, series.timezone),
    PADDING,
    PADDING + 36,
  );
  rows.forEach(({ color, text, opacity = 1 }, index) => {
    const top = PADDING + HEAD + drawn.height / ratio + index * LINE;
    context.fillStyle = color;
    context.globalAlpha = opacity;
    context.fillRect(PADDING, top + 2, 12, 12);
    context.globalAlpha = 1;
    context.fillStyle = palette.line;
    context.fillText(text, PADDING + 20, top + 12);
  });
  return await new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
}

interface LegendRow {
  readonly color: string | CanvasPattern;
  readonly text: string;
  readonly opacity?: number;
}

function legendOf(
  { name, overall, text, legend, strengths = [] }: Omit<Drawing, 'series'>,
  { layers, found, text: other }: Palette,
): LegendRow[] {
  const lines = legend.filter(({ shown }) => shown);
  if (lines.length === 0)
    return [
      { color: found, text: name + (overall === null ? '' : `   ${text(overall)}`) },
      ...strengths.map(([opacity, events]) => ({
        color: found,
        opacity,
        text: `${events} events in a cell`,
      })),
    ];
  return lines.map((line) => ({
    color: layers[line.color] ?? other,
    text: `${line.name}   ${line.exact ?? line.value}`,
  }));
}
