/** The numbers above the chart and their comparison. */
import type { VNode } from 'preact';
import type { Compared } from '../../src/api-types/answers.ts';
import type { Drawing } from '../charts/drawing.ts';
import { betweenText, change, count, dateTime, LEAST_COMPARED } from '../format.ts';
import { html } from '../html.ts';
import type { Compare } from '../range.ts';
import type { Found } from './scan.ts';

export interface FiguresProps {
  readonly drawing: Drawing;
  /** What it is compared with. */
  readonly comparedTo: string;
  readonly isLoading: boolean;
  /** In place of these numbers, what a search has found. */
  readonly found: Found | null;
  /** Whether more may be found soon. */
  readonly isRunning: boolean;
}

/** What is compared with. */
const COMPARED: Record<Compare, string> = {
  previous: 'the previous period',
  week: 'the same weekdays before',
  month: 'the month before',
  year: 'the year before',
  segment: 'the second filter',
  none: '',
};
/** What a view is compared with, with its dates; a second filter is of the same ones. */
export const comparedText = (
  compare: Compare,
  { compared, timezone }: { readonly compared: Pick<Compared, 'interval'> | null; readonly timezone: string },
): string =>
  [COMPARED[compare], compare !== 'segment' && compared && datesOf(compared, timezone)]
    .filter(Boolean)
    .join(', ');

/** The dates of what is compared with; empty where it is of the same time. */
export const datesOf = ({ interval }: Pick<Compared, 'interval'>, zone: string): string =>
  interval === null ? '' : betweenText({ from: interval.from, to: interval.until }, zone);

export function Figures({ drawing, comparedTo, isLoading, found, isRunning }: FiguresProps): VNode {
  const { series, label, overall, before, text } = drawing;
  if (found !== null)
    return html`<${FoundFigures} found=${found} isRunning=${isRunning} from=${series.interval.from} zone=${series.timezone} />`;
  // A percentage of a few events says nothing.
  const isFew = label === null && (before ?? 0) < LEAST_COMPARED;
  const changed = overall === null || before === null || isFew ? null : change(overall, before);
  return html`<dl class="figures-row">
    <div class="main-figure"><dt>${label ?? 'In this range'}</dt><dd aria-busy=${isLoading}>${overall === null ? '–' : text(overall)}${isLoading && html` <small role="status">Reading…</small>`}${
      before !== null &&
      (label !== null || changed !== null || overall !== 0) &&
      html` <small title=${`${text(before)} before`}>${changed === null ? html`<b>${text(before)}</b> in ` : html`<b>${changed}</b> vs `}${comparedTo}</small>`
    }</dd></div>
    ${drawing.figures().map(([name, value, of]) => html`<div key=${name} class=${of === undefined ? '' : 'peak'}><dt>${name}</dt><dd>${value}${of && html` <small>${of}</small>`}</dd></div>`)}
  </dl>`;
}

interface FoundProps {
  readonly found: Found;
  readonly isRunning: boolean;
  /** Where the range begins. */
  readonly from: number;
  readonly zone: string;
}

/** The number of a search: a lower bound until the search has looked at everything. */
function FoundFigures({ found: { total, until }, isRunning, from, zone }: FoundProps): VNode {
  const isOver = until <= from;
  // Nothing yet is no number.
  const isCalm = isRunning && !isOver && total === 0;
  return html`<dl class="figures-row">
    <div class="main-figure"><dt>${isOver ? 'Found' : isCalm ? 'Searching' : 'Found so far'}</dt><dd>${isCalm ? '…' : count(total)}${!isOver && !isCalm && html`${total > 0 && '+'} <small>back to ${dateTime(until, zone)}</small>`}</dd></div>
  </dl>`;
}
