/** The numbers above the chart and their comparison. */
import type { VNode } from 'preact';
import type { Compared, Series } from '../../src/api-types/answers.ts';
import { bucketEnd, type Summary } from '../charts/series-data.ts';
import {
  average,
  betweenText,
  bucketName,
  bucketSpan,
  change,
  count,
  dateTime,
  LEAST_COMPARED,
} from '../format.ts';
import { html } from '../html.ts';
import { type Compare, DAY, HOUR, MINUTE } from '../range.ts';
import type { View } from '../url.ts';
import type { Found } from './scan.ts';

export interface FiguresProps {
  readonly series: Series;
  readonly summary: Summary;
  readonly view: View;
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
/** The average of fewer events would be about one of them. */
const LEAST_AVERAGED = 10;
/** Units of an average, from the shortest on. */
const UNITS: readonly (readonly [string, number])[] = [
  ['minute', MINUTE],
  ['hour', HOUR],
  ['day', DAY],
  ['week', 7 * DAY],
];

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

export function Figures({ series, summary, view, found, isRunning }: FiguresProps): VNode {
  const { total, running, compared, peak, peakCount } = summary;
  const { interval, bucket, timezone: zone } = series;
  const elapsed = Math.max(MINUTE, Math.min(interval.until, Date.now()) - interval.from);
  const [unit, length] = unitOf(total, elapsed);
  if (found !== null)
    return html`<${FoundFigures} found=${found} isRunning=${isRunning} from=${interval.from} zone=${zone} />`;
  const changed = compared === null || compared < LEAST_COMPARED ? null : change(total, compared);
  return html`<dl class="figures-row">
    <div class="main-figure"><dt>In this range</dt><dd>${count(total)}${
      compared !== null &&
      html` <small title=${`${count(compared)} before`}>${changed !== null ? html`<b>${changed}</b> vs ${comparedText(view.compare, series)}` : total > 0 && html`<b>${count(compared)}</b> in ${comparedText(view.compare, series)}`}</small>`
    }</dd></div>
    ${view.mode === 'running' ? html`<div><dt>Total so far</dt><dd>${count(running)}</dd></div>` : total >= LEAST_AVERAGED && html`<div><dt>Average per ${unit}</dt><dd>${average((total / elapsed) * length)}</dd></div>`}
    <div class="peak"><dt>Busiest ${bucketName(bucket)}</dt><dd>${count(peakCount)}${peak >= 0 && html` <small>${bucketSpan(series.starts[peak] ?? 0, bucketEnd(series, peak), bucket, zone)}</small>`}</dd></div>
  </dl>`;
}

interface FoundProps {
  readonly found: Found;
  readonly isRunning: boolean;
  /** Where the range begins. */
  readonly from: number;
  readonly zone: string;
}

/** Of a search that is not over its number is a least one; one that is has looked at everything. */
function FoundFigures({ found: { total, until }, isRunning, from, zone }: FoundProps): VNode {
  const isOver = until <= from;
  // Nothing yet is no number.
  const isCalm = isRunning && !isOver && total === 0;
  return html`<dl class="figures-row">
    <div class="main-figure"><dt>${isOver ? 'Found' : isCalm ? 'Searching' : 'Found so far'}</dt><dd>${isCalm ? '…' : count(total)}${!isOver && !isCalm && html`${total > 0 && '+'} <small>back to ${dateTime(until, zone)}</small>`}</dd></div>
  </dl>`;
}

/** The shortest unit of which the average has at least one event, if that is not longer than what is shown. */
function unitOf(total: number, elapsed: number): readonly [string, number] {
  const known = UNITS.filter(([, ms]) => ms <= 1.1 * elapsed);
  return known.find(([, ms]) => (total / elapsed) * ms >= 1) ?? known.at(-1) ?? ['minute', MINUTE];
}
