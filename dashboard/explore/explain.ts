/** What is different in a part of a range: for each counted field, the values whose share differs most from the rest of the range. */
import type { VNode } from 'preact';
import type { Difference, Explanation } from '../../src/api-types/answers.ts';
import { Dialog } from '../components/dialog.ts';
import { Waiting } from '../components/waiting.ts';
import { amount, change, count, spanText } from '../format.ts';
import { html } from '../html.ts';
import { isoText, type Span } from '../range.ts';
import { useResource } from '../resource.ts';
import { eventsQuery, type ViewAndChange } from '../view.ts';
import { pickingOf } from './picking.ts';

export interface ExplainProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  /** What is explained, and the range that it is compared with the rest of. */
  readonly part: Span;
  readonly whole: Span;
  /** Conditions that the events of the part meet. */
  readonly filters: readonly string[];
  readonly onClose: () => void;
}

/** What a box asks. */
export const DIFFERENT = 'What is different?';

export function Explain({ appId, viewed, part, whole, filters, onClose }: ExplainProps): VNode {
  const { view } = viewed;
  const query = eventsQuery(view, whole);
  query.set('partFrom', isoText(part.from ?? 0));
  query.set('partTo', isoText(part.to));
  for (const filter of filters) query.append('partFilter', filter);
  const found = useResource<Explanation>(`/api/apps/${appId}/explanation?${query}`);
  const { data } = found;
  const pick = ({ path, key: picked }: Difference): void => {
    onClose();
    viewed.change(pickingOf(view, path).with(picked));
  };
  return html`<${Dialog} sheet title=${filters.length > 0 ? DIFFERENT : 'What changed?'} onClose=${onClose}>
    <p class="hint">${[...filters, part.from !== null && spanText(part.from, part.to, view.zone)].filter(Boolean).join(', ')}, compared with the rest of the range. Shares of all events of each.</p>
    <${Waiting} for=${found} lines=${8} class="rows" />
    ${data?.isSample && html`<p class="hint">Fields beside a filter are compared by samples.</p>`}
    ${data?.differences.length === 0 && html`<div class="empty"><h2>Nothing differs</h2><p>${data.fields === 0 ? html`No field is counted: <a href=${`/apps/${appId}/fields`}>count the fields</a> that may explain a change.` : 'Every share is about that of the rest of the range.'}</p></div>`}
    <ul class="explain">${data?.differences.map(
      (one) => html`<li key=${`${one.path} ${one.key}`}>
        <button class="explain-name" title="Show only these events" onClick=${() => pick(one)}>${one.path === null ? 'type' : one.path}: <b>${one.name}</b></button>
        <span class="explain-change">${changed(one)}</span>
        <${Bar} label="Here" share=${one.partShare} events=${one.inPart} />
        <${Bar} label="Rest" share=${one.restShare} events=${one.inRest} />
      </li>`,
    )}</ul>
  <//>`;
}

function Bar({
  label,
  share,
  events,
}: {
  readonly label: string;
  readonly share: number;
  readonly events: number;
}): VNode {
  const percent = `${(share * 100).toFixed(share < 0.1 ? 1 : 0)}%`;
  return html`<div class="explain-bar"><span class="muted">${label}</span><progress max="1" value=${share} aria-label=${`${label}: ${percent}`}></progress><span>${percent}</span><span class="muted">${count(events)}</span></div>`;
}

/** How the share has changed, in percent of itself, or how many times it is as much. */
export function changed({ partShare, restShare }: Pick<Difference, 'partShare' | 'restShare'>): string {
  if (restShare === 0) return 'only here';
  if (partShare === 0) return 'not here';
  return change(partShare, restShare) ?? `${amount(Math.round(partShare / restShare))}×`;
}
