/** The lines of a chart by name and number: a click filters by a line, an eye leaves it out of the drawing alone. */
import type { VNode } from 'preact';
import { Icon } from '../components/icon.ts';
import { change, changeText, compact, count, share } from '../format.ts';
import { html } from '../html.ts';
import { HIDDEN, type Mode } from '../url.ts';
import type { Curve } from './curve.ts';
import { isCounted, type Line, OTHER, shortNames, totalOf } from './series-data.ts';

/** Characters of a name that fit next to its numbers. */
const NAME_LENGTH = 26;

export interface LegendProps {
  readonly lines: readonly Line[];
  readonly mode: Mode;
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

export function Legend(props: LegendProps): VNode {
  const { lines, mode, isUnfiltered, comparedTo } = props;
  const totals = lines.map((line) => totalOf(line, mode));
  const all = lines.reduce((sum, line, index) => (isCounted(line) ? sum + (totals[index] ?? 0) : sum), 0);
  const isCompared = mode !== 'running' && lines.some(({ compared }) => compared !== null);
  // One format for all.
  const text = Math.max(...totals) < 1e6 ? count : compact;
  const names = shortNames(
    lines.map(({ name }) => name),
    NAME_LENGTH,
  );
  return html`${isUnfiltered && html`<p class="hint">All events, before the filter</p>`}
  <ul class="legend" aria-label="Lines of the chart">
    ${lines.map((line, index) => {
      const total = totals[index] ?? 0;
      const { compared } = line;
      return html`<${Row} key=${line.key} ...${props} line=${line} name=${names[index] ?? ''} numbers=${
        !isUnfiltered &&
        html`<span class="value" title=${count(total)}>${text(total)}</span>
        <span class="share">${isCounted(line) && share(total, all)}</span>
        ${isCompared && html`<span class="change" title=${compared && inDates(count(compared.total), comparedTo)}>${compared && changeText(total, compared.total)}</span>`}`
      } />`;
    })}
  </ul>
  ${lines.some((line) => isCounted(line) && !line.shown) && html`<p class="hint" role="status">Lines with a closed eye are not drawn. The numbers and the list include them.</p>`}`;
}

export interface CurveRowsProps
  extends Pick<LegendProps, 'comparedTo' | 'picked' | 'onPick' | 'onToggle' | 'onFocus'> {
  readonly curve: Curve;
}

/** The lines of a measure: of each its own number, the share of all, and the change. */
export function CurveRows({ curve, comparedTo, ...given }: CurveRowsProps): VNode {
  const { lines, text } = curve;
  const isCompared = lines.some(({ before }) => before !== null);
  const names = shortNames(
    lines.map(({ name }) => name),
    NAME_LENGTH,
  );
  return html`<ul class="legend" aria-label="Lines of the chart">
    ${lines.map(
      (line, index) =>
        html`<${Row} key=${line.key} ...${given} line=${line} name=${names[index] ?? ''} numbers=${html`<span class="value">${line.overall === null ? '–' : text(line.overall)}</span>
        <span class="share" title=${shareTitle(curve)}>${shareOf(curve, line)}</span>
        ${isCompared && html`<span class="change" title=${line.before !== null && inDates(text(line.before), comparedTo)}>${line.before !== null && ((line.overall === null ? null : change(line.overall, line.before)) ?? `from ${text(line.before)}`)}</span>`}`} />`,
    )}
  </ul>`;
}

/** `1,000 in the previous period, 1 – 7 Nov 2026` */
const inDates = (text: string, comparedTo: string): string => `${text} in ${comparedTo}`;

/** Which share a line has: of the sum, or of the events, as other statistics have none. */
export function shareOf({ stack, overall, parts }: Curve, line: Curve['lines'][number]): string {
  const [all, own] = stack !== null ? [overall ?? 0, line.overall ?? 0] : [parts[0]?.[1] ?? 0, line.count];
  return share(own, all);
}

export const shareTitle = ({ stack }: Curve): string =>
  stack === null ? 'Share of the events' : 'Share of the sum';

interface RowProps extends Pick<LegendProps, 'picked' | 'onPick' | 'onToggle' | 'onFocus'> {
  readonly line: Pick<Line, 'key' | 'name' | 'color' | 'shown'>;
  /** As it fits. */
  readonly name: string;
  readonly numbers: VNode | false;
}

function Row({ line, name: short, numbers, picked, onPick, onToggle, onFocus }: RowProps): VNode {
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
