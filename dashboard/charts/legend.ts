/** The lines of a chart by name: switched on and off, shown alone, and summed up. */
import type { VNode } from 'preact';
import { compact, count } from '../format.ts';
import { html } from '../html.ts';
import type { Line } from './series-data.ts';

export interface LegendProps {
  readonly lines: readonly Line[];
  readonly solo: string | null;
  readonly onToggle: (key: string) => void;
  readonly onSolo: (key: string) => void;
  readonly onFocus: (key: string | null) => void;
}

export function Legend({ lines, solo, onToggle, onSolo, onFocus }: LegendProps): VNode {
  const all = lines.reduce((sum, { total }) => sum + total, 0);
  return html`<ul class="legend" aria-label="Event types of the chart">
    ${lines.map(
      ({ key, name, colour, total, shown }) => html`<li
        key=${key}
        class=${shown ? '' : 'off'}
        onPointerEnter=${() => onFocus(shown ? key : null)}
        onPointerLeave=${() => onFocus(null)}
      >
        <button type="button" class="line" aria-pressed=${shown ? 'true' : 'false'} title=${`${shown ? 'Hide' : 'Show'} ${name}`} onClick=${() => onToggle(key)}>
          <i class=${`swatch c${colour}`}></i><span class="name">${name}</span>
          <span class="value" title=${count(total)}>${total < 100_000 ? count(total) : compact(total)}</span>
          <span class="share">${share(total, all)}</span>
        </button>
        <button type="button" class="solo" aria-pressed=${solo === key ? 'true' : 'false'} aria-label=${`Only ${name}`} onClick=${() => onSolo(key)}>only</button>
      </li>`,
    )}
  </ul>`;
}

function share(part: number, all: number): string {
  if (all === 0 || part === 0) return '';
  const percent = (part / all) * 100;
  return percent < 1 ? '<1%' : `${Math.round(percent)}%`;
}
