/** Counts as small bars: the last 24 hours of an app or a type, or a line of a chart; the last bar is not over. */
import type { VNode } from 'preact';
import { count } from '../format.ts';
import { html } from '../html.ts';

const HEIGHT = 40;

export interface SparklineProps {
  readonly counts: readonly number[];
  /** The count of a full bar; by default the highest of these. */
  readonly most?: number;
  /** What they are of. */
  readonly label?: string;
}

export function Sparkline({ counts, most, label = 'Last 24 hours' }: SparklineProps): VNode {
  const max = Math.max(1, most ?? Math.max(...counts));
  const total = counts.reduce((sum, value) => sum + value, 0);
  const bars = counts.map((value, hour) => {
    // An hour with a single event is still seen beside one with thousands; an empty one leaves a dot of ground.
    const height = value === 0 ? 1 : Math.max(2.5, (value / max) * HEIGHT);
    return { hour, height, isEmpty: value === 0 };
  });
  return html`<svg class="sparkline" viewBox=${`0 0 ${counts.length * 10} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`${label}: ${count(total)}`}>
    ${bars.map(({ hour, height, isEmpty }) => html`<rect key=${hour} class=${isEmpty ? 'zero' : hour === counts.length - 1 ? 'open' : ''} x=${hour * 10 + 1} y=${HEIGHT - height} width="8" height=${height} rx="1" />`)}
  </svg>`;
}
