/** JSON as it was sent, folded: every key and value in its own spelling, parts read only when they are opened. */
import type { VNode } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { html } from '../html.ts';
import { type Child, children, valueEnd } from '../raw-json.ts';

/** Children shown before "more": an array may have a million. */
const CHILDREN = 100;
/** Characters of a folded value's beginning, and of a long string before "more". */
const PREVIEW = 70;
const LONG_STRING = 2_000;

export function JsonTree({ text }: { readonly text: string }): VNode {
  const start = text.search(/\S/);
  return html`<div class="json"><${Value} text=${text} place=${{ key: null, start, end: valueEnd(text, start) }} open=${true} /></div>`;
}

interface ValueProps {
  readonly text: string;
  readonly place: Child;
  readonly open?: boolean;
}

function Value({ text, place, open = false }: ValueProps): VNode {
  const { key, start, end } = place;
  const [isOpen, setOpen] = useState(open);
  const first = text[start];
  const name = key !== null && html`<span class="key">${key}</span>: `;
  if (first !== '{' && first !== '[')
    return html`<div class="leaf">${name}<${Scalar} spelling=${text.slice(start, end)} /></div>`;
  const close = first === '{' ? '}' : ']';
  if (/^.\s*.$/.test(text.slice(start, end))) return html`<div class="leaf">${name}${first}${close}</div>`;
  return html`<div class="branch">
    <button type="button" class="fold" aria-expanded=${isOpen ? 'true' : 'false'} onClick=${() => setOpen(!isOpen)}>
      ${name}${isOpen ? first : html`<span class="preview">${preview(text, start, end)}</span>`}
    </button>
    ${isOpen && html`<${Members} text=${text} at=${start} /><div class="close">${close}</div>`}
  </div>`;
}

function Members({ text, at }: { readonly text: string; readonly at: number }): VNode {
  const [shown, setShown] = useState(CHILDREN);
  const { items, next } = useMemo(() => children(text, at, shown), [text, at, shown]);
  return html`<div class="members">
    ${items.map((place) => html`<${Value} key=${place.start} text=${text} place=${place} />`)}
    ${next !== null && html`<button type="button" class="button" onClick=${() => setShown(shown * 4)}>More</button>`}
  </div>`;
}

function Scalar({ spelling }: { readonly spelling: string }): VNode {
  const [whole, setWhole] = useState(false);
  const kind = spelling[0] === '"' ? 'string' : /^[tfn]/.test(spelling) ? 'word' : 'number';
  if (whole || spelling.length <= LONG_STRING) return html`<span class=${kind}>${spelling}</span>`;
  return html`<span class=${kind}>${spelling.slice(0, LONG_STRING)}… </span><button type="button" class="button" onClick=${() => setWhole(true)}>All ${spelling.length} characters</button>`;
}

/** The beginning of a value on one line. White space between tokens is all that may be shortened. */
export function preview(text: string, start: number, end: number, length = PREVIEW): string {
  const beginning = text.slice(start, Math.min(end, start + length));
  return beginning.replace(/[\n\r\t]+ */g, ' ') + (end > start + length ? '…' : '');
}
