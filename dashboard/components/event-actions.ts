/** Actions on one event: copy its JSON, copy a command that sends it, copy a link to it. */
import type { VNode } from 'preact';
import type { EventRow } from '../event-rows.ts';
import { html } from '../html.ts';
import { HOUR } from '../range.ts';
import { viewSearch } from '../url.ts';
import type { ViewAndChange } from '../view.ts';
import { CopyButton } from './copy.ts';
import { eventAsCurl } from './snippets.ts';

export interface EventActionsProps {
  readonly appId: string;
  readonly event: EventRow;
  readonly viewed: ViewAndChange;
  /** True if the event is already open in the sheet. */
  readonly alone?: boolean;
}

export function EventActions({ appId, event, viewed, alone = false }: EventActionsProps): VNode {
  const { id, typeId, createdAt, payload } = event;
  const instant = Date.parse(createdAt);
  const around = { kind: 'between', from: instant - HOUR / 2, to: instant + HOUR / 2 } as const;
  const here = `/apps/${appId}${viewSearch({ ...viewed.view, event: id })}`;
  const chart = `/apps/${appId}${viewSearch({ ...viewed.view, range: around, back: viewed.view.range, at: null, event: null })}`;
  return html`<div class="row-actions">
    <${CopyButton} text=${payload} label="Copy the payload as it was sent">Copy JSON<//>
    <${CopyButton} text=${() => eventAsCurl(location.origin, typeId, payload)} label="Copy a command that sends this event again">Copy as curl<//>
    <${CopyButton} text=${() => location.origin + here} label="Copy a link to this event">Copy link<//>
    ${!alone && html`<a class="button" href=${here}>Open</a>`}
    <a class="button" href=${chart}>Show surrounding events</a>
  </div>`;
}
