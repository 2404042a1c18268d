/** Filters a list that is already loaded. */
import type { VNode } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { count } from '../format.ts';
import { html } from '../html.ts';
import { useSearchField } from '../places.ts';

export interface SearchProps {
  readonly label: string;
  readonly onText: (text: string) => void;
}

/** How many rows of a long list are shown, and a button for more of them. @param first as many, and as many more */
export function useRows(first: number): readonly [rows: number, more: (all: number) => VNode | false] {
  const [rows, setRows] = useState(first);
  return [
    rows,
    (all) =>
      all > rows &&
      html`<div class="row-actions"><button class="button" onClick=${() => setRows(rows + first)}>Show more of ${count(all)}</button></div>`,
  ];
}

export function Search({ label, onText }: SearchProps): VNode {
  const field = useRef<HTMLInputElement>(null);
  useSearchField(field);
  return html`<input
    ref=${field}
    type="search"
    aria-label=${label}
    placeholder=${label}
    onInput=${(event: InputEvent) => onText((event.currentTarget as HTMLInputElement).value)}
  />`;
}

/** Whether any of the texts contains this, ignoring case. */
export function matches(wanted: string, ...texts: readonly string[]): boolean {
  return texts.join('\n').toLowerCase().includes(wanted.toLowerCase());
}
