/** The number of a measure over the whole interval, and what it is made of. */
import type { VNode } from 'preact';
import type { Curve } from '../charts/curve.ts';
import { change, count } from '../format.ts';
import { html } from '../html.ts';

export function CurveFigures({
  curve,
  comparedTo,
  isLoading,
}: {
  readonly curve: Curve;
  /** What it is compared with. */
  readonly comparedTo: string;
  readonly isLoading: boolean;
}): VNode {
  const { name, overall, compared, text } = curve;
  const before = compared?.overall ?? null;
  const changed = overall === null || before === null ? null : change(overall, before);
  return html`<dl class="figures-row">
    <div class="main-figure"><dt>${name}</dt><dd aria-busy=${isLoading}>${overall === null ? '–' : text(overall)}${isLoading && html` <small role="status">Reading…</small>`}${
      before !== null &&
      html` <small title=${`${text(before)} before`}>${changed === null ? html`<b>${text(before)}</b> in ` : html`<b>${changed}</b> vs `}${comparedTo}</small>`
    }</dd></div>
  </dl>`;
}

/** @prop rows of its lines */
export function CurveLegend({
  curve: { name, parts, lines },
  rows,
}: {
  readonly curve: Curve;
  readonly rows: VNode;
}): VNode | null {
  if (parts.length === 0) return null;
  if (lines.length > 0) return rows;
  return html`<div class="curve-legend">
    <p><i class="swatch found"></i>${name}</p>
    <dl>${parts.map(([part, value]) => html`<div key=${part}><dt>${part}</dt><dd title=${count(value)}>${count(value)}</dd></div>`)}</dl>
  </div>`;
}
