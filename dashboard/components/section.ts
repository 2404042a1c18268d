/** A section of a settings page: its description next to its controls. */
import type { VNode } from 'preact';
import { useId } from 'preact/hooks';
import { type Children, html } from '../html.ts';

export interface SectionProps {
  readonly title: string;
  readonly about?: Children;
  readonly danger?: boolean;
  readonly children: Children;
}

export function Section({ title, about, danger = false, children }: SectionProps): VNode {
  const id = useId();
  return html`<section class=${danger ? 'section danger-zone' : 'section'} aria-labelledby=${id}>
    <div><h2 id=${id}>${title}</h2>${about && html`<p class="muted">${about}</p>`}</div>
    <div class="section-body">${children}</div>
  </section>`;
}
