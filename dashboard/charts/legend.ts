/** The lines of a chart by name: switched on and off, shown alone, and summed up. */
import type { VNode } from 'preact';
import { change, compact, count } from '../format.ts';
import { html } from '../html.ts';
import type { Mode } from '../url.ts';
import { type Line, shortNames, totalOf } from './series-data.ts';

/** Characters of a name that fit next to its numbers. */
const NAME_LENGTH = 28;

export interface LegendProps {
  readonly lines: readonly Line[];
  readonly mode: Mode;
  readonly solo: string | null;
  readonly onToggle: (key: string) => void;
  readonly onSolo: (key: string) => void;
  readonly onFocus: (key: string | null) => void;
}

export function Legend({ lines, mode, solo, onToggle, onSolo, onFocus }: LegendProps): VNode {
  const all = lines.reduce((sum, line) => sum + totalOf(line, mode), 0);
  const names = shortNames(
    lines.map(({ name }) => name),
    NAME_LENGTH,
  );
  return html`<ul class="legend" aria-label="Lines of the chart">
    ${lines.map((line, index) => {
      const { key, name, color, shown, compared } = line;
      const total = totalOf(line, mode);
      const changed = compared === null ? null : change(total, compared.total);
      return html`<li
        key=${key}
        class=${shown ? '' : 'off'}
        onPointerEnter=${() => onFocus(shown ? key : null)}
        onPointerLeave=${() => onFocus(null)}
      >
        <button type="button" class="line" aria-pressed=${shown ? 'true' : 'false'} title=${`${shown ? 'Hide' : 'Show'} ${name}`} onClick=${() => onToggle(key)}>
          <i class=${`swatch c${color}`}></i><span class="name">${names[index]}</span>
          <span class="value" title=${count(total)}>${total < 100_000 ? count(total) : compact(total)}</span>
          <span class="share">${share(total, all)}</span>
          ${compared !== null && mode !== 'running' && html`<span class="change" title=${`Compared: ${count(compared.total)}`}>${changed ?? (total > 0 ? 'new' : '')}</span>`}
        </button>
        <button type="button" class="solo" aria-pressed=${solo === key ? 'true' : 'false'} aria-label=${`Only ${name}`} onClick=${() => onSolo(key)}>only</button>
      </li>`;
    })}
  </ul>`;
}

function share(part: number, all: number): string {
  if (all === 0 || part === 0) return '';
  const percent = (part / all) * 100;
  return percent < 1 ? '<1%' : `${Math.round(percent)}%`;
}
