/** Line charts as SVG, for the documentation. */
import { formatNumber } from './table.ts';

export interface Line {
  readonly name: string;
  /** In the order of x. A y that is not above 0, or NaN, leaves a gap. */
  readonly points: readonly (readonly [x: number, y: number])[];
}

export interface Axis {
  readonly label: string;
  readonly isLogarithmic?: true;
}

export interface Drawing {
  readonly title: string;
  readonly x: Axis;
  readonly y: Axis;
  readonly lines: readonly Line[];
}

const WIDTH = 720;
const HEIGHT = 360;
const PLOT = { left: 70, right: 540, top: 40, bottom: 305 };
/** Distinct in any order of color vision (Okabe and Ito), and each with a dash of its own. */
const STROKES = [
  ['#0072b2', ''],
  ['#0072b2', '6 4'],
  ['#d55e00', ''],
  ['#d55e00', '6 4'],
  ['#009e73', ''],
  ['#cc79a7', '2 3'],
] as const;

/** A position on the plot for each value, and the values that are labeled. */
interface Scale {
  readonly at: (value: number) => number;
  readonly ticks: readonly number[];
}

function scaleOf({ isLogarithmic }: Axis, values: readonly number[], from: number, to: number): Scale {
  const most = Math.max(...values);
  if (isLogarithmic === true) {
    const first = Math.floor(Math.log10(Math.min(...values)));
    const last = Math.max(first + 1, Math.ceil(Math.log10(most)));
    const ticks = Array.from({ length: last - first + 1 }, (_, index) => 10 ** (first + index));
    return { ticks, at: (value) => from + ((Math.log10(value) - first) / (last - first)) * (to - from) };
  }
  const step = stepOf(most / 5);
  const end = Math.ceil(most / step) * step;
  const ticks = Array.from({ length: Math.round(end / step) + 1 }, (_, index) => index * step);
  return { ticks, at: (value) => from + (value / end) * (to - from) };
}

/** The next of 1, 2 and 5 times a power of ten. */
function stepOf(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return ([1, 2, 5].find((factor) => factor * power >= least) ?? 10) * power;
}

/** @param lines with at least one point in all @returns the text of an SVG file */
export function draw({ title, x, y, lines }: Drawing): string {
  const points = lines.flatMap((line) => line.points).filter(([, value]) => value > 0);
  const across = scaleOf(
    x,
    points.map(([value]) => value),
    PLOT.left,
    PLOT.right,
  );
  const up = scaleOf(
    y,
    points.map(([, value]) => value),
    PLOT.bottom,
    PLOT.top,
  );
  const parts = [
    ...across.ticks.map(
      (value) =>
        `<path class="grid" d="M${pixels(across.at(value))} ${PLOT.top}V${PLOT.bottom}"/>${text(across.at(value), PLOT.bottom + 18, formatNumber(value), 'middle')}`,
    ),
    ...up.ticks.map(
      (value) =>
        `<path class="grid" d="M${PLOT.left} ${pixels(up.at(value))}H${PLOT.right}"/>${text(PLOT.left - 8, up.at(value) + 4, formatNumber(value), 'end')}`,
    ),
    text(PLOT.left, 22, title, 'start', 'title'),
    text((PLOT.left + PLOT.right) / 2, HEIGHT - 14, x.label, 'middle'),
    `<g transform="rotate(-90 16 ${(PLOT.top + PLOT.bottom) / 2})">${text(16, (PLOT.top + PLOT.bottom) / 2, y.label, 'middle')}</g>`,
    ...lines.flatMap((line, index) => drawLine(line, index, across, up)),
  ];
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img">
<title>${escaped(title)}</title>
<style>text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.grid{stroke:#ddd;fill:none}.line{fill:none;stroke-width:2}</style>
<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>
${parts.join('\n')}
</svg>
`;
}

function drawLine({ name, points }: Line, index: number, across: Scale, up: Scale): string[] {
  const [color, dash] = STROKES[index % STROKES.length] ?? STROKES[0];
  const stroke = `stroke="${color}"${dash === '' ? '' : ` stroke-dasharray="${dash}"`}`;
  const places = points
    .filter(([, value]) => value > 0)
    .map(([x, y]) => `${pixels(across.at(x))} ${pixels(up.at(y))}`);
  const legend = PLOT.top + 12 + index * 20;
  return [
    `<path class="line" ${stroke} d="M${places.join('L')}"/>`,
    ...places.map((place) => {
      const [x, y] = place.split(' ');
      return `<circle cx="${x}" cy="${y}" r="3" fill="${color}"/>`;
    }),
    `<path class="line" ${stroke} d="M${PLOT.right + 16} ${legend - 4}h24"/>${text(PLOT.right + 46, legend, name, 'start')}`,
  ];
}

function text(x: number, y: number, words: string, anchor: 'start' | 'middle' | 'end', name = ''): string {
  const className = name === '' ? '' : ` class="${name}"`;
  return `<text${className} x="${pixels(x)}" y="${pixels(y)}" text-anchor="${anchor}">${escaped(words)}</text>`;
}

function pixels(value: number): string {
  return String(Number(value.toFixed(1)));
}

function escaped(words: string): string {
  return words.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}
