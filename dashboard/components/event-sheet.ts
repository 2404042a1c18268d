/** One event by itself: what a link to it opens. */
import type { VNode } from 'preact';
import { callText } from '../api.ts';
import { type EventRow, readEvent } from '../event-rows.ts';
import { ago, exact } from '../format.ts';
import { html } from '../html.ts';
import { useResource } from '../resource.ts';
import type { ViewAndChange } from '../view.ts';
import { Copyable } from './copy.ts';
import { Dialog } from './dialog.ts';
import { EventActions } from './event-actions.ts';
import { JsonTree } from './json-tree.ts';
import { Waiting } from './waiting.ts';

export interface EventSheetProps {
  readonly appId: string;
  readonly eventId: string;
  readonly names: ReadonlyMap<string, string>;
  readonly viewed: ViewAndChange;
}

export function EventSheet({ appId, eventId, names, viewed }: EventSheetProps): VNode {
  const path = `/api/apps/${appId}/events/${encodeURIComponent(eventId)}`;
  const event = useResource<EventRow>(path, {
    load: async (signal) => readEvent(await callText('GET', path, { signal })),
  });
  const { data } = event;
  const { zone } = viewed.view;
  const instant = Date.parse(data?.createdAt ?? '');
  return html`<${Dialog} sheet title="Event" onClose=${() => viewed.change({ event: null })}>
    <${Waiting} for=${event} lines=${10} />
    ${
      data &&
      html`<dl class="facts">
        <dt>Type</dt><dd>${names.get(data.typeId) ?? data.typeId}</dd>
        <dt>Time</dt><dd>${exact(instant, zone)} <span class="muted">${ago(instant, Date.now())}</span></dd>
        <dt>UTC</dt><dd><${Copyable} text=${data.createdAt} label="Copy the time" /></dd>
        <dt>Event</dt><dd><${Copyable} text=${data.id} label="Copy the event identifier" /></dd>
        <dt>Type id</dt><dd><${Copyable} text=${data.typeId} label="Copy the type identifier" /></dd>
      </dl>
      <${JsonTree} text=${data.payload} />
      <${EventActions} appId=${appId} event=${data} viewed=${viewed} alone />`
    }
  <//>`;
}
