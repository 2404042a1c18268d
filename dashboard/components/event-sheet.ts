/** The sheet of one event, which a link to the event opens, with buttons for its neighbors. */
import type { VNode } from 'preact';
import { callText } from '../api.ts';
import { type EventRow, readEvent } from '../event-rows.ts';
import { html } from '../html.ts';
import { useResource } from '../resource.ts';
import type { ViewAndChange } from '../view.ts';
import { Dialog } from './dialog.ts';
import { EventDetail } from './event-detail.ts';
import { Icon } from './icon.ts';
import type { OnFilter } from './json-tree.ts';
import { Waiting } from './waiting.ts';

export interface EventSheetProps {
  readonly appId: string;
  readonly eventId: string;
  readonly names: ReadonlyMap<string, string>;
  readonly viewed: ViewAndChange;
  /** Its neighbors in the list; null at either end. */
  readonly newer: string | null;
  readonly older: string | null;
  readonly onFilter: OnFilter;
}

export function EventSheet({
  appId,
  eventId,
  names,
  viewed,
  newer,
  older,
  onFilter,
}: EventSheetProps): VNode {
  const path = `/api/apps/${appId}/events/${encodeURIComponent(eventId)}`;
  const event = useResource<EventRow>(path, {
    scope: path,
    load: async (signal) => readEvent(await callText('GET', path, { signal })),
  });
  const { data } = event;
  const go = (to: string | null) => (): void => viewed.change({ event: to }, true);
  const keys = (event: KeyboardEvent): void => {
    const to =
      event.key === 'ArrowLeft' || event.key === 'k'
        ? newer
        : event.key === 'ArrowRight' || event.key === 'j'
          ? older
          : null;
    if (to !== null && !event.ctrlKey && !event.metaKey && !event.altKey) go(to)();
  };
  return html`<${Dialog} sheet title="Event" onClose=${() => viewed.change({ event: null })}>
    <div class="row-actions" onKeyDown=${keys}>
      <button class="button" disabled=${newer === null} title="Newer event (left arrow)" onClick=${go(newer)}><${Icon} name="back" />Newer</button>
      <button class="button" disabled=${older === null} title="Older event (right arrow)" onClick=${go(older)}>Older<${Icon} name="forward" /></button>
    </div>
    <${Waiting} for=${event} lines=${10} />
    ${
      data &&
      html`<${EventDetail} appId=${appId} event=${data} names=${names} viewed=${viewed} onFilter=${onFilter} />`
    }
  <//>`;
}
