/** Which fields of the payload are columns of the list: chosen, ordered and as wide as the reader made them, remembered for each app. */
import type { VNode } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Icon } from '../components/icon.ts';
import { Popover } from '../components/popover.ts';
import type { EventPage } from '../event-rows.ts';
import { html } from '../html.ts';
import type { View } from '../url.ts';
import type { ViewAndChange } from '../view.ts';
import { fieldsOf } from './fields.ts';

const MOST_COLUMNS = 6;
const MOST_OFFERED = 60;

/** What was remembered in this browser. */
function recall(what: string): unknown {
  try {
    return JSON.parse(localStorage.getItem(what) ?? 'null');
  } catch {
    return []; // Storage may be forbidden, or hold something else.
  }
}

function remember(what: string, value: unknown): void {
  try {
    localStorage.setItem(what, JSON.stringify(value));
  } catch {
    // It is as it was at the next visit.
  }
}

/** The columns of a view: those of its address, else those that were chosen last. @param usual those where none were ever chosen */
export function columnsOf(appId: string, { columns }: View, usual: readonly string[]): readonly string[] {
  if (columns !== null) return columns;
  const known = recall(`columns ${appId}`);
  if (known === null) return usual;
  return Array.isArray(known) ? known.filter((path) => typeof path === 'string').slice(0, MOST_COLUMNS) : [];
}

/** Pixels. */
const NARROWEST = 48;
const WIDEST = 960;
const WIDTH_STEP = 16;

/** How the columns of an app are laid out in this browser. */
export interface Layout {
  /** In pixels, by path, of columns that were made wider or narrower. */
  readonly widths: Readonly<Record<string, number>>;
  /** Whether values are shown on as many lines as they need. */
  readonly wraps: boolean;
}

/** The layout, and a function that changes and remembers it. */
export function useLayout(appId: string): readonly [Layout, (changes: Partial<Layout>) => void] {
  const key = `layout ${appId}`;
  const [layout, setLayout] = useState<Layout>(() => {
    const known = recall(key);
    return { widths: {}, wraps: false, ...(typeof known === 'object' ? known : null) };
  });
  return [
    layout,
    (changes) => {
      const next = { ...layout, ...changes };
      remember(key, next);
      setLayout(next);
    },
  ];
}

/** The widths of columns as CSS has those of a grid. */
export const tracks = (columns: readonly string[], { widths }: Layout): string =>
  columns
    .map((path) => (Number(widths[path]) > 0 ? `${Number(widths[path])}px` : 'minmax(5rem, 11rem)'))
    .join(' ');

/** Chooses columns, for this view and for those that say nothing of columns. */
function pickColumns(appId: string, { change }: ViewAndChange, columns: readonly string[]): void {
  remember(`columns ${appId}`, columns);
  change({ columns }, true);
}

export interface ColumnHeadsProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly columns: readonly string[];
  readonly layout: Layout;
  readonly onLayout: (changes: Partial<Layout>) => void;
}

/** The heads of the list: a column is dragged to its place by its name, and to its width by its edge. */
export function ColumnHeads({ appId, viewed, columns, layout, onLayout }: ColumnHeadsProps): VNode {
  const dragged = useRef<string | null>(null);
  const drop = (at: number): void => {
    const path = dragged.current;
    if (path === null) return;
    const others = columns.filter((one) => one !== path);
    pickColumns(appId, viewed, [...others.slice(0, at), path, ...others.slice(at)]);
  };
  return html`<div class="columns-head">
    <span title="Events are sorted by time alone, the newest first.">Time ↓</span><span>Type</span>
    ${columns.map(
      (
        path,
        index,
      ) => html`<div key=${path} class="column-head" onDragOver=${(event: Event) => event.preventDefault()} onDrop=${() => drop(index)}>
        <span class="name" draggable onDragStart=${() => {
          dragged.current = path;
        }}>${path}</span>
        <${Edge} path=${path} layout=${layout} onLayout=${onLayout} />
      </div>`,
    )}
    <span>Payload</span>
  </div>`;
}

