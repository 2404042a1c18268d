/** The sections of a settings page, each with its description next to its controls, and their index. */
import type { VNode } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { type Children, html } from '../html.ts';

export interface SectionProps {
  readonly title: string;
  readonly about?: Children;
  readonly danger?: boolean;
  readonly children: Children;
}

const idOf = (title: string): string => title.toLowerCase().replaceAll(' ', '-');

export function Section({ title, about, danger = false, children }: SectionProps): VNode {
  const id = idOf(title);
  return html`<section class=${danger ? 'section danger-zone' : 'section'} aria-labelledby=${id}>
    <div><h2 id=${id}>${title}</h2>${about && html`<p class="muted">${about}</p>`}</div>
    <div class="section-body">${children}</div>
  </section>`;
}

/** Several sections, with an index at their left where there is room. */
export function IndexedSections({ children }: { readonly children: Children }): VNode {
  const root = useRef<HTMLDivElement>(null);
  const [titles, setTitles] = useState<readonly string[]>([]);
  useLayoutEffect(() => {
    const heads = [...(root.current?.querySelectorAll('.section > div > h2') ?? [])];
    setTitles(heads.map(({ textContent }) => textContent ?? ''));
  }, []);
  return html`<div class="indexed">
    <nav aria-label="Sections"><ul>${titles.map((title) => html`<li key=${title}><a href=${`#${idOf(title)}`}>${title}</a></li>`)}</ul></nav>
    <div class="sections" ref=${root}>${children}</div>
  </div>`;
}
