/** A short message at its place: something to know, something that went well. Failures are in problem.ts. */
import type { VNode } from 'preact';
import { type Children, html } from '../html.ts';

export interface CalloutProps {
  /** `note`: mind this. `good`: it was done. */
  readonly tone: 'note' | 'good';
  /** Read out when it comes. */
  readonly status?: boolean;
  readonly children: Children;
}

export function Callout({ tone, status = false, children }: CalloutProps): VNode {
  return html`<div class=${`callout ${tone}`} role=${status ? 'status' : undefined}>${children}</div>`;
}
