/** What a filter that nothing meets offers: the same in longer ranges. */
import type { VNode } from 'preact';
import { html } from '../html.ts';
import { DAY, parseRange } from '../range.ts';
import type { ViewAndChange } from '../view.ts';

export function LongerRanges({ view, span, change }: ViewAndChange): VNode {
  const length = span.to - (span.from ?? -Infinity);
  const offers = [
    ['30d', 'the last 30 days', 30 * DAY],
    ['all', 'all time', Infinity],
  ] as const;
  return html`<div class="row-actions">${offers.map(([text, name, most]) => length < most && html`<button key=${text} class="button" onClick=${() => change({ range: parseRange(text) ?? view.range, back: null })}>Search ${name}</button>`)}</div>`;
}
