/** One event in full: when it was, its identifiers, its payload, and what can be done with it. */
import type { VNode } from 'preact';
import type { EventRow } from '../event-rows.ts';
import { ago, precise } from '../format.ts';
import { html } from '../html.ts';
import { HOUR } from '../range.ts';
import { NO_SEGMENT, viewSearch } from '../url.ts';
import type { ViewAndChange } from '../view.ts';
import { Copyable, CopyButton } from './copy.ts';
import { JsonTree, type OnFilter } from './json-tree.ts';
import { eventAsCurl } from './snippets.ts';

export interface EventDetailProps {
  readonly appId: string;
  readonly event: EventRow;
  readonly viewed: ViewAndChange;
  readonly names: ReadonlyMap<string, string>;
  readonly onFilter: OnFilter;
}

export function EventDetail({ appId, event, viewed, names, onFilter }: EventDetailProps): VNode {
  const { id, typeId, createdAt, payload } = event;
  const instant = Date.parse(createdAt);
  const around = { kind: 'between', from: instant - HOUR / 2, to: instant + HOUR / 2 } as const;
  const here = `/apps/${appId}${viewSearch({ ...viewed.view, event: id })}`;
  const chart = `/apps/${appId}${viewSearch({ ...viewed.view, ...NO_SEGMENT, range: around, back: viewed.view.range, at: null, event: null, mark: id })}`;
  return html`<dl class="facts">
    <div><dt>Type</dt><dd>${names.get(typeId) ?? ''}<${Copyable} text=${typeId} label="Copy the type identifier" /></dd></div>
    <div><dt>Event</dt><dd><${Copyable} text=${id} label="Copy the event identifier" /></dd></div>
    <div><dt>Time</dt><dd>${precise(instant, viewed.view.zone)} <span class="muted">${ago(instant, Date.now())}</span></dd></div>
    <div><dt>UTC</dt><dd><${Copyable} text=${createdAt} label="Copy the time" /></dd></div>
  </dl>
  <${JsonTree} text=${payload} onFilter=${onFilter} />
  <div class="row-actions">
    <${CopyButton} text=${payload} label="Copy the payload as it was sent">Copy JSON<//>
    <${CopyButton} text=${() => eventAsCurl(location.origin, typeId, payload)} label="Copy a command that sends this event again">Copy as curl<//>
    <${CopyButton} text=${() => location.origin + here} label="Copy a link to this event">Copy link<//>
    <a class="button" href=${chart}>Show surrounding events</a>
  </div>`;
}
