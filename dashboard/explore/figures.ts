/** The numbers above the chart and their comparison. */
import type { VNode } from 'preact';
import type { Series } from '../../src/api-types/answers.ts';
import { bucketEnd, type Summary } from '../charts/series-data.ts';
import { average, betweenText, bucketName, bucketSpan, change, count, dateTime } from '../format.ts';
import { html } from '../html.ts';
import { comparedSpan, DAY, HOUR, MINUTE } from '../range.ts';
import type { View } from '../url.ts';
import type { Found } from './scan.ts';

export interface FiguresProps {
  readonly series: Series;
  readonly summary: Summary;
  readonly view: View;
  readonly found: Found | null;
}

/** What is compared with. */
export const COMPARED = {
  previous: 'the previous period',
  week: 'the week before',
  segment: 'the second filter',
  none: '',
} as const;
/** The average of fewer events would be about one of them. */
const LEAST_AVERAGED = 10;
/** A percentage of fewer events says nothing: three more than one are 300 %. */
export const LEAST_COMPARED = 10;
/** Units of an average, from the shortest on. */
const UNITS: readonly (readonly [string, number])[] = [
  ['minute', MINUTE],
  ['hour', HOUR],
  ['day', DAY],
  ['week', 7 * DAY],
];

/** What a view is compared with, with its dates. */
export function comparedText(
  { compare, range }: Pick<View, 'compare' | 'range'>,
  { interval, timezone }: Pick<Series, 'interval' | 'timezone'>,
): string {
  const span = comparedSpan(compare, range, { from: interval.from, to: interval.until }, timezone);
  const { from = null, to = 0 } = span ?? {};
  return from === null ? COMPARED[compare] : `${COMPARED[compare]}, ${betweenText({ from, to }, timezone)}`;
}

export function Figures({ series, summary, view, found }: FiguresProps): VNode {
  const { total, running, compared, peak, peakCount } = summary;
  const { interval, bucket, timezone: zone } = series;
  const elapsed = Math.max(MINUTE, Math.min(interval.until, Date.now()) - interval.from);
  const [unit, length] = unitOf(total, elapsed);
  if (found !== null) return html`<${FoundFigures} found=${found} zone=${zone} />`;
  const changed = compared === null || compared < LEAST_COMPARED ? null : change(total, compared);
  return html`<dl class="figures-row">
    <div class="main-figure"><dt>In this range</dt><dd>${count(total)}${
      compared !== null &&
      html` <small title=${`${count(compared)} before`}>${changed !== null ? html`<b>${changed}</b> vs ${comparedText(view, series)}` : total > 0 && html`<b>${count(compared)}</b> in ${comparedText(view, series)}`}</small>`
    }</dd></div>
    ${view.mode === 'running' && html`<div><dt>Running total</dt><dd>${count(running)}</dd></div>`}
    ${total >= LEAST_AVERAGED && html`<div><dt>Average per ${unit}</dt><dd>${average((total / elapsed) * length)}</dd></div>`}
    <div class="peak"><dt>Busiest ${bucketName(bucket)}</dt><dd>${count(peakCount)}${peak >= 0 && html` <small>${bucketSpan(series.starts[peak] ?? 0, bucketEnd(series, peak), bucket, zone)}</small>`}</dd></div>
  </dl>`;
}

interface FoundProps {
  readonly found: Found;
  readonly zone: string;
}

/** Of a search that is not over: its number is a least one. */
function FoundFigures({ found: { total, until }, zone }: FoundProps): VNode {
  return html`<dl class="figures-row">
    <div class="main-figure"><dt>Found so far</dt><dd>${count(total)}+ <small>${total > 0 && `back to ${dateTime(until, zone)}`}</small></dd></div>
  </dl>`;
}

/** The shortest unit of which the average has at least one event, if that is not longer than what is shown. */
function unitOf(total: number, elapsed: number): readonly [string, number] {
  const known = UNITS.filter(([, ms]) => ms <= 1.1 * elapsed);
  return known.find(([, ms]) => (total / elapsed) * ms >= 1) ?? known.at(-1) ?? ['minute', MINUTE];
}
