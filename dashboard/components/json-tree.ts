/** A collapsible tree of JSON in its original spelling; nested values are parsed when they are opened. */
import type { VNode } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { valueEnd } from '../../src/json/walk.ts';
import { pathText } from '../filter-text.ts';
import { html } from '../html.ts';
import { type Child, children } from '../raw-json.ts';
import { CopyButton } from './copy.ts';

/** Children shown before "more": an array may have a million. */
const CHILDREN = 100;
/** Characters of a folded value's beginning, and of a long string before "more". */
const PREVIEW = 70;
const LONG_STRING = 2_000;
/** Longer values are not offered as filters. */
const LONGEST_FILTER = 500;

/**
 * Filters by a value of an event, as JSON.
 * @param not true: excludes it
 * @param isAll true: asks for everything that has it, of any type and time, in place of what the view asks
 */
export type OnFilter = (path: string, spelling: string, not: boolean, isAll?: true) => void;

export interface JsonTreeProps {
  readonly text: string;
  readonly onFilter?: OnFilter | undefined;
}

export function JsonTree({ text, onFilter }: JsonTreeProps): VNode {
  const start = text.search(/\S/);
  const place = { key: null, start, end: valueEnd(text, start) };
  return html`<div class="json"><${Value} text=${text} place=${place} path=${[]} open=${true} onFilter=${onFilter} /></div>`;
}

interface ValueProps extends JsonTreeProps {
  readonly place: Child;
  /** Names of members from the top on; elements of an array have none. */
  readonly path: readonly string[];
  readonly open?: boolean;
}

function Value({ text, place, path, open = false, onFilter }: ValueProps): VNode {
  const { key, start, end } = place;
  const [isOpen, setOpen] = useState(open);
  const first = text[start];
  const name = key !== null && html`<span class="key">${key}</span>: `;
  if (first !== '{' && first !== '[')
    return html`<${Leaf} name=${name} path=${path} spelling=${text.slice(start, end)} onFilter=${onFilter} />`;
  const close = first === '{' ? '}' : ']';
  if (/^.\s*.$/.test(text.slice(start, end))) return html`<div class="leaf">${name}${first}${close}</div>`;
  return html`<div>
    <button class="fold" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
      ${name}${isOpen ? first : html`<span class="preview">${preview(text, start, end)}</span>`}
    </button>
    ${isOpen && html`<${Members} text=${text} at=${start} path=${path} onFilter=${onFilter} /><div class="close">${close}</div>`}
  </div>`;
}

interface MembersProps extends JsonTreeProps {
  readonly at: number;
  readonly path: readonly string[];
}

function Members({ text, at, path, onFilter }: MembersProps): VNode {
  const [shown, setShown] = useState(CHILDREN);
  const { items, next } = useMemo(() => children(text, at, shown), [text, at, shown]);
  return html`<div class="members">
    ${items.map((place) => html`<${Value} key=${place.start} text=${text} place=${place} path=${place.key === null ? path : [...path, JSON.parse(place.key)]} onFilter=${onFilter} />`)}
    ${next !== null && html`<button class="button" onClick=${() => setShown(shown * 4)}>More</button>`}
  </div>`;
}

interface LeafProps {
  readonly name: unknown;
  readonly path: readonly string[];
  readonly spelling: string;
  readonly onFilter?: OnFilter | undefined;
}

/** A value; a click on it offers filters and copying. */
function Leaf({ name, path, spelling, onFilter }: LeafProps): VNode {
  const [isOpen, setOpen] = useState(false);
  const filter = (text: string, ...how: [not: boolean, isAll?: true]): VNode =>
    html`<button class="button" onClick=${() => onFilter?.(pathText(path), spelling, ...how)}>${text}</button>`;
  const canFilter = onFilter !== undefined && path.length > 0 && spelling.length <= LONGEST_FILTER;
  return html`<div class="leaf">
    ${name}<button class="scalar" aria-expanded=${isOpen} title="Filter or copy" onClick=${() => setOpen(!isOpen)}><${Scalar} spelling=${spelling} /></button>
    ${
      isOpen &&
      html`<span class="leaf-actions">
        ${canFilter && [filter('Filter by it', false), filter('Exclude', true), filter('Everything of it', false, true)]}
        <${CopyButton} text=${() => plainText(spelling)} label="Copy the value">Value<//>
        ${path.length > 0 && html`<${CopyButton} text=${pathText(path)} label="Copy the path">Path<//>`}
        ${spelling.length > LONG_STRING && html`<code class="whole">${spelling}</code>`}
      </span>`
    }
  </div>`;
}

/** A string without its quotes and escapes; any other value as spelled. */
export const plainText = (spelling: string): string =>
  spelling.startsWith('"') ? (JSON.parse(spelling) as string) : spelling;

function Scalar({ spelling }: { readonly spelling: string }): VNode {
  const kind = spelling[0] === '"' ? 'string' : /^[tfn]/.test(spelling) ? 'word' : 'number';
  // A stack trace is read line by line.
  if (spelling.length <= LONG_STRING && plainText(spelling).includes('\n'))
    return html`<span class="string lines">"${plainText(spelling)}"</span>`;
  if (spelling.length <= LONG_STRING) return html`<span class=${kind}>${spelling}</span>`;
  return html`<span class=${kind}>${spelling.slice(0, LONG_STRING)}… (${spelling.length} characters)</span>`;
}

/** The beginning of a value on one line. Only white space between tokens is shortened. */
export function preview(text: string, start: number, end: number, length = PREVIEW): string {
  const beginning = text.slice(start, Math.min(end, start + length));
  return beginning.replace(/[\n\r\t]+ */g, ' ') + (end > start + length ? '…' : '');
}
