/** A page of event rows, which is removed from the document while it is far from the viewport, so that long lists stay fast. */
import type { TargetedPointerEvent, VNode } from 'preact';
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { COLORS, shortNames } from '../charts/series-data.ts';
import type { EventRow } from '../event-rows.ts';
import { valuesAt } from '../explore/fields.ts';
import { valueText } from '../filter-text.ts';
import { date, exact, preciseClock } from '../format.ts';
import { html, keptWhileSame } from '../html.ts';
import { useLatest } from '../latest.ts';
import { useOpened } from '../places.ts';
import type { ViewAndChange } from '../view.ts';
import { EventDetail } from './event-detail.ts';
import { type OnFilter, plainText, preview } from './json-tree.ts';

/** Characters of a type's name and of a payload in a row. */
const NAME_LENGTH = 40;
const ROW_PREVIEW = 240;

/** How rows are shown; rows are rendered again only if this object changes. */
export interface RowStyle {
  readonly appId: string;
  readonly names: ReadonlyMap<string, string>;
  /** The path of the field that the chart is by; null: it is by type. */
  readonly by: string | null;
  /** Color index by the key of a line, where the chart has one: a type, or a value as JSON. */
  readonly colors: ReadonlyMap<string, number>;
  /** Paths of payloads that have a column. */
  readonly columns: readonly string[];
  readonly viewed: ViewAndChange;
  readonly onFilter: OnFilter;
}

export interface EventChunkProps {
  readonly events: readonly EventRow[];
  /** The row above the first one. */
  readonly before: EventRow | undefined;
  /** The events that are selected. */
  readonly selected: ReadonlySet<string>;
  readonly style: RowStyle;
  /** Whether the chunk starts out of view. */
  readonly isFar: boolean;
}

/** Pixels of a row, until it is measured. */
const ROW_HEIGHT = 34;

/** Rendered again only for other rows, and of these only the ones that differ: a live list is rendered several times a second. */
export const EventChunk = keptWhileSame(Chunk);

function Chunk({ events, before, selected, style, isFar }: EventChunkProps): VNode {
  const place = useRef<HTMLDivElement>(null);
  /** Height in pixels while the rows are removed, null while they are rendered. */
  const [away, setAway] = useState<number | null>(isFar ? events.length * ROW_HEIGHT : null);
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  useOpened('rows', open.size > 0 && away === null);
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const observer = new IntersectionObserver(
      ([entry]) => {
        if (entry === undefined) return;
        // A chunk with the focus stays, since the focus would be lost with its row.
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
  const latest = useLatest(toggle);
  const onToggle = useCallback((id: string) => latest.current(id), []);
  const { zone } = style.viewed.view;
  const dayOf = (event: EventRow): string => date(Date.parse(event.createdAt), zone);
  let day = before === undefined ? '' : dayOf(before);
  return html`<div ref=${place} style=${{ height: away === null ? '' : `${away}px` }}>
    ${
      away === null &&
      events.flatMap((event) => {
        const own = dayOf(event);
        const isNext = own !== day;
        day = own;
        const { id } = event;
        const row = html`<${Row} key=${id} event=${event} open=${open.has(id)} isSelected=${selected.has(id) || id === style.viewed.view.mark} onToggle=${onToggle} style=${style} />`;
        // In one list by their keys: rows within rows would be made anew with each that comes before them.
        return isNext ? [html`<h2 class="day" key=${own}>${own}</h2>`, row] : row;
      })
    }
  </div>`;
}

interface RowProps {
  readonly event: EventRow;
  readonly open: boolean;
  readonly isSelected: boolean;
  readonly onToggle: (id: string) => void;
  readonly style: RowStyle;
}

const Row = keptWhileSame(({ event, open, isSelected, onToggle, style }: RowProps): VNode => {
  const { id, typeId, createdAt, payload, isNew } = event;
  const { appId, names, by, colors, columns, viewed, onFilter } = style;
  const instant = Date.parse(createdAt);
  const { zone } = viewed.view;
  // Only a time that somebody points at is named in full: that takes longer than the rest of the row.
  const name = ({ currentTarget }: TargetedPointerEvent<HTMLElement>): void => {
    currentTarget.title = exact(instant, zone);
  };
  // In the color of the line that counts it.
  const key = by === null ? typeId : valuesAt(payload, by).find((value) => colors.has(value));
  return html`<article class="event" data-id=${id} data-selected=${isSelected} data-open=${open} data-new=${isNew}>
    <button class="event-row" aria-expanded=${open} onClick=${() => onToggle(id)}>
      <time datetime=${createdAt} onPointerEnter=${name}>${preciseClock(instant, zone)}</time>
      <span class="type" title=${names.get(typeId) ?? typeId}><i class=${`swatch c${colors.get(key ?? '') ?? COLORS}`}></i>${shortNames([names.get(typeId) ?? typeId], NAME_LENGTH)}</span>
      ${columns.map((path) => html`<span class="cell" key=${path}>${cell(payload, path)}</span>`)}
      <code>${preview(payload, 0, payload.length, ROW_PREVIEW)}</code>
    </button>
    ${
      open &&
      html`<div class="event-body"><${EventDetail} appId=${appId} event=${event} names=${names} viewed=${viewed} onFilter=${onFilter} /></div>`
    }
  </article>`;
});

/** A text of several lines, such as a stack trace, as it is: it is read where lines are wrapped. */
const cell = (payload: string, path: string): string =>
  valuesAt(payload, path)
    .map((value) => (value.includes('\\n') ? plainText(value) : valueText(value)))
    .join(', ');
