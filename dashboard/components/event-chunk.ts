/** A page of event rows, which leaves the document while it is far away: a list of a hundred thousand stays light. */
import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { EventRow } from '../event-rows.ts';
import { date, exact, preciseClock } from '../format.ts';
import { html } from '../html.ts';
import type { ViewAndChange } from '../view.ts';
import { EventActions } from './event-actions.ts';
import { JsonTree, preview } from './json-tree.ts';

/** Characters of a payload in its row. */
const ROW_PREVIEW = 240;

export interface EventChunkProps {
  readonly appId: string;
  readonly events: readonly EventRow[];
  /** The row above the first one. */
  readonly before: EventRow | undefined;
  readonly names: ReadonlyMap<string, string>;
  readonly viewed: ViewAndChange;
}

export function EventChunk({ appId, events, before, names, viewed }: EventChunkProps): VNode {
  const place = useRef<HTMLDivElement>(null);
  /** Height in pixels while the rows are away, null while they are here. */
  const [away, setAway] = useState<number | null>(null);
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const observer = new IntersectionObserver(
      ([entry]) => {
        if (entry === undefined) return;
        // What has the focus stays: it would be lost with its row.
        if (entry.isIntersecting || element.contains(document.activeElement)) setAway(null);
        else setAway((known) => known ?? element.offsetHeight);
      },
      { rootMargin: '2000px 0px' },
    );
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  const toggle = (id: string): void =>
    setOpen((now) =>
      now.has(id) ? new Set([...now].filter((other) => other !== id)) : new Set([...now, id]),
    );
  const { zone } = viewed.view;
  const dayOf = (event: EventRow): string => date(Date.parse(event.createdAt), zone);
  let day = before === undefined ? '' : dayOf(before);
  return html`<div ref=${place} style=${{ height: away === null ? '' : `${away}px` }}>
    ${
      away === null &&
      events.map((event) => {
        const own = dayOf(event);
        const heading = own !== day && html`<h2 class="day">${own}</h2>`;
        day = own;
        return html`${heading}<${Row} key=${event.id} appId=${appId} event=${event} name=${names.get(event.typeId)} open=${open.has(event.id)} onToggle=${toggle} viewed=${viewed} />`;
      })
    }
  </div>`;
}

interface RowProps {
  readonly appId: string;
  readonly event: EventRow;
  readonly name: string | undefined;
  readonly open: boolean;
  readonly onToggle: (id: string) => void;
  readonly viewed: ViewAndChange;
}

function Row({ appId, event, name, open, onToggle, viewed }: RowProps): VNode {
  const { id, typeId, createdAt, payload, isNew } = event;
  const instant = Date.parse(createdAt);
  const { zone } = viewed.view;
  return html`<article class="event" data-open=${open} data-new=${isNew}>
    <button type="button" class="event-row" aria-expanded=${open ? 'true' : 'false'} onClick=${() => onToggle(id)}>
      <time datetime=${createdAt} title=${exact(instant, zone)}>${preciseClock(instant, zone)}</time>
      <span class="type">${name ?? typeId}</span>
      <code>${preview(payload, 0, payload.length, ROW_PREVIEW)}</code>
    </button>
    ${open && html`<div class="event-body"><${JsonTree} text=${payload} /><${EventActions} appId=${appId} event=${event} viewed=${viewed} /></div>`}
  </article>`;
}
