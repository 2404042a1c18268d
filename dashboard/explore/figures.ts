/** The numbers above the chart and their comparison. */
import type { VNode } from 'preact';
import type { Series } from '../answers.ts';
import { bucketEnd, type Summary } from '../charts/series-data.ts';
import { average, bucketSpan, change, count } from '../format.ts';
import { html } from '../html.ts';
import { DAY, HOUR, MINUTE } from '../range.ts';
import type { View } from '../url.ts';
import type { Found } from './found.ts';

export interface FiguresProps {
  readonly series: Series;
  readonly summary: Summary;
  readonly view: View;
  readonly found: Found | null;
}

/** Label of a change, by comparison. */
export const COMPARED = { previous: 'vs the period before', week: 'vs a week before', none: '' } as const;
/** Units of an average, from the shortest on. */
const UNITS: readonly (readonly [string, number])[] = [
  ['minute', MINUTE],
  ['hour', HOUR],
  ['day', DAY],
  ['week', 7 * DAY],
];

export function Figures({ series, summary, view, found }: FiguresProps): VNode {
  const { total, running, compared, peak, peakCount } = summary;
  const { interval, bucket, timezone: zone } = series;
  const elapsed = Math.max(MINUTE, Math.min(interval.until, Date.now()) - interval.from);
  const [unit, length] = unitOf(total, elapsed);
  const changed = compared === null ? null : change(total, compared);
  return html`<dl class="figures-row">
    <div class="main-figure"><dt>${found === null ? 'In this range' : 'Found'}</dt><dd>${count(found?.total ?? total)}${
      found === null
        ? compared !== null &&
          html` <small title=${`${count(compared)} before`}>${changed === null ? (total > 0 ? `${count(compared)} before` : '') : html`<b>${changed}</b> ${COMPARED[view.compare]}`}</small>`
        : html` <small>${found.complete ? `of ${count(total)}` : `so far, of ${count(total)}`}</small>`
    }</dd></div>
    ${view.mode === 'running' && html`<div><dt>Running total</dt><dd>${count(running)}</dd></div>`}
    ${
      // Of what was found so far there is neither.
      found === null &&
      html`<div><dt>Average per ${unit}</dt><dd>${average((total / elapsed) * length)}</dd></div>
    <div class="peak"><dt>Peak</dt><dd>${count(peakCount)}${peak >= 0 && html` <small>${bucketSpan(series.starts[peak] ?? 0, bucketEnd(series, peak), bucket, zone)}</small>`}</dd></div>`
    }
  </dl>`;
}

/** The shortest unit of which the average has at least one event, if that is not longer than what is shown. */
function unitOf(total: number, elapsed: number): readonly [string, number] {
  const known = UNITS.filter(([, ms]) => ms <= 1.1 * elapsed);
  return known.find(([, ms]) => (total / elapsed) * ms >= 1) ?? known.at(-1) ?? ['minute', MINUTE];
}
