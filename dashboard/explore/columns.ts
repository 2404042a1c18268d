/** Which fields of the payload are columns of the list: chosen, ordered, remembered for each app. */
import type { VNode } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { Icon } from '../components/icon.ts';
import { Popover } from '../components/popover.ts';
import type { EventPage } from '../event-rows.ts';
import { html } from '../html.ts';
import type { View } from '../url.ts';
import type { ViewAndChange } from '../view.ts';
import { fieldsOf } from './fields.ts';

const MOST_COLUMNS = 6;
const MOST_OFFERED = 60;

const storageKey = (appId: string): string => `columns ${appId}`;

/** The columns of a view: those of its address, else those that were chosen last. @param usual those where none were ever chosen */
export function columnsOf(appId: string, { columns }: View, usual: readonly string[]): readonly string[] {
  if (columns !== null) return columns;
  try {
    const stored = localStorage.getItem(storageKey(appId));
    if (stored === null) return usual;
    const known: unknown = JSON.parse(stored);
    return Array.isArray(known)
      ? known.filter((path) => typeof path === 'string').slice(0, MOST_COLUMNS)
      : [];
  } catch {
    return []; // Storage may be forbidden, or hold something else.
  }
}

function remember(appId: string, columns: readonly string[]): void {
  try {
    localStorage.setItem(storageKey(appId), JSON.stringify(columns));
  } catch {
    // The address has them.
  }
}

export interface ColumnPickerProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly columns: readonly string[];
  /** Events at hand: their fields are offered. */
  readonly pages: readonly EventPage[];
}

export function ColumnPicker({ appId, viewed, columns, pages }: ColumnPickerProps): VNode {
  return html`<${Popover} atEnd label="Columns" text=${columns.length === 0 ? 'Columns' : `${columns.length} column${columns.length === 1 ? '' : 's'}`}>
    ${() => html`<${ColumnList} appId=${appId} viewed=${viewed} columns=${columns} pages=${pages} />`}
  <//>`;
}

function ColumnList({ appId, viewed, columns, pages }: ColumnPickerProps): VNode {
  const root = useRef<HTMLDivElement>(null);
  const focused = useRef<HTMLElement | null>(null);
  // Moving a row in the document takes the focus from it: the keyboard would start at the top of the page.
  useLayoutEffect(() => {
    if (document.activeElement === document.body && root.current?.contains(focused.current))
      focused.current?.focus();
  });
  const pick = (picked: readonly string[]): void => {
    remember(appId, picked);
    viewed.change({ columns: picked }, true);
  };
  const move = (index: number): void =>
    pick(
      columns.map(
        (path, i) => (i === index - 1 ? columns[index] : i === index ? columns[index - 1] : path) ?? path,
      ),
    );
  const others = fieldsOf(pages)
    .map(({ path }) => path)
    .filter((path) => !columns.includes(path));
  const isFull = columns.length >= MOST_COLUMNS;
  // One list, so that a row that is picked stays the same element.
  const rows = [...columns, ...others.slice(0, MOST_OFFERED)];
  return html`<div class="type-list" ref=${root} onFocusIn=${(event: FocusEvent) => {
    focused.current = event.target as HTMLElement; // What takes the focus is one.
  }}>
      <ul aria-label="Columns">
        ${rows.map((path, index) => {
          const isPicked = index < columns.length;
          return html`<li key=${path} class="picked-column">
            <label><input type="checkbox" checked=${isPicked} disabled=${!isPicked && isFull} onChange=${() => pick(isPicked ? columns.filter((one) => one !== path) : [...columns, path])} /><span class="name" title=${path}>${path}</span></label>
            ${isPicked && html`<button type="button" class="icon-button" aria-label=${`Move ${path} to the left`} aria-disabled=${index === 0 ? 'true' : undefined} onClick=${() => index > 0 && move(index)}><${Icon} name="back" /></button>`}
          </li>`;
        })}
      </ul>
      ${rows.length === 0 && html`<p class="hint">The events shown have no fields.</p>`}
      ${isFull && html`<p class="hint">At most ${MOST_COLUMNS} columns.</p>`}
    </div>`;
}
