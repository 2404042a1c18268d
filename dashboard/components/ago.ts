/** How long ago something was, with the instant as its title. */
import type { VNode } from 'preact';
import { ago, exact } from '../format.ts';
import { html } from '../html.ts';
import { ownZone } from '../time-zone.ts';

export interface AgoProps {
  /** Null: it has not been. */
  readonly at: string | null;
  readonly zone?: string;
}

export function Ago({ at, zone = ownZone() }: AgoProps): VNode {
  if (at === null) return html`<span>never</span>`;
  const instant = Date.parse(at);
  return html`<time datetime=${at} title=${exact(instant, zone)}>${ago(instant, Date.now())}</time>`;
}
