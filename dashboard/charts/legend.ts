/** The lines of a chart by name: switched on and off, shown alone, and summed up. */
import type { VNode } from 'preact';
import { change, compact, count } from '../format.ts';
import { html } from '../html.ts';
import type { Mode } from '../url.ts';
import { type Line, shortNames, totalOf } from './series-data.ts';

/** Characters of a name that fit next to its numbers. */
const NAME_LENGTH = 20;

export interface LegendProps {
  readonly lines: readonly Line[];
  readonly mode: Mode;
  /** Whether the lines are of events that the view's filter leaves out: then their numbers would answer another question. */
  readonly isUnfiltered: boolean;
  readonly solo: string | null;
  readonly onToggle: (key: string) => void;
  readonly onSolo: (key: string) => void;
  readonly onFocus: (key: string | null) => void;
}

export function Legend({ lines, mode, isUnfiltered, solo, onToggle, onSolo, onFocus }: LegendProps): VNode {
  const totals = lines.map((line) => totalOf(line, mode));
  // Of what is shown.
  const all = lines.reduce((sum, line, index) => (line.shown ? sum + (totals[index] ?? 0) : sum), 0);
  // One format for all.
  const text = Math.max(...totals) < 1e6 ? count : compact;
  const names = shortNames(
    lines.map(({ name }) => name),
    NAME_LENGTH,
  );
  return html`${isUnfiltered && html`<p class="hint">All events, before the filter</p>`}
  <ul class="legend" aria-label="Lines of the chart">
    ${lines.map((line, index) => {
      const { key, name, color, shown, compared } = line;
      const total = totals[index] ?? 0;
      return html`<li
        key=${key}
        class=${shown ? '' : 'off'}
        onPointerEnter=${() => onFocus(shown ? key : null)}
        onPointerLeave=${() => onFocus(null)}
      >
        <button type="button" class="line" aria-pressed=${shown ? 'true' : 'false'} title=${`${shown ? 'Hide' : 'Show'} ${name}`} onClick=${() => onToggle(key)}>
          <i class=${`swatch c${color}`}></i><span class="name">${names[index]}</span>
          ${
            !isUnfiltered &&
            html`<span class="value" title=${count(total)}>${text(total)}</span>
          <span class="share">${shown && share(total, all)}</span>
          ${compared !== null && mode !== 'running' && html`<span class="change" title=${`Compared: ${count(compared.total)}`}>${changeText(total, compared.total)}</span>`}`
          }
        </button>
        <button type="button" class="solo" aria-pressed=${solo === key ? 'true' : 'false'} aria-label=${`Only ${name}`} onClick=${() => onSolo(key)}>only</button>
      </li>`;
    })}
  </ul>`;
}

function changeText(total: number, before: number): string {
  if (total === 0 && before === 0) return '';
  return before === 0 ? 'new' : (change(total, before) ?? `was ${compact(before)}`);
}

function share(part: number, all: number): string {
  if (all === 0 || part === 0) return '';
  const percent = (part / all) * 100;
  return percent < 1 ? '<1%' : `${Math.round(percent)}%`;
}