type EdgeProps = Pick<ColumnHeadsProps, 'layout' | 'onLayout'> & { readonly path: string };

/** The edge of a column: a pointer drags it, arrows move it. */
function Edge({ path, layout: { widths }, onLayout }: EdgeProps): VNode {
  const start = useRef<{ readonly at: number; readonly width: number } | null>(null);
  const widthOf = (edge: HTMLElement): number => edge.parentElement?.offsetWidth ?? NARROWEST;
  const resize = (width: number): void =>
    onLayout({ widths: { ...widths, [path]: Math.min(WIDEST, Math.max(NARROWEST, Math.round(width))) } });
  return html`<i class="column-edge" role="separator" tabindex="0" aria-label=${`Width of ${path}`} aria-valuenow=${widths[path] ?? 176}
    onPointerDown=${({
      currentTarget,
      pointerId,
      clientX,
    }: PointerEvent & { readonly currentTarget: HTMLElement }) => {
      currentTarget.setPointerCapture(pointerId);
      start.current = { at: clientX, width: widthOf(currentTarget) };
    }}
    onPointerMove=${({ clientX }: PointerEvent) => {
      if (start.current !== null) resize(start.current.width + clientX - start.current.at);
    }}
    onPointerUp=${() => {
      start.current = null;
    }}
    onKeyDown=${({ key, currentTarget }: KeyboardEvent & { readonly currentTarget: HTMLElement }) => {
      const step = { ArrowRight: WIDTH_STEP, ArrowLeft: -WIDTH_STEP }[key];
      if (step !== undefined) resize(widthOf(currentTarget) + step);
    }}
  ></i>`;
}

export interface ColumnPickerProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly columns: readonly string[];
  /** Events at hand: their fields are offered. */
  readonly pages: readonly EventPage[];
  readonly layout: Layout;
  readonly onLayout: (changes: Partial<Layout>) => void;
}

export function ColumnPicker(props: ColumnPickerProps): VNode {
  const { columns } = props;
  return html`<${Popover} atEnd label="Columns" text=${columns.length === 0 ? 'Columns' : `${columns.length} column${columns.length === 1 ? '' : 's'}`}>
    ${() => html`<${ColumnList} ...${props} />`}
  <//>`;
}

function ColumnList({ appId, viewed, columns, pages, layout, onLayout }: ColumnPickerProps): VNode {
  const root = useRef<HTMLDivElement>(null);
  const focused = useRef<HTMLElement | null>(null);
  // Moving a row in the document takes the focus from it: the keyboard would start at the top of the page.
  useLayoutEffect(() => {
    if (document.activeElement === document.body && root.current?.contains(focused.current))
      focused.current?.focus();
  });
  const pick = (picked: readonly string[]): void => pickColumns(appId, viewed, picked);
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
      <label><input type="checkbox" checked=${layout.wraps} onChange=${() => onLayout({ wraps: !layout.wraps })} />Wrap values</label>
      <ul aria-label="Columns">
        ${rows.map((path, index) => {
          const isPicked = index < columns.length;
          return html`<li key=${path} class="picked-column">
            <label><input type="checkbox" checked=${isPicked} disabled=${!isPicked && isFull} onChange=${() => pick(isPicked ? columns.filter((one) => one !== path) : [...columns, path])} /><span class="name" title=${path}>${path}</span></label>
            ${isPicked && html`<button class="icon-button" aria-label=${`Move ${path} to the left`} aria-disabled=${index === 0 ? 'true' : undefined} onClick=${() => index > 0 && move(index)}><${Icon} name="back" /></button>`}
          </li>`;
        })}
      </ul>
      ${rows.length === 0 && html`<p class="hint">The events shown have no fields.</p>`}
      ${isFull && html`<p class="hint">At most ${MOST_COLUMNS} columns.</p>`}
    </div>`;
}
