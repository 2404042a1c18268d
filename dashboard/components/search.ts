/** Filters a list that is already loaded. */
import type { VNode } from 'preact';
import { html } from '../html.ts';

export interface SearchProps {
  readonly label: string;
  readonly onText: (text: string) => void;
}

export function Search({ label, onText }: SearchProps): VNode {
  return html`<input
    class="search"
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
