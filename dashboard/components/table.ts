/** A list as a table: a row an item, which a phone shows as a block whose cells say what they are. */
import type { VNode } from 'preact';
import { type Children, html } from '../html.ts';

/** Its heading, which is empty over buttons; what it shows of an item; and whether these are numbers. */
export type Column<T> = readonly [head: string, cell: (item: T) => Children, isNumber?: boolean];

export interface TableOptions<T> {
  /** What the table is of. */
  readonly label: string;
  /** The first column has the rows' headings. What is false is left out. */
  readonly columns: readonly (Column<T> | false)[];
  /** Tells the rows apart. */
  readonly id: (item: T) => string;
  /** Whether an item is no longer in use. */
  readonly isOver?: (item: T) => boolean;
}

/** @returns a note where the list is empty */
export function table<T>(items: readonly T[], { label, columns, id, isOver }: TableOptions<T>): VNode {
  const shown = columns.filter((column) => column !== false);
  // One without buttons is scrolled by keys.
  const region = shown.every(([head]) => head !== '') && { tabindex: 0, role: 'region', 'aria-label': label };
  // An empty list has this element too: a dialog beside it, which a change opens, would be moved and closed otherwise.
  if (items.length === 0) return html`<div class="scroll"><p class="hint">None yet.</p></div>`;
  return html`<div class="scroll" ...${region}><table class="list" aria-label=${label}>
    <thead><tr>${shown.map(([head, , isNumber]) => html`<th scope="col" class=${isNumber ? 'number' : ''}>${head || html`<span class="sr-only">Actions</span>`}</th>`)}</tr></thead>
    <tbody>${items.map(
      (item) =>
        html`<tr key=${id(item)} class=${isOver?.(item) ? 'ended' : ''}>${shown.map(
          ([head, cell, isNumber], index) =>
            index === 0
              ? html`<th scope="row">${cell(item)}</th>`
              : html`<td class=${isNumber || head === '' ? 'number' : 'cell-wraps'} data-label=${head || null}>${cell(item)}</td>`,
        )}</tr>`,
    )}</tbody>
  </table></div>`;
}

/** @param of what it acts on, for those who hear the button alone */
export function rowButton(text: string, of: string, run: () => void): VNode {
  return html`<button class="button quiet" aria-label=${`${text.replace('…', '')} ${of}`} onClick=${run}>${text}</button>`;
}
