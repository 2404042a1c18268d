/** The lines of a chart by name and number: a click filters by a line, an eye leaves it out of the drawing alone. */
import type { VNode } from 'preact';
import { Icon } from '../components/icon.ts';
import { html } from '../html.ts';
import { HIDDEN } from '../url.ts';
import type { Drawing, LegendLine } from './drawing.ts';
import { OTHER, shortNames } from './series-data.ts';

/** Characters of a name that fit next to its numbers. */
const NAME_LENGTH = 26;

export interface LegendProps {
  readonly drawing: Drawing;
  /** What the lines are compared with; empty: nothing. */
  readonly comparedTo: string;
  /** Whether the lines are of events that the view's filter leaves out: then their numbers would answer another question. */
  readonly isUnfiltered: boolean;
  /** Keys of the lines that the view is filtered by. */
  readonly picked: readonly string[];
  /** Filters by a line, or leaves its events out. */
  readonly onPick: (key: string, isExcluded: boolean) => void;
  /** Draws a line, or does not. */
  readonly onToggle: (key: string) => void;
  readonly onFocus: (key: string | null) => void;
}

/** Each line with its own number, the share of all, and the change; or what a number without lines is made of. */
export function Legend({ drawing, comparedTo, isUnfiltered, ...given }: LegendProps): VNode | null {
  const { name, legend, isApart, parts, shareTitle, strengths } = drawing;
  if (!isApart)
    return parts.length > 0
      ? html`<div class="legend-parts">
    <p><i class="swatch found"></i>${name}</p>
    <dl>${parts.map(([part, value]) => html`<div key=${part}><dt>${part}</dt><dd title=${value}>${value}</dd></div>`)}</dl>
    <${Strengths} of=${strengths} />
  </div>`
      : null;
  const isCompared = legend.some(({ before }) => before !== null);
  const names = shortNames(
    legend.map((line) => line.name),
    NAME_LENGTH,
  );
  return html`${isUnfiltered && html`<p class="hint">All events, before the filter</p>`}
  <ul class="legend" aria-label="Lines of the chart">
    ${legend.map(
      (line, index) =>
        html`<${LegendRow} key=${line.key} ...${given} line=${line} name=${names[index] ?? ''} numbers=${
          !isUnfiltered &&
          html`<span class="value" title=${line.exact}>${line.value}</span>
        <span class="share" title=${shareTitle}>${line.share}</span>
        ${isCompared && html`<span class="change" title=${line.before !== null && `${line.before} in ${comparedTo}`}>${line.change}</span>`}`
        } />`,
    )}
  </ul>
  ${legend.some(({ key, shown }) => !shown && key !== HIDDEN) && html`<p class="hint" role="status">Lines with a closed eye are not drawn. The numbers and the list include them.</p>`}`;
}

/** What the strengths of a color say. */
export function Strengths({ of = [] }: { readonly of?: Drawing['strengths'] }): VNode | null {
  if (of.length === 0) return null;
  return html`<ul class="strengths"><li>Events in a cell</li>${of.map(([opacity, text]) => html`<li key=${text}><i class="swatch found" style=${{ opacity }}></i>${text}</li>`)}</ul>`;
}

interface RowProps extends Pick<LegendProps, 'picked' | 'onPick' | 'onToggle' | 'onFocus'> {
  readonly line: Pick<LegendLine, 'key' | 'name' | 'color' | 'shown'>;
  /** As it fits. */
  readonly name: string;
  readonly numbers: VNode | false;
}

function LegendRow({ line, name: short, numbers, picked, onPick, onToggle, onFocus }: RowProps): VNode {
  const { key, name, color, shown } = line;
  const isPicked = picked.includes(key);
  const isRest = key === OTHER;
  const eye = `${shown ? 'Hide' : 'Draw'} ${name} in the chart`;
  return html`<li class=${shown ? '' : 'off'} onPointerEnter=${() => onFocus(shown ? key : null)} onPointerLeave=${() => onFocus(null)}>
    <button
      type="button"
      class="line"
      aria-pressed=${isRest ? undefined : isPicked ? 'true' : 'false'}
      aria-haspopup=${isRest ? 'dialog' : undefined}
      title=${titleOf(line, isPicked)}
      onClick=${(event: MouseEvent) => {
        onFocus(null);
        onPick(key, event.altKey);
      }}
    >
      <i class=${`swatch c${color}`}></i><span class="name">${short}${isRest && '…'}</span>${numbers}
    </button>
    ${key !== HIDDEN && html`<button type="button" class="eye" aria-label=${eye} title=${eye} onClick=${() => onToggle(key)}><${Icon} name=${shown ? 'eye' : 'eyeClosed'} /></button>`}
  </li>`;
}

function titleOf({ key, name, shown }: RowProps['line'], isPicked: boolean): string {
  if (key === OTHER) return 'Show all of them';
  if (key === HIDDEN) return `${shown ? 'Leave out' : 'Show'} ${name} in chart and list`;
  return isPicked ? `No longer filter by ${name}` : `Only ${name}. With Alt: all but ${name}`;
}
