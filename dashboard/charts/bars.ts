/** A few dozen bars in a row, each named; with a line across them, such as a limit. For numbers that need no axis. */
import type { VNode } from 'preact';
import { count, counted } from '../format.ts';
import { html } from '../html.ts';

export interface Bar {
  readonly name: string;
  readonly value: number;
  /** Stacked on top in the error color. */
  readonly second: number;
}

export interface BarsProps {
  readonly label: string;
  readonly bars: readonly Bar[];
  readonly unit: string;
  readonly secondUnit: string;
  /** A limit, drawn as a line, with a fainter one at 80 % of it; null for none. */
  readonly line: number | null;
}

const HEIGHT = 60;
/** Share of a limit from which it is near. */
export const NEAR = 0.8;
/** The line is left out if the bars would be lower than this share of it. */
const LINE_FROM = 0.25;

export function Bars({ label, bars, unit, secondUnit, line }: BarsProps): VNode {
  const most = Math.max(1, ...bars.map(({ value, second }) => value + second));
  const shown = line !== null && most >= LINE_FROM * line;
  const top = shown ? Math.max(most, line * 1.04) : most;
  const height = (value: number): number => (value === 0 ? 0 : Math.max(1.5, (value / top) * HEIGHT));
  const total = bars.reduce((sum, { value }) => sum + value, 0);
  return html`<svg class="bars" viewBox=${`0 0 ${bars.length * 10} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`${label}: ${counted(total, unit)}, at most ${count(most)}`}>
    ${bars.map(({ name, value, second }, index) => {
      const [first, above] = [height(value), height(second)];
      return html`<g key=${index}>
        <title>${`${name}: ${counted(value, unit)}${second > 0 ? `, ${count(second)} ${secondUnit}` : ''}`}</title>
        <rect class="bars-place" x=${index * 10} y="0" width="10" height=${HEIGHT} />
        <rect class=${value === 0 ? 'bars-zero' : ''} x=${index * 10 + 1} y=${HEIGHT - Math.max(first, 0.8)} width="8" height=${Math.max(first, 0.8)} />
        ${second > 0 && html`<rect class="bars-second" x=${index * 10 + 1} y=${HEIGHT - first - above} width="8" height=${above} />`}
      </g>`;
    })}
    ${shown && html`<line class="bars-near" x1="0" x2=${bars.length * 10} y1=${HEIGHT - ((NEAR * line) / top) * HEIGHT} y2=${HEIGHT - ((NEAR * line) / top) * HEIGHT} />`}
    ${shown && html`<line class="bars-line" x1="0" x2=${bars.length * 10} y1=${HEIGHT - (line / top) * HEIGHT} y2=${HEIGHT - (line / top) * HEIGHT} />`}
  </svg>`;
}
