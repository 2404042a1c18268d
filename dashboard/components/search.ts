/** Filters a list that is already loaded. */
import type { VNode } from 'preact';
import { useRef } from 'preact/hooks';
import { html } from '../html.ts';
import { useSearchField } from '../places.ts';

export interface SearchProps {
  readonly label: string;
  readonly onText: (text: string) => void;
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
